"""The CUDA driver through ctypes: the only door to `libcuda.so.1`, which comes with NVIDIA's driver.

No toolkit, no runtime and no Python package is needed. One `Gpu` is one GPU or MIG instance in this process:
its primary context, a stream, the kernel, what memory it holds, and events around each launch.

Source: NVIDIA CUDA Driver API 13.0, cuda.h (names with their versions, result codes, attribute numbers).
"""

import ctypes
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from importlib import resources
from types import TracebackType
from typing import Any, Self

from gpuscale.base.errors import UnavailableError

LIBRARY = "libcuda.so.1"
KERNEL = b"gpuscale_spin"
THREADS = 32
"""Of a block: one warp, which is what makes a multiprocessor active."""
_ROUND_NS = 4
"""Less than any GPU takes to look at its timer once; bounds the kernel where that timer stands still."""
_NAME_BYTES = 256
_BUS_ID_BYTES = 32
_BLOCKING = 4  # CU_CTX_SCHED_BLOCKING_SYNC
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_MULTIPROCESSORS, _COMPUTE_MODE = 16, 20  # CU_DEVICE_ATTRIBUTE_...
_PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED
_OK, _OUT_OF_MEMORY, _NOT_READY = 0, 2, 600
_ADVICE = {
    _OUT_OF_MEMORY: "the GPU has not enough free memory",
    34: f"{LIBRARY} is the stub of a toolkit; put the driver's own before it in LD_LIBRARY_PATH",
    46: "another process has the GPU for itself (compute mode exclusive)",
    100: "there is no GPU that this process may use; see nvidia-smi, CUDA_VISIBLE_DEVICES and, in a "
    "container, NVIDIA's container runtime",
    101: "there is no such GPU",
    222: "the driver is too old for the kernel; it takes one of 2017 or newer",
    802: "the GPUs of this machine are not set up yet; is nvidia-fabricmanager running?",
    803: "the driver and its library are of different releases; restart the machine or the container",
    804: "the container's CUDA compatibility libraries don't fit this GPU",
}
"""What result codes mean for a user; the driver has words for the others."""


class CudaError(UnavailableError):
    """A call to the driver failed; `code` is its CUresult."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or MIG instance that this process may use."""

    ordinal: int
    """The driver's number, among those that CUDA_VISIBLE_DEVICES leaves."""
    name: str
    uuid: str
    """In hexadecimal digits with dashes, without the `GPU-` or `MIG-` of nvidia-smi."""
    bus_id: str
    """Such as `0000:1A:00.0`."""
    multiprocessors: int


class CudaDriver:
    """The driver's library, initialised.

    Raises:
        UnavailableError: it is not installed, or finds no GPU.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise UnavailableError(
                f"found no {library}, which comes with NVIDIA's driver; install the driver, or in a "
                f"container use NVIDIA's container runtime, with compute among "
                f"NVIDIA_DRIVER_CAPABILITIES ({error})"
            ) from None
        self.call("cuInit", c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
        """Call a function of the driver.

        Raises:
            CudaError: it failed.
        """
        code = self.code(name, *arguments)
        if code != _OK:
            raise CudaError(self._words(name, code), code)

    def code(self, name: str, *arguments: Any) -> int:  # noqa: ANN401 - as above
        """Return the result code of a call.

        Raises:
            UnavailableError: this release of the driver has no such function.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise UnavailableError(
                f"the NVIDIA driver has no {name}; it takes release 450 or newer"
            ) from None
        return int(function(*arguments))

    def devices(self) -> tuple[Device, ...]:
        """Return the process' visible devices, in the driver's order.

        Raises:
            CudaError: the driver does not say.
        """
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return tuple(self._device(ordinal) for ordinal in range(count.value))

    def _device(self, ordinal: int) -> Device:
        handle = c_int()
        self.call("cuDeviceGet", byref(handle), c_int(ordinal))
        name, bus_id = (c_char * _NAME_BYTES)(), (c_char * _BUS_ID_BYTES)()
        self.call("cuDeviceGetName", name, c_int(_NAME_BYTES), handle)
        self.call("cuDeviceGetPCIBusId", bus_id, c_int(_BUS_ID_BYTES), handle)
        uuid = (ctypes.c_ubyte * 16)()
        # The first version of the call gives a MIG instance its GPU's UUID; drivers before 470
        # have no other.
        has_second = hasattr(self._library, "cuDeviceGetUuid_v2")
        self.call("cuDeviceGetUuid_v2" if has_second else "cuDeviceGetUuid", byref(uuid), handle)
        return Device(
            ordinal,
            name.value.decode(errors="replace"),
            _uuid_text(bytes(uuid)),
            bus_id.value.decode(errors="replace"),
            self._attribute(_MULTIPROCESSORS, handle),
        )

    def _attribute(self, number: int, handle: c_int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), c_int(number), handle)
        return value.value

    def open(self, device: Device) -> "Gpu":
        """Return the GPU with a context of this process.

        Raises:
            CudaError: another process has it to itself, or the driver has another reason.
        """
        handle = c_int()
        self.call("cuDeviceGet", byref(handle), c_int(device.ordinal))
        if self._attribute(_COMPUTE_MODE, handle) == _PROHIBITED:
            raise UnavailableError(
                f"GPU {device.ordinal}: its compute mode allows no process; see nvidia-smi --compute-mode"
            )
        return Gpu(self, device, handle)

    def _words(self, name: str, code: int) -> str:
        if code in _ADVICE:
            return f"{_ADVICE[code]} ({name}: {code})"
        text = ctypes.c_char_p()
        self.code("cuGetErrorString", c_int(code), byref(text))
        said = (text.value or b"unknown error").decode(errors="replace")
        return f"the NVIDIA driver reported an error: {said} ({name}: {code})"


