"""Questions to a source, each asked once for all who want to know.

- An answer serves equal questions for as long as the user lets it, and a question that is being asked is not
  asked again. Errors reach those who wait for them and nobody else.
- Where many objects' values are asked for, one widened query serves them all (`widen`), if it gives the
  same. It begins when several different questions come within one time of freshness; a single user of a
  rule is not made to wait for everybody's values.
- An answer past a share of its time is renewed behind the back of those who still get it, so that a busy
  server doesn't make everybody wait each time it runs out.
- Names that don't fit into one query are asked for in parts, where parts give the same.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.core.errors import GpuscaleError, UnavailableError
from gpuscale.series.values import Value, Vector, VectorSample
from gpuscale.sources.plan import CustomPlan
from gpuscale.sources.query import are_joined, custom_query
from gpuscale.sources.source import MetricSource
from gpuscale.sources.widen import WideQuery, WideRows, widen

_LOG = logging.getLogger(__name__)
_MAX_KEPT = 4096
"""Answers; each is kept for the time of freshness only."""
_MAX_RULES = 4096
"""Rules and selectors of which it is remembered whether they can be widened."""
_WIDEN_FROM = 4
"""Different questions within one time of freshness."""
_NARROW_MS = 30_000
"""How long a widened query that failed is left alone."""
_MAX_QUERY_CHARS = 16_000
_MAX_PARTS_AT_ONCE = 4
_UNLIMITED = 1 << 30
_SAME_MOMENT_MS = 100
"""How much earlier a question on its way may have been asked and still be the same one."""


def _fits_into_post(promql: str) -> bool:
    return len(promql) <= _MAX_QUERY_CHARS


@dataclass(frozen=True, slots=True)
class Sharing:
    """How far answers are shared."""

    freshness_ms: int = 0
    """How old an answer may be when it serves again; 0 shares only what is asked at the same moment."""
    renewed_from: float = 0.6
    """Share of that time after which an answer that still serves is renewed; less for a cheap source."""
    widens: bool = True
    fits: Callable[[str], bool] = _fits_into_post
    """Whether the source takes a query of this length."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a source said."""

    value: Value
    asked_ms: int
    """The time that the query was evaluated at."""
    rows: WideRows | None = None
    """Of a widened query."""


@dataclass(slots=True)
class QuestionCounts:
    """How questions were answered."""

    asked: int = 0
    """By the source, whatever became of it."""
    shared: int = 0
    """By an answer that was there, or on its way."""
    cut: int = 0
    """Out of a widened query; counted beside one of the others."""
    split: int = 0
    """In parts, because not all names fit into a query."""


@dataclass(slots=True)
class _Rule:
    """What is known of one rule, series and selector."""

    wide: WideQuery | None
    recent: OrderedDict[tuple[str | None, Sequence[str]], int]
    """Different questions of late, and when they were last asked."""
    narrow_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Asking:
    """A question on its way."""

    asked_ms: int
    task: "asyncio.Task[Answer]"


