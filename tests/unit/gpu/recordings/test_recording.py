"""Recording and replay: what is written comes back, at its own pace, and never stale."""

import gzip
import io
import json
import math
from pathlib import Path

import pytest

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.readings import (
    EventCount,
    GpuIdentity,
    GpuInstance,
    GpuReading,
    ProcessReading,
)
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.agent.recordings import recording
from gpuscale.agent.recordings.recording import (
    ReadingRecorder,
    RecordingReader,
    ReplayReader,
    read_recording,
)
from gpuscale.base.errors import ConfigError, NotFoundError, UnavailableError, UsageError

UTIL = "DCGM_FI_DEV_GPU_UTIL"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
OTHER = GpuIdentity(1, "GPU-b", "00000000:27:00.0", "NVIDIA H200")
SLICE = GpuIdentity(
    0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200", GpuInstance(7, "1g.18gb", "MIG-1")
)
START_MS = 1_790_000_000_000


def reading(util=40, *, at=0, gpu=GPU, **more):
    return GpuReading(gpu, START_MS + at, {UTIL: util}, {TEMP: "not supported"}, **more)


def written(*ticks):
    """Return the text of a recording: each tick is (milliseconds, readings) or (milliseconds, error)."""
    stream = io.StringIO()
    recorder = ReadingRecorder(stream)
    for at, what in ticks:
        if isinstance(what, str):
            recorder.write_failure(START_MS + at, what)
        else:
            recorder.write(what, now_ms=START_MS + at)
    recorder.close()
    return stream.getvalue()


def replay(*ticks, **options):
    return ReplayReader(io.StringIO(written(*ticks)), **options)


def utils(readings):
    return [each.values[UTIL] for each in readings]


class FakeReader:
    """Gives out prepared outcomes, one a read."""

    def __init__(self, *outcomes, gpus=(GPU,)) -> None:
        self.outcomes = list(outcomes)
        self.known = gpus
        self.closed = 0

    def gpus(self):
        return self.known

    def read(self, now_ms):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def stats(self):
        return ()

    def close(self) -> None:
        self.closed += 1


def test_what_is_written_comes_back() -> None:
    busy = ProcessReading(101, "python", 40, 10, None, 0, None, looks=50)
    xid = EventCount("DCGM_EXP_XID_ERRORS_TOTAL", (("xid", "79"),), 2)
    ticks = [
        (0, (reading(), reading(7, gpu=OTHER))),
        (1000, (reading(41, at=990, processes=(busy,)),)),
        (2000, (reading(41, at=1990, events=(xid,)), reading(8, at=2000, gpu=SLICE))),
        (3000, ()),
    ]
    back = list(read_recording(io.StringIO(written(*ticks))))
    assert [(tick.now_ms - START_MS, tick.readings) for tick in back] == ticks


def test_only_what_changed_is_written() -> None:
    lines = written(
        (0, (reading(40),)), (1000, (reading(40, at=1000),)), (2000, (reading(41, at=2000),))
    )
    first, second, third = [json.loads(line) for line in lines.splitlines()[1:]]
    assert first["gpu"]["0"] == {"v": {UTIL: 40}, "a": {"not supported": [TEMP]}}
    assert second == {"t": 1000}
    assert third == {"t": 2000, "gpu": {"0": {"v": {UTIL: 41}}}}


def test_a_whole_number_and_a_fraction_stay_apart() -> None:
    ticks = list(read_recording(io.StringIO(written((0, (reading(1),)), (1000, (reading(1.0),))))))
    assert [type(tick.readings[0].values[UTIL]) for tick in ticks] == [int, float]


def test_the_header_says_what_recorded_it_when_and_of_which_gpus() -> None:
    header = json.loads(written((0, (reading(),))).splitlines()[0])
    assert header["gpuscale_recording"] == 1
    assert header["recorded_by"].startswith("gpuscale ")
    assert header["start_ms"] == START_MS
    assert header["gpus"] == [
        {"index": 0, "uuid": "GPU-a", "pci_bus_id": "00000000:1A:00.0", "model": "NVIDIA H200"}
    ]


