"""A Prometheus source without impossible values (see `guards`), which also counts them.

Who asks for `IMPOSSIBLE_SERIES` gets the values that were left out, as from a store of our own. How many
there are is asked once a minute for each series that is read, and less often where that takes the Prometheus
long: it looks at all series of the name, of which the rules may ask for a few.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.base.errors import GpuscaleError, QueryError
from gpuscale.base.ranges import Range
from gpuscale.series import IMPOSSIBLE_SERIES, METRIC_NAME, Value, Vector, VectorSample
from gpuscale.server.sources.prometheus.client import PrometheusSource

if TYPE_CHECKING:
    from gpuscale.server.sources.prometheus.guards import Guarded

_LOG = logging.getLogger(__name__)
_COUNT_MS = 60_000
"""From one count to the next, and the time that it looks back on."""
_LONGEST_MS = 600_000
"""The same, however long a count takes."""
_SHARE = 0.0005
"""Of the time at most, in which a Prometheus counts for one name."""
_MAX_TOLD = 100
_SHOWN_CHARS = 500


class PossibleSource:
    """Sends queries to the inner source with guards against impossible values.

    Args:
        inner: gets the questions; closed with this.
    """

    def __init__(self, inner: PrometheusSource) -> None:
        self.left_out: Counter[str] = Counter()
        """By the name of their series: how many series had such a value between two counts, all together."""
        self._inner = inner
        self._counted_ms: dict[str, int] = {}
        self._pause_ms: dict[str, int] = {}
        """From one count to the next, by the name of the series."""
        self._counting: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()

    def takes(self, promql: str) -> bool:
        """Return whether a query is short enough to be sent."""
        return self._inner.takes(self._guarded(promql).promql)

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the inner source's label sets; see `MetricSource`."""
        return await self._inner.series(selector, start_ms)

    async def names(self, selector: str, start_ms: int, *, of_metrics: bool) -> frozenset[str]:
        """Return the inner source's names; see `NamingSource`."""
        return await self._inner.names(selector, start_ms, of_metrics=of_metrics)

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to without impossible values; see `MetricSource`."""
        asked = self._guarded(promql)
        value = await self._inner.query(asked.promql, at_ms)
        for name in asked.series:
            self._count(name, at_ms)
        if asked.is_open and isinstance(value, Vector):
            return Vector(tuple(filter(_is_possible, value.samples)))
        return value

    async def close(self) -> None:
        """Close the source; a second call does nothing."""
        for task in self._counting:
            task.cancel()
        await asyncio.gather(*self._counting, return_exceptions=True)
        await self._inner.close()

    def _guarded(self, promql: str) -> "Guarded":
        # Imported late: facts about series take a tenth of the server's start to load.
        from gpuscale.server.sources.prometheus.guards import Guarded, guarded

        try:
            return guarded(promql)
        except QueryError as error:
            shown = promql[:_SHOWN_CHARS]
            if shown not in self._told and len(self._told) < _MAX_TOLD:
                self._told.add(shown)
                _LOG.warning(
                    "impossible values can't be left out of a query that is not understood here: %s (%s)",
                    shown,
                    error,
                )
            return Guarded(promql)

    def _count(self, name: str, at_ms: int) -> None:
        """Count the impossible values of a query's series, unless a recent count is known."""
        from gpuscale.server.sources.prometheus.guards import count_query
        from gpuscale.signals import range_of

        limits = range_of(name)
        since_ms = at_ms - self._counted_ms.get(name, at_ms - _COUNT_MS)
        if limits is None or since_ms < self._pause_ms.get(name, _COUNT_MS):
            return
        self._counted_ms[name] = at_ms
        question = count_query(name, limits, min(since_ms, _LONGEST_MS))
        task = asyncio.create_task(self._ask_count(name, limits, question, at_ms))
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    async def _ask_count(self, name: str, limits: Range, promql: str, at_ms: int) -> None:
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            value = await self._inner.query(promql, at_ms)
        except GpuscaleError as error:
            _LOG.debug("impossible values of %s were not counted: %s", name, error)
            return
        finally:
            pause_ms = round(1000 * (now_s() - began_s) / _SHARE)
            self._pause_ms[name] = min(max(_COUNT_MS, pause_ms), _LONGEST_MS)
        found = int(value.samples[0].value) if isinstance(value, Vector) and value.samples else 0
        if found and not self.left_out[name]:
            _LOG.warning(
                "%d series of %s have a value that it can't have (it is %s), and are left out; "
                "`gpuscale metrics-api why` or %s{series=%r} says which",
                found,
                name,
                limits,
                IMPOSSIBLE_SERIES,
                name,
            )
        self.left_out[name] += found


def _is_possible(sample: VectorSample) -> bool:
    from gpuscale.signals import impossible

    return impossible(sample.labels.get(METRIC_NAME, ""), sample.value) is None