class Questions:
    """A source that is asked no more than it has to be.

    Args:
        source: gets the questions.
        sharing: how far answers are shared.
    """

    def __init__(self, source: MetricSource, sharing: Sharing | None = None) -> None:
        self.counts = QuestionCounts()
        self._source = source
        self._sharing = sharing or Sharing()
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._asking: dict[str, _Asking] = {}
        self._rules: OrderedDict[object, _Rule] = OrderedDict()
        self._running: set[asyncio.Task[Answer]] = set()

    async def close(self) -> None:
        """End the questions that are still on their way."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return what the source does; see `MetricSource`."""
        return await self._source.series(selector, start_ms)

    async def query(self, promql: str, at_ms: int) -> Answer:
        """Return the answer to a query, as old as the freshness allows.

        Raises:
            QueryError, UnavailableError, UpstreamError: as the source does.
        """
        return await self._answer(promql, at_ms, None)

    async def custom(self, plan: CustomPlan, at_ms: int) -> Value:
        """Return what the plan's query gives, from whichever query holds it.

        Raises:
            QueryError, UnavailableError, UpstreamError: as the source does.
        """
        rule = self._rule(plan)
        if rule.wide is not None and self._is_wanted(rule, plan, at_ms):
            found = await self._cut(rule, rule.wide, plan, at_ms)
            if found is not None:
                return found
        if self._sharing.fits(plan.promql) and are_joined(plan.names):
            return (await self.query(plan.promql, at_ms)).value
        return await self._whole(plan, at_ms, splits=rule.wide is not None)

    async def _cut(
        self, rule: _Rule, wide: WideQuery, plan: CustomPlan, at_ms: int
    ) -> Vector | None:
        """Return the plan's rows from the widened query; None where the exact one has to be asked."""
        try:
            answer = await self._answer(wide.promql, at_ms, wide)
        except UnavailableError:
            raise
        except GpuscaleError as error:
            _LOG.debug("asked for each object, as this was refused: %s (%s)", wide.promql, error)
            rule.narrow_until_ms = at_ms + _NARROW_MS
            return None
        if answer.rows is None:
            rule.narrow_until_ms = at_ms + _NARROW_MS
            return None
        found = answer.rows.cut(plan.scope.namespace, plan.names)
        self.counts.cut += found is not None
        return found

    def _rule(self, plan: CustomPlan) -> _Rule:
        scope = plan.scope
        is_namespaced = scope.namespace is not None
        key = (scope.entry, plan.resource, is_namespaced, scope.selector)
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = _Rule(widen(plan), OrderedDict())
            if len(self._rules) > _MAX_RULES:
                self._rules.popitem(last=False)
        return rule

    def _is_wanted(self, rule: _Rule, plan: CustomPlan, at_ms: int) -> bool:
        """Note a question, and return whether a widened query is worth it now."""
        freshness_ms = self._sharing.freshness_ms
        if not self._sharing.widens or not freshness_ms or at_ms < rule.narrow_until_ms:
            return False
        question = (plan.scope.namespace, plan.names)
        rule.recent[question] = at_ms
        rule.recent.move_to_end(question)
        while next(iter(rule.recent.values())) <= at_ms - freshness_ms or (
            len(rule.recent) > _WIDEN_FROM
        ):
            rule.recent.popitem(last=False)
        return len(rule.recent) >= _WIDEN_FROM

    async def _answer(self, promql: str, at_ms: int, wide: WideQuery | None) -> Answer:
        freshness_ms = self._sharing.freshness_ms
        kept = self._kept.get(promql)
        if kept is not None and at_ms - freshness_ms < kept.asked_ms <= at_ms:
            self.counts.shared += 1
            renewed_ms = at_ms - self._sharing.renewed_from * freshness_ms
            if kept.asked_ms <= renewed_ms and promql not in self._asking:
                self._ask(promql, at_ms, wide)
            return kept
        return await asyncio.shield(self._ask(promql, at_ms, wide))

    def _ask(self, promql: str, at_ms: int, wide: WideQuery | None) -> "asyncio.Task[Answer]":
        asking = self._asking.get(promql)
        moment_ms = max(self._sharing.freshness_ms, _SAME_MOMENT_MS)
        if asking is not None and at_ms - moment_ms < asking.asked_ms <= at_ms:
            self.counts.shared += 1
            return asking.task
        task = asyncio.create_task(self._asked(promql, at_ms, wide))
        self._asking[promql] = _Asking(at_ms, task)
        self._running.add(task)
        task.add_done_callback(lambda done: self._note(promql, done))
        return task

    async def _asked(self, promql: str, at_ms: int, wide: WideQuery | None) -> Answer:
        self.counts.asked += 1
        value = await self._source.query(promql, at_ms)
        return Answer(value, at_ms, None if wide is None else await wide.rows(value))

    def _note(self, promql: str, task: "asyncio.Task[Answer]") -> None:
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
        self._kept[promql] = answer
        self._kept.move_to_end(promql)
        oldest_ms = answer.asked_ms - self._sharing.freshness_ms
        while len(self._kept) > _MAX_KEPT or next(iter(self._kept.values())).asked_ms < oldest_ms:
            self._kept.popitem(last=False)

    async def _whole(self, plan: CustomPlan, at_ms: int, *, splits: bool) -> Value:
        """Return the answer for more names than fit into a query."""
        if not splits:
            return (await self.query(_exact(plan, plan.names), at_ms)).value
        self.counts.split += 1
        at_once = asyncio.Semaphore(_MAX_PARTS_AT_ONCE)

        async def ask(promql: str) -> Value:
            async with at_once:
                return (await self.query(promql, at_ms)).value

        parts = map(ask, self._parts(plan, plan.names))
        return _joined(await asyncio.gather(*parts, return_exceptions=True))

    def _parts(self, plan: CustomPlan, names: Sequence[str]) -> Iterator[str]:
        """Yield queries that fit, for all names together."""
        promql = _exact(plan, names)
        if len(names) == 1 or self._sharing.fits(promql):
            yield promql
            return
        middle = len(names) // 2
        yield from self._parts(plan, names[:middle])
        yield from self._parts(plan, names[middle:])


def _exact(plan: CustomPlan, names: Sequence[str]) -> str:
    """Return the query for just these objects, however long it gets."""
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


def _joined(values: Sequence[Value | BaseException]) -> Value:
    """Return the rows of all vectors; what is no vector stands for itself, and an error is raised."""
    rows: list[VectorSample] = []
    for value in values:
        if isinstance(value, BaseException):
            raise value
        if not isinstance(value, Vector):
            return value
        rows += value.samples
    return Vector(tuple(rows))
