"""The only door to `pynvml`, NVIDIA's Python binding of NVML.

Samples and process use come from the driver's buffers, and every call for them costs 0.7 ms or more on an
H200, whatever it brings. The binding makes two calls, one to learn the size; here a buffer of ample size
makes it one.
"""

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from gpuscale.base.errors import UnavailableError

Library = Any
"""The `pynvml` module or its stand-in; the module itself is untyped."""
Handle = Any
"""What NVML knows a GPU, a MIG device, an event set or a sample by."""

Answer = Any
"""What a call gives, or what one of the library's structures holds."""

_SAMPLES = 256
"""The driver of an H200 keeps 71 utilisation samples."""
_PROCESSES = 1024
"""Processes on one GPU; MPS allows 60 to a server."""
_SUCCESS = 0
_UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Where a value lies, by `nvmlValueType_t`."""


class ProfilingTurn:
    """Allows one GPM call at a time in the process, and doesn't wait for one that hangs.

    Two of them at once, even for different GPUs, can end the process: driver 580 on H100s answers with a
    segmentation fault.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_held_up = False

    def take(self, patience_s: float) -> bool:
        """Return whether the caller may go on, and must give the turn back; False while a call hangs."""
        took = self._lock.acquire(timeout=0 if self._is_held_up else patience_s)
        self._is_held_up = not took
        return took

    def give_back(self) -> None:
        self._lock.release()


_profiling_turns: WeakKeyDictionary[Library, ProfilingTurn] = WeakKeyDictionary()


def profiling_turn(library: Library) -> ProfilingTurn:
    """Return the lock that all readers of a library share."""
    return _profiling_turns.setdefault(library, ProfilingTurn())


def load_library() -> Library:
    """Return the `pynvml` module; NVML itself is loaded when it is opened.

    Raises:
        UnavailableError: the Python package is not installed.
    """
    try:
        with _small_ctypes_util():
            import pynvml
    except ImportError as error:
        raise UnavailableError(
            "reading NVIDIA GPUs needs the Python package nvidia-ml-py; "
            "install it with: pip install 'gpuscale[nvidia]'"
        ) from error
    return pynvml


@contextmanager
def _small_ctypes_util() -> Iterator[None]:
    """Have the module of `find_library` without what it brings, among it shutil and tempfile: 0.8 MiB.

    The binding names it and, on Linux, never calls it; it would get the real one.
    """
    name = "ctypes.util"
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    stand_in.__dict__["find_library"] = _find_library
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


def _find_library(name: str) -> str | None:
    from ctypes.util import find_library

    return find_library(name)


def handle_key(handle: Handle) -> int:
    """Return a number that is the same for every handle of one GPU while NVML is open."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def union_value(value_type: int, union: Answer) -> int | float | None:
    """Return the number in a `nvmlValue_t`, or None for a type that is not known."""
    if not 0 <= value_type < len(_UNION_MEMBERS):
        return None
    number: int | float = getattr(union, _UNION_MEMBERS[value_type])
    return number


def utilization_samples(
    library: Library, handle: Handle, kind: int, since_us: int
) -> list[tuple[int, int | float]]:
    """Return (microseconds, percent) of the samples that were taken after `since_us`."""
    native = library.nvmlLib
    if native is None:
        value_type, samples = library.nvmlDeviceGetSamples(handle, kind, since_us)
        return _pairs(value_type, samples)
    kind_of_value, count = ctypes.c_uint(), ctypes.c_uint(_SAMPLES)
    buffer = (library.c_nvmlSample_t * _SAMPLES)()
    code = native.nvmlDeviceGetSamples(
        handle,
        ctypes.c_uint(kind),
        ctypes.c_ulonglong(since_us),
        ctypes.byref(kind_of_value),
        ctypes.byref(count),
        buffer,
    )
    if code != _SUCCESS:
        raise library.NVMLError(code)
    return _pairs(kind_of_value.value, buffer[: min(count.value, _SAMPLES)])


def process_samples(library: Library, handle: Handle, since_us: int) -> Sequence[Answer]:
    """Return one `nvmlProcessUtilizationSample_t` per process that used the GPU after `since_us`."""
    native = library.nvmlLib
    if native is None:
        samples: Sequence[Answer] = library.nvmlDeviceGetProcessUtilization(handle, since_us)
        return samples
    count = ctypes.c_uint(_PROCESSES)
    buffer = (library.c_nvmlProcessUtilizationSample_t * _PROCESSES)()
    code = native.nvmlDeviceGetProcessUtilization(
        handle, buffer, ctypes.byref(count), ctypes.c_ulonglong(since_us)
    )
    if code != _SUCCESS:
        raise library.NVMLError(code)
    used: Sequence[Answer] = buffer[: min(count.value, _PROCESSES)]
    return used


def fabric_info(library: Library, handle: Handle, structure: Callable[[], Answer]) -> Answer:
    """Return the fabric's state, in the newest structure that NVML supports."""
    info = structure()
    is_stand_in = library.nvmlLib is None
    library.nvmlDeviceGetGpuFabricInfoV(handle, info if is_stand_in else ctypes.byref(info))
    return info


def _pairs(value_type: int, samples: Sequence[Answer]) -> list[tuple[int, int | float]]:
    pairs = ((sample.timeStamp, union_value(value_type, sample.sampleValue)) for sample in samples)
    return [(stamp_us, value) for stamp_us, value in pairs if value is not None]
