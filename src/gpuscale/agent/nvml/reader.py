"""The GPUs of this node, read through NVML.

Theory of operation. In good times one thread reads one GPU after the other. It is waited for a little while
with each; a GPU that hangs keeps that thread, delays a read once while another thread goes on, and is then
left alone until it answers. A GPU whose calls say that it is lost is tried again at
intervals. NVML itself is reopened when the driver has gone, when GPUs come or go, and now and then for a
lost GPU, which often comes back only so; never while a call is still out, which might not survive it.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpuscale.agent.gpu.reader import CallStats
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.agent.nvml.calls import Caller, stats
from gpuscale.agent.nvml.device import ReaderContext
from gpuscale.agent.nvml.faults import GPU_GONE, DriverGoneError
from gpuscale.agent.nvml.library import Library, load_library
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.slot import Slot, lost_reading
from gpuscale.agent.nvml.values.plan import EVENT_FIELDS, READABLE
from gpuscale.agent.nvml.values.polls import Poller
from gpuscale.agent.nvml.values.sources import RetryPause
from gpuscale.agent.nvml.workers import Lanes
from gpuscale.agent.nvml.xid import XidLog, XidWatcher
from gpuscale.base.backoff import Backoff
from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import UnavailableError
from gpuscale.signals import FIELDS

_KERNEL_LIST = Path("/proc/driver/nvidia/gpus")
_KERNEL_CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
_LONGEST_LOST_REOPEN = 10
"""Times the first wait."""

_log = logging.getLogger(__name__)


def kernel_gpus() -> frozenset[str]:
    """Return the bus ids of the GPUs in the kernel driver's list; empty if there is none."""
    try:
        return frozenset(path.name for path in _KERNEL_LIST.iterdir())
    except OSError:
        return frozenset()


def kernel_instances() -> frozenset[str]:
    """Return the MIG instances in the kernel driver's list; empty if there is none."""
    try:
        gpus = [path / "mig" for path in _KERNEL_CAPABILITIES.iterdir()]
        return frozenset(str(path) for gpu in gpus if gpu.is_dir() for path in gpu.iterdir())
    except OSError:
        return frozenset()


