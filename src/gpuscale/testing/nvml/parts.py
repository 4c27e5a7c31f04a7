"""Calls of the stand-in for MIG instances, GPM and events."""

import ctypes
import math
import time

from gpuscale.agent.nvml import Answer, Handle
from gpuscale.testing.nvml.driver import FakeDriver, address_of
from gpuscale.testing.nvml.gpus import ANY_INSTANCE, FakeGpu, FakeInstance, mean_of

_POLL_S = 0.002
_GPM_PERCENT = {1: "busy_percent", 2: "sm_percent", 5: "tensor_percent", 10: "dram_percent"}
_GPM_RATES = {
    20: "pcie_tx_mib_s",
    21: "pcie_rx_mib_s",
    60: "nvlink_rx_mib_s",
    61: "nvlink_tx_mib_s",
}


class PartCalls(FakeDriver):
    """The functions of MIG, GPM and events, in the module's own words."""

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Handle) -> int:
        """Return the bits that say why the clocks are where they are."""
        return self._gpu(handle, "nvmlDeviceGetCurrentClocksEventReasons").clock_reasons

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
        del self._samples[address_of(gpmSample)]

    def nvmlGpmSampleGet(self, device: Handle, gpmSample: Handle) -> Answer:
        """Take a sample of a whole GPU."""
        self._gpu(device, "nvmlGpmSampleGet")
        self._samples[address_of(gpmSample)] = (address_of(device), self._now_us())
        return gpmSample

    def nvmlGpmMigSampleGet(self, device: Handle, gpuInstanceId: int, gpmSample: Handle) -> Answer:
        """Take a sample of one GPU instance."""
        gpu = self._gpu(device, "nvmlGpmMigSampleGet")
        for instance in gpu.instances or ():
            if instance.id == gpuInstanceId:
                owner = address_of(self._handle((gpu, instance)))
                self._samples[address_of(gpmSample)] = (owner, self._now_us())
                return gpmSample
        raise self._error("INVALID_ARGUMENT")

    def nvmlGpmMetricsGet(self, metricsGet: Answer) -> Answer:
        """Fill in the values between two samples."""
        self._system("nvmlGpmMetricsGet")
        owner, from_us = self._samples[address_of(metricsGet.sample1)]
        other, to_us = self._samples[address_of(metricsGet.sample2)]
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
                self._registered[address_of(eventSet)].append(gpu.uuid)

    def nvmlEventSetWait_v2(self, eventSet: Handle, timeoutms: int) -> Answer:
        """Return the next event, or raise after a time."""
        deadline = time.monotonic() + timeoutms / 1000
        with self._waiting:
            while time.monotonic() < deadline:
                event = self._next_event(address_of(eventSet))
                if event is not None:
                    return event
                time.sleep(_POLL_S)
        raise self._error("TIMEOUT")

    def nvmlEventSetFree(self, eventSet: Handle) -> None:
        """Give a set back."""
        self._system("nvmlEventSetFree")
        del self._registered[address_of(eventSet)]

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
        metric.value = mean_of(script, from_us, to_us)
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
                event.gpuInstanceId = ANY_INSTANCE if instance_id is None else instance_id
                return event
        return None
