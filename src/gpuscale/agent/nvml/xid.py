"""XID errors: a thread that waits for the driver's events, and their log.

XIDs can't be asked for later, so the thread waits all the time. What it heard outlives a new opening of
NVML: counts go on where they were.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuscale.agent.gpu.readings import EventCount
from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import CallFailedError, DriverGoneError, GpuLostError
from gpuscale.agent.nvml.library import Answer, Handle, handle_key

XID_FIELD = "DCGM_FI_DEV_XID_ERRORS"
COUNT_FIELD = "DCGM_EXP_XID_ERRORS_COUNT"
TOTAL_FIELD = "DCGM_EXP_XID_ERRORS_TOTAL"
XID_FIELDS = frozenset({XID_FIELD, COUNT_FIELD, TOTAL_FIELD})

_STOP_WAIT_S = 2.0
_FAULT_PAUSE_S = 1.0
_MOST_KEPT = 10_000
"""Events that a window can hold; a GPU that sends more is broken beyond counting."""
_NO_INSTANCE = 0xFFFF_FFFF

_log = logging.getLogger(__name__)
Place = tuple[str, int | None]
"""UUID of a GPU, and the id of one of its instances or None for all of it."""


@dataclass(slots=True)
class _Heard:
    """The XIDs of one GPU or instance."""

    latest: int = 0
    totals: Counter[int] = field(default_factory=Counter)
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MOST_KEPT))
    """(milliseconds, XID), oldest first."""

    def keep_before(self, now_ms: int) -> None:
        """Treat XIDs with a future time as new after the clock was set back, so that none is missed."""
        if any(at_ms > now_ms for at_ms, _ in self.recent):
            moved = [(min(at_ms, now_ms), xid) for at_ms, xid in self.recent]
            self.recent = deque(sorted(moved), maxlen=_MOST_KEPT)


class XidLog:
    """All observed XIDs, by GPU or instance. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Place, _Heard] = {}

    def add(self, place: Place, xid: int, now_ms: int) -> None:
        """Record an XID; 0 means none and is ignored."""
        if xid == 0:
            return
        with self._lock:
            heard = self._places.setdefault(place, _Heard())
            heard.latest = xid
            heard.totals[xid] += 1
            heard.recent.append((now_ms, xid))

    def latest(self, place: Place) -> int:
        """Return the latest XID, 0 for none since the start."""
        with self._lock:
            heard = self._places.get(place)
            return heard.latest if heard else 0

    def events(
        self, place: Place, now_ms: int, window_ms: int, fields: frozenset[str]
    ) -> tuple[EventCount, ...]:
        """Return counts by XID; a single zero without XID for a quiet window."""
        with self._lock:
            heard = self._places.get(place) or _Heard()
            heard.keep_before(now_ms)
            while heard.recent and heard.recent[0][0] <= now_ms - window_ms:
                heard.recent.popleft()
            counts = Counter(xid for _, xid in heard.recent)
            totals = dict(heard.totals)
        found: list[EventCount] = []
        window = ("window_size_in_ms", str(window_ms))
        if COUNT_FIELD in fields:
            found += [
                EventCount(COUNT_FIELD, (window, ("xid", str(xid))), count)
                for xid, count in sorted(counts.items())
            ] or [EventCount(COUNT_FIELD, (window,), 0)]
        if TOTAL_FIELD in fields:
            found += [
                EventCount(TOTAL_FIELD, (("xid", str(xid)),), count)
                for xid, count in sorted(totals.items())
            ]
        return tuple(found)


class XidWatcher:
    """Waits for XIDs of the registered GPUs, while NVML is open.

    Args:
        caller: for the watcher's own calls.
        log: where to note what is heard.
        now_ms: the time to note beside it.
        wait_ms: how long to wait at a time.
    """

    def __init__(
        self, caller: Caller, log: XidLog, now_ms: Callable[[], int], wait_ms: int
    ) -> None:
        self._caller = caller
        self._log = log
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._uuids: dict[int, str] = {}
        self._stopping = threading.Event()
        self._set: Answer = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def watch(self, handle: Handle, uuid: str) -> None:
        """Register a GPU for XID events.

        While the thread waits, the driver blocks other calls: then this takes up to `wait_ms`.

        Raises:
            CallFailedError: this GPU or driver sends none.
        """
        with self._lock:
            if self._set is None:
                self._set = self._caller.call("events", "nvmlEventSetCreate")
            self._uuids[handle_key(handle)] = uuid
            self._caller.call(
                "events",
                "nvmlDeviceRegisterEvents",
                handle,
                self._caller.constant("nvmlEventTypeXidCriticalError"),
                self._set,
            )

    def start(self) -> None:
        """Start to wait, for all GPUs registered now or later."""
        with self._lock:
            if self._set is not None and self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="nvml-xid", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread and free its resources; a thread that does not stop is abandoned."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_WAIT_S)
            if self._thread.is_alive():
                return
        if self._set is not None:
            try:
                self._caller.call("events", "nvmlEventSetFree", self._set)
            except (CallFailedError, GpuLostError, DriverGoneError) as failure:
                _log.debug("freeing the event set failed: %s", failure)
            self._set = None

    def _run(self) -> None:
        timeout = self._caller.library.NVMLError_Timeout
        error = self._caller.library.NVMLError
        logged = ""
        while not self._stopping.is_set():
            try:
                event = self._caller.library.nvmlEventSetWait_v2(self._set, self._wait_ms)
            except timeout:
                continue
            except error as failure:
                if str(failure) != logged:
                    logged = str(failure)
                    _log.warning("waiting for XID errors failed: %s", failure)
                self._stopping.wait(_FAULT_PAUSE_S)
                continue
            self._hear(event)

    def _hear(self, event: Answer) -> None:
        uuid = self._uuids.get(handle_key(event.device))
        if uuid is None:
            return
        instance = None if event.gpuInstanceId == _NO_INSTANCE else int(event.gpuInstanceId)
        xid = int(event.eventData)
        _log.warning("XID %d on GPU %s", xid, uuid)
        self._log.add((uuid, instance), xid, self._now_ms())
