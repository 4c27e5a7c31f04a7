"""A scaler built from its settings, with its background tasks.

It listens before anything else works: KEDA takes a ScaledObject down as a whole while GetMetricSpec fails,
and that needs nothing but the metadata. What values come from is opened behind it, and tried again.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuscale.base.backoff import Backoff
from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError
from gpuscale.base.exposition.families import Family
from gpuscale.base.exposition.write import CONTENT_TYPE, render_text
from gpuscale.base.http_server import HttpServer, Request, Response, text_response
from gpuscale.base.memory import give_memory_back
from gpuscale.server.metricsapi.api_servers import connect_objects
from gpuscale.server.metricsapi.backend import MetricsBackend, Task
from gpuscale.server.metricsapi.health import ENDPOINTS, PING, HealthCheck, health
from gpuscale.server.metricsapi.telemetry.own_metrics import ServerMetrics, with_samples
from gpuscale.server.metricsapi.trigger_settings import TriggerSettings
from gpuscale.server.metricsapi.triggers.opened import Triggers, open_triggers
from gpuscale.server.scaler.certificate import WatchedCertificate
from gpuscale.server.scaler.connections import ConnectionBounds
from gpuscale.server.scaler.known_triggers import KnownTriggers, ReadTrigger, WatchedTriggers
from gpuscale.server.scaler.server import GrpcServer
from gpuscale.server.scaler.service import ExternalScaler
from gpuscale.server.scaler.settings import ScalerSettings
from gpuscale.server.scaler.telemetry import ScalerMetrics
from gpuscale.triggers import Answer, KeptAnswers, Trigger, read_metadata
from gpuscale.triggers.policies import policy_faults

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 15.0
_EVALUATIONS_AT_ONCE = 8
"""KEDA's calls wait while evaluations are worked on, so few of these come in a row."""
_GIVE_BACK_S = 2.0
_GROWTH_BYTES = 16 * 1024 * 1024
_GOODBYE_S = 5.0
"""How long calls may take to end when the server stops."""


class Watch(KeptAnswers, Protocol):
    """Evaluates triggers in the background."""

    async def run(self) -> None:
        """Evaluate until cancelled."""
        ...

    def families(self) -> tuple[Family, ...]:
        """Return the metrics of the evaluations."""
        ...

    def checks(self) -> list[HealthCheck]:
        """Return the health checks of the evaluations."""
        ...


class MakeWatch(Protocol):
    """Creates the watch of triggers."""

    def __call__(
        self, backend: MetricsBackend, stack: AsyncExitStack, *, is_clustered: bool
    ) -> Watch:
        """Return a watch on an open backend; the exit stack closes it."""
        ...


@dataclass
class LateAnswers:
    """Stands in for the triggers' answers while the watch is still being opened, as KEDA already calls."""

    fault: str = ""
    """Why it could not be opened; empty before the first try ended."""
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    watch: Watch | None = None

    def open(self, watch: Watch) -> None:
        self.watch = watch
        self.opened.set()

    def answer(self, trigger: Trigger) -> Answer | None:
        """See `KeptAnswers`.

        Raises:
            UnavailableError: it could not be opened.
        """
        if self.watch is not None:
            return self.watch.answer(trigger)
        if self.fault:
            raise UnavailableError(self.fault)
        return None

    def kept(self, trigger: Trigger) -> Answer | None:
        """See `KeptAnswers`."""
        return None if self.watch is None else self.watch.kept(trigger)

    async def changes(self, trigger: Trigger) -> AsyncIterator[Answer]:
        await self.opened.wait()
        if self.watch is not None:
            async for answer in self.watch.changes(trigger):
                yield answer