class NvmlReader:
    """Readings of this node's NVIDIA GPUs; opens NVML at the first call.

    Args:
        settings: how often what is read.
        library: the `pynvml` module, or a stand-in with its functions; loaded when None.
        fields: DCGM fields to read; all that NVML can give when None.
        clock: stamps XIDs, and times the opening when no time is given.
        present: returns cheaply which GPUs there are, to see when they come or go.
        layout: the same for MIG instances.

    Raises:
        UnavailableError: the Python package nvidia-ml-py is not installed.
    """

    def __init__(
        self,
        settings: NvmlSettings | None = None,
        library: Library | None = None,
        fields: frozenset[str] | None = None,
        *,
        clock: Clock | None = None,
        present: Callable[[], frozenset[str]] = kernel_gpus,
        layout: Callable[[], frozenset[str]] = kernel_instances,
    ) -> None:
        self._settings = settings or NvmlSettings()
        self._library = load_library() if library is None else library
        self._fields = READABLE | EVENT_FIELDS if fields is None else fields.intersection(FIELDS)
        self._clock = clock or WallClock()
        self._present = present
        self._layout = layout
        self._instances: frozenset[str] = frozenset()
        self._seen: frozenset[str] = frozenset()
        self._system = Caller(self._library)
        self._callers: list[Caller] = []
        self._slots: list[Slot] = []
        self._lanes = Lanes("nvml-reader")
        self._gone: dict[str, tuple[GpuIdentity, int]] = {}
        self._xids = XidLog()
        self._polling = Caller(self._library)
        self._shared = self._new_shared(gpus=0)
        self._is_open = False
        self._failure = ""
        self._retry = RetryPause()
        self._waits = Backoff(self._settings.reopen_first_ms, self._settings.reopen_last_ms)
        self._counted_ms = 0
        lost_ms = self._settings.lost_reopen_ms
        self._lost_waits = Backoff(lost_ms, lost_ms * _LONGEST_LOST_REOPEN)
        self._lost_since_ms: int | None = None

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return every GPU that should be there, in index order, lost ones included.

        Raises:
            UnavailableError: NVML can't be opened.
        """
        self._ensure_open(self._clock.now_ms())
        known = [slot.gpu for slot in self._slots]
        known += [gpu for gpu, _ in self._gone.values()]
        return tuple(sorted(known, key=_by_index))

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the state of every GPU and MIG instance, in index order.

        A split GPU has a reading of its own with what belongs to the whole, followed by one for each
        instance. A lost one has no values and one reason for every field.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        self._ensure_open(now_ms)
        self._instances = self._layout()  # once for all GPUs, as the list covers the whole node
        self._shared.poller.note_read()
        self._run(Slot.begin_read, now_ms, self._settings.deadline_ms)
        self._shared.watcher.start()
        try:
            readings = [each for slot in self._slots for each in slot.outcome(now_ms)]
        except DriverGoneError as failure:
            self._close_library()
            raise self._unavailable(failure, now_ms) from failure
        # Since when a GPU is lost, to reopen NVML for it.
        if not any(slot.is_lost for slot in self._slots):
            self._lost_since_ms = None
            self._lost_waits.reset()
        elif self._lost_since_ms is None:
            self._lost_since_ms = now_ms
        oldest_ms = now_ms - self._settings.forget_gone_ms
        self._gone = {uuid: each for uuid, each in self._gone.items() if each[1] > oldest_ms}
        gone = [gpu for gpu, _ in self._gone.values()]
        readings += [lost_reading(gpu, GPU_GONE, self._shared, now_ms) for gpu in gone]
        return tuple(sorted(readings, key=lambda each: _by_index(each.gpu)))

    def stats(self) -> tuple[CallStats, ...]:
        """Return the calls' costs so far, by kind."""
        return stats((self._system, self._polling, *self._callers))

    def close(self) -> None:
        """Shut NVML down, unless a call hangs in it."""
        self._close_library()
        self._lanes.stop()
        self._slots = []

    def _run(self, begin: Callable[[Slot, int], None], now_ms: int, deadline_ms: int) -> None:
        """Run a job for each GPU that is not stuck, and wait until the deadline."""
        free = [slot for slot in self._slots if not slot.is_stuck]
        for slot in free:
            begin(slot, now_ms)
        patience_s = self._settings.patience_ms / 1000
        self._lanes.run([slot.work for slot in free], patience_s, deadline_ms / 1000)

    def _ensure_open(self, now_ms: int) -> None:
        if self._is_open and self._should_reopen(now_ms):
            self._close_library()
        if not self._is_open:
            self._open(now_ms)

    def _should_reopen(self, now_ms: int) -> bool:
        if any(slot.is_stuck for slot in self._slots):
            return False
        if self._have_gpus_changed(now_ms):
            return True
        since_ms = self._lost_since_ms
        if since_ms is None or 0 <= now_ms - since_ms < self._lost_waits.wait:
            return False
        self._lost_waits.advance()
        self._lost_since_ms = now_ms
        return True

    def _have_gpus_changed(self, now_ms: int) -> bool:
        present = self._present()
        if present != self._seen:
            _log.info("the GPUs of this node have changed: reopening NVML")
            return True
        if 0 <= now_ms - self._counted_ms < self._settings.device_check_period_ms:
            return False
        self._counted_ms = now_ms
        try:
            return self._count() != len(self._slots)
        except UnavailableError:
            return True

    def _open(self, now_ms: int) -> None:
        if not self._retry.is_over(now_ms):
            raise UnavailableError(self._failure)
        self._seen = self._present()
        try:
            self._system.call("open", "nvmlInit")
            self._is_open = True
            count = self._count()
            self._counted_ms = now_ms
            before = {slot.gpu.uuid: slot.gpu for slot in self._slots if slot.gpu.pci_bus_id}
            self._shared = self._new_shared(count)
            self._callers += [Caller(self._library) for _ in range(len(self._callers), count)]
            callers = self._callers[:count]
            self._slots = [Slot(i, caller, self._shared) for i, caller in enumerate(callers)]
            self._run(Slot.begin_open, now_ms, self._settings.open_deadline_ms)
            for slot in self._slots:
                slot.outcome(now_ms)
        except UnavailableError as failure:
            self._close_library()
            raise self._unavailable(failure, now_ms) from failure
        self._waits.reset()
        self._note_gone(before, now_ms)

    def _count(self) -> int:
        return int(self._system.call("open", "nvmlDeviceGetCount"))

    def _close_library(self) -> None:
        """Shut NVML down, unless a call is still in it."""
        self._shared.watcher.stop()
        self._shared.poller.stop()
        if not self._is_open:
            return
        self._is_open = False
        self._run(lambda slot, _now_ms: slot.begin_close(), 0, self._settings.deadline_ms)
        beside = (self._shared.watcher, self._shared.poller)
        if any(slot.is_stuck for slot in self._slots) or any(each.is_alive for each in beside):
            _log.warning("NVML is left open: a call to it has not come back")
            return
        with suppress(UnavailableError):
            self._system.call("open", "nvmlShutdown")

    def _new_shared(self, gpus: int) -> ReaderContext:
        settings = self._settings
        watcher = XidWatcher(self._system, self._xids, self._clock.now_ms, settings.xid_wait_ms)
        poller = Poller(
            self._polling,
            lambda: self._clock.now_ms() * 1000,
            settings.poll_period_ms,
            settings.unsupported_retry_ms,
        )
        paced = replace(settings, graphics_period_ms=settings.graphics_ms(gpus))
        return ReaderContext(
            paced, self._fields, self._xids, watcher, poller, lambda: self._instances
        )

    def _unavailable(self, failure: UnavailableError, now_ms: int) -> UnavailableError:
        self._failure = f"NVML can't be used: {failure}"
        self._retry.begin(now_ms, self._waits.advance())
        return UnavailableError(self._failure)

    def _note_gone(self, before: dict[str, GpuIdentity], now_ms: int) -> None:
        """Record the GPUs missing since NVML was reopened, and those that are back."""
        now = {slot.gpu.uuid for slot in self._slots}
        missing = {gpu.index: gpu for uuid, gpu in before.items() if uuid not in now}
        for slot in self._slots:
            if not slot.gpu.pci_bus_id and slot.gpu.index in missing:
                slot.gpu = missing.pop(slot.gpu.index)  # lost, and already known to be
        for gpu in missing.values():
            self._gone.setdefault(gpu.uuid, (gpu, now_ms))
        for uuid in now & self._gone.keys():
            del self._gone[uuid]
        if before and now != before.keys():
            _log.info("NVML has %d GPUs, %d before", len(now), len(before))


def _by_index(gpu: GpuIdentity) -> tuple[int, str]:
    return (gpu.index, gpu.uuid)
