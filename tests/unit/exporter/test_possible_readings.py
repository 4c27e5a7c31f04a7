"""Readings of any reader, less what no GPU can have; a recording may hold anything."""

import pytest

from gpuscale.agent.exporter.possible import IMPOSSIBLE, PossibleReader
from gpuscale.agent.gpu.reader import CallStats
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from impossible import CORRUPTIONS

GPU = GpuIdentity(0, "GPU-1", "00000000:1A:00.0", "NVIDIA H200")
FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": 40,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 0,
    "DCGM_FI_PROF_SM_ACTIVE": 0.5,
    "DCGM_FI_DEV_FB_USED": 1024,
    "DCGM_FI_DEV_SM_CLOCK": 1980,
    "DCGM_FI_DEV_POWER_USAGE": 300.5,
    "amd:gfx_activity": 12,
}


class Given:
    """Has one reading."""

    def __init__(self, reading: GpuReading) -> None:
        self._reading = reading

    def gpus(self) -> tuple[GpuIdentity, ...]:
        return (self._reading.gpu,)

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        return (self._reading,)

    def stats(self) -> tuple[CallStats, ...]:
        return ()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_an_impossible_value_is_absent_with_a_reason_and_the_others_stay(
    field: str, corruption: str
) -> None:
    wrong: dict[str, int | float | str] = {
        **FIELDS,
        field: CORRUPTIONS[corruption],
        "DCGM_FI_DEV_NAME": "H200",
    }
    absent = {"DCGM_FI_DEV_ENC_UTIL": "not supported"}
    (found,) = PossibleReader(Given(GpuReading(GPU, 1, wrong, absent))).read(1)
    assert found.absent == {**absent, field: IMPOSSIBLE}
    assert found.values == {name: value for name, value in wrong.items() if name != field}


def test_whole_numbers_of_64_bits_are_judged_as_they_are() -> None:
    reading = GpuReading(GPU, 1, {"DCGM_FI_DEV_GPU_TEMP": 0x7FFFFFFFFFFFFFF0}, {})
    (found,) = PossibleReader(Given(reading)).read(1)
    assert found.values == {}


def test_a_possible_reading_is_passed_on_as_it_is() -> None:
    process = ProcessReading(7, "python", 40, 3, 0, 0, 2048)
    reading = GpuReading(GPU, 1, FIELDS, {}, (process,))
    assert PossibleReader(Given(reading)).read(1)[0] is reading


def test_a_process_is_judged_too() -> None:
    process = ProcessReading(7, "python", 4294967295, 3, None, 101, 2**40)
    reading = GpuReading(GPU, 1, FIELDS, {}, (process,))
    (found,) = PossibleReader(Given(reading)).read(1)
    assert found.processes == (ProcessReading(7, "python", None, 3, None, None, None),)
