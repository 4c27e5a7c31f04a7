"""The stand-in against the module that it stands in for."""

import inspect

import pynvml
import pytest

from gpuscale.agent.nvml.values.batches import BATCHES, LINK_RATES
from gpuscale.agent.nvml.values.rows import ROWS
from gpuscale.testing.nvml import FakeGpu, FakeNvml

FUNCTIONS = sorted(name for name in dir(FakeNvml) if name.startswith("nvml") and name != "nvmlLib")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_the_parameters_of_the_vendors(name) -> None:
    ours = list(inspect.signature(getattr(FakeNvml(), name)).parameters.values())
    theirs = list(inspect.signature(getattr(pynvml, name)).parameters.values())
    assert [(each.name, each.default) for each in ours] == [
        (each.name, each.default) for each in theirs
    ]


def test_constants_structures_and_errors_are_the_vendors_own() -> None:
    nvml = FakeNvml()
    assert nvml.NVML_CLOCK_SM is pynvml.NVML_CLOCK_SM
    assert nvml.c_nvmlSample_t is pynvml.c_nvmlSample_t
    assert nvml.NVMLError_GpuIsLost is pynvml.NVMLError_GpuIsLost


def test_a_function_it_does_not_have_is_named() -> None:
    with pytest.raises(
        AttributeError, match=r"^the stand-in for pynvml has no nvmlDeviceGetFanSpeed$"
    ):
        FakeNvml().nvmlDeviceGetFanSpeed  # noqa: B018


def test_calls_before_opening_fail_as_the_vendors_do() -> None:
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        FakeNvml([FakeGpu()]).nvmlDeviceGetCount()


def test_every_call_and_constant_of_the_tables_is_in_the_vendors_module() -> None:
    named = {row.function for row in ROWS}
    named |= {each for row in ROWS for each in row.arguments if isinstance(each, str)}
    named |= {each.nvml_name for batch in BATCHES for each in batch.fields}
    named |= {way for rate in LINK_RATES for way in rate.ways}
    assert [name for name in sorted(named) if not hasattr(pynvml, name)] == []
