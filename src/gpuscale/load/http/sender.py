"""The open loop: requests go out when they are due, also while the server is slow.

Latency counts from the moment that a request was due, so a server that stands still for a second shows in
all requests of that second, not in one (coordinated omission). A closed loop (users who wait for answers) is
there for comparisons; it hides that, and it never asks for more than the server gives.
"""

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from gpuscale.base.backoff import Backoff
from gpuscale.load.http.connection import LoadConnection
from gpuscale.load.http.target import LoadTarget
from gpuscale.load.http.waiting import Alarm
from gpuscale.load.plan import LoadPlan
from gpuscale.load.recording import RunRecorder, Second

_LOG = logging.getLogger(__name__)
_BURST = 32
"""Requests that are late go out in bursts, between which answers are read."""
_SKIPPED = 1024
"""The same of requests that are too late to be sent at all."""
_SWEEP_S = 0.1
_CONNECT_FAILURES = 16
"""Connections that are tried at once while the server refuses them."""
_FIRST_RETRY_S, _LAST_RETRY_S = 0.1, 1.0
"""How long users of a closed loop wait after a refused connection; an open loop goes on with its rate."""


class Sender:
    """Sends the requests of a plan from one process.

    Args:
        plan: what to do.
        target: where.
        due: when requests are due, seconds from the start, ascending; ignored in a closed loop.
        requests: what is sent, one after the other; those of the target where none are given.
        clock: seconds, monotonic.
        turned_to: takes the moments at which this process turned to each request of an open loop; latency
            counts from them then, so that delays of this process are in the arrivals and not in the latency.
    """

    def __init__(
        self,
        plan: LoadPlan,
        target: LoadTarget,
        due: Iterator[float],
        requests: Iterator[bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
        turned_to: list[float] | None = None,
    ) -> None:
        self._plan, self._target, self._due, self._clock = plan, target, due, clock
        self._turned_to = turned_to
        self._requests = target.requests() if requests is None else requests
        self._recorder = RunRecorder()
        self._idle: list[LoadConnection] = []
        self._waiting: deque[float] = deque()
        self._deadlines: deque[tuple[float, LoadConnection, int]] = deque()
        self._open = self._opening = self._busy = 0
        self._refused_in_a_row = 0
        self._retry = Backoff(_FIRST_RETRY_S, _LAST_RETRY_S)
        self._retry_at_s = float("-inf")
        self._number = self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported: set[str] = set()
        self._is_over = False
        self._crash: BaseException | None = None

    async def run(self, start_s: float, stop: asyncio.Event) -> AsyncIterator[Second]:
        """Send requests, and yield each second's results; the last includes responses after the end.

        Args:
            start_s: when the run starts, on this process' clock.
            stop: ends it early.
        """
        sending = asyncio.create_task(self._send_all(start_s, stop), name="requests")
        sweeping = asyncio.create_task(self._sweep(), name="time-outs")
        try:
            index = 0
            while not sending.done():
                await asyncio.wait({sending}, timeout=start_s + index + 1 - self._clock())
                if self._crash is not None:
                    raise self._crash
                if self._clock() >= start_s + index + 1:
                    yield self._recorder.take(index, self._in_flight())
                    index += 1
            await sending
            yield self._recorder.take(index, self._in_flight())
        finally:
            self._is_over = True
            sending.cancel()
            sweeping.cancel()
            for task in self._tasks:
                task.cancel()
            for connection in [*self._idle, *(each for _, each, _ in self._deadlines)]:
                connection.close()

    async def _send_all(self, start_s: float, stop: asyncio.Event) -> None:
        """Send all requests, then wait for the last responses up to the request time limit."""
        if self._plan.load is None:
            await self._send_closed(start_s, stop)
        else:
            with Alarm() as alarm:
                await self._send_open(start_s, stop, alarm)
        # A request may wait for a connection as long as for its response.
        last_s = self._clock() + 2 * (self._plan.request.timeout_s + _SWEEP_S)
        while self._in_flight() and self._clock() < last_s and not stop.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # an event would have to be set at every response
        self._is_over = True
        self._recorder.counts.not_sent += len(self._waiting)
        self._waiting.clear()
        for _, connection, number in self._deadlines:
            if connection.is_busy and connection.number == number:
                connection.close()
                self._count_fault("unfinished", "the run ended before the answer")

    async def _send_open(self, start_s: float, stop: asyncio.Event, alarm: Alarm) -> None:
        in_burst, timeout_s = 0, self._plan.request.timeout_s
        for offset in self._due:
            due_s = start_s + offset
            while (ahead_s := due_s - self._clock()) > 0 and not stop.is_set():
                in_burst = 0
                # At most half a second, so that a stop is noticed even if requests are rare.
                await alarm.wait(min(ahead_s, 0.5))
            if stop.is_set() or self._number >= self._plan.bounds.requests:
                return
            now_s = self._clock()
            if now_s - due_s > timeout_s:
                # As if it had waited so long for a connection; otherwise the run would not end in
                # time.
                self._number += 1
                self._recorder.counts.not_sent += 1
                if self._number % _SKIPPED == 0:
                    await asyncio.sleep(0)
                continue
            self._recorder.lateness.record_value(_us(now_s - due_s))
            if self._turned_to is not None:
                self._turned_to.append(now_s - start_s)
                due_s = now_s
            self._dispatch(due_s)
            in_burst += 1
            if in_burst == _BURST:
                in_burst = 0
                await asyncio.sleep(0)

    async def _send_closed(self, start_s: float, stop: asyncio.Event) -> None:
        await asyncio.sleep(max(0.0, start_s - self._clock()))
        for _ in range(self._plan.users):
            self._dispatch(self._clock())
        end_s = start_s + self._plan.duration_s
        while self._clock() < end_s and not stop.is_set():
            # As many waits are over as there are users without a request.
            users = self._plan.users if self._clock() >= self._retry_at_s else 0
            for _ in range(users - self._busy - len(self._waiting)):
                if self._number >= self._plan.bounds.requests:
                    return
                self._dispatch(self._clock())
            await asyncio.sleep(0.0005)

    def _dispatch(self, due_s: float) -> None:
        self._number += 1
        if self._idle:
            self._send(self._idle.pop(), due_s)
        elif len(self._waiting) >= self._plan.bounds.waiting:
            self._recorder.counts.not_sent += 1
        else:
            self._waiting.append(due_s)
            self._open_more()

    def _send(self, connection: LoadConnection, due_s: float) -> None:
        self._recorder.counts.sent += 1
        self._busy += 1
        self._sent += 1
        connection.send(next(self._requests), due_s, self._sent)
        timeout_s = self._plan.request.timeout_s
        self._deadlines.append((self._clock() + timeout_s, connection, connection.number))

    def _open_more(self) -> None:
        """Open connections for waiting requests, within the limits."""
        most = self._plan.bounds.connections - self._open
        if self._refused_in_a_row:
            most = min(most, _CONNECT_FAILURES)
        while self._opening < min(len(self._waiting), most) and not self._is_over:
            self._opening += 1
            task = asyncio.get_running_loop().create_task(self._connect())
            self._tasks.add(task)
            task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = error

    async def _connect(self) -> None:
        host, port = self._target.addresses[self._open % len(self._target.addresses)]
        connection = LoadConnection(self, self._clock)
        try:
            async with asyncio.timeout(self._plan.request.timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=self._target.tls,
                    server_hostname=self._target.server_name,
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._opening -= 1
            self._refuse(error)
            return
        self._opening -= 1
        self._open += 1
        self._refused_in_a_row = 0
        self._retry.reset()
        self._make_idle(connection)

    def _refuse(self, error: Exception) -> None:
        """Count a request that got no connection."""
        self._refused_in_a_row += 1
        text = str(error) or "no connection within the time-out"
        if self._plan.load is None:
            text += f" (users wait up to {_LAST_RETRY_S:g} s before they try again)"
            if (now_s := self._clock()) >= self._retry_at_s:  # all users of one try wait once
                self._retry_at_s = now_s + self._retry.advance()
        kind = "refused"
        if isinstance(error, ssl.SSLError):
            kind = "tls"
        elif isinstance(error, TimeoutError):
            kind = "timeout"
        if self._waiting:
            self._waiting.popleft()
            self._recorder.counts.sent += 1
            self._count_fault(kind, text)
        self._open_more()

    def _make_idle(self, connection: LoadConnection) -> None:
        if self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    # Called by connections.

    def answered(self, connection: LoadConnection, status: int, size: int) -> None:
        """Count a response, and give the connection its next request."""
        now_s, counts = self._clock(), self._recorder.counts
        counts.statuses[status] += 1
        counts.ok += status < 400
        counts.bytes_in += size
        self._recorder.latency.record_value(_us(now_s - connection.due_s))
        self._recorder.service.record_value(_us(now_s - connection.written_s))
        self._busy -= 1
        if status >= 300:
            text = "the server's answer to a request"
            text += " (redirects are not followed)" if status < 400 else ""
            self._report(f"HTTP {status}", text)
        if connection.is_open:
            self._make_idle(connection)
        else:
            self._open -= 1
            self._open_more()

    def failed(self, connection: LoadConnection, kind: str, text: str) -> None:
        """Count a failed request."""
        self._busy -= 1
        self._open -= 1
        self._count_fault(kind, text)
        self._open_more()

    def gone(self, connection: LoadConnection) -> None:
        """Drop an idle connection that the server closed."""
        if connection in self._idle:
            self._idle.remove(connection)
            self._open -= 1

    async def _sweep(self) -> None:
        """End requests beyond their time limit."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = self._clock()
            while self._deadlines and self._is_settled(self._deadlines[0], now_s):
                self._deadlines.popleft()
            while self._waiting and now_s - self._waiting[0] > self._plan.request.timeout_s:
                self._waiting.popleft()
                self._recorder.counts.sent += 1
                self._count_fault("timeout", "no connection was free within the time-out")

    def _is_settled(self, entry: tuple[float, LoadConnection, int], now_s: float) -> bool:
        deadline_s, connection, number = entry
        if not connection.is_busy or connection.number != number:
            return True
        if now_s < deadline_s:
            return False
        connection.close()
        self.failed(connection, "timeout", "no answer within the time-out")
        return True

    def _in_flight(self) -> int:
        return self._busy + len(self._waiting)

    def _count_fault(self, kind: str, text: str) -> None:
        self._recorder.counts.faults[kind] += 1
        self._report(kind, text)

    def _report(self, kind: str, text: str) -> None:
        """Report each kind of failure once; counters have the rest."""
        if kind not in self._reported:
            self._reported.add(kind)
            _LOG.warning("%s: %s; further ones are only counted", kind, text)


def _us(seconds: float) -> int:
    return max(1, round(seconds * 1_000_000))
