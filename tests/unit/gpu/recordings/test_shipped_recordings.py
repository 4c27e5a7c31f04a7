"""The recordings in tests/data: each can be replayed, and the synthetic ones hold what they say."""

from pathlib import Path

import pytest

from gpuscale.agent.recordings.recording import ReplayReader, read_recording
from gpuscale.base.errors import UnavailableError

FOLDER = Path(__file__).parents[3] / "data" / "recordings"
FILES = sorted(FOLDER.glob("*.jsonl.gz"))
UTIL = "DCGM_FI_DEV_GPU_UTIL"


def open_(name):
    return ReplayReader.open(str(FOLDER / f"simulated-{name}.jsonl.gz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_recording_can_be_replayed_and_is_small(path) -> None:
    reader = ReplayReader.open(str(path))
    assert reader.gpus()
    minutes = max(1.0, reader.duration_ms / 60_000)
    most = max(len(tick.gpus) for tick in read_recording(path))
    assert path.stat().st_size < 50_000 * minutes * most


def test_the_wave_comes_and_goes() -> None:
    reader = open_("wave")
    read = [reader.read(second * 1000)[0] for second in range(60)]
    utils = [reading.values[UTIL] for reading in read]
    # 50 % and 45 % of a sine of half a minute, sampled every second: both ends are met to the percent.
    assert (min(utils), max(utils)) == (5, 95)
    assert [process.name for process in read[0].processes] == ["python", "jupyter"]


def test_the_third_of_four_gpus_is_lost_after_a_minute() -> None:
    reader = open_("lost-gpu")
    for second, lost in ((0, set()), (55, set()), (60, {2}), (115, {2})):
        readings = reader.read(second * 1000)
        assert {each.gpu.index for each in readings if each.is_lost} == lost
        assert len(reader.gpus()) == 4


def test_the_driver_goes_and_comes() -> None:
    reader = open_("driver-gone")
    assert reader.read(0)
    for second in (10, 14):
        with pytest.raises(UnavailableError, match=r"^the driver is not loaded$"):
            reader.read(second * 1000)
    assert UTIL in reader.read(15_000)[0].values
