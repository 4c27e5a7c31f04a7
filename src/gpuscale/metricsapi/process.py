"""A metrics API server as its settings describe it, with all that runs beside it.

What nothing expected ends the whole server: a part that is missing unseen would answer wrongly.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from gpuscale.core.clock import Clock, WallClock
from gpuscale.core.errors import GpuscaleError
from gpuscale.exposition.families import Family
from gpuscale.exposition.write import CONTENT_TYPE, render_text
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.informers.directory import CopyState, ObjectCopies
from gpuscale.metricsapi.api_servers import ApiServers, connect, kube_settings
from gpuscale.metricsapi.cluster import ClusterObjects, NoObjects, read_mapper
from gpuscale.metricsapi.collector.feed_metrics import collector_families, value_families
from gpuscale.metricsapi.connections.counted_log import CountedLog
from gpuscale.metricsapi.connections.http import without_server
from gpuscale.metricsapi.connections.lobby import LOOPBACK_LIMITS
from gpuscale.metricsapi.connections.port import Port, shown
from gpuscale.metricsapi.health import Check, remarked
from gpuscale.metricsapi.protection import Protection, Task, open_shared_certificate
from gpuscale.metricsapi.provider import MetricsProvider
from gpuscale.metricsapi.routes import SeesReasons, add_routes, everybody
from gpuscale.metricsapi.rulebook.rule_book import RuleBook
from gpuscale.metricsapi.rulebook.team_rules import TeamRules
from gpuscale.metricsapi.security.guard import Inner, counted, unguarded
from gpuscale.metricsapi.settings import MetricsApiSettings
from gpuscale.metricsapi.telemetry.connections import LoopLag, connection_families
from gpuscale.metricsapi.telemetry.hop_lag import HopLag
from gpuscale.metricsapi.telemetry.own_metrics import (
    ServerMetrics,
    cache_families,
    cache_family,
    discovery_families,
    object_families,
    rule_families,
    with_samples,
)
from gpuscale.metricsapi.telemetry.timed_source import TimedSource
from gpuscale.metricsapi.usage.measured import UsageProvider
from gpuscale.metricsapi.value_source import OpenedSource, open_source, sharing_of
from gpuscale.rules.resources import KUBERNETES, ResourceMapper
from gpuscale.sources.asking.single_flight import Sharing
from gpuscale.sources.source import MetricSource

if TYPE_CHECKING:
    from gpuscale.metricsapi.collector.process import CollectorProcess

_LOG = logging.getLogger(__name__)
_RULES_LOOK_S = 5.0
_BUSY_SHARE = 10
"""Discovery because of new series takes at most one part in so many of the time."""
_LONGEST_PAUSE_S = 5.0


class MetricsApiServer:
    """Everything that one `gpuscale metrics-api` process runs.

    Args:
        settings: from the command line.
        clock: of all waits and times, but for those of values.
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
        self._source = source
        delay_s = settings.serving.shutdown_delay_s if drain_s is None else drain_s
        self._drain_s = delay_s if settings.serving.secure_port else 0.0
        self._ports: dict[str, Port] = {}
        self._malformed = CountedLog("malformed request")
        self._lag = LoopLag()
        self._wall_clock = WallClock()
        self._clock = clock or self._wall_clock
        self._value_clock = value_clock or self._clock
        self._metrics = ServerMetrics(self._value_clock)
        self._tasks: list[Task] = []
        self._stopping = False
        self._mapper: ResourceMapper = KUBERNETES
        self._copies: ObjectCopies | None = None
        self._protection: Protection | None = None

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

    async def _serve(
        self, stop: asyncio.Event, announce: Callable[[str], None], hurry: asyncio.Event
    ) -> None:
        """Serve; what answers is needed until the last request is done, connections until that is gone."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task(), name=name) for name, task in self._tasks]
            try:
                if self._protection is not None:
                    await self._protection.wait_for_trust()
                await self._listen(announce)
                running += [
                    group.create_task(port.lobby.run(), name=f"connections of {name}")
                    for name, port in self._ports.items()
                ]
                await stop.wait()
                self._stopping = True
                await self._delay(hurry)
            finally:
                in_haste = not self._drain_s or hurry.is_set()
                for port in self._ports.values():
                    await port.close(in_haste=in_haste)
                for task in running:
                    task.cancel()

    async def _delay(self, hurry: asyncio.Event) -> None:
        """Go on serving for a while, so that those who balance load can see it go."""
        if not self._drain_s:
            return
        _LOG.info("stopping: serving goes on for %g s", self._drain_s)
        try:
            async with asyncio.timeout(self._drain_s):
                await hurry.wait()
        except TimeoutError:
            return

    async def _prepare(self, stack: AsyncExitStack) -> None:
        """Make all parts, read the rules, and note what has to run."""
        cluster = connect(self._settings, stack)
        if cluster is not None:
            self._mapper = await read_mapper(cluster.objects)
        # Before the source: its replicas are verified by the CAs that are written with the certificate.
        shared = await open_shared_certificate(self._settings, stack, self._clock)
        self._rules = self._open_rules(stack, cluster)
        opened = self._open_source(stack, is_clustered=cluster is not None)
        self._collector, self._collector_client = opened.collector, opened.client
        if opened.collector is not None:
            self._tasks.append(("collector", opened.collector.run))
        timed = TimedSource(opened.source, self._metrics)
        self._provider = self._make_provider(cluster, timed, opened.sharing)
        self._usage = UsageProvider(
            lambda: self._provider.config.resource_rules,
            self._provider.ask,
            NoObjects() if self._copies is None else ClusterObjects(self._copies),
            self._value_clock,
            self._provider.age_limit,
        )
        self._provider.team_faults = self._rules.faults_in
        stack.push_async_callback(self._provider.close)
        self._tasks.append(("discovery", self._provider.run))
        self._tasks.append(("event loop's lag", self._lag.run))
        if (collector := self._collector) is not None:
            self._tasks.append(("new series", lambda: self._follow_new_series(collector)))
        if interval_s := self._settings.hop_lag_interval_s:
            lag = HopLag(self._provider, timed, self._metrics, self._value_clock, interval_s)
            self._tasks.append(("hop lag", lag.run))
        self._tasks.append(("rules", self._follow_rules))
        if cluster is not None:
            self._tasks.append(("resources", lambda: self._follow_resources(cluster.objects)))
        if self._settings.serving.secure_port:
            self._protection = Protection(
                self._settings, cluster, self._metrics, self._clock, shared
            )
            stack.push_async_callback(self._protection.close)
            self._tasks += self._protection.tasks

    def _open_source(self, stack: AsyncExitStack, *, is_clustered: bool) -> OpenedSource:
        if self._source is not None:
            return OpenedSource(self._source, sharing_of(self._settings))
        origin = self._wall_clock.origin
        return open_source(self._settings, self._rules, origin, stack, is_clustered=is_clustered)

    def _open_rules(self, stack: AsyncExitStack, cluster: ApiServers | None) -> RuleBook:
        settings = self._settings.rules
        teams = None
        if settings.config_maps and cluster is None:
            _LOG.warning("there is no API server: no rules are read from ConfigMaps")
        elif settings.config_maps and cluster is not None:
            kube = kube_settings(self._settings, self._settings.kubeconfig)
            client = KubeClient(kube)
            stack.push_async_callback(client.close)
            teams = TeamRules(
                client,
                kube,
                settings.config_maps,
                settings.namespace_labels,
                self._clock,
                settings.namespaces,
                settings.budget,
            )
            self._tasks.append(("teams' rules", teams.run))
        return RuleBook(
            settings.paths,
            self._mapper,
            self._clock.now_ms(),
            has_preset=settings.has_preset,
            teams=teams,
        )

    def _make_provider(
        self, cluster: ApiServers | None, source: TimedSource, sharing: Sharing
    ) -> MetricsProvider:
        settings = self._settings
        if cluster is None:
            return MetricsProvider(
                self._rules.config,
                source,
                NoObjects(),
                self._value_clock,
                settings.relist_interval_s,
                settings.max_age_s,
                self._mapper,
                sharing=sharing,
                max_value_age_s=settings.max_value_age_s,
            )
        self._copies = ObjectCopies(
            cluster.objects,
            kube_settings(settings, settings.kubeconfig),
            self._clock,
            max_age_s=settings.max_object_age_s,
        )
        self._tasks.append(("objects", self._copies.run))
        objects = ClusterObjects(self._copies)
        return MetricsProvider(
            self._rules.config,
            source,
            objects,
            self._value_clock,
            settings.relist_interval_s,
            settings.max_age_s,
            self._mapper,
            objects.ready,
            sharing,
            settings.max_value_age_s,
        )

    async def _listen(self, announce: Callable[[str], None]) -> None:
        serving = self._settings.serving
        if self._protection is not None:
            guard = self._protection.guard
            port = Port(
                self._application(guard.check, guard.sees_reasons),
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

    def _application(self, guard: Inner, sees_reasons: SeesReasons = everybody) -> web.Application:
        app = web.Application(middlewares=[counted(self._metrics, guard, lambda: self._stopping)])
        app.on_response_prepare.append(without_server)
        answered = self._metrics.answered
        add_routes(app, self._provider, self._checks, answered, self._usage, sees_reasons)
        app.router.add_get("/metrics", self._get_metrics)
        if self._collector_client is not None and self._settings.serves_prometheus_api:
            from gpuscale.metricsapi.collector.prometheus_api import PrometheusApi

            PrometheusApi(self._collector_client).add_routes(app)
        feeds = self._settings.feeds
        if self._collector_client is not None and feeds is not None and feeds.peers is not None:
            from gpuscale.metricsapi.collector.peers_api import PeersApi

            PeersApi(self._collector_client, lambda: self._stopping).add_routes(app)
        app.router.add_get("/", _get_index)
        return app

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        body = render_text(self._families()).encode()
        if self._collector_client is not None:
            body += await self._collector_client.metrics()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _families(self) -> tuple[Family, ...]:
        protection = self._protection
        states = self._copies.states() if self._copies is not None else ()
        objects = {
            str(each.collection): (each.objects, each.state.error is None, each.state.age_s())
            for each in states
        }
        return with_samples(
            self._metrics.families(),
            discovery_families(self._provider),
            rule_families(self._rules.state, self._rules.states),
            [cache_family({} if protection is None else protection.cache_counts())],
            cache_families(),
            object_families(objects),
            connection_families(self._ports, self._malformed),
            self._lag.families(),
            () if protection is None else protection.audit_families(),
            value_families(self._provider),
            () if self._collector is None else collector_families(self._collector),
        )

    def _checks(self, endpoint: str) -> Sequence[Check]:
        if endpoint == "livez":
            return ()
        checks = [self._rules_check(), *self._watch_checks()]
        if self._collector is not None:
            checks.append(Check("feeds", remark=self._collector.remark))
            checks.append(Check("prometheus-rules", remark=self._collector.rules_remark))
        if self._protection is not None:
            checks += self._protection.checks()
        if endpoint == "readyz":
            checks.append(Check("shutdown", "the server is stopping" if self._stopping else None))
        return checks

    def _rules_check(self) -> Check:
        return remarked("rules", self._rules.remarks)

    def _watch_checks(self) -> list[Check]:
        """Return a check for each resource that was asked for; `*` of the others still works."""
        states = self._copies.states() if self._copies is not None else ()
        return [_copy_check(each) for each in states]

    async def _follow_new_series(self, collector: "CollectorProcess") -> None:
        """Discover soon after series came or went."""
        loop = asyncio.get_running_loop()
        seen = collector.generation
        while True:
            await collector.changed(seen)
            seen, began = collector.generation, loop.time()
            await self._provider.relist()
            took_s = loop.time() - began
            await asyncio.sleep(min(_BUSY_SHARE * took_s, _LONGEST_PAUSE_S))

    async def _follow_rules(self) -> None:
        while True:
            await self._clock.sleep(_RULES_LOOK_S)
            config = self._rules.look(self._mapper, self._clock.now_ms())
            if config is not None:
                if self._collector is not None:
                    from gpuscale.sources.feeds.needs import wanted_by_rules

                    await self._collector.want(wanted_by_rules(config))
                await self._provider.replace_config(config, self._rules.mapper)

    async def _follow_resources(self, client: KubeClient) -> None:
        while True:
            await self._clock.sleep(self._settings.discovery_interval_s)
            try:
                self._mapper = await read_mapper(client)
            except GpuscaleError as error:
                _LOG.warning("the cluster's resources are kept as they were: %s", error)


def _copy_check(copy: CopyState) -> Check:
    """Return how a copy does; another replica may do better where this one is cut off from the API server.

    A right that is missing is missing everywhere, and single objects and external metrics still work.
    """
    name, error = f"watch-{copy.collection}", copy.state.error
    if not copy.is_withheld:
        return remarked(name, [str(error) if error else None])
    reason = f"nothing is answered from it: {error or 'the API server is silent'}"
    if copy.state.listed and not isinstance(error, ApiStatusError):
        return Check(name, reason)
    return Check(name, remark=reason)


async def _get_index(_request: web.Request) -> web.Response:
    paths = ["/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"]
    return web.json_response({"paths": [*paths, "/version"]})
