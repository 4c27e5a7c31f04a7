"""What a real H200 said, replayed: idle, half busy, a stepped load, and two processes."""

from pathlib import Path

import pytest

from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution
from gpuscale.agent.recordings.recording import ReplayReader
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.signals import DEFAULT_COUNTERS

FOLDER = Path(__file__).parents[3] / "data" / "recordings"
UTIL, POWER, ENERGY = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
)
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def readings(name):
    """Return the GPU's readings, once per second of the recording."""
    reader = ReplayReader.open(str(FOLDER / f"h200-{name}.jsonl.gz"))
    seconds = reader.duration_ms // 1000
    found = [reader.read(second * 1000) for second in range(seconds + 1)]
    return [reading for (reading,) in found if not reading.is_lost]


def of(field, name):
    return [each.values[field] for each in readings(name) if field in each.values]


def test_an_idle_gpu_is_at_zero_and_says_so() -> None:
    assert set(of(UTIL, "idle")) == {0}
    assert max(of(POWER, "idle")) < 150  # of 700 W


def test_a_stepped_load_is_followed_up_and_down() -> None:
    values = of(UTIL, "stepped-load")
    assert max(values) >= 95
    assert values[-1] == 0
    assert any(35 <= value <= 60 for value in values)
    assert max(of(POWER, "stepped-load")) > 600


def test_utilisation_and_the_engines_own_counter_tell_the_same() -> None:
    for reading in readings("one-busy-process"):
        if ENGINE in reading.values and reading.values[UTIL] > 10:
            assert reading.values[ENGINE] * 100 == pytest.approx(reading.values[UTIL], abs=25)


@pytest.mark.parametrize("name", ["idle", "one-busy-process", "stepped-load", "two-processes"])
def test_energy_never_falls(name: str) -> None:
    values = of(ENERGY, name)
    assert values == sorted(values)


def test_two_processes_that_share_a_gpu_are_told_apart_and_add_up_to_it() -> None:
    shared = readings("two-processes")
    begin = next(n for n, each in enumerate(shared) if len(each.processes) == 2)
    settled = shared[begin + 12 :]  # after the first window of 10 s, and the loads' own start
    assert len(settled) >= 20
    for reading in settled:
        busier, idler = sorted((each.sm_util for each in reading.processes), reverse=True)
        # The loads are 56 and 24 % of the time; one window of 10 s has a standard error of 6.5 points.
        assert busier / (busier + idler) == pytest.approx(0.7, abs=0.2)
        assert busier + idler == pytest.approx(80, abs=8)


@pytest.mark.parametrize("name", ["idle", "one-busy-process", "stepped-load", "two-processes"])
def test_recordings_are_served_like_any_gpu(name: str) -> None:
    last = readings(name)[-1:]
    text = render_text(
        dcgm_families(last, DEFAULT_COUNTERS, Attribution(), FamilyOptions("h200")),
        float_text=six_decimals,
    )
    assert 'modelName="NVIDIA H200"' in text
    assert f"\n{UTIL}{{" in text
