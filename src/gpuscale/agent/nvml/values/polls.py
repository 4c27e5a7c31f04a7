"""The driver's utilization figures, read several times a second by a thread.

The driver computes a GPU's utilisation every 200 ms. Its buffer of past figures costs 2 to 3 ms of
processor time a call, the newest figure tens of microseconds: to ask for it five times a second is a
seventh of the cost of one look into the buffer, and gives the same. On an H200 under loads of a half, means
over 8 s of the one and the other were 45.9 and 46.2, 47.1 and 47.4.

Reads ask for the newest figure themselves, beside their other calls, where it costs a tenth of what it
costs this thread: the first call after a pause is the dear one. Where reads come about as often as figures,
the thread asks for nothing.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import CallFailedError, DriverGoneError, GpuLostError
from gpuscale.agent.nvml.library import Answer, Handle
from gpuscale.agent.nvml.values.sources import Retry

_log = logging.getLogger(__name__)

_KEPT = 64
"""Figures kept of each GPU: 12 s of them at the default period."""
_FRESH_US = 1_000_000
"""How old the newest figure may be; else the thread is held up, and the window is not known."""
_OFTEN_S = 3.0
"""Reads that come further apart are better served by the driver's buffer, and the thread rests."""
_READS_ASK = 1.5
"""Reads that come within so many periods leave no more than a third of the figures out."""
_STOP_WAIT_S = 1.0


class Polls:
    """The figures of one GPU.

    Args:
        period_ms: from one figure to the next.
    """

    def __init__(self, period_ms: int) -> None:
        self._period_us = period_ms * 1000
        self._figures: deque[tuple[int, Answer]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def add(self, stamp_us: int, rates: Answer) -> None:
        with self._lock:
            self._figures.append((stamp_us, rates))

    def is_kept_up(self, now_us: int) -> bool:
        """Return whether the newest figure is young enough to show that the thread keeps up."""
        with self._lock:
            newest_us = self._figures[-1][0] if self._figures else None
        return newest_us is not None and 0 <= now_us - newest_us <= 2 * self._period_us

    def clear(self) -> None:
        """Forget all figures, as later ones won't continue them."""
        with self._lock:
            self._figures.clear()

    def window(self, rate: str, since_us: int, now_us: int) -> list[tuple[int, float]] | None:
        """Return (microseconds, percent) of the figures after a time; None if they don't reach back to it."""
        with self._lock:
            figures = list(self._figures)
        if not figures or figures[0][0] > since_us + self._period_us * 3 // 2:
            return None
        if not now_us - _FRESH_US <= figures[-1][0] <= now_us + _FRESH_US:
            return None
        return [(stamp, getattr(rates, rate)) for stamp, rates in figures if stamp > since_us]


class Poller:
    """Reads the figures of all GPUs, while reads are frequent.

    A call that hangs holds up the figures of every GPU, and nothing else: windows that are not covered are
    taken from the driver's buffer.

    Args:
        caller: for the thread's own calls.
        now_us: the time to note beside a figure.
        period_ms: from one asking to the next; 0 for never.
        retry_ms: when to ask again where it is not supported.
    """

    def __init__(
        self, caller: Caller, now_us: Callable[[], int], period_ms: int, retry_ms: int
    ) -> None:
        self._caller = caller
        self._now_us = now_us
        self._period_ms = period_ms
        self._retry_ms = retry_ms
        self._targets: dict[Polls, tuple[Handle, Retry]] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_read_s: float | None = None
        self._gap_s = _OFTEN_S

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_polling(self) -> bool:
        """Return whether the thread reads figures, as reads are frequent."""
        return self.is_alive and self._is_read_often()

    def watch(self, handle: Handle) -> Polls:
        """Return the figures of a GPU, which the thread fills."""
        polls = Polls(self._period_ms)
        with self._lock:
            self._targets[polls] = (handle, Retry(self._retry_ms))
        return polls

    def leave(self, polls: Polls) -> None:
        with self._lock:
            self._targets.pop(polls, None)
        polls.clear()

    def note_read(self) -> None:
        """Record a read; frequent reads keep the thread going, or start it."""
        now_s = time.monotonic()
        before_s, self._last_read_s = self._last_read_s, now_s
        self._gap_s = _OFTEN_S if before_s is None else now_s - before_s
        if before_s is None or self._gap_s > _OFTEN_S:
            return
        if not self._period_ms or not self._targets:
            return
        self._wanted.set()
        if self._thread is None and not self._is_stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="nvml-polls", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread; one in a hanging call is abandoned."""
        self._is_stopping.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(_STOP_WAIT_S)

    def poll(self) -> None:
        """Read each GPU's figure once."""
        with self._lock:
            targets = list(self._targets.items())
        for polls, (handle, retry) in targets:
            self._ask(polls, handle, retry)

    def _ask(self, polls: Polls, handle: Handle, retry: Retry) -> None:
        now_us = self._now_us()
        if retry.reason(now_us // 1000) is not None:
            return
        try:
            rates = self._caller.call("utilization_rates", "nvmlDeviceGetUtilizationRates", handle)
        except CallFailedError as failure:
            retry.note(failure, now_us // 1000)
            polls.clear()
        except (GpuLostError, DriverGoneError) as failure:
            _log.debug("polling utilisation failed: %s", failure)  # the reader notices by itself
            polls.clear()
        else:
            polls.add(now_us, rates)

    def _run(self) -> None:
        period_s = self._period_ms / 1000
        due_s = time.monotonic()
        while not self._is_stopping.is_set():
            if not self._is_read_often():
                self._rest()
                due_s = time.monotonic()
            if not self._is_asked_by_reads():
                self.poll()
            due_s = max(due_s + period_s, time.monotonic())
            self._is_stopping.wait(due_s - time.monotonic())

    def _is_read_often(self) -> bool:
        return self._last_read_s is not None and time.monotonic() - self._last_read_s <= _OFTEN_S

    def _is_asked_by_reads(self) -> bool:
        """Return whether reads are so frequent that they bring each GPU's figures themselves."""
        longest_s = self._period_ms * _READS_ASK / 1000
        since_s = time.monotonic() - (self._last_read_s or 0.0)
        if max(self._gap_s, since_s) > longest_s:
            return False
        now_us = self._now_us()
        with self._lock:
            targets = list(self._targets)
        return all(polls.is_kept_up(now_us) for polls in targets)

    def _rest(self) -> None:
        self._wanted.clear()
        if not self._is_stopping.is_set():
            self._wanted.wait()
