"""Queries to a source: equal ones in flight run once, and answers are reused while fresh.

- An answer serves equal questions for as long as the user lets it, and a question that is being asked is not
  asked again. Errors reach those who wait for them and no others.
- Questions about one rule go together into one query (`asking`), where that gives the same (`widen`) and
  costs less: those that come at once, and those that are expected in the next moment.
- An answer past a share of its time is renewed behind the back of those who still get it, so that a busy
  server doesn't make everybody wait each time it runs out.
- Names that don't fit into one query are asked for in parts, where parts give the same.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuscale.base.byte_cache import MAX_TEXT, ByteCache, deep_bytes
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series import Matrix, Value, Vector, VectorSample
from gpuscale.server.rules.catalogue import Entry
from gpuscale.server.rules.queries.plan import CustomPlan
from gpuscale.server.rules.queries.widen import WideQuery, widen
from gpuscale.server.rules.query import are_joined, custom_query
from gpuscale.server.rules.resources import ResourceType
from gpuscale.server.sources.asking.joint import Asker, JointQuestions
from gpuscale.server.sources.source import MetricSource, NamingSource

_LOG = logging.getLogger(__name__)
_ANSWERS_BYTES = 8 * 1024 * 1024
"""Of answers; each is kept for the time of freshness only."""
_ROW_BYTES = 400
"""Of a row of an answer with a few labels."""
_RULES_BYTES = 2 * 1024 * 1024
"""Of rules and selectors of which it is remembered whether they can be widened."""
_JOINT_BYTES = 2 * 1024
"""Of what is noted of one of them while it is in use, besides its questions."""
_MAX_QUERY_CHARS = 16_000
_MAX_PARTS_AT_ONCE = 4
_UNLIMITED = 1 << 30
_SAME_MOMENT_MS = 100
"""How much earlier a question on its way may have been asked and still be the same one."""


def _fits_into_post(promql: str) -> bool:
    return len(promql) <= _MAX_QUERY_CHARS


@dataclass(frozen=True, slots=True)
class AnswerSharing:
    """How long answers are reused, and whether requests are combined."""

    freshness_ms: int = 0
    """How old an answer may be when it serves again; 0 shares only what is asked at the same moment."""
    most_freshness_ms: int = 0
    """The same for questions about objects where samples come seldom (`asking.cadence`); 0 learns nothing."""
    renewed_from: float = 0.6
    """Share of that time after which an answer that still serves is renewed; less for a cheap source."""
    widens: bool = True
    """Whether one query may be for several questions."""
    fits: Callable[[str], bool] = _fits_into_post
    """Whether the source takes a query of this length."""


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """A source's answer to a query."""

    value: Value
    asked_ms: int
    """The time that the query was evaluated at."""


@dataclass(slots=True)
class QuestionCounts:
    """How many requests were answered by a query of their own, a shared one, a larger one, or parts."""

    asked: int = 0
    """By the source, whatever became of it."""
    shared: int = 0
    """By an answer that was there, or on its way."""
    cut: int = 0
    """Out of a query for several questions; counted beside one of the others."""
    split: int = 0
    """In parts, because not all names fit into a query."""


@dataclass(frozen=True, slots=True)
class _Asking:
    """A query in flight."""

    asked_ms: int
    task: "asyncio.Task[SourceAnswer]"


