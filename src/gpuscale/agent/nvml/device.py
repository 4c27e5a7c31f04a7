"""An open GPU: its readings and those of its MIG instances."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from gpuscale.agent.gpu.readings import (
    EventCount,
    GpuIdentity,
    GpuInstance,
    GpuReading,
    ProcessReading,
)
from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import (
    BY_INSTANCE,
    NOT_OFFERED,
    SPLIT_GPU,
    WHOLE_GPU,
    CallFailedError,
    DriverGoneError,
    GpuLostError,
)
from gpuscale.agent.nvml.library import Handle
from gpuscale.agent.nvml.mig import MigDevice, is_split, mig_devices
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.clock_events import MASK_FIELD, ClockEventCounts
from gpuscale.agent.nvml.values.peers import P2P_FIELD, Peers
from gpuscale.agent.nvml.values.plan import (
    EVENT_FIELDS,
    INSTANCE_FIELDS,
    READABLE,
    SPLIT_FIELDS,
    gpu_sources,
    instance_sources,
    once_source,
    shift_of,
)
from gpuscale.agent.nvml.values.polls import Poller
from gpuscale.agent.nvml.values.processes import Processes
from gpuscale.agent.nvml.values.rows import pci_bus_id
from gpuscale.agent.nvml.values.sources import Findings, PeriodicTurn, Scheduled
from gpuscale.agent.nvml.values.utilization import GPU_UTIL
from gpuscale.agent.nvml.xid import XID_FIELD, XidLog, XidWatcher

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What one reader's GPUs share."""

    settings: NvmlSettings
    fields: frozenset[str]
    """What is asked for."""
    xids: XidLog
    watcher: XidWatcher
    poller: Poller
    layout: Callable[[], frozenset[str]]
    """Returns which MIG instances the kernel had at the beginning of this read, to see when they change."""


class _Part:
    """A whole GPU or one MIG instance: its sources, and the processes on it."""

    def __init__(
        self,
        gpu: GpuIdentity,
        sources: tuple[Scheduled, ...],
        processes: Processes | None,
        settings: NvmlSettings,
        constant: Findings,
    ) -> None:
        self.gpu = gpu
        self._sources = sources
        self._processes = processes
        self._process_turns = PeriodicTurn(settings.process_period_ms, shift_of(gpu.index))
        self._constant = constant
        self._listed: tuple[ProcessReading, ...] = ()

    def read(self, now_ms: int) -> Findings:
        values, absent = dict(self._constant.values), dict(self._constant.absent)
        for source in self._sources:
            found = source.read(now_ms)
            values.update(found.values)
            absent.update(found.absent)
        return Findings(values, absent)

    def processes(self, now_ms: int, found: Findings) -> tuple[ProcessReading, ...]:
        if self._processes is None:
            return ()
        if self._process_turns.is_due(now_ms):
            util = found.values.get(GPU_UTIL)
            known = util if isinstance(util, (int, float)) else None
            self._listed = self._processes.read(now_ms, known)
            self._process_turns.take(now_ms)
        return self._listed

    def close(self) -> None:
        for source in self._sources:
            with suppress(CallFailedError, GpuLostError, DriverGoneError):
                source.close()


