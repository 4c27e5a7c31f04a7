"""Calls that go to the C library directly, over C-like functions."""

import ctypes
from types import SimpleNamespace

import pynvml
import pytest

from gpuscale.agent.nvml import library
from gpuscale.base.errors import UnavailableError


def native(**functions):
    """Return the vendor's module with these functions for its C library."""
    return SimpleNamespace(
        nvmlLib=SimpleNamespace(**functions),
        NVMLError=pynvml.NVMLError,
        c_nvmlSample_t=pynvml.c_nvmlSample_t,
        c_nvmlProcessUtilizationSample_t=pynvml.c_nvmlProcessUtilizationSample_t,
    )


def test_samples_come_with_one_call() -> None:
    asked = []

    def get(handle, kind, since, value_type, count, buffer):
        asked.append((handle, kind.value, since.value, count._obj.value))
        value_type._obj.value = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        count._obj.value = 2
        for n, value in enumerate((30, 50)):
            buffer[n].timeStamp = 1000 + n
            buffer[n].sampleValue.uiVal = value
        return 0

    found = library.utilization_samples(native(nvmlDeviceGetSamples=get), "gpu", 1, 999)
    assert found == [(1000, 30), (1001, 50)]
    assert asked == [("gpu", 1, 999, 256)]


def test_process_samples_come_with_one_call() -> None:
    def get(_handle, buffer, count, since):
        buffer[0].pid, buffer[0].timeStamp, buffer[0].smUtil = 7, since.value + 1, 40
        count._obj.value = 1
        return 0

    (found,) = library.process_samples(native(nvmlDeviceGetProcessUtilization=get), "gpu", 5)
    assert (found.pid, found.timeStamp, found.smUtil) == (7, 6, 40)


@pytest.mark.parametrize(
    "call",
    [
        lambda lib: library.utilization_samples(lib, "gpu", 1, 0),
        lambda lib: library.process_samples(lib, "gpu", 0),
    ],
)
def test_codes_become_the_vendors_errors(call) -> None:
    def fail(*_arguments):
        return pynvml.NVML_ERROR_NOT_FOUND

    with pytest.raises(pynvml.NVMLError_NotFound):
        call(native(nvmlDeviceGetSamples=fail, nvmlDeviceGetProcessUtilization=fail))


def test_count_beyond_the_buffer_is_not_followed() -> None:
    def get(_handle, _kind, _since, value_type, count, _buffer):
        value_type._obj.value = 1
        count._obj.value = 1_000_000
        return 0

    assert len(library.utilization_samples(native(nvmlDeviceGetSamples=get), "gpu", 1, 0)) == 256


@pytest.mark.parametrize(
    ("value_type", "member", "value"),
    [
        (0, "dVal", 1.5),
        (1, "uiVal", 7),
        (3, "ullVal", 1 << 40),
        (5, "siVal", -3),
        (9, "uiVal", None),
    ],
)
def test_values_are_taken_by_their_type(value_type: int, member: str, value) -> None:
    union = pynvml.c_nvmlValue_t()
    if value is not None:
        setattr(union, member, value)
    assert library.union_value(value_type, union) == value


def test_handles_of_one_gpu_have_one_key() -> None:
    pointers = [ctypes.cast(ctypes.c_void_p(0x40), pynvml.c_nvmlDevice_t) for _ in range(2)]
    assert {library.handle_key(pointer) for pointer in pointers} == {0x40}


def test_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(UnavailableError) as raised:
        library.load_library()
    assert str(raised.value) == (
        "reading NVIDIA GPUs needs the Python package nvidia-ml-py; "
        "install it with: pip install 'gpuscale[nvidia]'"
    )
