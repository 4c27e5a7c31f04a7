"""What every source of readings keeps to, whatever is behind it."""

import dataclasses
import io

import pytest

from gpuscale.agent.amd.reader import AmdReader
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.recordings.recording import ReadingRecorder, RecordingReader, ReplayReader
from gpuscale.base.clock import ManualClock
from gpuscale.testing.amdsmi import AmdSmiLibraryException, StandInAmdSmi, StandInGpu
from gpuscale.testing.nvml import FakeGpu, FakeNvml

START_MS = 1_790_000_000_000
UTIL = "DCGM_FI_DEV_GPU_UTIL"


class Case:
    """A reader of two working GPUs, and a way to lose the first."""

    def __init__(self, reader, lose) -> None:
        self.reader = reader
        self.lose = lose


def simulated():
    work = (GpuWork(101, "python", 0.4, 0.1, 4000),)
    reader = SimulatedReader("n1", MODELS["NVIDIA H200"], 2, 1, lambda *_: work)
    return Case(reader, lambda: reader.lose(0))


def amd():
    gpus = (StandInGpu(), StandInGpu(uuid="second", bdf="0000:3a:00.0"))
    reader = AmdReader(StandInAmdSmi(*gpus))
    return Case(reader, lambda: gpus[0].faults.update({"*": AmdSmiLibraryException(12)}))


def nvml():
    library = FakeNvml([FakeGpu(busy_percent=40), FakeGpu(busy_percent=20)])
    reader = NvmlReader(library=library, clock=ManualClock(START_MS), present=library.present)
    return Case(reader, lambda: library.lose(0))


def recording():
    inner = simulated()
    return Case(RecordingReader(inner.reader, ReadingRecorder(io.StringIO())), inner.lose)


def replay():
    stream = io.StringIO()
    inner = simulated()
    reader = RecordingReader(inner.reader, ReadingRecorder(stream))
    for second in range(10):
        if second == 5:
            inner.lose()
        reader.read(START_MS + second * 1000)
    # It is lost in the recording, five seconds after its start.
    return Case(ReplayReader(io.StringIO(stream.getvalue())), lambda: None)


CASES = {
    "simulated": simulated,
    "amd": amd,
    "nvml": nvml,
    "recording": recording,
    "replay": replay,
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest):
    made = CASES[request.param]()
    yield made
    made.reader.close()


def test_gpus_are_in_index_order_before_and_after_a_read(case) -> None:
    before = case.reader.gpus()
    assert [gpu.index for gpu in before] == [0, 1]
    case.reader.read(START_MS)
    assert case.reader.gpus() == before


def test_a_read_gives_every_gpu_once_in_index_order(case) -> None:
    readings = case.reader.read(START_MS)
    assert [reading.gpu for reading in readings] == list(case.reader.gpus())


def test_values_are_measured_no_later_than_the_read(case) -> None:
    for second in range(3):
        now_ms = START_MS + second * 1000
        for reading in case.reader.read(now_ms):
            assert now_ms - 1000 < reading.measured_ms <= now_ms


def test_values_are_plain_and_never_absent_too(case) -> None:
    for reading in case.reader.read(START_MS):
        assert UTIL in reading.values
        assert all(type(value) in (int, float, str) for value in reading.values.values())
        assert not reading.values.keys() & reading.absent.keys()
        assert all(reading.absent.values())


def test_readings_do_not_change_afterwards(case) -> None:
    first = case.reader.read(START_MS)
    kept = [(dict(reading.values), dict(reading.absent)) for reading in first]
    case.reader.read(START_MS + 1000)
    assert [(dict(reading.values), dict(reading.absent)) for reading in first] == kept
    with pytest.raises(dataclasses.FrozenInstanceError):
        first[0].measured_ms = 0


def test_a_lost_gpu_is_listed_has_no_values_and_leaves_the_others_alone(case) -> None:
    case.reader.read(START_MS)
    case.lose()
    readings = {reading.gpu.index: reading for reading in case.reader.read(START_MS + 5000)}
    assert [gpu.index for gpu in case.reader.gpus()] == [0, 1]
    assert 0 not in readings or readings[0].is_lost
    if 0 in readings:
        assert len(set(readings[0].absent.values())) == 1
    assert UTIL in readings[1].values


def test_stats_count_calls(case) -> None:
    case.reader.read(START_MS)
    for stats in case.reader.stats():
        assert stats.calls >= stats.errors >= 0
        assert stats.seconds >= 0


def test_close_can_be_called_twice(case) -> None:
    case.reader.read(START_MS)
    case.reader.close()
    case.reader.close()
