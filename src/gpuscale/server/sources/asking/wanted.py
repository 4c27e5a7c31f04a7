"""When a request will come again: an HPA asks for the same pods every 15 seconds.

The time between the last two times that a question came is taken for the time until the next one, and 15
seconds where it came once. Where that is wrong, a few rows were read for nothing, or the question is asked
by itself.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpuscale.base.byte_cache import ByteCache, deep_bytes
from gpuscale.series import Value, Vector
from gpuscale.server.rules.queries.plan import CustomPlan

_MOST_BYTES = 8 * 1024 * 1024
_ROW_BYTES = 400
"""Of a row of an answer with two labels."""
_WANTED_BYTES = 300
_PERIOD_MS = 15_000
"""From one time that an HPA controller asks for an HPA to the next, by default."""
_LONGEST_PERIOD_MS = 300_000
"""What comes less often than this is not expected again."""
_LATE_MS = 1000
"""How much later than expected a question may come and still be the one."""


class ObjectsQuestion(NamedTuple):
    """The objects and selector of a request, apart from its rule."""

    namespace: str | None
    names: tuple[str, ...]


@dataclass(slots=True)
class WantedAnswer:
    """A repeated request, with its answer while that is fresh."""

    plan: CustomPlan
    """With the query that asks for just this."""
    last_ms: int
    """When it last came."""
    is_first: bool = True
    """Whether it came only once."""
    period_ms: int = _PERIOD_MS
    """From the time before; at first what it is for an HPA controller. 0 is not expected again."""
    answer: Vector | None = None
    asked_ms: int = 0
    """Of the answer: the time that its query was evaluated at."""
    is_cut: bool = False
    """Whether the answer is a part of one to several questions."""
    waiting: "asyncio.Future[Value | None] | None" = None
    """While it is on its way; None in it says that the question has to be asked on its own."""
    waiting_ms: int = 0
    """Since when."""

    @property
    def question(self) -> ObjectsQuestion:
        return ObjectsQuestion(self.plan.scope.namespace, self.plan.names)

    def fresh(self, at_ms: int, freshness_ms: int) -> Vector | None:
        """Return the answer if it is younger than the freshness."""
        is_fresh = at_ms - freshness_ms < self.asked_ms <= at_ms
        return self.answer if is_fresh else None

    def expected_ms(self, at_ms: int, covered_ms: int, freshness_ms: int) -> int | None:
        """Return when the request will next find no fresh answer, in milliseconds; None if unknown.

        Args:
            at_ms: now.
            covered_ms: until when there is an answer for everybody.
            freshness_ms: for which its own answer serves.
        """
        period_ms, due_ms = self.period_ms, self.last_ms + self.period_ms
        if not period_ms or at_ms > due_ms + min(_LATE_MS, period_ms):
            return None
        from_ms = max(at_ms, covered_ms)
        if self.answer is not None:
            from_ms = max(from_ms, self.asked_ms + freshness_ms)
        if due_ms >= from_ms:
            return due_ms
        if from_ms == at_ms:
            return at_ms  # overdue
        return due_ms - (due_ms - from_ms) // period_ms * period_ms


class WantedQuestions:
    """The repeated requests for one rule."""

    def __init__(self) -> None:
        self._wanted: ByteCache[ObjectsQuestion, WantedAnswer] = ByteCache(
            "questions", _MOST_BYTES, most_entry_bytes=_MOST_BYTES // 2
        )

    def __len__(self) -> int:
        return len(self._wanted)

    def note(self, plan: CustomPlan, at_ms: int) -> WantedAnswer:
        """Record a request that came now, and return its state."""
        wanted = self._wanted.get(ObjectsQuestion(plan.scope.namespace, plan.names))
        if wanted is None:
            wanted = WantedAnswer(plan, at_ms)
            self._keep(wanted)
            return wanted
        since_ms = at_ms - wanted.last_ms
        if since_ms > 0:
            wanted.period_ms = since_ms if since_ms <= _LONGEST_PERIOD_MS else 0
            wanted.last_ms = at_ms
            wanted.is_first = False
        return wanted

    def answered(self, wanted: WantedAnswer, answer: Vector, asked_ms: int) -> None:
        if wanted.answer is None or wanted.asked_ms <= asked_ms:
            wanted.answer, wanted.asked_ms = answer, asked_ms
            self._keep(wanted)

    def due(
        self, at_ms: int, covered_ms: int, until_ms: int, freshness_ms: int
    ) -> list[WantedAnswer]:
        """Return the requests expected until then, the next one first; drops old answers and requests.

        Args:
            at_ms: now.
            covered_ms: until when there is an answer for everybody.
            until_ms: what is expected later is not returned.
            freshness_ms: for which the answer to a question serves.
        """
        found = sorted(
            self._due(at_ms, covered_ms, until_ms, freshness_ms),
            key=lambda expected: expected[0],
        )
        return [wanted for _, wanted in found]

    def _due(
        self, at_ms: int, covered_ms: int, until_ms: int, freshness_ms: int
    ) -> Iterator[tuple[int, WantedAnswer]]:
        for question in list(self._wanted):
            wanted = self._wanted.peek(question)
            if wanted is None or wanted.waiting is not None:
                continue
            if at_ms - wanted.last_ms > _LONGEST_PERIOD_MS:
                self._wanted.drop(question)
                continue
            if wanted.answer is not None and wanted.asked_ms <= at_ms - freshness_ms:
                wanted.answer = None
                self._wanted.resize(question, _size(wanted))
            expected_ms = wanted.expected_ms(at_ms, covered_ms, freshness_ms)
            if expected_ms is not None and expected_ms <= until_ms:
                yield expected_ms, wanted

    def _keep(self, wanted: WantedAnswer) -> None:
        self._wanted.put(wanted.question, wanted, _size(wanted))


def _size(wanted: WantedAnswer) -> int:
    rows = 0 if wanted.answer is None else len(wanted.answer.samples)
    texts = deep_bytes(wanted.plan.names) + deep_bytes(wanted.plan.promql)
    return _WANTED_BYTES + texts + rows * _ROW_BYTES
