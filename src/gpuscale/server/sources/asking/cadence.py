"""How long an answer may be reused, learned from how often its series get samples.

A value changes with the next sample and not before. Of series that are scraped every 15 seconds, an answer
that serves for 3 seconds is the one that a fresh query would give for four requests of five, and the fifth
gets the sample before it. Where samples come faster, or nothing is known of them, the least time counts.

How often they come is counted over the last minute, for some of the objects that are asked for: with
PromQL, which every source has, where targets and configuration are not to be read from a managed one.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.golang.template import parse_template
from gpuscale.series import Value, Vector
from gpuscale.server.rules.queries.plan import CustomPlan
from gpuscale.server.rules.queries.widen import WideQuery
from gpuscale.server.rules.query import FIELDS

_LOG = logging.getLogger(__name__)
_WINDOW_MS = 60_000
_SAMPLES = parse_template(
    "max(count_over_time(<<.Series>>{<<.LabelMatchers>>}[1m])"
    " and <<.Series>>{<<.LabelMatchers>>} offset 1m)",
    FIELDS,
)
"""Series that began within the minute would seem to get fewer samples than they do."""
_SHARE = 0.2
"""Of the time between two samples for which an answer serves."""
_MOST_OBJECTS = 20
"""That are looked at for one metric."""
_KNOWN_MS = 600_000
"""From one look to the next."""
_UNKNOWN_MS = 60_000
"""The same, where a look found nothing."""
_FROM_QUESTIONS = 4
"""Different ones of a rule; for fewer, sharing for longer saves less than the look costs."""


class Cadence:
    """The learned freshness of one rule's answers, for a series and a selector.

    Args:
        wide: makes the queries.
        least_ms: how old an answer may be whatever the samples are.
        most_ms: how old at most.
        query: asks the source.
        start: runs a coroutine in the background.
    """

    def __init__(
        self,
        wide: WideQuery,
        least_ms: int,
        most_ms: int,
        query: Callable[[str, int], Awaitable[Value]],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.freshness_ms = least_ms
        self._wide = wide
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._query = query
        self._start = start
        self._looks_from_ms = 0

    def look(self, plan: CustomPlan, questions: int, at_ms: int) -> None:
        """Learn the sample interval in the background, when a new look is due.

        A team's rule keeps the least time: what is counted here is not confined to its namespace.

        Args:
            plan: of a question that came now; some of its objects are looked at.
            questions: how many different ones there are of this rule.
            at_ms: now.
        """
        if self._most_ms <= self._least_ms or questions < _FROM_QUESTIONS:
            return
        if at_ms >= self._looks_from_ms and not plan.scope.entry.rule.only_in:
            self._looks_from_ms = at_ms + _UNKNOWN_MS
            self._start(self._learn(plan, at_ms))

    async def _learn(self, plan: CustomPlan, at_ms: int) -> None:
        names, namespace = plan.names[:_MOST_OBJECTS], plan.scope.namespace or ""
        learned_ms = self._least_ms
        try:
            promql = self._wide.among((namespace,), names, _SAMPLES)
            samples = _number(await self._query(promql, at_ms))
        except GpuscaleError as error:
            _LOG.debug("it is not known how often there are samples: %s", error)
            samples = 0.0
        if samples >= 1:
            self._looks_from_ms = at_ms + _KNOWN_MS
            learned_ms = round(_SHARE * _WINDOW_MS / samples)
        self.freshness_ms = min(max(learned_ms, self._least_ms), self._most_ms)


def _number(value: Value) -> float:
    """Return the number in a result's only row; 0 if there is none."""
    if not isinstance(value, Vector) or not value.samples:
        return 0.0
    found = value.samples[0].value
    return found if math.isfinite(found) else 0.0
