"""The node agent: it collects periodically, and serves scrapers, probes and stream subscribers.

It listens before it reads: `/health` only says that the server runs, so that a slow driver does not get it
killed; `/readyz` waits for the first good collect. Scrapes get bytes that are already there and cost the
same however many come.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from gpuscale.agent.exporter.collector import AttributionOf, Collector, ReadOutcome
from gpuscale.agent.exporter.families.own_metrics import (
    ServerStatus,
    cpu_seconds,
    resident_memory_bytes,
)
from gpuscale.agent.exporter.http.subscribers import Subscribers
from gpuscale.agent.exporter.pacing import ScrapePhase
from gpuscale.agent.exporter.routes import Handlers, ServeOptions
from gpuscale.agent.exporter.snapshot import TickSnapshot
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.formats.styles import Style
from gpuscale.agent.gpu.reader import GpuReader
from gpuscale.base.clock import Clock, FollowingClock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.http_server import HttpServer
from gpuscale.signals import Counter

_log = logging.getLogger(__name__)
_STOP_WAIT_S = 1.0
_FIRST_WAIT_S = 2.0
_SHUTDOWN_S = 2.0
"""How long answers under way may take once the agent stops."""


class NodeAgent:
    """Collects periodically and answers scrapes.

    Args:
        reader: of this node's GPUs.
        attribution: returns what is known of the readings' owners right now, None where owners are not
            looked for; called on the event loop.
        counters: the fields to serve.
        options: how to label them.
        clock: times the collects, and gives readings their times.
        interval_s: from one collect to the next, in the clock's seconds.
        styles: `dcgm`, `ack` or both.
        serve: how to serve.
        reader_blocks: read in a thread of its own. False for readers that never block, or that look
            into objects of this event loop.
        read_timeout_s: how long a read may take before the GPUs count as unreadable, in the machine's
            seconds; for readers that block.
    """

    def __init__(
        self,
        reader: GpuReader,
        attribution: AttributionOf,
        counters: Sequence[Counter],
        options: FamilyOptions,
        clock: Clock,
        interval_s: float,
        styles: frozenset[Style] = frozenset({"dcgm"}),
        serve: ServeOptions | None = None,
        *,
        reader_blocks: bool = True,
        read_timeout_s: float = 5.0,
    ) -> None:
        self._serve = serve or ServeOptions()
        self._collector = Collector(
            reader, attribution, counters, options, clock, styles, self._serve.extras
        )
        self._clock = clock
        self._interval_s = interval_s
        self._read_timeout_s = read_timeout_s
        self._worker = ThreadPoolExecutor(1, "gpu-reader") if reader_blocks else None
        self._unanswered: asyncio.Future[ReadOutcome] | None = None
        self._task: asyncio.Task[None] | None = None
        self._server: HttpServer | None = None
        self._snapshot = self._collector.nothing_yet()
        self._phase = ScrapePhase()
        self._sleeping: asyncio.Future[None] | None = None
        self._has_collected = asyncio.Event()
        self._subscribers = Subscribers()
        self._handlers = Handlers(self, options.hostname, self._serve, self._subscribers)

    @property
    def snapshot(self) -> TickSnapshot:
        return self._snapshot

    def age_s(self, at_ms: int) -> float:
        """Return the age of a time in seconds."""
        return (self._clock.now_ms() - at_ms) / 1000

    async def start(self, host: str, port: int, sockets: Sequence[socket.socket] = ()) -> int:
        """Listen, begin to collect, and return the port.

        Args:
            host: address to listen on; empty is all.
            port: 0 is a free one.
            sockets: listen on these instead, which are bound already.

        Raises:
            UnavailableError: the address can't be listened on.
        """
        server = HttpServer(self._handlers.answer, _SHUTDOWN_S)
        tls = self._serve.tls.context if self._serve.tls else None
        try:
            listening = await server.start(host, port, sockets, tls)
        except OSError as error:
            await server.stop()
            reason = error.strerror or error
            raise UnavailableError(f"can't listen on {host}:{port}: {reason}") from error
        self._server = server
        self._task = asyncio.create_task(self._run(), name="exporter-collect")
        return listening

    async def stop(self) -> None:
        """Stop collecting and listening; a second call does nothing."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._subscribers.dismiss_all()
        if self._server is not None:
            await self._server.stop()
            self._server = None
        if self._unanswered is not None:
            await asyncio.wait({self._unanswered}, timeout=_STOP_WAIT_S)
        if self._worker is not None:
            self._worker.shutdown(wait=False)

    async def collect(self) -> None:
        """Collect once, now."""
        outcome = self._collector.read() if self._worker is None else await self._read_in_worker()
        self._publish(outcome)

    def configure(self, counters: Sequence[Counter]) -> None:
        """Serve other counters from the next collect on."""
        self._collector.configure(counters)

    async def first_collect(self) -> TickSnapshot:
        """Wait for the first collect, good or bad, and return its snapshot."""
        await self._has_collected.wait()
        return self._snapshot

    def hurry(self) -> None:
        """Collect at the stream's pace from now on, for the first subscriber."""
        if self._sleeping is not None and self._serve.stream_interval_s is not None:
            self._sleeping.cancel()

    def note_scrape(self) -> None:
        """Record a scrape, so that collects can come just before the next one."""
        self._phase.note(self._clock.now_ms())

    def _publish(self, outcome: ReadOutcome) -> None:
        snapshot = self._snapshot = self._collector.publish(outcome, self._server_status)
        self._has_collected.set()
        if len(self._subscribers):
            self._subscribers.publish(snapshot.devices, snapshot.measured_ms, snapshot.status.error)

    async def _run(self) -> None:
        if self._serve.before_first is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_WAIT_S):
                    await self._serve.before_first()
        while True:
            # A changed machine clock is followed between two collects, so that it affects none.
            moved_s = self._clock.follow() if isinstance(self._clock, FollowingClock) else 0.0
            if moved_s:
                _log.warning(
                    "the machine's clock was set by %+.1f s; values have the new time", moved_s
                )
            started_ms = self._clock.now_ms()
            try:
                await self.collect()
            except Exception:  # noqa: BLE001 - the task's top: log, count, and go on
                _log.exception("a collect broke off")
                self._publish(_failure("a fault in the exporter"))
            pace_s = self._interval_s
            if self._serve.stream_interval_s is not None and len(self._subscribers):
                pace_s = min(self._serve.stream_interval_s, pace_s)
            now_ms, pace_ms = self._clock.now_ms(), round(pace_s * 1000)
            due_ms = self._phase.shifted_ms(started_ms + pace_ms, pace_ms, now_ms - started_ms)
            wait_s = max(0, due_ms - now_ms) / 1000
            # A first subscriber makes the next collect due at once: `hurry` cancels this wait.
            pause = self._sleeping = asyncio.ensure_future(self._clock.sleep(wait_s))
            try:
                await asyncio.wait((pause,))
            finally:
                pause.cancel()

    async def _read_in_worker(self) -> ReadOutcome:
        """Return the worker's readings, or a failure if it is stuck; the worker gets one read at a time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._read_timeout_s):
                if self._unanswered is not None:
                    await asyncio.shield(self._unanswered)  # its readings are too old by now
                self._unanswered = loop.run_in_executor(self._worker, self._collector.read)
                outcome = await asyncio.shield(self._unanswered)
        except TimeoutError:
            return _failure(f"no answer from the driver for {self._read_timeout_s:g} s")
        self._unanswered = None
        return outcome

    def _server_status(self) -> ServerStatus:
        return ServerStatus(
            subscribers=len(self._subscribers),
            dropped=self._subscribers.dropped,
            requests=self._handlers.requests,
            resident_memory_bytes=resident_memory_bytes(),
            cpu_seconds=cpu_seconds(),
            config=self._serve.config(),
            ready_taint=self._serve.ready_taint(),
        )


def _failure(reason: str) -> ReadOutcome:
    return ReadOutcome((), (), 0.0, reason)
