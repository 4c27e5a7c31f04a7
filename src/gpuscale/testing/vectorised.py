"""Queries evaluated with numpy, and row by row where that has to answer, as the query pool does it.

Both functions are called as in `series.promql.evaluate`, so tests of the language hold either way:

    instant(store, "sum(up)", now_ms)
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from gpuscale.series import Matrix, Value
from gpuscale.series.promql import (
    LOOKBACK_MS,
    Budget,
    Query,
    QueryRange,
    evaluate,
    parse_query,
    range_covered,
)
from gpuscale.series.promql.vectorised import QuerySamples, RowWiseError, is_vectorised
from gpuscale.series.storage import SeriesStore

Answer = TypeVar("Answer")

ways: Counter[str] = Counter()
"""How many queries were answered with numpy ("columns"), and how many were not ("rows")."""


def instant(store: SeriesStore, query: str | Query, at_ms: int, **options: Any) -> Value:  # noqa: ANN401
    """Return the value of a query at one time."""
    query = parse_query(query) if isinstance(query, str) else query
    return _evaluated(
        store, query, QueryRange(at_ms, at_ms, 0), evaluate.instant, (at_ms,), options
    )


def range_query(
    store: SeriesStore,
    query: str | Query,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    **options: Any,  # noqa: ANN401
) -> Matrix:
    """Return the values of a query at many times."""
    query = parse_query(query) if isinstance(query, str) else query
    evaluate.check_range(query.root, start_ms, end_ms, step_ms)
    covered = range_covered(start_ms, end_ms, step_ms)
    times = start_ms, end_ms, step_ms
    return _evaluated(store, query, covered, evaluate.range_query, times, options)


def _evaluated(
    store: SeriesStore,
    query: Query,
    covered: QueryRange,
    function: Callable[..., Answer],
    times: tuple[int, ...],
    options: dict[str, Any],
) -> Answer:
    if is_vectorised(query.root):
        try:
            lookback_ms = options.get("lookback_ms", LOOKBACK_MS)
            columns = QuerySamples(
                store, query.root, covered, lookback_ms, budget=Budget.of(options.get("check"))
            )
            for _ in columns.fill():
                pass
            answer = function(columns, query, *times, **options)
        except RowWiseError:
            pass
        else:
            ways["columns"] += 1
            return answer
    ways["rows"] += 1
    return function(store, query, *times, **options)