class ScalerServer:
    """Everything that one `gpuscale scaler` process runs.

    Args:
        settings: from the command line.
        read_trigger: makes triggers of metadata.
        make_watch: makes what evaluates them.
        clock: for all waits and times.
    """

    def __init__(
        self,
        settings: ScalerSettings,
        read_trigger: ReadTrigger,
        make_watch: MakeWatch,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._make_watch = make_watch
        self._clock = clock or WallClock()
        self._metrics = ScalerMetrics()
        self._answers = LateAnswers()
        self._backend: MetricsBackend | None = None
        self._certificate: WatchedCertificate | None = None
        self._bounds: ConnectionBounds | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        limits = settings.limits
        self._watched = WatchedTriggers(limits.triggers, limits.triggers_per_address)
        self._scaler = ExternalScaler(
            self._answers,
            KnownTriggers(read_trigger),
            self._watched,
            self._metrics,
            limits.stream_lifetime_s,
        )

    async def run(
        self,
        stop: asyncio.Event,
        announce: Callable[[str], None],
        hurry: asyncio.Event | None = None,
    ) -> None:
        """Serve until `stop` is set.

        Args:
            stop: ends it.
            announce: called with each address that is listened on.
            hurry: ends it without a delay.

        Raises:
            ConfigError: the rule file is wrong.
            UsageError: a file can't be used.
            UnavailableError: an address can't be listened on.
        """
        settings = self._settings
        if settings.tls is not None:
            self._certificate = WatchedCertificate(settings.tls)
        server = GrpcServer(self._scaler, self._metrics, settings.limits, self._certificate)
        http = HttpServer(self._answer_http, _GOODBYE_S)
        self._server = server
        try:
            port = await server.start(settings.host, settings.port)
            announce(f"grpc://{settings.host}:{port}")
            if settings.metrics_port is not None:
                try:
                    await http.start(settings.host, settings.metrics_port)
                except OSError as error:
                    address = f"{settings.host}:{settings.metrics_port}"
                    reason = error.strerror
                    raise UnavailableError(f"can't listen on {address}: {reason}") from error
                announce(f"http://{settings.host}:{settings.metrics_port}")
            self._bounds = ConnectionBounds(
                port, settings.limits.connections, settings.limits.connections_per_address
            )
            async with AsyncExitStack() as stack:
                await self._run_beside(stack, self._bounds, stop, hurry or asyncio.Event())
        except BaseExceptionGroup as group:
            known, _ = group.split(GpuscaleError)
            if known is None:
                raise
            raise known.exceptions[0] from None
        finally:
            await server.stop(_GOODBYE_S)
            await http.stop()

    async def _run_beside(
        self,
        stack: AsyncExitStack,
        bounds: ConnectionBounds,
        stop: asyncio.Event,
        hurry: asyncio.Event,
    ) -> None:
        """Run the background tasks until the last call has been answered."""
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(bounds.run(), name="connections"),
                group.create_task(self._give_back(), name="memory"),
                group.create_task(self._open(group, stack), name="opening"),
            ]
            if self._certificate is not None:
                running.append(group.create_task(self._certificate.run(), name="certificate"))
            try:
                await stop.wait()
                self._stopping = True
                self._server.say_not_ready()
                await self._delay(hurry)
                await self._server.stop(_GOODBYE_S)
            finally:
                for task in (*running, *self._tasks):
                    task.cancel()

    async def _delay(self, hurry: asyncio.Event) -> None:
        """Keep serving for a while after the stop signal, so that KEDA finds the other replica first."""
        delay_s = self._settings.shutdown_delay_s
        if delay_s and not hurry.is_set():
            _LOG.info("stopping: serving goes on for %g s", delay_s)
            try:
                async with asyncio.timeout(delay_s):
                    await hurry.wait()
            except TimeoutError:
                return

    async def _open(self, group: asyncio.TaskGroup, stack: AsyncExitStack) -> None:
        """Open the metric source and the watch; retry while the API server or the source doesn't answer."""
        backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        while True:
            backend = MetricsBackend(self._settings, ServerMetrics(self._clock), self._clock)
            async with AsyncExitStack() as attempt:
                try:
                    client = connect_objects(self._settings, attempt)
                    await backend.open(client, attempt)
                    watch = self._make_watch(backend, attempt, is_clustered=client is not None)
                except (UnavailableError, UpstreamError) as error:
                    self._answers.fault = str(error)
                    _LOG.warning("nothing can be answered but GetMetricSpec: %s", error)
                else:
                    stack.push_async_exit(attempt.pop_all())
                    self._backend = backend
                    tasks: list[Task] = [*backend.tasks, ("triggers", watch.run)]
                    self._tasks = [group.create_task(task(), name=name) for name, task in tasks]
                    self._answers.open(watch)
                    return
            await self._clock.sleep(backoff.jittered())

    async def _give_back(self) -> None:
        """Return freed memory to the system from time to time; gRPC and the C library would keep it."""
        least = _resident_bytes()
        while True:
            await asyncio.sleep(_GIVE_BACK_S)
            now = _resident_bytes()
            least = min(least, now)
            if now - least >= _GROWTH_BYTES:
                give_memory_back()
                least = _resident_bytes()

    async def _answer_http(self, request: Request) -> Response:
        name = request.path.strip("/")
        if name == "metrics":
            watch = self._answers.watch
            counts = self._bounds.counts if self._bounds is not None else Counter()
            families = with_samples(
                self._metrics.families(self._server.streams, counts, len(self._watched)),
                () if self._backend is None else self._backend.families(),
                () if watch is None else watch.families(),
            )
            text = render_text(families)
            return Response(text.encode(), 200, {"Content-Type": CONTENT_TYPE})
        if name in ENDPOINTS:
            found = health(
                name, self._checks(name), frozenset(), verbose=request.has_parameter("verbose")
            )
            return text_response(found.text, 200 if found.is_well else 503)
        return text_response("expected /metrics, /healthz, /livez or /readyz\n", 404)

    def _checks(self, endpoint: str) -> list[HealthCheck]:
        if endpoint == "livez":
            return [PING]
        checks = [PING]
        if self._backend is None:
            # Ready nevertheless: GetMetricSpec works, and without it KEDA would never fall back.
            checks.append(
                HealthCheck("values", remark=self._answers.fault or "the scaler has just started")
            )
        else:
            checks += self._backend.checks()
            checks += [] if self._answers.watch is None else self._answers.watch.checks()
        if self._certificate is not None:
            checks.append(HealthCheck("certificate", remark=self._certificate.fault or ""))
        if endpoint == "readyz":
            checks.append(
                HealthCheck("shutdown", "the server is stopping" if self._stopping else None)
            )
        return checks


def _resident_bytes() -> int:
    """Return this process' resident memory in bytes; 0 if the system doesn't report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def scaler_server(settings: ScalerSettings) -> ScalerServer:
    """Return a scaler with these settings."""
    clock = WallClock()
    bounds = TriggerSettings(
        max_triggers=settings.limits.triggers,
        max_namespace_triggers=settings.limits.triggers_per_namespace,
        at_once=_EVALUATIONS_AT_ONCE,
    )

    def make_watch(
        backend: MetricsBackend, stack: AsyncExitStack, *, is_clustered: bool
    ) -> Triggers:
        return open_triggers(
            backend,
            settings,
            clock,
            stack,
            is_clustered=is_clustered,
            place=settings.held,
            bounds=bounds,
        )

    return ScalerServer(settings, _read_trigger, make_watch, clock)


def _read_trigger(metadata: Mapping[str, str], namespace: str) -> Trigger:
    return read_metadata(metadata, namespace, check=policy_faults)
