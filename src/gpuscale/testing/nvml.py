"""A stand-in for the module `pynvml`: its functions, structures and errors, over GPUs made of numbers.

    nvml = FakeNvml([FakeGpu(busy_percent=40)])
    reader = NvmlReader(library=nvml)
    nvml.lose(0)

Constants, structures and error classes are the installed module's own, and every function here has the
parameters of the one it replaces; a test holds the two against each other. Values may be functions of the
time in microseconds, so that loads can be scripted.

Source: NVIDIA nvml.h 13.0 and nvidia-ml-py 13; behaviour as measured on an H200 with driver 580.
"""

import ctypes
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.gpu.nvml.library import Answer, Handle, load_library

__all__ = ["FakeGpu", "FakeInstance", "FakeNvml", "FakeProcess"]

Number = int | float
Scripted = Number | Callable[[int], Number]
"""A number, or what gives it for a time in microseconds since the epoch."""

SAMPLE_US = 200_000
"""From one utilisation sample to the next."""
BUFFERED_US = 14_200_000
"""How far back the utilisation samples reach."""
_ANY_INSTANCE = 0xFFFF_FFFF
_FIRST_HANDLE = 0x1000
_MIB = 1024 * 1024
_POLL_S = 0.002
_MEAN_PARTS = 100
_GPM_PERCENT = {1: "busy_percent", 2: "sm_percent", 5: "tensor_percent", 10: "dram_percent"}
_GPM_RATES = {20: "pcie_tx_mib_s", 21: "pcie_rx_mib_s"}


@dataclass(slots=True)
class FakeProcess:
    """One process on a GPU."""

    pid: int
    sm_percent: Scripted = 0
    memory_bytes: int | None = 512 * _MIB
    """None is what the driver says when it does not know."""
    name: str = "/usr/bin/python3 serve.py"


@dataclass(slots=True)
class FakeInstance:
    """One MIG instance."""

    id: int
    slices: int = 1
    memory_mib: int = 9856
    """The default is a 1g.10gb of an H100."""
    uuid: str = ""
    """Made from the GPU's when empty."""
    name: str = ""
    """What the driver calls it; empty leaves the name to the attributes."""
    compute_slices: int | None = None
    busy_percent: Scripted = 0
    used_mib: int = 12
    processes: list[FakeProcess] = field(default_factory=list)
    tensor_percent: Scripted | None = None
    """None is a driver that does not measure it."""


@dataclass(slots=True)
class FakeGpu:
    """One GPU; the defaults are an idle H100."""

    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str = ""
    """Made from the bus id when empty."""
    bus: int = 0
    """Number of the PCI bus; made from the position when 0."""
    busy_percent: Scripted = 0
    memory_busy_percent: Scripted = 0
    sm_percent: Scripted = 0
    tensor_percent: Scripted = 0
    dram_percent: Scripted = 0
    pcie_tx_mib_s: Scripted = 0
    pcie_rx_mib_s: Scripted = 0
    power_mw: Scripted = 75_000
    energy_mj: Scripted = 1_000_000
    temperature_c: Scripted = 35
    total_mib: int = 81_559
    reserved_mib: int = 600
    used_mib: Scripted = 0
    sm_clock_mhz: Scripted = 345
    memory_clock_mhz: Scripted = 2619
    clock_reasons: int = 1
    remapped_rows: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Correctable, uncorrectable, pending, failed."""
    field_values: dict[int, Scripted] = field(default_factory=dict)
    """By NVML field id; other ids are not supported."""
    has_gpm: bool = True
    gpm_unit: str = "MiB/s"
    has_samples: bool = True
    processes: list[FakeProcess] = field(default_factory=list)
    junk_samples: list[tuple[int, int, int]] = field(default_factory=list)
    """(PID, microseconds, percent) that the driver's buffer holds beside the real ones."""
    instances: list[FakeInstance] | None = None
    """None is MIG switched off."""


