"""What stands behind the calls of the stand-in: GPUs, handles, and faults that a test asks for."""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence

from gpuscale.agent.nvml import Answer, Handle, load_library
from gpuscale.testing.nvml.gpus import (
    FakeGpu,
    FakeInstance,
    Number,
    Scripted,
    all_processes,
    bus_id,
    value_at,
)

_FIRST_HANDLE = 0x1000


class FakeDriver:
    """The state of the stand-in, what tests do to it, and the functions that concern no single GPU."""

    nvmlLib = None
    """No C library: callers that would use it directly take the functions instead."""

    def __init__(
        self,
        gpus: Sequence[FakeGpu] = (),
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        driver_version: str = "580.95.05",
    ) -> None:
        self._vendor = load_library()
        self._now_us = now_us
        self._driver_version = driver_version
        self._plugged: list[FakeGpu] = []
        self._gpus: list[FakeGpu] = []
        self._handles: dict[int, FakeGpu | tuple[FakeGpu, FakeInstance]] = {}
        self._opened = 0
        self._driver_code: int | None = None
        self._gpu_codes: dict[str, int] = {}
        self._call_codes: dict[tuple[str | None, str], int] = {}
        self._hung: dict[str, tuple[str | None, threading.Event]] = {}
        self._samples: dict[int, tuple[int, int]] = {}
        self._next_handle = _FIRST_HANDLE
        self._events: list[tuple[FakeGpu, int, int | None]] = []
        self._registered: dict[int, list[str]] = {}
        self._waiting = threading.Lock()
        self.calls: list[str] = []
        """Name of every call so far, in order."""
        for gpu in gpus:
            self.plug(gpu)

    def __getattr__(self, name: str) -> Answer:
        """Return the module's own constant, structure or error class."""
        if name.startswith("nvml") and callable(getattr(self._vendor, name, None)):
            raise AttributeError(f"the stand-in for pynvml has no {name}")
        return getattr(self._vendor, name)

    # Scripting

    def plug(self, gpu: FakeGpu) -> None:
        """Add a GPU to the node; like the driver, an open library sees it once it is reopened."""
        gpu.bus = gpu.bus or 0x10 + len(self._plugged)
        gpu.uuid = gpu.uuid or f"GPU-00000000-0000-0000-0000-{gpu.bus:012x}"
        for instance in gpu.instances or ():
            instance.uuid = instance.uuid or f"MIG-{gpu.uuid[4:-4]}{instance.id:04x}"
        self._plugged.append(gpu)

    def unplug(self, index: int) -> FakeGpu:
        """Take a GPU away from the node, and return it; calls for it say that it is lost."""
        gpu = self._plugged.pop(index)
        self._gpu_codes[gpu.uuid] = self._vendor.NVML_ERROR_GPU_IS_LOST
        return gpu

    def present(self) -> frozenset[str]:
        """Return what the kernel would list: the bus ids of the GPUs that are plugged in."""
        return frozenset(bus_id(gpu) for gpu in self._plugged)

    def lose(self, index: int, *, needs_reset: bool = False) -> None:
        """Have a GPU fall off the bus, or wait for a reset."""
        vendor = self._vendor
        code = vendor.NVML_ERROR_RESET_REQUIRED if needs_reset else vendor.NVML_ERROR_GPU_IS_LOST
        self._gpu_codes[self._plugged[index].uuid] = code

    def find(self, index: int) -> None:
        """Bring a lost GPU back."""
        self._gpu_codes.pop(self._plugged[index].uuid, None)

    def hang(self, index: int, call: str | None = None) -> None:
        """Let no call for a GPU return, or only none of a name."""
        self._hung[self._plugged[index].uuid] = call, threading.Event()

    def release(self, index: int) -> None:
        """Let the calls for a GPU return again, those that wait included."""
        _, released = self._hung.pop(self._plugged[index].uuid)
        released.set()

    def reset(self, code: int | None = None) -> None:
        """Have the driver go away; every call fails, with `code` or as if it was never opened."""
        self._driver_code = self._vendor.NVML_ERROR_UNINITIALIZED if code is None else code
        self._opened = 0

    def restore(self) -> None:
        """Have the driver back; the library has to be reopened."""
        self._driver_code = None

    def not_supported(self, call: str, index: int | None = None) -> None:
        """Have a call say that it is not supported, for one GPU or all."""
        self.fail(call, self._vendor.NVML_ERROR_NOT_SUPPORTED, index)

    def no_permission(self, call: str, index: int | None = None) -> None:
        """Have a call say that it is not permitted, for one GPU or all."""
        self.fail(call, self._vendor.NVML_ERROR_NO_PERMISSION, index)

    def fail(self, call: str, code: int, index: int | None = None) -> None:
        """Have a call fail with a code, for one GPU or all."""
        self._call_codes[None if index is None else self._plugged[index].uuid, call] = code

    def mend(self, call: str, index: int | None = None) -> None:
        """Have a call that was made to fail work again."""
        self._call_codes.pop((None if index is None else self._plugged[index].uuid, call), None)

    def xid(self, index: int, number: int, instance_id: int | None = None) -> None:
        """Report an XID."""
        self._events.append((self._plugged[index], number, instance_id))

    def count(self, call: str) -> int:
        """Return how often a function was called."""
        return self.calls.count(call)

    @property
    def held_samples(self) -> int:
        """Return how many GPM samples are allocated and not freed."""
        return len(self._samples)

    @property
    def is_open(self) -> bool:
        """Return whether the library is open."""
        return self._opened > 0

    def nvmlInit(self) -> None:
        """Open the library."""
        self.calls.append("nvmlInit")
        self._raise_for(None, "nvmlInit")
        self._opened += 1
        self._gpus = list(self._plugged)

    def nvmlShutdown(self) -> None:
        """Close the library."""
        self._system("nvmlShutdown")
        self._opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        """Return the driver's version."""
        self._system("nvmlSystemGetDriverVersion")
        return self._driver_version

    def nvmlSystemGetNVMLVersion(self) -> str:
        """Return the library's version."""
        self._system("nvmlSystemGetNVMLVersion")
        return f"13.{self._driver_version}"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        """Return CUDA's version."""
        self._system("nvmlSystemGetCudaDriverVersion_v2")
        return 13000

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        """Return a process' command."""
        self._system("nvmlSystemGetProcessName")
        for gpu in self._gpus:
            for process in all_processes(gpu):
                if process.pid == pid:
                    return process.name
        raise self._error("NOT_FOUND")

    def nvmlDeviceGetCount(self) -> int:
        """Return how many GPUs there were when the library was opened."""
        self._system("nvmlDeviceGetCount")
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Answer:
        """Return a GPU's handle."""
        self._system("nvmlDeviceGetHandleByIndex")
        if not 0 <= index < len(self._gpus):
            raise self._error("INVALID_ARGUMENT")
        gpu = self._gpus[index]
        self._gpu_call(gpu, "nvmlDeviceGetHandleByIndex")
        return self._handle(gpu)

    # What the calls are made of

    def _error(self, name: str) -> Exception:
        error: Exception = self._vendor.NVMLError(getattr(self._vendor, f"NVML_ERROR_{name}"))
        return error

    def _raise_for(self, gpu: FakeGpu | None, call: str) -> None:
        code = self._driver_code
        if code is None and gpu is not None:
            code = self._gpu_codes.get(gpu.uuid)
        if code is None:
            code = self._call_codes.get((None, call))
        if code is None and gpu is not None:
            code = self._call_codes.get((gpu.uuid, call))
        if code is not None:
            raise self._vendor.NVMLError(code)

    def _system(self, call: str) -> None:
        self.calls.append(call)
        self._raise_for(None, call)
        if not self._opened:
            raise self._error("UNINITIALIZED")

    def _gpu_call(self, gpu: FakeGpu, call: str) -> None:
        self._system(call)
        only, released = self._hung.get(gpu.uuid, (None, None))
        if released is not None and only in (None, call):
            released.wait()
        self._raise_for(gpu, call)

    def _find(self, handle: Handle, call: str) -> FakeGpu | tuple[FakeGpu, FakeInstance]:
        found = self._handles.get(address_of(handle))
        if found is None:
            raise self._error("INVALID_ARGUMENT")
        self._gpu_call(found if isinstance(found, FakeGpu) else found[0], call)
        return found

    def _gpu(self, handle: Handle, call: str) -> FakeGpu:
        found = self._find(handle, call)
        if not isinstance(found, FakeGpu):
            raise self._error("INVALID_ARGUMENT")
        return found

    def _whole(self, handle: Handle, call: str) -> FakeGpu:
        """Return a GPU, for calls that don't work while it is split."""
        gpu = self._gpu(handle, call)
        if gpu.instances is not None:
            raise self._error("NOT_SUPPORTED")
        return gpu

    def _instance(self, handle: Handle, call: str) -> FakeInstance:
        found = self._find(handle, call)
        if isinstance(found, FakeGpu):
            raise self._error("INVALID_ARGUMENT")
        return found[1]

    def _handle(self, thing: FakeGpu | tuple[FakeGpu, FakeInstance]) -> Answer:
        known = (at for at, each in self._handles.items() if _is_same(each, thing))
        address = next(known, None)
        if address is None:
            self._next_handle += 1
            address = self._next_handle
            self._handles[address] = thing
        return ctypes.cast(ctypes.c_void_p(address), self._vendor.c_nvmlDevice_t)

    def _now(self, script: Scripted) -> Number:
        return value_at(script, self._now_us())


def _is_same(
    one: FakeGpu | tuple[FakeGpu, FakeInstance], other: FakeGpu | tuple[FakeGpu, FakeInstance]
) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return one[1] is other[1]
    return one is other


def address_of(handle: Handle) -> int:
    """Return the number that a handle is."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
