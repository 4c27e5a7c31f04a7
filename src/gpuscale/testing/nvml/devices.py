"""Calls of the stand-in that read one GPU."""

from collections.abc import Mapping, Sequence

from gpuscale.agent.nvml import Answer, Handle
from gpuscale.testing.nvml.driver import FakeDriver
from gpuscale.testing.nvml.gpus import (
    ANY_INSTANCE,
    MIB,
    FakeGpu,
    FakeInstance,
    FakeProcess,
    Scripted,
    all_processes,
    bus_id,
    value_at,
)

SAMPLE_US = 200_000
"""From one utilisation sample to the next."""
BUFFERED_US = 14_200_000
"""How far back the utilisation samples reach."""


class DeviceCalls(FakeDriver):
    """The functions that read a GPU, in the module's own words."""

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
        info.busId = bus_id(self._gpu(handle, "nvmlDeviceGetPciInfo_v3"))
        return info

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Answer:
        """Return what the driver computes itself."""
        gpu = self._whole(handle, "nvmlDeviceGetUtilizationRates")
        rates = self._vendor.c_nvmlUtilization_t()
        rates.gpu = int(self._now(gpu.busy_percent))
        rates.memory = int(self._now(gpu.memory_busy_percent))
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
            self._sample(stamp, int(value_at(scripts[sampling_type], stamp))) for stamp in stamps
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
            total, reserved, used = found.total_mib, found.reserved_mib, self._now(found.used_mib)
        else:
            total, reserved, used = found[1].memory_mib, 0, found[1].used_mib
        memory = self._vendor.c_nvmlMemory_v2_t() if version else self._vendor.c_nvmlMemory_t()
        memory.total = total * MIB
        memory.free = int(total - reserved - used) * MIB
        if version:
            memory.reserved = reserved * MIB
            memory.used = int(used) * MIB
        else:
            memory.used = int(reserved + used) * MIB
        return memory

    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:
        """Return milliwatts."""
        return int(self._now(self._gpu(handle, "nvmlDeviceGetPowerUsage").power_mw))

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:
        """Return degrees."""
        del sensor
        return int(self._now(self._gpu(handle, "nvmlDeviceGetTemperature").temperature_c))

    def nvmlDeviceGetClockInfo(self, handle: Handle, type: int) -> int:  # noqa: A002
        """Return MHz."""
        gpu = self._gpu(handle, "nvmlDeviceGetClockInfo")
        if type == self._vendor.NVML_CLOCK_MEM:
            return int(self._now(gpu.memory_clock_mhz))
        return int(self._now(gpu.sm_clock_mhz))

    def nvmlDeviceGetMaxClockInfo(self, handle: Handle, type: int) -> int:  # noqa: A002
        """Return MHz."""
        self._gpu(handle, "nvmlDeviceGetMaxClockInfo")
        return 2619 if type == self._vendor.NVML_CLOCK_MEM else 1980

    def nvmlDeviceGetPowerState(self, handle: Handle) -> int:
        """Return the performance state."""
        self._gpu(handle, "nvmlDeviceGetPowerState")
        return 0

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

    def nvmlDeviceGetP2PStatus(self, device1: Handle, device2: Handle, p2pIndex: int) -> int:
        """Return that NVLink joins GPUs of one model, and no others."""
        del p2pIndex
        one = self._gpu(device1, "nvmlDeviceGetP2PStatus")
        other = self._gpu(device2, "nvmlDeviceGetP2PStatus")
        not_supported = int(self._vendor.NVML_P2P_STATUS_NOT_SUPPORTED)
        return 0 if one.name == other.name else not_supported

    def nvmlDeviceGetGpuFabricInfoV(self, device: Handle, gpuFabricInfo: Answer) -> None:
        """Fill in where the GPU stands in its fabric."""
        gpu = self._gpu(device, "nvmlDeviceGetGpuFabricInfoV")
        state, status, summary = gpu.fabric or (0, 0, 0)
        gpuFabricInfo.state, gpuFabricInfo.status = state, status
        gpuFabricInfo.cliqueId = 7
        if hasattr(gpuFabricInfo, "healthSummary"):
            gpuFabricInfo.healthSummary = summary

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Handle) -> list[Answer]:
        """Return the processes on a GPU or MIG device."""
        found = self._find(handle, "nvmlDeviceGetComputeRunningProcesses_v3")
        if isinstance(found, FakeGpu):
            return [self._process(each, ANY_INSTANCE) for each in all_processes(found)]
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
            uses = {stamp: value_at(process.sm_percent, stamp) for stamp in stamps}
            last = max((stamp for stamp, use in uses.items() if use > 0), default=None)
            if last is not None:
                mean = sum(uses.values()) / len(uses)
                found.append(self._use(process.pid, last, round(mean)))
        found += [self._use(*junk) for junk in gpu.junk_samples]
        if not found:
            raise self._error("NOT_FOUND")
        return found

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
                "computeInstanceId": ANY_INSTANCE if instance_id == ANY_INSTANCE else 0,
            }
        )

    def _fill(self, value: Answer, gpu: FakeGpu) -> None:
        vendor = self._vendor
        known: Mapping[int, Scripted] = {
            vendor.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: gpu.energy_mj,
            **gpu.field_values,
        }
        links = gpu.link_counts.get(value.fieldId, ())
        if value.scopeId < len(links):
            known = {value.fieldId: links[value.scopeId]}
        if value.fieldId not in known:
            value.nvmlReturn = vendor.NVML_ERROR_NOT_SUPPORTED
            return
        value.valueType = vendor.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        value.value.ullVal = int(self._now(known[value.fieldId]))

    def _failing(self, found: FakeGpu | tuple[FakeGpu, FakeInstance]) -> set[str]:
        gpu = found if isinstance(found, FakeGpu) else found[0]
        return {call for whose, call in self._call_codes if whose in (None, gpu.uuid)}