def test_a_minute_of_one_busy_gpu_is_small_enough_to_commit(tmp_path: Path) -> None:
    def work(_gpu, _from_ms, to_ms):
        busy = 0.5 + 0.4 * math.sin(to_ms / 7000)
        return (GpuWork(101, "python", busy, busy / 2, 4000 + int(1000 * busy)),)

    path = tmp_path / "minute.jsonl.gz"
    simulated = SimulatedReader("n1", MODELS["NVIDIA H200"], 1, 1, work)
    recorder = ReadingRecorder.open(str(path))
    reader = RecordingReader(simulated, recorder)
    for second in range(60):
        reader.read(START_MS + second * 1000)
    recorder.close()
    assert path.stat().st_size < 50_000


def test_the_same_readings_give_the_same_bytes(tmp_path: Path) -> None:
    packed = []
    for name in ("one", "two"):
        path = tmp_path / name
        recorder = ReadingRecorder.open(str(path))
        recorder.write([reading()])
        recorder.close()
        recorder.close()
        packed.append(path.read_bytes())
    assert packed[0] == packed[1]


def test_a_stream_stays_open_for_its_caller() -> None:
    stream = io.StringIO()
    recorder = ReadingRecorder(stream)
    recorder.write([reading()])
    recorder.close()
    assert not stream.closed


def test_time_that_goes_back_stands_still_in_the_recording() -> None:
    back = list(read_recording(io.StringIO(written((5000, (reading(at=5000),)), (2000, ())))))
    assert [tick.now_ms - START_MS for tick in back] == [5000, 5000]


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        written((0, (reading(math.nan),)))


