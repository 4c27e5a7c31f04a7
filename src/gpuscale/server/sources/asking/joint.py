"""Requests for the metrics of one rule, combined into one query where that costs the source less.

A question that finds no fresh answer is asked at once, and takes along those that are expected within the
time for which its answer is fresh: what an HPA controller asks in the next second is one query instead of
dozens. Where several come at a time, the later ones wait until one of those on its way is back, and go
together. When the rows that are wanted cost more than all rows that there are, the query is for all objects.
So it is when the queries of one freshness have cost as much: after a start no request is expected yet, and a
controller whose every question waits for a query of its own falls behind.

No answer is used for longer than the freshness allows, for any request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.series import Value, Vector
from gpuscale.server.rules.queries.plan import CustomPlan
from gpuscale.server.rules.queries.widen import WideQuery, WideRows
from gpuscale.server.rules.query import MAX_JOINED_NAMES
from gpuscale.server.sources.asking.cadence import Cadence
from gpuscale.server.sources.asking.wanted import WantedAnswer, WantedQuestions

_LOG = logging.getLogger(__name__)
QUERY_ROWS = 150
"""What a query costs besides its rows, in rows. Prometheus 2.42: 2.6 ms a query and 18 us a row of CPU."""
_MAX_ALL_ROWS = 50_000
"""Above which not all rows are asked for at once, however many are wanted."""
_MOST_AHEAD = 500
"""Objects of an expected question that is asked ahead; the saving is one query, whatever it asks."""
_MAX_ON_THEIR_WAY = 4
"""Queries of one rule; what comes meanwhile waits and goes together."""
_ROWS_AT_ONCE = 256
"""Sorted by object between two turns of the event loop."""
_AHEAD = 0.9
"""Share of the freshness for which is asked ahead; the rest is for the way, and for those who are late."""
_LEAD_MS = 500
"""How long before what was asked ahead ends it is asked again, at the least."""
_LOOK_MS = 300
"""How long after a look at all questions another one finds little more."""
_NARROW_MS = 30_000
"""How long questions are asked one by one after a joint query was refused."""
_SAME_MOMENT_MS = 100
"""How much earlier a question on its way may have been asked and still be the same one."""
Outcome = asyncio.Future[Value | None]


@dataclass(frozen=True, slots=True)
class Asker:
    """How a combined query is sent to the source."""

    freshness_ms: int
    """How old an answer may be when it serves."""
    most_freshness_ms: int
    """The same where samples come seldom."""
    renewed_from: float
    """Share of the freshness after which it is looked again at what is expected."""
    query: Callable[[str, int], Awaitable[Value]]
    """Asks the source."""
    exact: Callable[[CustomPlan, int], Awaitable[Value]]
    """Asks for one question, in parts where it is too long."""
    start: Callable[[Coroutine[Any, Any, None]], object]
    """Runs a coroutine in the background."""


class _Ask(NamedTuple):
    """A request that waits for the next query, with the future for its answer."""

    wanted: WantedAnswer
    outcome: Outcome

    @property
    def size(self) -> int:
        """Return the characters that the request adds to a query."""
        plan = self.wanted.plan
        return sum(map(len, plan.names)) + len(plan.names) + len(plan.scope.namespace or "")


class JointQuestions:
    """The requests that can share queries: of one rule, series and selector.

    Args:
        wide: makes the queries.
        asker: asks them.
    """

    def __init__(self, wide: WideQuery, asker: Asker) -> None:
        self._wide = wide
        self._asker = asker
        self._cadence = Cadence(
            wide, asker.freshness_ms, asker.most_freshness_ms, asker.query, asker.start
        )
        self._wanted = WantedQuestions()
        self._all: WideRows | None = None
        """The rows of all objects."""
        self._all_ms = 0
        self._all_rows = 0
        self._pending: list[_Ask] = []
        self._pending_ms = 0
        self._is_called = False
        """Whether `_send` is about to run."""
        self._on_their_way = 0
        self._is_all_on_its_way = False
        self._looked_ms = 0
        self._narrow_until_ms = 0
        self._spent: deque[tuple[int, int]] = deque()
        """What the queries of one freshness cost in rows, or would have without all rows, by their times."""
        self._spent_rows = 0

    async def answer(self, plan: CustomPlan, at_ms: int) -> tuple[Value | None, bool, bool]:
        """Return the answer, whether it was cached, and whether it was cut from a larger one.

        None is a question that has to be asked on its own.

        Raises:
            UnavailableError: as the source does.
        """
        if at_ms < self._narrow_until_ms:
            return None, False, False
        self._cadence.look(plan, len(self._wanted), at_ms)
        wanted = self._wanted.note(plan, at_ms)
        found: Value | None = self._known(wanted, at_ms)
        was_there = found is not None
        if was_there:
            self._look_ahead(at_ms)
        else:
            was_there = wanted.waiting is not None
            found = await asyncio.shield(self._want(wanted, at_ms))
        return found, was_there, wanted.is_cut

    def _known(self, wanted: WantedAnswer, at_ms: int) -> Vector | None:
        found = wanted.fresh(at_ms, self._freshness_ms)
        if found is None and self._all is not None and self._all_ms <= at_ms < self._covered_ms:
            wanted.is_cut = True
            if wanted.is_first:
                self._spend(QUERY_ROWS + len(wanted.plan.names), at_ms)
            return self._all.cut(*wanted.question)
        return found

    @property
    def _freshness_ms(self) -> int:
        return self._cadence.freshness_ms

    def _spend(self, rows: int, at_ms: int) -> None:
        self._spent.append((at_ms, rows))
        self._spent_rows += rows
        while self._spent and self._spent[0][0] <= at_ms - self._freshness_ms:
            self._spent_rows -= self._spent.popleft()[1]

    @property
    def _covered_ms(self) -> int:
        """Return until when the last query for all objects stays fresh, in milliseconds."""
        return 0 if self._all is None else self._all_ms + self._freshness_ms

    def _look_ahead(self, at_ms: int) -> None:
        """Query in advance for requests that are expected soon; runs after an answer from the cache."""
        pause_ms = max(
            self._asker.renewed_from * self._freshness_ms, _AHEAD * self._freshness_ms - _LEAD_MS
        )
        if not self._looked_ms <= at_ms < self._looked_ms + pause_ms:
            self._looked_ms = at_ms
            for wanted in self._due(at_ms):
                self._want(wanted, at_ms)

    def _due(self, at_ms: int) -> list[WantedAnswer]:
        freshness_ms = self._freshness_ms
        if self._covered_ms <= at_ms:
            self._all = None
        until_ms = at_ms + round(_AHEAD * freshness_ms)
        return [
            wanted
            for wanted in self._wanted.due(at_ms, self._covered_ms, until_ms, freshness_ms)
            if len(wanted.plan.names) <= _MOST_AHEAD or wanted.period_ms <= freshness_ms
        ]

    def _want(self, wanted: WantedAnswer, at_ms: int) -> Outcome:
        """Queue a request for the next query, which takes all requests of this turn of the event loop."""
        longest_ms = max(self._freshness_ms, _SAME_MOMENT_MS)
        if wanted.waiting is not None and at_ms - longest_ms < wanted.waiting_ms <= at_ms:
            return wanted.waiting
        loop = asyncio.get_running_loop()
        wanted.waiting, wanted.waiting_ms = loop.create_future(), at_ms
        wanted.waiting.add_done_callback(_seen)
        self._pending_ms = max(self._pending_ms, at_ms) if self._pending else at_ms
        self._pending.append(_Ask(wanted, wanted.waiting))
        if not self._is_called:
            self._is_called = True
            loop.call_soon(self._send)
        return wanted.waiting

    def _send(self) -> None:
        """Send a query for the queued and the expected requests."""
        if self._pending and not self._is_all_on_its_way and self._on_their_way < _MAX_ON_THEIR_WAY:
            at_ms = self._pending_ms
            if not self._looked_ms <= at_ms < self._looked_ms + _LOOK_MS:
                self._looked_ms = at_ms
                for wanted in self._due(at_ms):
                    self._want(wanted, at_ms)
            asks, self._pending = self._pending, []
            parts = list(_parts(asks))
            if self._costs_less(asks, len(parts), at_ms):
                self._is_all_on_its_way = True
                self._start(self._ask_for_all(asks, at_ms))
            else:
                for part in parts:
                    self._start(self._ask_for(part, at_ms))
        self._is_called = False

    def _costs_less(self, asks: Sequence[_Ask], queries: int, at_ms: int) -> bool:
        """Return whether one query for all objects costs less than the recent queries for some of them."""
        rows = sum(len(ask.wanted.plan.names) for ask in asks)
        self._spend(rows + QUERY_ROWS * queries, at_ms)
        all_rows = self._all_rows or self._wide.scope.entry.rows
        if not 0 < all_rows <= _MAX_ALL_ROWS:
            return False
        return all_rows + QUERY_ROWS <= self._spent_rows

    def _start(self, asking: Coroutine[Any, Any, None]) -> None:
        self._on_their_way += 1
        self._asker.start(asking)

    def _back(self) -> None:
        self._on_their_way -= 1
        if self._pending and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._send)

    async def _ask_for(self, part: Sequence[_Ask], at_ms: int) -> None:
        try:
            if len(part) == 1:
                value = await self._asker.exact(part[0].wanted.plan, at_ms)
                self._settle(part[0], value, at_ms, is_cut=False)
            else:
                plans = [ask.wanted.plan for ask in part]
                namespaces = dict.fromkeys(plan.scope.namespace or "" for plan in plans)
                names = dict.fromkeys(name for plan in plans for name in plan.names)
                promql = self._wide.among(tuple(namespaces), tuple(names))
                rows = await self._rows(promql, at_ms)
                self._cut(part, rows, at_ms)
        except BaseException as error:
            self._fail(part, error, at_ms)
            raise
        finally:
            self._back()

    async def _ask_for_all(self, asks: Sequence[_Ask], at_ms: int) -> None:
        try:
            rows = await self._rows(self._wide.promql, at_ms)
            if rows is not None:
                self._all, self._all_ms, self._all_rows = rows, at_ms, rows.count
            self._cut(asks, rows, at_ms)
            if self._pending_ms - at_ms < self._freshness_ms:
                # Requests that arrived meanwhile find their rows in the same answer.
                pending, self._pending = self._pending, []
                self._cut(pending, rows, at_ms)
        except BaseException as error:
            self._fail(asks, error, at_ms)
            raise
        finally:
            self._is_all_on_its_way = False
            self._back()

    async def _rows(self, promql: str, at_ms: int) -> WideRows | None:
        value = await self._asker.query(promql, at_ms)
        if not isinstance(value, Vector):
            self._narrow_until_ms = at_ms + _NARROW_MS
            return None
        rows = WideRows(self._wide)
        for start in range(0, len(value.samples), _ROWS_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # other requests get their turn
            rows.add(value.samples[start : start + _ROWS_AT_ONCE])
        return rows

    def _cut(self, asks: Sequence[_Ask], rows: WideRows | None, at_ms: int) -> None:
        for ask in asks:
            found = None if rows is None else rows.cut(*ask.wanted.question)
            self._settle(ask, found, at_ms, is_cut=True)

    def _settle(self, ask: _Ask, found: Value | None, at_ms: int, *, is_cut: bool) -> None:
        wanted = ask.wanted
        if isinstance(found, Vector):
            self._wanted.answered(wanted, found, at_ms)
            wanted.is_cut = is_cut
        _forget(ask)
        if not ask.outcome.done():
            ask.outcome.set_result(found)

    def _fail(self, asks: Sequence[_Ask], error: BaseException, at_ms: int) -> None:
        """Pass an error on to the waiting requests; if the source refused a joint query, send each alone."""
        is_refused = isinstance(error, GpuscaleError) and not isinstance(error, UnavailableError)
        if is_refused and len(asks) > 1:
            _LOG.debug("asked one by one, as this was refused: %s (%s)", self._wide.promql, error)
            self._narrow_until_ms = at_ms + _NARROW_MS
        for ask in asks:
            _forget(ask)
            if ask.outcome.done():
                continue
            if is_refused and len(asks) > 1:
                ask.outcome.set_result(None)
            elif isinstance(error, Exception):
                ask.outcome.set_exception(error)
            else:
                ask.outcome.cancel()


def _forget(ask: _Ask) -> None:
    if ask.wanted.waiting is ask.outcome:
        ask.wanted.waiting = None


def _seen(outcome: Outcome) -> None:
    """Retrieve a future's error, so that asyncio logs nothing when no waiter is left."""
    if not outcome.cancelled():
        outcome.exception()


def _parts(asks: Sequence[_Ask]) -> Iterator[list[_Ask]]:
    """Yield groups of requests whose names together fit into one query."""
    part: list[_Ask] = []
    chars = 0
    for ask in asks:
        if part and chars + ask.size > MAX_JOINED_NAMES:
            yield part
            part, chars = [], 0
        part.append(ask)
        chars += ask.size
    if part:
        yield part