class SharedSource:
    """A metric source that sends each query once for all who wait for its answer.

    Args:
        source: gets the questions.
        sharing: how far answers are shared.
    """

    def __init__(self, source: MetricSource, sharing: AnswerSharing | None = None) -> None:
        self.counts = QuestionCounts()
        self._source = source
        self._sharing = sharing or AnswerSharing()
        self._kept: ByteCache[str, SourceAnswer] = ByteCache(
            "answers", _ANSWERS_BYTES, most_entry_bytes=_ANSWERS_BYTES // 2
        )
        self._asking: dict[str, _Asking] = {}
        self._wides: ByteCache[_Rule, _Wide] = ByteCache("widened rules", _RULES_BYTES)
        self._joints: ByteCache[_Rule, JointQuestions] = ByteCache("joint questions", _RULES_BYTES)
        self._asker = Asker(
            self._sharing.freshness_ms,
            self._sharing.most_freshness_ms,
            self._sharing.renewed_from,
            self._query_source,
            self._exact,
            self._start,
        )
        self._running: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Cancel the queries in flight."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the source's label sets; see `MetricSource`."""
        return await self._source.series(selector, start_ms)

    async def names(
        self, selector: str, start_ms: int, *, of_metrics: bool
    ) -> frozenset[str] | None:
        """Return the names that a `NamingSource` knows; None for any other source."""
        if not isinstance(self._source, NamingSource):
            return None
        return await self._source.names(selector, start_ms, of_metrics=of_metrics)

    async def query(self, promql: str, at_ms: int) -> SourceAnswer:
        """Return the result of a query, at most as old as the freshness.

        Raises:
            QueryError, UnavailableError, UpstreamError: as the source does.
        """
        freshness_ms = self._sharing.freshness_ms
        kept = self._kept.get(promql)
        if kept is not None and at_ms - freshness_ms < kept.asked_ms <= at_ms:
            self.counts.shared += 1
            renewed_ms = at_ms - self._sharing.renewed_from * freshness_ms
            if kept.asked_ms <= renewed_ms and promql not in self._asking:
                self._ask(promql, at_ms)
            return kept
        return await asyncio.shield(self._ask(promql, at_ms))

    async def custom(self, plan: CustomPlan, at_ms: int) -> Value:
        """Return the result of the plan's query, possibly cut from a wider one.

        Raises:
            QueryError, UnavailableError, UpstreamError: as the source does.
        """
        joint = self._joint(plan) if self._sharing.widens and self._sharing.freshness_ms else None
        if joint is not None:
            found, was_there, is_cut = await joint.answer(plan, at_ms)
            self.counts.shared += was_there
            if found is not None:
                self.counts.cut += is_cut
                return found
        return await self._exact(plan, at_ms)

    async def _exact(self, plan: CustomPlan, at_ms: int) -> Value:
        """Return the result of the plan's own query; of several where not all names fit into one."""
        if self._sharing.fits(plan.promql) and are_joined(plan.names):
            return (await self.query(plan.promql, at_ms)).value
        if self._wide(plan) is None:
            return (await self.query(_exact_query(plan, plan.names), at_ms)).value
        self.counts.split += 1
        at_once = asyncio.Semaphore(_MAX_PARTS_AT_ONCE)

        async def ask(promql: str) -> Value:
            async with at_once:
                return (await self.query(promql, at_ms)).value

        parts = map(ask, self._parts(plan, plan.names))
        rows: list[VectorSample] = []
        for value in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(value, BaseException):
                raise value
            if not isinstance(value, Vector):
                return value  # whoever asked says what is wrong with it
            rows += value.samples
        return Vector(tuple(rows))

    def _parts(self, plan: CustomPlan, names: Sequence[str]) -> Iterator[str]:
        """Yield queries for all names, each short enough."""
        promql = _exact_query(plan, names)
        if len(names) == 1 or self._sharing.fits(promql):
            yield promql
            return
        middle = len(names) // 2
        yield from self._parts(plan, names[:middle])
        yield from self._parts(plan, names[middle:])

    def _joint(self, plan: CustomPlan) -> JointQuestions | None:
        """Return the shared queries that a plan can join; None if it can't share."""
        key, wide = _rule(plan), self._wide(plan)
        if wide is None:
            return None
        found = self._joints.get(key)
        if found is None:
            found = JointQuestions(wide, self._asker)
            self._joints.put(key, found, _JOINT_BYTES)
        return found

    def _wide(self, plan: CustomPlan) -> WideQuery | None:
        """Return the widened query for requests of one rule; None if the rule can't be widened."""
        key = _rule(plan)
        found = self._wides.get(key)
        if found is None:
            is_long = plan.scope.selector and len(str(plan.scope.selector)) > MAX_TEXT
            found = _Wide(None if is_long else widen(plan))
            if not is_long:
                promql = None if found.query is None else found.query.promql
                self._wides.put(key, found, deep_bytes((plan.scope.selector, promql)))
        return found.query

    async def _query_source(self, promql: str, at_ms: int) -> Value:
        self.counts.asked += 1
        return await self._source.query(promql, at_ms)

    def _start(self, asking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(asking)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, GpuscaleError):
            _LOG.error("a question failed in a way that nothing expected", exc_info=error)

    def _ask(self, promql: str, at_ms: int) -> "asyncio.Task[SourceAnswer]":
        asking = self._asking.get(promql)
        moment_ms = max(self._sharing.freshness_ms, _SAME_MOMENT_MS)
        if asking is not None and at_ms - moment_ms < asking.asked_ms <= at_ms:
            self.counts.shared += 1
            return asking.task
        task = asyncio.create_task(self._asked(promql, at_ms))
        self._asking[promql] = _Asking(at_ms, task)
        self._running.add(task)
        task.add_done_callback(lambda done: self._note(promql, done))
        return task

    async def _asked(self, promql: str, at_ms: int) -> SourceAnswer:
        return SourceAnswer(await self._query_source(promql, at_ms), at_ms)

    def _note(self, promql: str, task: "asyncio.Task[SourceAnswer]") -> None:
        self._running.discard(task)
        asking = self._asking.get(promql)
        if asking is not None and asking.task is task:
            del self._asking[promql]
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        if not self._sharing.freshness_ms:
            return
        kept = self._kept.get(promql)
        if kept is not None and kept.asked_ms > answer.asked_ms:
            return
        if len(promql) <= MAX_TEXT:
            self._kept.put(promql, answer, deep_bytes(promql) + _size(answer.value))
        oldest_ms = answer.asked_ms - self._sharing.freshness_ms
        while (oldest := next(iter(self._kept), None)) is not None:
            found = self._kept.peek(oldest)
            if found is None or found.asked_ms >= oldest_ms:
                break
            self._kept.drop(oldest)


class _Rule(NamedTuple):
    """What requests must have in common to share a query."""

    entry: Entry
    resource: ResourceType
    is_namespaced: bool
    selector: Selector


class _Wide(NamedTuple):
    """A widened query; None if the rule has none."""

    query: WideQuery | None


def _rule(plan: CustomPlan) -> _Rule:
    scope = plan.scope
    return _Rule(scope.entry, plan.resource, scope.namespace is not None, scope.selector)


def _size(value: Value) -> int:
    if isinstance(value, Vector):
        return len(value.samples) * _ROW_BYTES
    if isinstance(value, Matrix):
        return sum(_ROW_BYTES + 100 * len(series.points) for series in value.series)
    return deep_bytes(value)


def _exact_query(plan: CustomPlan, names: Sequence[str]) -> str:
    """Return the query for exactly these objects, whatever its length."""
    scope = plan.scope
    rule = scope.entry.rule
    return custom_query(
        rule.metrics_query,
        scope.entry.series,
        rule.labels,
        plan.resource,
        scope.namespace,
        names,
        scope.selector,
        most_joined=_UNLIMITED,
    )
