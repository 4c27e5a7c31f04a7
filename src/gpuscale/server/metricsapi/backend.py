"""What a server computes values from: rules, a metric source and the cluster's objects, kept up to date.

The metrics APIs and KEDA's scaler answer from one of these, so that a value is the same through both.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.families import Family
from gpuscale.kube.client import ApiStatusError, KubeClient
from gpuscale.kube.informers import CopyState, ObjectCopies
from gpuscale.server.metricsapi.api_servers import kube_settings
from gpuscale.server.metricsapi.backend_settings import BackendSettings
from gpuscale.server.metricsapi.cluster import ClusterObjects, NoObjects, read_mapper
from gpuscale.server.metricsapi.collector.feed_metrics import collector_families, value_families
from gpuscale.server.metricsapi.health import HealthCheck, remarked
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.rulebook.rule_book import RuleBook
from gpuscale.server.metricsapi.rulebook.team_rules import TeamRules
from gpuscale.server.metricsapi.telemetry.own_metrics import (
    ServerMetrics,
    cache_families,
    discovery_families,
    object_families,
    rule_families,
)
from gpuscale.server.metricsapi.telemetry.timed_source import TimedSource
from gpuscale.server.metricsapi.value_source import OpenedSource, open_source, sharing_of
from gpuscale.server.rules.resources import KUBERNETES, ResourceMapper
from gpuscale.server.sources.asking.single_flight import AnswerSharing
from gpuscale.server.sources.source import MetricSource

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.collector.process import CollectorProcess

Task = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
"""Something that runs beside a server, and what it is called."""

_LOG = logging.getLogger(__name__)
_RULES_LOOK_S = 5.0
_BUSY_SHARE = 10
"""Discovery because of new series takes at most one part in so many of the time."""
_LONGEST_PAUSE_S = 5.0


class MetricsBackend:
    """A metrics provider, with the rules, the source and the copies of objects that it needs.

    Args:
        settings: of the server.
        metrics: count what the source is asked.
        clock: for all waits and times, but for those of values.
        value_clock: of the values, where that is another one: of queries, and between discoveries.
        source: of the values; None is the one of the settings.
    """

    def __init__(
        self,
        settings: BackendSettings,
        metrics: ServerMetrics,
        clock: Clock,
        value_clock: Clock | None = None,
        source: MetricSource | None = None,
    ) -> None:
        self.tasks: list[Task] = []
        """What has to run beside the server."""
        self.copies: ObjectCopies | None = None
        """Of the cluster's objects; None without an API server."""
        self.value_clock = value_clock or clock
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._source = source
        self._wall_clock = WallClock()
        self._mapper: ResourceMapper = KUBERNETES

    async def open(self, client: KubeClient | None, stack: AsyncExitStack) -> None:
        """Open the source, read the rules, and collect the tasks that have to run.

        Args:
            client: to look up objects with; None without a cluster.
            stack: closes what is opened.

        Raises:
            ConfigError: the rule file is wrong.
            UsageError: a file can't be used.
            UnavailableError: the API server is not there.
        """
        if client is not None:
            self._mapper = await read_mapper(client)
        self._rules = self._open_rules(stack, is_clustered=client is not None)
        opened = self._open_source(stack, is_clustered=client is not None)
        self.collector, self.collector_client = opened.collector, opened.client
        self._left_out = opened.left_out
        if opened.collector is not None:
            self.tasks.append(("collector", opened.collector.run))
        self.source = TimedSource(opened.source, self._metrics)
        self.provider = self._make_provider(client, opened.sharing)
        self.provider.team_faults = self._rules.faults_in
        stack.push_async_callback(self.provider.close)
        self.tasks.append(("discovery", self.provider.run))
        if (collector := self.collector) is not None:
            self.tasks.append(("new series", lambda: self._follow_new_series(collector)))
        self.tasks.append(("rules", self._follow_rules))
        if client is not None:
            self.tasks.append(("resources", lambda: self._follow_resources(client)))

    def families(self) -> Sequence[Family]:
        """Return the metrics of rules, discovery, source and object copies."""
        states = self.copies.states() if self.copies is not None else ()
        objects = {
            str(each.collection): (each.objects, each.state.error is None, each.state.age_s())
            for each in states
        }
        return (
            *discovery_families(self.provider),
            *rule_families(self._rules.state, self._rules.states),
            *cache_families(),
            *object_families(objects),
            *value_families(self.provider, self._left_out),
            *(() if self.collector is None else collector_families(self.collector)),
        )

    def checks(self) -> list[HealthCheck]:
        """Return the health checks of rules, discovery, source and object copies."""
        states = self.copies.states() if self.copies is not None else ()
        # One for each resource that was requested; `*` still works for the others.
        checks = [remarked("rules", self._rules.remarks), *(_copy_check(each) for each in states)]
        if self.collector is not None:
            # Once the collector has listened, missing values have their own reasons.
            fault = None if self.collector.starts else self.collector.remark
            checks.append(HealthCheck("feeds", fault, self.collector.remark))
            checks.append(HealthCheck("prometheus-rules", remark=self.collector.rules_remark))
        return checks

    def _open_source(self, stack: AsyncExitStack, *, is_clustered: bool) -> OpenedSource:
        if self._source is not None:
            return OpenedSource(self._source, sharing_of(self._settings))
        origin = self._wall_clock.origin
        return open_source(self._settings, self._rules, origin, stack, is_clustered=is_clustered)

    def _open_rules(self, stack: AsyncExitStack, *, is_clustered: bool) -> RuleBook:
        settings = self._settings.rules
        teams = None
        if settings.config_maps and not is_clustered:
            _LOG.warning("there is no API server: no rules are read from ConfigMaps")
        elif settings.config_maps:
            kube = kube_settings(self._settings, self._settings.kubeconfig)
            team_client = KubeClient(kube)
            stack.push_async_callback(team_client.close)
            teams = TeamRules(
                team_client,
                kube,
                settings.config_maps,
                settings.namespace_labels,
                self._clock,
                settings.namespaces,
                settings.budget,
            )
            self.tasks.append(("teams' rules", teams.run))
        return RuleBook(
            settings.paths,
            self._mapper,
            self._clock.now_ms(),
            has_preset=settings.has_preset,
            teams=teams,
        )

    def _make_provider(self, client: KubeClient | None, sharing: AnswerSharing) -> MetricsProvider:
        settings = self._settings
        if client is None:
            return MetricsProvider(
                self._rules.config,
                self.source,
                NoObjects(),
                self.value_clock,
                settings.relist_interval_s,
                settings.max_age_s,
                self._mapper,
                sharing=sharing,
                max_value_age_s=settings.max_value_age_s,
                unread=self._unread,
            )
        self.copies = ObjectCopies(
            client,
            kube_settings(settings, settings.kubeconfig),
            self._clock,
            max_age_s=settings.max_object_age_s,
        )
        self.tasks.append(("objects", self.copies.run))
        objects = ClusterObjects(self.copies)
        return MetricsProvider(
            self._rules.config,
            self.source,
            objects,
            self.value_clock,
            settings.relist_interval_s,
            settings.max_age_s,
            self._mapper,
            objects.ready,
            sharing,
            settings.max_value_age_s,
            self._unread,
        )

    def _unread(self) -> str:
        return "" if self.collector is None else self.collector.unread

    async def _follow_new_series(self, collector: "CollectorProcess") -> None:
        """Run discovery again soon after series appear or end."""
        loop = asyncio.get_running_loop()
        seen = collector.generation
        while True:
            await collector.changed(seen)
            seen, began = collector.generation, loop.time()
            await self.provider.relist()
            took_s = loop.time() - began
            await asyncio.sleep(min(_BUSY_SHARE * took_s, _LONGEST_PAUSE_S))

    async def _follow_rules(self) -> None:
        while True:
            await self._clock.sleep(_RULES_LOOK_S)
            config = self._rules.look(self._mapper, self._clock.now_ms())
            if config is not None:
                if self.collector is not None:
                    from gpuscale.server.sources.feeds.needs import wanted_by_rules

                    await self.collector.want(wanted_by_rules(config))
                await self.provider.replace_config(config, self._rules.mapper)

    async def _follow_resources(self, client: KubeClient) -> None:
        while True:
            await self._clock.sleep(self._settings.discovery_interval_s)
            try:
                self._mapper = await read_mapper(client)
            except GpuscaleError as error:
                _LOG.warning("the cluster's resources are kept as they were: %s", error)


def _copy_check(copy: CopyState) -> HealthCheck:
    """Return the health check of one copy of objects; it fails only if another replica may do better.

    A right that is missing is missing everywhere, and single objects and external metrics still work.
    """
    name, error = f"watch-{copy.collection}", copy.state.error
    if not copy.is_withheld:
        return remarked(name, [str(error) if error else None])
    reason = f"nothing is answered from it: {error or 'the API server is silent'}"
    if copy.state.listed and not isinstance(error, ApiStatusError):
        return HealthCheck(name, reason)
    return HealthCheck(name, remark=reason)