class Gpu:
    """A GPU that is open in this process. Use it in `with`; the end frees everything.

    Args:
        driver: whose GPU.
        device: which.
        handle: the driver's for it.
    """

    def __init__(self, driver: CudaDriver, device: Device, handle: c_int) -> None:
        self.device = device
        self._driver = driver
        self._handle = handle
        self._context, self._module, self._function = c_void_p(), c_void_p(), c_void_p()
        self._stream = c_void_p()
        self._held: list[c_ulonglong] = []
        self._running: list[tuple[c_void_p, c_void_p]] = []
        """Events before and after each launch that has not been seen to end, oldest first."""
        self._idle: list[c_void_p] = []
        self._events: list[c_void_p] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        call = self._driver.call
        # So that waiting at the end blocks instead of spinning. Fails harmlessly if the context is
        # active already.
        self._driver.code("cuDevicePrimaryCtxSetFlags_v2", self._handle, c_uint(_BLOCKING))
        call("cuDevicePrimaryCtxRetain", byref(self._context), self._handle)
        call("cuCtxSetCurrent", self._context)
        image = (resources.files("gpuscale.load.gpu") / "spin.ptx").read_bytes() + b"\0"
        call("cuModuleLoadData", byref(self._module), ctypes.c_char_p(image))
        call("cuModuleGetFunction", byref(self._function), self._module, ctypes.c_char_p(KERNEL))
        call("cuStreamCreate", byref(self._stream), c_uint(_NON_BLOCKING))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def memory_bytes(self) -> tuple[int, int]:
        """Return (free, total) bytes of the GPU."""
        free, total = c_size_t(), c_size_t()
        self._driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def hold(self, size_bytes: int) -> None:
        """Allocate memory and write to all of it.

        Raises:
            UnavailableError: there is not so much free; nothing was taken.
        """
        free, _ = self.memory_bytes()
        if size_bytes > free:
            raise UnavailableError(
                f"GPU {self.device.ordinal}: found {free / 2**30:.2f} GiB of free memory, expected "
                f"{size_bytes / 2**30:.2f} GiB; ask for less, or end what uses it"
            )
        pointer = c_ulonglong()
        self._driver.call("cuMemAlloc_v2", byref(pointer), c_size_t(size_bytes))
        self._held.append(pointer)
        self._driver.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), c_size_t(size_bytes))

    def launch(self, length_ns: int, blocks: int) -> None:
        """Queue a kernel that keeps this many multiprocessors busy for a time."""
        length, rounds = c_ulonglong(length_ns), c_ulonglong(max(1, length_ns // _ROUND_NS))
        arguments = (c_void_p * 2)(*(ctypes.addressof(each) for each in (length, rounds)))
        before, after = self._event(), self._event()
        call = self._driver.call
        call("cuEventRecord", before, self._stream)
        call(
            "cuLaunchKernel", self._function,
            c_uint(blocks), c_uint(1), c_uint(1), c_uint(THREADS), c_uint(1), c_uint(1),
            c_uint(0), self._stream, arguments, None,
        )  # fmt: skip
        call("cuEventRecord", after, self._stream)
        self._running.append((before, after))

    @property
    def unfinished(self) -> int:
        """Return how many launches have not finished yet."""
        return len(self._running)

    def synchronize(self) -> None:
        """Wait until all launches have finished.

        Raises:
            CudaError: a launch failed.
        """
        self._driver.call("cuStreamSynchronize", self._stream)

    def take_busy_ms(self) -> float:
        """Return the duration of the launches finished since the last call, by the GPU's clock.

        Raises:
            CudaError: a launch failed.
        """
        busy_ms = 0.0
        while self._running:
            before, after = self._running[0]
            code = self._driver.code("cuEventQuery", after)
            if code == _NOT_READY:
                break
            if code != _OK:
                self._driver.call("cuEventQuery", after)
            took_ms = c_float()
            self._driver.call("cuEventElapsedTime", byref(took_ms), before, after)
            busy_ms += took_ms.value
            self._idle += self._running.pop(0)
        return busy_ms

    def close(self) -> None:
        """Free everything; a second call does nothing, and one failure doesn't stop the rest."""
        if not self._context.value:
            return
        code = self._driver.code
        if self._stream.value:
            code("cuStreamSynchronize", self._stream)
        for event in self._events:
            code("cuEventDestroy_v2", event)
        for pointer in self._held:
            code("cuMemFree_v2", pointer)
        if self._stream.value:
            code("cuStreamDestroy_v2", self._stream)
        if self._module.value:
            code("cuModuleUnload", self._module)
        code("cuCtxSetCurrent", c_void_p())
        code("cuDevicePrimaryCtxRelease_v2", self._handle)
        self._idle, self._running, self._events, self._held = [], [], [], []
        self._context = c_void_p()

    def _event(self) -> c_void_p:
        if self._idle:
            return self._idle.pop()
        event = c_void_p()
        self._driver.call("cuEventCreate", byref(event), c_uint(0))
        self._events.append(event)
        return event


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