class FakeNvml:
    """What `import pynvml` would give, for the GPUs that it is made with.

    Args:
        gpus: in index order.
        now_us: the driver's clock, in microseconds since the epoch.
        driver_version: what the driver calls itself.

    Raises:
        UnavailableError: nvidia-ml-py, whose constants and structures it takes, is not installed.
    """

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
        self._hung: dict[str, threading.Event] = {}
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
        return frozenset(_bus_id(gpu) for gpu in self._plugged)

    def lose(self, index: int, *, needs_reset: bool = False) -> None:
        """Have a GPU fall off the bus, or wait for a reset."""
        vendor = self._vendor
        code = vendor.NVML_ERROR_RESET_REQUIRED if needs_reset else vendor.NVML_ERROR_GPU_IS_LOST
        self._gpu_codes[self._plugged[index].uuid] = code

    def find(self, index: int) -> None:
        """Bring a lost GPU back."""
        self._gpu_codes.pop(self._plugged[index].uuid, None)

    def hang(self, index: int) -> None:
        """Let no call for a GPU return."""
        self._hung[self._plugged[index].uuid] = threading.Event()

    def release(self, index: int) -> None:
        """Let the calls for a GPU return again, those that wait included."""
        self._hung.pop(self._plugged[index].uuid).set()

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

    # The module's functions, in its own words.

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
            for process in _all_processes(gpu):
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

    def nvmlDeviceGetIndex(self, handle: Handle) -> int:
        """Return a GPU's number."""
        return self._gpus.index(self._gpu(handle, "nvmlDeviceGetIndex"))

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        """Return the marketing name, with the profile behind it for a MIG device."""
        found = self._find(handle, "nvmlDeviceGetName")
        if isinstance(found, FakeGpu):
            return found.name
        gpu, instance = found
        return f"{gpu.name} MIG {instance.name}" if instance.name else gpu.name

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        """Return the UUID of a GPU or MIG device."""
        found = self._find(handle, "nvmlDeviceGetUUID")
        return found.uuid if isinstance(found, FakeGpu) else found[1].uuid

    def nvmlDeviceGetSerial(self, handle: Handle) -> str:
        """Return the board's serial number."""
        return f"16538241{self._gpu(handle, 'nvmlDeviceGetSerial').bus:05d}"

    def nvmlDeviceGetBrand(self, handle: Handle) -> int:
        """Return the brand's number."""
        self._gpu(handle, "nvmlDeviceGetBrand")
        return int(self._vendor.NVML_BRAND_NVIDIA)

    def nvmlDeviceGetVbiosVersion(self, handle: Handle) -> str:
        """Return the video BIOS' version."""
        self._gpu(handle, "nvmlDeviceGetVbiosVersion")
        return "96.00.A5.00.1A"

    def nvmlDeviceGetMinorNumber(self, handle: Handle) -> int:
        """Return the number of the device file."""
        return self._gpus.index(self._gpu(handle, "nvmlDeviceGetMinorNumber"))

    def nvmlDeviceGetInforomImageVersion(self, handle: Handle) -> str:
        """Return the InfoROM's version."""
        self._gpu(handle, "nvmlDeviceGetInforomImageVersion")
        return "G520.0282.02.02"

    def nvmlDeviceGetInforomVersion(self, handle: Handle, infoRomObject: int) -> str:
        """Return the version of one of the InfoROM's objects."""
        self._gpu(handle, "nvmlDeviceGetInforomVersion")
        if infoRomObject == self._vendor.NVML_INFOROM_POWER:
            raise self._error("NOT_SUPPORTED")
        return ("2.1", "7.16")[infoRomObject]

    def nvmlDeviceGetPciInfo_v3(self, handle: Handle) -> Answer:
        """Return where the GPU sits on PCI."""
        info = self._vendor.nvmlPciInfo_t()
        info.busId = _bus_id(self._gpu(handle, "nvmlDeviceGetPciInfo_v3"))
        return info

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Answer:
        """Return what the driver computes itself."""
        gpu = self._whole(handle, "nvmlDeviceGetUtilizationRates")
        rates = self._vendor.c_nvmlUtilization_t()
        rates.gpu = int(self._at(gpu.busy_percent))
        rates.memory = int(self._at(gpu.memory_busy_percent))
        return rates

    def nvmlDeviceGetSamples(self, device: Handle, sampling_type: int, timeStamp: int) -> Answer:
        """Return the buffered samples of a kind that are newer than a time."""
        gpu = self._whole(device, "nvmlDeviceGetSamples")
        scripts = {
            self._vendor.NVML_GPU_UTILIZATION_SAMPLES: gpu.busy_percent,
            self._vendor.NVML_MEMORY_UTILIZATION_SAMPLES: gpu.memory_busy_percent,
        }
        if not gpu.has_samples or sampling_type not in scripts:
            raise self._error("NOT_SUPPORTED")
        stamps = self._stamps(timeStamp)
        if not stamps:
            raise self._error("NOT_FOUND")
        return self._vendor.NVML_VALUE_TYPE_UNSIGNED_INT, [
            self._sample(stamp, int(_at(scripts[sampling_type], stamp))) for stamp in stamps
        ]

    def nvmlDeviceGetEncoderUtilization(self, handle: Handle) -> list[int]:
        """Return the encoder's use and the time it is over."""
        self._whole(handle, "nvmlDeviceGetEncoderUtilization")
        return [0, 100_000]

    def nvmlDeviceGetDecoderUtilization(self, handle: Handle) -> list[int]:
        """Return the decoder's use and the time it is over."""
        self._whole(handle, "nvmlDeviceGetDecoderUtilization")
        return [0, 100_000]

    def nvmlDeviceGetMemoryInfo(self, handle: Handle, version: Answer = None) -> Answer:
        """Return memory in bytes, by the older or the newer call."""
        found = self._find(handle, "nvmlDeviceGetMemoryInfo")
        if version and ("nvmlDeviceGetMemoryInfo_v2" in self._failing(found)):
            raise self._error("FUNCTION_NOT_FOUND")
        if isinstance(found, FakeGpu):
            total, reserved, used = found.total_mib, found.reserved_mib, self._at(found.used_mib)
        else:
            total, reserved, used = found[1].memory_mib, 0, found[1].used_mib
        memory = self._vendor.c_nvmlMemory_v2_t() if version else self._vendor.c_nvmlMemory_t()
        memory.total = total * _MIB
        memory.free = int(total - reserved - used) * _MIB
        if version:
            memory.reserved = reserved * _MIB
            memory.used = int(used) * _MIB
        else:
            memory.used = int(reserved + used) * _MIB
        return memory

    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:
        """Return milliwatts."""
        return int(self._at(self._gpu(handle, "nvmlDeviceGetPowerUsage").power_mw))

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:
        """Return degrees."""
        del sensor
        return int(self._at(self._gpu(handle, "nvmlDeviceGetTemperature").temperature_c))

    def nvmlDeviceGetClockInfo(self, handle: Handle, type: int) -> int:  # noqa: A002
        """Return MHz."""
        gpu = self._gpu(handle, "nvmlDeviceGetClockInfo")
        if type == self._vendor.NVML_CLOCK_MEM:
            return int(self._at(gpu.memory_clock_mhz))
        return int(self._at(gpu.sm_clock_mhz))

    def nvmlDeviceGetMaxClockInfo(self, handle: Handle, type: int) -> int:  # noqa: A002
        """Return MHz."""
        self._gpu(handle, "nvmlDeviceGetMaxClockInfo")
        return 2619 if type == self._vendor.NVML_CLOCK_MEM else 1980

    def nvmlDeviceGetPowerState(self, handle: Handle) -> int:
        """Return the performance state."""
        self._gpu(handle, "nvmlDeviceGetPowerState")
        return 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Handle) -> int:
        """Return the bits that say why the clocks are where they are."""
        return self._gpu(handle, "nvmlDeviceGetCurrentClocksEventReasons").clock_reasons

    def nvmlDeviceGetPcieReplayCounter(self, handle: Handle) -> int:
        """Return PCIe retries."""
        self._gpu(handle, "nvmlDeviceGetPcieReplayCounter")
        return 0

    def nvmlDeviceGetRemappedRows(self, device: Handle) -> tuple[int, int, int, int]:
        """Return remapped rows."""
        return self._gpu(device, "nvmlDeviceGetRemappedRows").remapped_rows

    def nvmlDeviceGetPowerManagementLimit(self, handle: Handle) -> int:
        """Return milliwatts."""
        self._gpu(handle, "nvmlDeviceGetPowerManagementLimit")
        return 700_000

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: Handle) -> list[int]:
        """Return the lowest and the highest limit in milliwatts."""
        self._gpu(handle, "nvmlDeviceGetPowerManagementLimitConstraints")
        return [200_000, 700_000]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Handle) -> int:
        """Return milliwatts."""
        self._gpu(handle, "nvmlDeviceGetEnforcedPowerLimit")
        return 700_000

    def nvmlDeviceGetGridLicensableFeatures_v4(self, handle: Handle) -> Answer:
        """Return that the GPU is no vGPU."""
        self._gpu(handle, "nvmlDeviceGetGridLicensableFeatures_v4")
        return self._vendor.c_nvmlGridLicensableFeatures_v4_t()

    def nvmlDeviceGetFieldValues(self, handle: Handle, fieldIds: Sequence[Answer]) -> Answer:
        """Return one value per id, or per pair of id and scope."""
        gpu = self._gpu(handle, "nvmlDeviceGetFieldValues")
        values = (self._vendor.c_nvmlFieldValue_t * len(fieldIds))()
        for value, asked in zip(values, fieldIds, strict=True):
            value.fieldId, value.scopeId = asked if isinstance(asked, tuple) else (asked, 0)
            self._fill(value, gpu)
        return values

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Handle) -> list[Answer]:
        """Return the processes on a GPU or MIG device."""
        found = self._find(handle, "nvmlDeviceGetComputeRunningProcesses_v3")
        if isinstance(found, FakeGpu):
            return [self._process(each, _ANY_INSTANCE) for each in _all_processes(found)]
        return [self._process(each, found[1].id) for each in found[1].processes]

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Handle) -> list[Answer]:
        """Return that none draws."""
        self._find(handle, "nvmlDeviceGetGraphicsRunningProcesses_v3")
        return []

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: Handle) -> list[Answer]:
        """Return that none runs under MPS."""
        self._find(handle, "nvmlDeviceGetMPSComputeRunningProcesses_v3")
        return []

    def nvmlDeviceGetProcessUtilization(self, handle: Handle, timeStamp: int) -> list[Answer]:
        """Return one sample per process that used the GPU after a time: its mean over the looks since."""
        gpu = self._whole(handle, "nvmlDeviceGetProcessUtilization")
        stamps = self._stamps(timeStamp)
        found = []
        for process in gpu.processes:
            uses = {stamp: _at(process.sm_percent, stamp) for stamp in stamps}
            last = max((stamp for stamp, use in uses.items() if use > 0), default=None)
            if last is not None:
                mean = sum(uses.values()) / len(uses)
                found.append(self._use(process.pid, last, round(mean)))
        found += [self._use(*junk) for junk in gpu.junk_samples]
        if not found:
            raise self._error("NOT_FOUND")
        return found

    def nvmlDeviceGetMigMode(self, device: Handle) -> list[int]:
        """Return whether MIG is on, now and after a reset."""
        gpu = self._gpu(device, "nvmlDeviceGetMigMode")
        return [int(gpu.instances is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Handle) -> int:
        """Return how many instances there can be."""
        self._gpu(device, "nvmlDeviceGetMaxMigDeviceCount")
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Handle, index: int) -> Answer:
        """Return an instance's handle."""
        gpu = self._gpu(device, "nvmlDeviceGetMigDeviceHandleByIndex")
        if gpu.instances is None or not 0 <= index < len(gpu.instances):
            raise self._error("NOT_FOUND")
        instance = gpu.instances[index]
        instance.uuid = instance.uuid or f"MIG-{gpu.uuid[4:-4]}{instance.id:04x}"
        return self._handle((gpu, instance))

    def nvmlDeviceGetGpuInstanceId(self, device: Handle) -> int:
        """Return the id of a MIG device's GPU instance."""
        return self._instance(device, "nvmlDeviceGetGpuInstanceId").id

    def nvmlDeviceGetAttributes_v2(self, device: Handle) -> Answer:
        """Return what a MIG device is made of."""
        instance = self._instance(device, "nvmlDeviceGetAttributes_v2")
        attributes = self._vendor.c_nvmlDeviceAttributes()
        attributes.gpuInstanceSliceCount = instance.slices
        attributes.computeInstanceSliceCount = instance.compute_slices or instance.slices
        attributes.memorySizeMB = instance.memory_mib
        return attributes

    def nvmlGpmQueryDeviceSupport(self, device: Handle) -> Answer:
        """Return whether a GPU has GPM."""
        gpu = self._gpu(device, "nvmlGpmQueryDeviceSupport")
        support = self._vendor.c_nvmlGpmSupport_t()
        support.isSupportedDevice = int(gpu.has_gpm)
        return support

    def nvmlGpmSampleAlloc(self) -> Answer:
        """Return room for a sample."""
        self._system("nvmlGpmSampleAlloc")
        self._next_handle += 1
        self._samples[self._next_handle] = (0, 0)
        return ctypes.cast(ctypes.c_void_p(self._next_handle), self._vendor.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, gpmSample: Handle) -> None:
        """Give a sample's room back."""
        self._system("nvmlGpmSampleFree")
        del self._samples[_address(gpmSample)]

    def nvmlGpmSampleGet(self, device: Handle, gpmSample: Handle) -> Answer:
        """Take a sample of a whole GPU."""
        self._gpu(device, "nvmlGpmSampleGet")
        self._samples[_address(gpmSample)] = (_address(device), self._now_us())
        return gpmSample

    def nvmlGpmMigSampleGet(self, device: Handle, gpuInstanceId: int, gpmSample: Handle) -> Answer:
        """Take a sample of one GPU instance."""
        gpu = self._gpu(device, "nvmlGpmMigSampleGet")
        for instance in gpu.instances or ():
            if instance.id == gpuInstanceId:
                owner = _address(self._handle((gpu, instance)))
                self._samples[_address(gpmSample)] = (owner, self._now_us())
                return gpmSample
        raise self._error("INVALID_ARGUMENT")

    def nvmlGpmMetricsGet(self, metricsGet: Answer) -> Answer:
        """Fill in the values between two samples."""
        self._system("nvmlGpmMetricsGet")
        owner, from_us = self._samples[_address(metricsGet.sample1)]
        other, to_us = self._samples[_address(metricsGet.sample2)]
        if owner != other or to_us - from_us < 100_000:
            raise self._error("INVALID_ARGUMENT")
        for n in range(metricsGet.numMetrics):
            self._measure(metricsGet.metrics[n], self._handles[owner], from_us, to_us)
        return metricsGet

    def nvmlEventSetCreate(self) -> Answer:
        """Return a set that events can be waited for in."""
        self._system("nvmlEventSetCreate")
        self._next_handle += 1
        self._registered[self._next_handle] = []
        return ctypes.cast(ctypes.c_void_p(self._next_handle), self._vendor.c_nvmlEventSet_t)

    def nvmlDeviceRegisterEvents(self, handle: Handle, eventTypes: int, eventSet: Handle) -> None:
        """Have a GPU's events come to a set, once no caller waits for any."""
        gpu = self._gpu(handle, "nvmlDeviceRegisterEvents")
        with self._waiting:
            if eventTypes & self._vendor.nvmlEventTypeXidCriticalError:
                self._registered[_address(eventSet)].append(gpu.uuid)

    def nvmlEventSetWait_v2(self, eventSet: Handle, timeoutms: int) -> Answer:
        """Return the next event, or raise after a time."""
        deadline = time.monotonic() + timeoutms / 1000
        with self._waiting:
            while time.monotonic() < deadline:
                event = self._next_event(_address(eventSet))
                if event is not None:
                    return event
                time.sleep(_POLL_S)
        raise self._error("TIMEOUT")

    def nvmlEventSetFree(self, eventSet: Handle) -> None:
        """Give a set back."""
        self._system("nvmlEventSetFree")
        del self._registered[_address(eventSet)]

    # What the functions are made of

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
        hung = self._hung.get(gpu.uuid)
        if hung is not None:
            hung.wait()
        self._raise_for(gpu, call)

    def _find(self, handle: Handle, call: str) -> FakeGpu | tuple[FakeGpu, FakeInstance]:
        found = self._handles.get(_address(handle))
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

    def _failing(self, found: FakeGpu | tuple[FakeGpu, FakeInstance]) -> set[str]:
        gpu = found if isinstance(found, FakeGpu) else found[0]
        return {call for whose, call in self._call_codes if whose in (None, gpu.uuid)}

    def _handle(self, thing: FakeGpu | tuple[FakeGpu, FakeInstance]) -> Answer:
        known = (at for at, each in self._handles.items() if _is_same(each, thing))
        address = next(known, None)
        if address is None:
            self._next_handle += 1
            address = self._next_handle
            self._handles[address] = thing
        return ctypes.cast(ctypes.c_void_p(address), self._vendor.c_nvmlDevice_t)

    def _at(self, script: Scripted) -> Number:
        return _at(script, self._now_us())

    def _stamps(self, since_us: int) -> list[int]:
        """Return when samples were taken after a time, as far back as the buffer reaches."""
        now_us = self._now_us()
        first = max(since_us, now_us - BUFFERED_US) // SAMPLE_US + 1
        return [n * SAMPLE_US for n in range(first, now_us // SAMPLE_US + 1)]

    def _sample(self, stamp_us: int, value: int) -> Answer:
        sample = self._vendor.c_nvmlSample_t()
        sample.timeStamp = stamp_us
        sample.sampleValue.uiVal = value
        return sample

    def _use(self, pid: int, stamp_us: int, percent: int) -> Answer:
        use = self._vendor.c_nvmlProcessUtilizationSample_t()
        use.pid, use.timeStamp, use.smUtil = pid, stamp_us, percent
        return use

    def _process(self, process: FakeProcess, instance_id: int) -> Answer:
        return self._vendor.nvmlFriendlyObject(
            {
                "pid": process.pid,
                "usedGpuMemory": process.memory_bytes,
                "gpuInstanceId": instance_id,
                "computeInstanceId": _ANY_INSTANCE if instance_id == _ANY_INSTANCE else 0,
            }
        )

    def _fill(self, value: Answer, gpu: FakeGpu) -> None:
        vendor = self._vendor
        known: Mapping[int, Scripted] = {
            vendor.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: gpu.energy_mj,
            **gpu.field_values,
        }
        if value.fieldId not in known:
            value.nvmlReturn = vendor.NVML_ERROR_NOT_SUPPORTED
            return
        value.valueType = vendor.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        value.value.ullVal = int(self._at(known[value.fieldId]))

    def _measure(
        self,
        metric: Answer,
        owner: FakeGpu | tuple[FakeGpu, FakeInstance],
        from_us: int,
        to_us: int,
    ) -> None:
        gpu = owner if isinstance(owner, FakeGpu) else owner[0]
        thing = owner if isinstance(owner, FakeGpu) else owner[1]
        member = _GPM_PERCENT.get(metric.metricId) or _GPM_RATES.get(metric.metricId)
        script = getattr(thing, member, None) if member else 0
        if script is None:
            metric.value = math.nan
            return
        metric.value = _mean(script, from_us, to_us)
        is_rate = metric.metricId in _GPM_RATES or metric.metricId >= 60
        metric.metricInfo.unit = (gpu.gpm_unit if is_rate else "%").encode()

    def _next_event(self, set_address: int) -> Answer:
        for n, (gpu, number, instance_id) in enumerate(self._events):
            if gpu.uuid in self._registered.get(set_address, ()):
                del self._events[n]
                event = self._vendor.c_nvmlEventData_t()
                event.device = self._handle(gpu)
                event.eventType = self._vendor.nvmlEventTypeXidCriticalError
                event.eventData = number
                event.gpuInstanceId = _ANY_INSTANCE if instance_id is None else instance_id
                return event
        return None


def _is_same(
    one: FakeGpu | tuple[FakeGpu, FakeInstance], other: FakeGpu | tuple[FakeGpu, FakeInstance]
) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return one[1] is other[1]
    return one is other


def _at(script: Scripted, now_us: int) -> Number:
    return script(now_us) if callable(script) else script


def _mean(script: Scripted, from_us: int, to_us: int) -> float:
    """Return the mean over a time, from the middles of equal parts of it."""
    if not callable(script):
        return float(script)
    step = (to_us - from_us) / _MEAN_PARTS
    return sum(script(int(from_us + (n + 0.5) * step)) for n in range(_MEAN_PARTS)) / _MEAN_PARTS


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _bus_id(gpu: FakeGpu) -> str:
    return f"00000000:{gpu.bus:02X}:00.0"


def _all_processes(gpu: FakeGpu) -> list[FakeProcess]:
    return [*gpu.processes, *(each for part in gpu.instances or () for each in part.processes)]
