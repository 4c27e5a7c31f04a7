"""A metrics API server built from its settings, with its background tasks.

What nothing expected ends the whole server: a part that is missing unseen would answer wrongly.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.write import CONTENT_TYPE, render_text
from gpuscale.kube.client import KubeClient
from gpuscale.server.metricsapi.api_servers import connect, kube_settings
from gpuscale.server.metricsapi.backend import MetricsBackend, Task
from gpuscale.server.metricsapi.cluster import ClusterObjects, NoObjects
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.connections.http import without_server
from gpuscale.server.metricsapi.connections.lobby import LOOPBACK_LIMITS
from gpuscale.server.metricsapi.connections.port import Port, shown
from gpuscale.server.metricsapi.health import HealthCheck
from gpuscale.server.metricsapi.protection import Protection, open_shared_certificate
from gpuscale.server.metricsapi.routes import SeesReasons, add_routes, everybody
from gpuscale.server.metricsapi.security.guard import Inner, counted, unguarded
from gpuscale.server.metricsapi.settings import MetricsApiSettings
from gpuscale.server.metricsapi.telemetry.connections import LoopLag, connection_families
from gpuscale.server.metricsapi.telemetry.hop_lag import HopLag
from gpuscale.server.metricsapi.telemetry.own_metrics import (
    ServerMetrics,
    cache_family,
    with_samples,
)
from gpuscale.server.metricsapi.usage.measured import UsageProvider
from gpuscale.server.sources.source import MetricSource

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.federation.federation import Federation
    from gpuscale.server.metricsapi.idle_first.keeper import IdleFirstKeeper
    from gpuscale.server.metricsapi.triggers.served import ServedTriggers

_LOG = logging.getLogger(__name__)


class MetricsApiServer:
    """Everything that one `gpuscale metrics-api` process runs.

    Args:
        settings: from the command line.
        clock: for all waits and times, but for those of values.
        value_clock: of the values, where that is another one: of queries, and between discoveries.
        drain_s: how long it still serves HTTPS after the order to stop, in the machine's seconds; None is
            the settings'.
        source: of the values; None is the Prometheus of the settings.
    """

    def __init__(
        self,
        settings: MetricsApiSettings,
        clock: Clock | None = None,
        drain_s: float | None = None,
        source: MetricSource | None = None,
        value_clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        delay_s = settings.serving.shutdown_delay_s if drain_s is None else drain_s
        self._drain_s = delay_s if settings.serving.secure_port else 0.0
        self._ports: dict[str, Port] = {}
        self._malformed = CountedLog("malformed request")
        self._lag = LoopLag()
        self._clock = clock or WallClock()
        self._metrics = ServerMetrics(value_clock or self._clock)
        self._backend = MetricsBackend(settings, self._metrics, self._clock, value_clock, source)
        self._tasks: list[Task] = []
        self._stopping = False
        self._protection: Protection | None = None
        self._federation: Federation | None = None
        self._triggers: ServedTriggers | None = None
        self._idle_first: IdleFirstKeeper | None = None

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
            UsageError: a file or a folder can't be used.
            UnavailableError: an address can't be listened on; or the API server is not there.
        """
        for note in self._settings.notes:
            _LOG.info("%s", note)
        async with AsyncExitStack() as stack:
            await self._prepare(stack)
            try:
                await self._serve(stop, announce, hurry or asyncio.Event())
            except BaseExceptionGroup as group:
                known, _ = group.split(GpuscaleError)
                if known is None:
                    raise
                raise known.exceptions[0] from None

    async def _prepare(self, stack: AsyncExitStack) -> None:
        """Open all components, and collect the tasks that have to run."""
        cluster = connect(self._settings, stack)
        # Before the source, whose replicas are verified by the CAs written with the certificate.
        shared = await open_shared_certificate(self._settings, stack, self._clock)
        backend = self._backend
        await backend.open(None if cluster is None else cluster.objects, stack)
        self._usage = UsageProvider(
            lambda: backend.provider.config.resource_rules,
            backend.provider.ask,
            NoObjects() if backend.copies is None else ClusterObjects(backend.copies),
            backend.value_clock,
            backend.provider.age_limit,
        )
        self._tasks += [*backend.tasks, ("event loop", self._watch_loop)]
        if interval_s := self._settings.hop_lag_interval_s:
            lag = HopLag(
                backend.provider, backend.source, self._metrics, backend.value_clock, interval_s
            )
            self._tasks.append(("hop lag", lag.run))
        if self._settings.triggers:
            from gpuscale.server.metricsapi.triggers.opened import open_triggers
            from gpuscale.server.metricsapi.triggers.served import ServedTriggers

            triggers = open_triggers(
                backend,
                self._settings,
                self._clock,
                stack,
                is_clustered=cluster is not None,
                place=self._settings.held,
            )
            self._triggers = ServedTriggers(self._settings.triggers, triggers, self._clock)
            self._tasks += [("triggers", triggers.run), ("trigger files", self._triggers.follow)]
        if self._settings.federation:
            from gpuscale.server.metricsapi.federation.federation import Federation

            self._federation = Federation(self._settings.federation, backend.provider)
            stack.push_async_callback(self._federation.close)
            self._tasks.append(("other metrics APIs", self._federation.run))
        if self._settings.idle_first and cluster is None:
            _LOG.warning("there is no API server: no pods are marked to go first")
        elif self._settings.idle_first:
            from gpuscale.server.metricsapi.idle_first.keeper import IdleFirstKeeper

            client = KubeClient(kube_settings(self._settings, self._settings.kubeconfig))
            stack.push_async_callback(client.close)
            self._idle_first = IdleFirstKeeper(
                self._settings.idle_first, client, backend.provider, self._clock
            )
            self._tasks.append(("idle first", self._idle_first.run))
        if self._settings.serving.secure_port:
            self._protection = Protection(
                self._settings, cluster, self._metrics, self._clock, shared
            )
            stack.push_async_callback(self._protection.close)
            self._tasks += self._protection.tasks

    async def _serve(
        self, stop: asyncio.Event, announce: Callable[[str], None], hurry: asyncio.Event
    ) -> None:
        """Serve requests; at the end, stop listening first and the parts that compute answers last."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task(), name=name) for name, task in self._tasks]
            try:
                if self._protection is not None:
                    await self._protection.wait_for_trust()
                await self._listen(announce)
                await stop.wait()
                self._stopping = True
                await self._delay(hurry)
            finally:
                in_haste = not self._drain_s or hurry.is_set()
                for port in self._ports.values():
                    await port.close(in_haste=in_haste)
                for task in running:
                    task.cancel()

    async def _watch_loop(self) -> None:
        def each_second() -> None:
            for port in self._ports.values():
                port.lobby.each_second()

        await self._lag.run(each_second)

    async def _delay(self, hurry: asyncio.Event) -> None:
        """Keep serving for a while after the stop signal, so that load balancers notice."""
        if not self._drain_s:
            return
        _LOG.info("stopping: serving goes on for %g s", self._drain_s)
        try:
            async with asyncio.timeout(self._drain_s):
                await hurry.wait()
        except TimeoutError:
            return

    async def _listen(self, announce: Callable[[str], None]) -> None:
        serving = self._settings.serving
        if self._protection is not None:
            guard = self._protection.guard
            port = Port(
                self._application(guard.check, guard.sees_reasons, self._federation),
                serving.limits,
                self._malformed,
                self._protection.certificate.context,
                lambda connection: guard.is_front_proxy(connection.presented()),
            )
            self._ports["https"] = port
            await port.open(
                serving.host,
                serving.secure_port,
                shares_port=serving.shares_port,
                shares_address=serving.shares_address,
            )
            announce(f"https://{shown(serving.host)}:{serving.secure_port}")
        if serving.insecure_loopback_port:
            port = Port(self._application(unguarded), LOOPBACK_LIMITS, self._malformed)
            self._ports["loopback"] = port
            await port.open("127.0.0.1", serving.insecure_loopback_port)
            announce(f"http://127.0.0.1:{serving.insecure_loopback_port}")

    def _application(
        self,
        guard: Inner,
        sees_reasons: SeesReasons = everybody,
        federation: "Federation | None" = None,
    ) -> web.Application:
        app = web.Application(middlewares=[counted(self._metrics, guard, lambda: self._stopping)])
        app.on_response_prepare.append(without_server)
        add_routes(
            app,
            self._backend.provider,
            self._checks,
            self._metrics.answered,
            self._usage,
            sees_reasons,
            federation,
            self._triggers,
        )
        app.router.add_get("/metrics", self._get_metrics)
        collector, feeds = self._backend.collector_client, self._settings.feeds
        if collector is not None and self._settings.serves_prometheus_api:
            from gpuscale.server.metricsapi.collector.prometheus_api import PrometheusApi

            PrometheusApi(collector).add_routes(app)
        if collector is not None and feeds is not None and feeds.otlp is not None:
            from gpuscale.server.metricsapi.collector.otlp_api import OtlpApi

            OtlpApi(collector).add_routes(app)
        if collector is not None and feeds is not None and feeds.peers is not None:
            from gpuscale.server.metricsapi.collector.peers_api import PeersApi

            PeersApi(collector, lambda: self._stopping).add_routes(app)
        app.router.add_get("/", _get_index)
        return app

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        protection = self._protection
        families = with_samples(
            self._metrics.families(),
            self._backend.families(),
            [cache_family({} if protection is None else protection.cache_counts())],
            connection_families(self._ports, self._malformed),
            self._lag.families(),
            () if protection is None else protection.audit_families(),
            () if self._federation is None else self._federation.families(),
            () if self._triggers is None else self._triggers.families(),
            () if self._idle_first is None else self._idle_first.families(),
        )
        body = render_text(families).encode()
        if self._backend.collector_client is not None:
            body += await self._backend.collector_client.metrics()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _checks(self, endpoint: str) -> Sequence[HealthCheck]:
        if endpoint == "livez":
            return ()
        checks = self._backend.checks()
        if self._federation is not None:
            checks += self._federation.checks()
        if self._triggers is not None:
            checks += self._triggers.checks()
        if self._idle_first is not None:
            checks += self._idle_first.checks()
        if self._protection is not None:
            checks += self._protection.checks()
        if endpoint == "readyz":
            checks.append(
                HealthCheck("shutdown", "the server is stopping" if self._stopping else None)
            )
        return checks


async def _get_index(_request: web.Request) -> web.Response:
    paths = ["/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"]
    return web.json_response({"paths": [*paths, "/version"]})
