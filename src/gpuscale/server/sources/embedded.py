"""A metric source over the series store in memory. The simulator calls its synchronous half directly."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuscale.base.errors import UnavailableError
from gpuscale.series import Value
from gpuscale.series.promql import (
    MAX_QUERY_CHARS,
    Check,
    Query,
    QueryRange,
    QueryTimeoutError,
    Samples,
    instant,
    parse_matchers,
    parse_query,
)
from gpuscale.series.storage import SeriesStore


class EvaluationPool(Protocol):
    """Evaluates queries in threads beside the event loop, each with a deadline."""

    async def evaluate(
        self,
        store: SeriesStore,
        query: Query,
        covered: QueryRange,
        work: Callable[[Samples, Check], Value],
    ) -> Value:
        """Return the result of `work` on a copy of the query's samples."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """A `MetricSource` over a series store."""

    store: SeriesStore
    pool: EvaluationPool | None = None
    """None evaluates at once, as virtual time needs."""

    def takes(self, promql: str) -> bool:
        """Return whether a query is short enough to be read."""
        return len(promql) <= MAX_QUERY_CHARS

    def series_now(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets of the series with a sample since `start_ms`.

        Raises:
            QueryError: not a selector.
        """
        return self.store.series(parse_matchers(selector), start_ms)

    def query_now(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to at `at_ms`.

        Raises:
            QueryError: not PromQL, or more of it than is supported.
        """
        return instant(self.store, parse_query(promql), at_ms)

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the result of `series_now`."""
        return self.series_now(selector, start_ms)

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return the result of `query_now`.

        Raises:
            QueryError: as `query_now`.
            UnavailableError: the pool's time limit has passed.
        """
        if self.pool is None:
            return self.query_now(promql, at_ms)
        query = parse_query(promql)
        covered = QueryRange(at_ms, at_ms, 0)

        def evaluate(samples: Samples, check: Check) -> Value:
            return instant(samples, query, at_ms, check=check)

        try:
            return await self.pool.evaluate(self.store, query, covered, evaluate)
        except QueryTimeoutError as error:
            raise UnavailableError(str(error)) from None
