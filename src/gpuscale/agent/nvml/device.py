"""One GPU while it is open: what is read of it, and of each MIG instance of it."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from gpuscale.agent.gpu.readings import EventCount, GpuIdentity, GpuReading, ProcessReading
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
    """What the GPUs of one reader have in common."""

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
        self.gpu = _identity(caller, self._handle, index)
        self._known = self._once()
        self._clock_events = ClockEventCounts(shared.settings.clock_window_ms, shared.fields)
        self._peers = self._new_peers(index)
        self._xid_reason = self._watch_xids()
        self._is_split: bool | None = None
        self._instances: tuple[MigDevice, ...] = ()
        self._parts: tuple[_Part, ...] = ()
        self._mig_turns = PeriodicTurn(shared.settings.mig_period_ms, shift_of(index))
        self._split_turns = PeriodicTurn(shared.settings.split_period_ms)
        self._layout: frozenset[str] | None = None

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the readings of the GPU and of its MIG instances.

        Raises:
            GpuLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        self._look_for_instances(now_ms)
        whole, *instances = self._parts
        return (
            self._whole_reading(whole, now_ms),
            *(self._instance_reading(part, now_ms) for part in instances),
        )

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._parts = ()

    def _once(self) -> Findings:
        """Read what does not change, and note what NVML has no call for."""
        source = once_source(self._caller, self._handle, self._shared.fields, self._shared.settings)
        found = source.read(0)
        found.miss(self._shared.fields - READABLE - EVENT_FIELDS, NOT_OFFERED)
        return found

    def _new_peers(self, index: int) -> Peers | None:
        settings = self._shared.settings
        if P2P_FIELD not in self._shared.fields:
            return None
        periods = settings.limits_period_ms, settings.unsupported_retry_ms
        return Peers(self._caller, self._handle, index, *periods)

    def _watch_xids(self) -> str | None:
        """Return why XIDs are unavailable, or None."""
        try:
            self._shared.watcher.watch(self._handle, self.gpu.uuid)
        except CallFailedError as failure:
            return failure.reason
        return None

    def _look_for_instances(self, now_ms: int) -> None:
        layout = self._shared.layout()
        is_due = self._mig_turns.is_due(now_ms) or layout != self._layout
        if not is_due and not (self._is_split and self._split_turns.is_due(now_ms)):
            return
        self._layout = layout
        self._split_turns.take(now_ms)
        split = is_split(self._caller, self._handle)
        instances = self._list_instances() if split else ()
        self._mig_turns.take(now_ms)
        if split == self._is_split and _same(instances, self._instances):
            return
        if self._is_split is not None:
            _log.info("MIG of GPU %s has changed: %d instances", self.gpu.uuid, len(instances))
        self.close()
        self._is_split, self._instances = split, instances
        self._parts = (self._whole_part(split), *map(self._instance_part, instances))

    def _list_instances(self) -> tuple[MigDevice, ...]:
        try:
            return mig_devices(self._caller, self._handle)
        except CallFailedError as failure:
            _log.warning("the MIG instances of GPU %s can't be listed: %s", self.gpu.uuid, failure)
            return ()

    def _whole_part(self, split: bool) -> _Part:
        settings, fields = self._shared.settings, self._shared.fields
        constant = Findings(dict(self._known.values), dict(self._known.absent))
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
        constant = Findings(dict(self._known.values), dict(self._known.absent))
        constant.miss((fields & READABLE) - INSTANCE_FIELDS - constant.values.keys(), WHOLE_GPU)
        constant.miss(SPLIT_FIELDS & fields, SPLIT_GPU)
        sources = instance_sources(
            self._caller, self._handle, device.handle, device.instance.id, fields, settings
        )
        processes = None
        if settings.processes:
            processes = Processes(self._caller, device.handle, settings, with_use=False)
        return _Part(gpu, sources, processes, settings, constant)

    def _whole_reading(self, part: _Part, now_ms: int) -> GpuReading:
        found = part.read(now_ms)
        mask = found.values.get(MASK_FIELD)
        if mask is not None:
            self._clock_events.add(now_ms, int(mask))
        events = self._clock_events.events() if mask is not None else ()
        if self._peers is not None:
            events += self._peers.events(now_ms)
        return self._reading(part, found, events, now_ms)

    def _instance_reading(self, part: _Part, now_ms: int) -> GpuReading:
        return self._reading(part, part.read(now_ms), (), now_ms)

    def _reading(
        self, part: _Part, found: Findings, events: Iterable[EventCount], now_ms: int
    ) -> GpuReading:
        fields = self._shared.fields
        xids = self._put_xids(part.gpu, found, now_ms)
        return GpuReading(
            part.gpu,
            now_ms,
            {field: value for field, value in found.values.items() if field in fields},
            {field: why for field, why in found.absent.items() if field not in found.values},
            part.processes(now_ms, found),
            (*xids, *events),
        )

    def _put_xids(self, gpu: GpuIdentity, found: Findings, now_ms: int) -> tuple[EventCount, ...]:
        fields, settings = self._shared.fields, self._shared.settings
        place = (gpu.uuid, None if gpu.instance is None else gpu.instance.id)
        if self._xid_reason is not None:
            found.miss(fields & {XID_FIELD}, self._xid_reason)
            return ()
        if XID_FIELD in fields:
            found.values[XID_FIELD] = self._shared.xids.latest(place)
        return self._shared.xids.events(place, now_ms, settings.xid_window_ms, fields)


def _identity(caller: Caller, handle: Handle, index: int) -> GpuIdentity:
    return GpuIdentity(
        index,
        str(caller.call("identity", "nvmlDeviceGetUUID", handle)),
        pci_bus_id(caller.call("identity", "nvmlDeviceGetPciInfo_v3", handle)),
        str(caller.call("identity", "nvmlDeviceGetName", handle)),
    )


def _same(some: tuple[MigDevice, ...], others: tuple[MigDevice, ...]) -> bool:
    return [each.instance for each in some] == [each.instance for each in others]