def test_replay_gives_the_latest_tick_that_is_not_after_the_read() -> None:
    reader = replay(*((at, (reading(at // 1000, at=at),)) for at in (0, 1000, 2000)))
    assert [utils(reader.read(now_ms)) for now_ms in (70, 1069, 1070, 2500)] == [[0], [0], [1], [2]]


def test_replayed_values_are_as_old_as_their_tick() -> None:
    reader = replay((0, (reading(at=-20),)), (1000, (reading(at=980),)))
    # Measured 20 ms before the read that was recorded, which is 400 ms before this one.
    assert reader.read(9000)[0].measured_ms == 8980
    assert reader.read(9400)[0].measured_ms == 8980
    assert reader.read(10_000)[0].measured_ms == 9980


def test_replay_can_be_sped_up() -> None:
    reader = replay(*((at, (reading(at // 1000, at=at),)) for at in (0, 1000, 2000)), speed=10.0)
    first, second, third = (reader.read(now_ms)[0] for now_ms in (0, 100, 250))
    assert [each.values[UTIL] for each in (first, second, third)] == [0, 1, 2]
    # 250 ms at tenfold speed are 2.5 s: the tick at 2 s was 0.5 s ago, which took 50 ms here.
    assert third.measured_ms == 200


def test_gpus_are_lost_when_the_recording_has_ended() -> None:
    reader = replay((0, (reading(),)), (1000, (reading(at=1000),)))
    reader.read(0)
    # The last tick holds for as long as the usual time between two.
    assert utils(reader.read(1999)) == [40]
    (lost,) = reader.read(2000)
    assert lost.is_lost
    assert lost.absent == {UTIL: "recording ended", TEMP: "recording ended"}
    assert reader.gpus() == (GPU,)


def test_replay_that_loops_starts_again() -> None:
    reader = replay(*((at, (reading(at // 1000, at=at),)) for at in (0, 1000)), loop=True)
    assert [utils(reader.read(now_ms)) for now_ms in (0, 1000, 2000, 3000)] == [[0], [1], [0], [1]]
    assert reader.read(4000)[0].measured_ms == 4000


def test_a_pause_in_the_recording_leaves_the_gpus_lost() -> None:
    pace = [(at, (reading(at=at),)) for at in (0, 1000, 2000, 3000, 60_000, 61_000)]
    reader = replay(*pace)
    reader.read(0)
    assert utils(reader.read(6000)) == [40]
    assert reader.read(6001)[0].absent[UTIL] == "nothing was recorded at this time"
    assert utils(reader.read(60_000)) == [40]


def test_a_read_that_failed_fails_again() -> None:
    reader = replay(
        (0, (reading(),)), (1000, "the driver is not loaded"), (2000, (reading(at=2000),))
    )
    reader.read(0)
    with pytest.raises(UnavailableError, match=r"^the driver is not loaded$"):
        reader.read(1000)
    assert reader.gpus() == (GPU,)
    assert utils(reader.read(2000)) == [40]


def test_a_recording_that_ends_in_a_failure_ends_too() -> None:
    reader = replay((0, (reading(),)), (1000, "the driver is not loaded"))
    reader.read(0)
    assert reader.read(9000)[0].absent[UTIL] == "recording ended"


def test_gpus_come_and_go_as_recorded() -> None:
    stream = io.StringIO()
    recorder = ReadingRecorder(stream)
    recorder.write([reading()], now_ms=START_MS, gpus=[GPU, OTHER])
    recorder.write([reading(1, gpu=SLICE)], now_ms=START_MS + 1000, gpus=[SLICE])
    reader = ReplayReader(io.StringIO(stream.getvalue()))
    assert reader.gpus() == (GPU, OTHER)
    assert [each.gpu for each in reader.read(0)] == [GPU]
    assert [each.gpu for each in reader.read(1000)] == [SLICE]
    assert reader.gpus() == (SLICE,)


def test_a_clock_that_goes_back_replays_from_there() -> None:
    reader = replay(*((at, (reading(at // 1000, at=at),)) for at in (0, 1000, 2000)))
    assert [utils(reader.read(now_ms)) for now_ms in (0, 2000, 1000, -500)] == [[0], [2], [1], [0]]


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_speed_is_refused(speed) -> None:
    with pytest.raises(UsageError) as caught:
        replay((0, (reading(),)), speed=speed)
    assert str(caught.value) == f"found a replay speed of {speed}, expected a number above 0"


def test_recording_reader_passes_on_and_records_failures_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    inner = FakeReader((reading(),), UnavailableError("no driver"), gpus=(GPU, OTHER))
    recorder = ReadingRecorder.open(str(path))
    reader = RecordingReader(inner, recorder)
    assert reader.read(START_MS) == (reading(),)
    with pytest.raises(UnavailableError, match=r"^no driver$"):
        reader.read(START_MS + 1000)
    reader.close()
    reader.close()
    assert inner.closed == 2
    recorder.close()
    first, second = read_recording(path)
    assert (first.gpus, first.readings) == ((GPU, OTHER), (reading(),))
    assert (second.gpus, second.error) == ((GPU, OTHER), "no driver")


def test_reading_goes_on_when_the_recording_fails(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl.gz"
    inner = FakeReader(*((reading(util, at=at),) for util, at in ((1, 0), (math.nan, 1), (3, 2))))
    reader = RecordingReader(inner, ReadingRecorder.open(str(path)))
    for at in range(3):
        assert reader.read(START_MS + at)[0].measured_ms == START_MS + at
    reader.close()
    assert [record.message.split(":")[0] for record in caplog.records] == ["recording stopped"]
    assert [utils(tick.readings) for tick in read_recording(path)] == [[1]]


def test_a_recording_outlives_the_reader_that_it_records() -> None:
    stream = io.StringIO()
    recorder = ReadingRecorder(stream)
    for at in (0, 1000):
        recorded = RecordingReader(FakeReader((reading(at=at),)), recorder)
        recorded.read(START_MS + at)
        recorded.close()
    recorder.close()
    ticks = read_recording(io.StringIO(stream.getvalue()))
    assert [tick.now_ms - START_MS for tick in ticks] == [0, 1000]


def test_a_closed_recording_takes_no_more() -> None:
    recorder = ReadingRecorder(io.StringIO())
    recorder.close()
    with pytest.raises(ValueError, match=r"^the recording is closed$"):
        recorder.write([reading()])


def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a.jsonl.gz"
    with pytest.raises(UsageError) as caught:
        ReadingRecorder.open(str(path))
    assert str(caught.value) == f"can't write the recording {path}: No such file or directory"


def test_a_path_that_is_not_there_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with pytest.raises(NotFoundError) as caught:
        ReplayReader.open(str(path))
    assert str(caught.value) == f"can't read the recording {path}: No such file or directory"


HEADER = '{"gpuscale_recording":1,"recorded_by":"t","start_ms":0,"gpus":[]}'
ONE_GPU = (
    '{"gpuscale_recording":1,"recorded_by":"t","start_ms":0,'
    '"gpus":[{"index":0,"uuid":"a","pci_bus_id":"b","model":"c"}]}'
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "a.jsonl: found nothing, expected a recording", id="empty"),
        pytest.param(
            HEADER,
            "a.jsonl: found a header alone, expected at least one tick below it",
            id="header",
        ),
        pytest.param(
            "hello",
            "a.jsonl:1: found what is not JSON, expected a line of JSON; "
            "if this is the last line of a recording that was cut off, remove it",
            id="text",
        ),
        pytest.param(
            '{"a": 1}',
            "a.jsonl:1: header: found no key gpuscale_recording, expected the header of a recording",
            id="other-json",
        ),
        pytest.param(
            HEADER.replace(":1,", ":2,", 1),
            "a.jsonl:1: gpuscale_recording: found 2, expected the version 1",
            id="version",
        ),
        pytest.param(
            f'{HEADER}\n{{"t": 5}}\n\n{{"t": 4}}',
            "a.jsonl:4: t: found 4, expected a whole number of at least 5",
            id="time-goes-back",
        ),
        pytest.param(
            f'{HEADER}\n{{"t": 0, "read": [0]}}',
            "a.jsonl:2: read: found 0, expected a whole number that names a GPU, "
            "of which there are none so far",
            id="no-gpus",
        ),
        pytest.param(
            f'{ONE_GPU}\n{{"t": 0, "read": [1]}}',
            "a.jsonl:2: read: found 1, expected a whole number from 0 to 0",
            id="no-such-gpu",
        ),
        pytest.param(
            f'{ONE_GPU}\n{{"t": 0, "read": [0, 0]}}',
            "a.jsonl:2: read: found a GPU twice, expected each GPU at most once",
            id="gpu-twice",
        ),
        pytest.param(
            f'{ONE_GPU}\n{{"t": 0, "gpu": {{"0": {{"v": {{"X": NaN}}}}}}}}',
            "a.jsonl:2: gpu.0.v.X: found nan, expected a finite number or a text",
            id="nan",
        ),
        pytest.param(
            f'{ONE_GPU}\n{{"t": 0, "gpu": {{"0": {{"p": [[1]]}}}}}}',
            "a.jsonl:2: gpu.0.p: found a list, expected "
            "[pid, name, SM %, memory copy %, encode %, decode %, MiB, looks?]",
            id="process",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_told_with_its_line(
    text, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(text)
    with pytest.raises(ConfigError) as caught:
        ReplayReader.open("a.jsonl")
    assert str(caught.value) == problem


def test_a_file_that_was_cut_off_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.gz").write_bytes(gzip.compress(written((0, (reading(),))).encode())[:-12])
    with pytest.raises(ConfigError) as caught:
        ReplayReader.open("a.gz")
    assert str(caught.value) == (
        "a.gz: found a damaged or cut-off gzip file, expected a whole one; "
        "`gzip -dc FILE > FILE.jsonl` keeps what is readable, which can be replayed too"
    )


def test_a_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recording, "MAX_TEXT_BYTES", 1024 * 1024)
    Path("a.gz").write_bytes(gzip.compress(b" " * (1024 * 1024 + 1)))
    with pytest.raises(ConfigError) as caught:
        ReplayReader.open("a.gz")
    assert str(caught.value) == "a.gz: found a larger recording, expected at most 1 MiB"


def test_bytes_that_are_no_text_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError) as caught:
        ReplayReader.open("a.bin")
    assert str(caught.value) == "a.bin: found no text, expected a recording"
