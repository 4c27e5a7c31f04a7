"""Answers metric requests from a source: discovery in the background, one query for equal requests.

Source: prometheus-adapter v0.12.0 pkg/custom-provider (provider.go), pkg/external-provider
(periodic_metric_lister.go). Known difference: a series query that fails keeps only its own metrics as
they were; upstream keeps the whole table.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuscale.base.byte_cache import ACCOUNTANT
from gpuscale.base.clock import Clock
from gpuscale.base.errors import (
    GpuscaleError,
    QueryError,
    UnavailableError,
    UpstreamError,
    UsageError,
)
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.series import Value
from gpuscale.server.metricsapi.wire.paths import (
    ALL,
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    CustomTarget,
    ExternalTarget,
)
from gpuscale.server.metricsapi.wire.statuses import NotDiscoveredError
from gpuscale.server.rules.catalogue import Catalogue, Entry, QueryFailure, SeriesAnswer
from gpuscale.server.rules.config import AdapterConfig
from gpuscale.server.rules.queries.backwards import candidates
from gpuscale.server.rules.queries.plan import (
    CustomPlan,
    ExternalPlan,
    MetricFetchError,
    MetricNotFoundError,
    Plans,
    plan_external,
)
from gpuscale.server.rules.resources import (
    KUBERNETES,
    ResourceMapper,
    ResourceType,
    UnknownResourceError,
)
from gpuscale.server.sources.asking.changes import Changes
from gpuscale.server.sources.asking.single_flight import AnswerSharing, SharedSource
from gpuscale.server.sources.freshness import AgeLimit
from gpuscale.server.sources.source import MetricSource, ObjectDirectory

T = TypeVar("T")
Plan = TypeVar("Plan", CustomPlan, ExternalPlan)

_LOG = logging.getLogger(__name__)
_MAX_SERIES_QUERIES_AT_ONCE = 8
FIRST_DISCOVERY_S = 60.0
"""So long after a discovery that was not answered, and after the first that was answered in part, a server is
ready without the rest: what needs no discovery works."""
_RETRY_S = 5.0
"""Until discovery tries again where no series query was answered, such as while Prometheus starts."""


@dataclass(frozen=True, slots=True)
class CustomAnswer:
    """The values of a custom metric, and the resource whose objects they are of."""

    resource: ResourceType
    values: tuple[MetricValue, ...]


@dataclass(slots=True)
class RequestRecord(Generic[Plan]):
    """A trace of one request for `?why`: rule, series, query, rows; a step that was not reached is None.

    Nobody scales by an answer that is asked for with a record, so what it leaves out is not counted.
    """

    at_ms: int
    """When the source was asked; of a request that did not get there, when it came."""
    names: tuple[str, ...] | None = None
    """The objects that are asked for."""
    plan: Plan | None = None
    value: Value | None = None
    """What the source answered, as the rule reads it; some of its rows may be no answer."""


class MetricsProvider:
    """The metrics of one set of rules.

    Args:
        config: the rules; `replace_config` changes them while requests go on.
        source: where series and values come from.
        directory: which objects there are.
        clock: the time of queries, and of the waits between discoveries.
        relist_interval_s: from the end of one discovery to the start of the next.
        max_age_s: how old a series' newest sample may be for its metrics to be listed; None is the interval.
        mapper: the resources that requests can name.
        ready: waits until the directory knows a resource; None for one that always does.
        sharing: how far the source's answers are shared between requests.
        max_value_age_s: a value measured longer ago is left out; None for no limit.
        unread: says which series the source can't have yet; empty once it has all that there are.

    Raises:
        UsageError: `max_age_s` is below the interval, so that metrics would come and go.
    """

    def __init__(
        self,
        config: AdapterConfig,
        source: MetricSource,
        directory: ObjectDirectory,
        clock: Clock,
        relist_interval_s: float = 60.0,
        max_age_s: float | None = None,
        mapper: ResourceMapper = KUBERNETES,
        ready: Callable[[ResourceType], Awaitable[None]] | None = None,
        sharing: AnswerSharing | None = None,
        max_value_age_s: float | None = None,
        unread: Callable[[], str] = lambda: "",
    ) -> None:
        age_s = relist_interval_s if max_age_s is None else max_age_s
        if age_s < relist_interval_s:
            raise UsageError(
                f"found a metrics max age of {age_s:g}s, expected at least the relist interval "
                f"of {relist_interval_s:g}s; otherwise metrics come and go"
            )
        self.config = config
        self.catalogue = Catalogue()
        self.relisted_ms: int | None = None
        """When discovery last ended; None before the first."""
        self.questions = SharedSource(source, sharing)
        self._changes = Changes(self.questions, round(age_s * 1000))
        self.age_limit = AgeLimit(
            None if max_value_age_s is None else round(max_value_age_s * 1000)
        )
        self.team_faults: Callable[[str], tuple[str, ...]] = lambda _: ()
        """Returns what is wrong with the rules of a namespace, for `?why`."""
        self._plans = Plans()
        self._directory = directory
        self.clock = clock
        self.relist_interval_s = relist_interval_s
        self.max_age_ms = round(age_s * 1000)
        self.mapper = mapper
        self._ready = ready
        self._unread = unread
        self._is_whole = False
        """Whether a discovery was begun when the source had all series."""
        self._answered_once: frozenset[str] = frozenset()
        """The series queries that were ever answered."""
        self._awaited_from_ms: int | None = None
        self._discoveries = self._newest = 0
        """Discoveries that were begun, and the number of the one that is served."""
        self._whole_ones = 0
        """Discoveries of all rules that are on their way."""

    async def close(self) -> None:
        """Cancel the queries that are still running."""
        await self.questions.close()

    async def run(self) -> None:
        """Run discovery again and again; sooner while the source gives no answer."""
        while True:
            await self.relist()
            is_unanswered = self.catalogue.failures and not self.catalogue.answered
            pause_s = _RETRY_S if is_unanswered else self.relist_interval_s
            await self.clock.sleep(min(pause_s, self.relist_interval_s))

    async def relist(self) -> None:
        """Run discovery: list the series of all rules, or what changed, and swap in the new catalogue.

        If several discoveries run at a time, the one that began last counts.
        """
        self._whole_ones += 1
        is_whole = not self._unread()
        was_answered = bool(self._answered_once)
        try:
            if await self._relist(self.config.series_queries()):
                self.relisted_ms = self.clock.now_ms()
                if self._awaited_from_ms is None or (self._answered_once and not was_answered):
                    self._awaited_from_ms = self.relisted_ms
                self._is_whole |= is_whole
        finally:
            self._whole_ones -= 1

    async def _relist(self, queries: Collection[str]) -> bool:
        """Run these series queries and swap in the result; return False if a newer discovery won."""
        config = self.config
        self._discoveries += 1
        number = self._discoveries
        start_ms = self.clock.now_ms() - self.max_age_ms
        at_once = asyncio.Semaphore(_MAX_SERIES_QUERIES_AT_ONCE)
        # Series of teams' rules are counted each time, as their number is limited.
        teams = {
            rule.series_query for rule in (*config.rules, *config.external_rules) if rule.only_in
        }
        async with asyncio.TaskGroup() as group:
            tasks = {
                query: group.create_task(self._series(query, start_ms, at_once, query in teams))
                for query in queries
            }
        if config is not self.config or number < self._newest:
            return False
        self._newest = number
        found = {query: task.result() for query, task in tasks.items()}
        answers = {query: answer for query, answer in found.items() if answer is not None}
        self._changes.keep(config.series_queries())
        self.catalogue = Catalogue.build(config, answers, self.catalogue)
        known = self._answered_once & set(config.series_queries())
        self._answered_once = known | self.catalogue.answered
        ACCOUNTANT.hold("catalogue", self.catalogue.bytes())
        return True

    async def replace_config(
        self, config: AdapterConfig, mapper: ResourceMapper | None = None
    ) -> None:
        """Serve other rules from the next discovery on, which happens now.

        Only rules that are new are asked for, so that one team's change is not everybody's discovery.

        Args:
            config: the rules.
            mapper: the resources they were read with; None where these did not change.
        """
        known = {*self.config.rules, *self.config.external_rules}
        rules = (*config.rules, *config.external_rules)
        changed = {rule.series_query for rule in rules if rule not in known}
        self.config = config
        self.mapper = mapper or self.mapper
        if self._whole_ones or self.relisted_ms is None:
            # A discovery in progress is for the old rules; its result will be ignored.
            await self.relist()
        else:
            known_queries = self.catalogue.answered - changed
            queries = (each for each in config.series_queries() if each not in known_queries)
            await self._relist(tuple(queries))

    @property
    def undiscovered(self) -> str:
        """Return why the list of metrics is not known yet; empty once it is."""
        if not self.config.series_queries():
            return ""
        if self.relisted_ms is None:
            return "the first one has not ended yet"
        if not self._is_whole:
            return self._unread() or "the first one with all series has not ended yet"
        if self.catalogue.failures and not self._answered_once:
            return "no series query was answered yet"
        return ""

    @property
    def is_awaited(self) -> bool:
        """Whether the first discovery is still running or may succeed soon."""
        if not self.undiscovered:
            return False
        from_ms = self._awaited_from_ms
        return from_ms is None or self.clock.now_ms() - from_ms < FIRST_DISCOVERY_S * 1000

    def entry(self, target: CustomTarget | ExternalTarget) -> Entry | None:
        """Return the rule and series behind a metric; None if it is not in the catalogue."""
        if isinstance(target, ExternalTarget):
            return self.catalogue.external_entry(target.metric, target.namespace)
        try:
            resource = self.mapper.parse(target.resource)
        except UnknownResourceError:
            return None
        name = None if target.name == ALL else target.name
        return self.catalogue.custom_entry(resource, target.metric, target.namespace, name)

    def serves(self, target: CustomTarget | ExternalTarget) -> bool:
        """Return whether a metric is in the catalogue now."""
        return self.entry(target) is not None

    async def custom(
        self,
        target: CustomTarget,
        objects: Selector,
        series: Selector,
        record: RequestRecord[CustomPlan] | None = None,
    ) -> CustomAnswer:
        """Return a custom metric of one object, or of all that are selected.

        Args:
            target: the requested metric.
            objects: conditions on the objects' labels; a single object need not match them.
            series: conditions on the labels of the series.
            record: gets what is met on the way.

        Raises:
            NotDiscoveredError: it is not known yet whether it is served.
            MetricNotFoundError: not served; or not for this object.
            MetricFetchError: the source did not give values.
            ListError: it is not known which objects there are.
        """
        self._check_discovered(target)
        names: tuple[str, ...] = (target.name,)
        if target.name == ALL:
            try:
                resource = self.mapper.parse(target.resource)
            except UnknownResourceError as error:
                raise MetricNotFoundError(target.metric, target.resource) from error
            # No client can make us look at objects that no metric is about.
            if self.catalogue.custom_entry(resource, target.metric, target.namespace) is None:
                raise MetricNotFoundError(target.metric, target.resource)
            names = await self.objects(resource, target.namespace, objects)
        if record is not None:
            record.names = names
        plan = self._plans.custom(
            self.catalogue,
            self.mapper,
            target.resource,
            target.namespace,
            names,
            target.metric,
            series,
        )
        at_ms = self.clock.now_ms()
        if record is not None:
            record.plan, record.at_ms = plan, at_ms
        answer = await _fetched(self.questions.custom(plan, at_ms), plan.promql)
        value = plan.scope.entry.rule.read(answer)
        if record is not None:
            record.value = value
        value = self.age_limit.fresh(
            value, at_ms, CUSTOM_GROUP, target.metric, counts=record is None
        )
        if _LOG.isEnabledFor(logging.DEBUG):
            for remark in plan.remarks(value):
                _LOG.debug("%s of %s: %s", plan.metric, plan.asked_for, remark)
        if target.name == ALL:
            return CustomAnswer(plan.resource, plan.answer(value))
        return CustomAnswer(plan.resource, (plan.answer_one(value),))

    async def external(
        self,
        target: ExternalTarget,
        series: Selector,
        record: RequestRecord[ExternalPlan] | None = None,
    ) -> tuple[ExternalValue, ...]:
        """Return the values of an external metric; the arguments are those of `custom`.

        Raises:
            NotDiscoveredError: it is not known yet whether it is served.
            MetricNotFoundError: not served.
            MetricFetchError: the source did not give values.
            UnexpectedResultError: it gave something that is no value.
        """
        self._check_discovered(target)
        plan = plan_external(self.catalogue, target.namespace, target.metric, series)
        at_ms = self.clock.now_ms()
        if record is not None:
            record.plan, record.at_ms = plan, at_ms
        answer = await _fetched(self.questions.query(plan.promql, at_ms), plan.promql)
        value = plan.entry.rule.read(answer.value)
        if record is not None:
            record.value = value
        value = self.age_limit.fresh(
            value, at_ms, EXTERNAL_GROUP, target.metric, counts=record is None
        )
        return plan.answer(value, answer.asked_ms)

    async def ask(self, promql: str, at_ms: int) -> Value:
        """Return a query's result; identical queries share it. See `MetricSource.query`."""
        return (await self.questions.query(promql, at_ms)).value

    def discovery_report(self) -> tuple[str, ...]:
        """Return a line for each series query that failed in the last discovery, sorted."""
        failures = self.catalogue.failures
        return tuple(f"{query}: {failures[query].reason}" for query in sorted(failures))

    def _check_discovered(self, target: CustomTarget | ExternalTarget) -> None:
        """Raise for an unknown metric whose rule has not been discovered yet."""
        config = self.config
        if self._is_whole:
            open_queries = self.catalogue.failures.keys() - self._answered_once
        else:
            open_queries = set(config.series_queries())
        if not open_queries or self.serves(target):
            return
        is_external = isinstance(target, ExternalTarget)
        for rule in config.rules_in(target.namespace or "", external=is_external):
            if rule.series_query in open_queries and any(candidates(rule, target.metric)):
                raise NotDiscoveredError(f"whether there is a metric {target.metric}")

    async def objects(
        self, resource: ResourceType, namespace: str | None, objects: Selector
    ) -> tuple[str, ...]:
        """Return the names of the objects that are selected.

        Raises:
            ListError: it is not known which there are.
        """
        if self._ready is not None:
            await self._ready(resource)
        return self._directory.names(resource, namespace, objects)

    async def _series(
        self, query: str, start_ms: int, at_once: asyncio.Semaphore, lists_all: bool
    ) -> SeriesAnswer | None:
        """Return the series of a series query; None if the catalogue would stay the same."""
        at_ms, catalogue = self.clock.now_ms(), self.catalogue
        try:
            async with at_once:
                if not lists_all and query in catalogue.answered:
                    shapes = catalogue.shapes[query]
                    if await self._changes.are_none(query, shapes, start_ms, at_ms):
                        return None
                found = await self.questions.series(query, start_ms)
                self._changes.listed(query, at_ms)
                return found
        except GpuscaleError as error:
            _LOG.warning("unable to list the series of %s: %s", query, error)
            return QueryFailure(str(error))


async def _fetched(asking: Awaitable[T], promql: str) -> T:
    try:
        return await asking
    except (QueryError, UnavailableError, UpstreamError) as error:
        _LOG.warning("unable to fetch metrics: %s (query %.2000s)", error, promql)
        raise MetricFetchError from error