class OpenGpu:
    """Reads one GPU. Every method may block as long as the driver does.

    Args:
        caller: makes the calls.
        index: NVML's number of the GPU.
        shared: settings, the fields asked for, and the XIDs.

    Raises:
        GpuLostError: the GPU is gone.
        DriverGoneError: the driver is gone.
        CallFailedError: the driver does not say which GPU it is.
    """

    def __init__(self, caller: Caller, index: int, shared: ReaderContext) -> None:
        self._caller = caller
        self._shared = shared
        self._handle: Handle = caller.call("identity", "nvmlDeviceGetHandleByIndex", index)
        self.gpu = GpuIdentity(
            index,
            str(caller.call("identity", "nvmlDeviceGetUUID", self._handle)),
            pci_bus_id(caller.call("identity", "nvmlDeviceGetPciInfo_v3", self._handle)),
            str(caller.call("identity", "nvmlDeviceGetName", self._handle)),
        )
        settings, fields = shared.settings, shared.fields
        self._constant = once_source(caller, self._handle, fields, settings).read(0)
        self._constant.miss(fields - READABLE - EVENT_FIELDS, NOT_OFFERED)
        self._clock_events = ClockEventCounts(settings.clock_window_ms, fields)
        self._peers: Peers | None = None
        if P2P_FIELD in fields:
            periods = settings.limits_period_ms, settings.unsupported_retry_ms
            self._peers = Peers(caller, self._handle, index, *periods)
        self._xid_reason: str | None = None
        try:
            shared.watcher.watch(self._handle, self.gpu.uuid)
        except CallFailedError as failure:
            self._xid_reason = failure.reason
        self._is_split: bool | None = None
        self._instances: tuple[GpuInstance, ...] = ()
        self._parts: tuple[_Part, ...] = ()
        self._mig_turns = PeriodicTurn(settings.mig_period_ms, shift_of(index))
        self._split_turns = PeriodicTurn(settings.split_period_ms)
        self._layout: frozenset[str] | None = None

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the readings of the GPU and of its MIG instances.

        Raises:
            GpuLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        self._look_for_instances(now_ms)
        whole, *instances = self._parts
        found = whole.read(now_ms)
        events: tuple[EventCount, ...] = ()
        mask = found.values.get(MASK_FIELD)
        if mask is not None:
            self._clock_events.add(now_ms, int(mask))
            events = self._clock_events.events()
        if self._peers is not None:
            events += self._peers.events(now_ms)
        return (
            self._reading(whole, found, events, now_ms),
            *(self._reading(part, part.read(now_ms), (), now_ms) for part in instances),
        )

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._parts = ()

    def _look_for_instances(self, now_ms: int) -> None:
        layout = self._shared.layout()
        is_due = self._mig_turns.is_due(now_ms) or layout != self._layout
        if not is_due and not (self._is_split and self._split_turns.is_due(now_ms)):
            return
        self._layout = layout
        self._split_turns.take(now_ms)
        split = is_split(self._caller, self._handle)
        devices: tuple[MigDevice, ...] = ()
        if split:
            try:
                devices = mig_devices(self._caller, self._handle)
            except CallFailedError as failure:
                message = "the MIG instances of GPU %s can't be listed: %s"
                _log.warning(message, self.gpu.uuid, failure)
        self._mig_turns.take(now_ms)
        # The same instance may have a new handle.
        instances = tuple(device.instance for device in devices)
        if split == self._is_split and instances == self._instances:
            return
        if self._is_split is not None:
            _log.info("MIG of GPU %s has changed: %d instances", self.gpu.uuid, len(instances))
        self.close()
        self._is_split, self._instances = split, instances
        self._parts = (self._whole_part(split), *map(self._instance_part, devices))

    def _whole_part(self, split: bool) -> _Part:
        settings, fields = self._shared.settings, self._shared.fields
        constant = Findings(dict(self._constant.values), dict(self._constant.absent))
        if split:
            constant.miss((INSTANCE_FIELDS & fields) - {XID_FIELD}, BY_INSTANCE)
            constant.miss(SPLIT_FIELDS & fields, SPLIT_GPU)
        sources = gpu_sources(
            self._caller,
            self._handle,
            self.gpu.index,
            fields,
            settings,
            self._shared.poller,
            is_split=split,
        )
        processes = None
        if settings.processes and not split:
            shift = shift_of(self.gpu.index)
            processes = Processes(self._caller, self._handle, settings, with_use=True, shift=shift)
        return _Part(self.gpu, sources, processes, settings, constant)

    def _instance_part(self, device: MigDevice) -> _Part:
        settings, fields = self._shared.settings, self._shared.fields
        whole = self.gpu
        gpu = GpuIdentity(whole.index, whole.uuid, whole.pci_bus_id, whole.model, device.instance)
        constant = Findings(dict(self._constant.values), dict(self._constant.absent))
        constant.miss((fields & READABLE) - INSTANCE_FIELDS - constant.values.keys(), WHOLE_GPU)
        constant.miss(SPLIT_FIELDS & fields, SPLIT_GPU)
        sources = instance_sources(
            self._caller, self._handle, device.handle, device.instance.id, fields, settings
        )
        processes = None
        if settings.processes:
            processes = Processes(self._caller, device.handle, settings, with_use=False)
        return _Part(gpu, sources, processes, settings, constant)

    def _reading(
        self, part: _Part, found: Findings, events: Iterable[EventCount], now_ms: int
    ) -> GpuReading:
        fields, gpu = self._shared.fields, part.gpu
        xids: tuple[EventCount, ...] = ()
        if self._xid_reason is not None:
            found.miss(fields & {XID_FIELD}, self._xid_reason)
        else:
            place = (gpu.uuid, None if gpu.instance is None else gpu.instance.id)
            if XID_FIELD in fields:
                found.values[XID_FIELD] = self._shared.xids.latest(place)
            window_ms = self._shared.settings.xid_window_ms
            xids = self._shared.xids.events(place, now_ms, window_ms, fields)
        return GpuReading(
            gpu,
            now_ms,
            {field: value for field, value in found.values.items() if field in fields},
            {field: why for field, why in found.absent.items() if field not in found.values},
            part.processes(now_ms, found),
            (*xids, *events),
        )
