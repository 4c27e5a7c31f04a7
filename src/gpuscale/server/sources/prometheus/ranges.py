"""Long range queries, split into parts that Prometheus accepts: one column of values for each query.

Source: Prometheus web/api/v1 (11 000 points per series at most).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from gpuscale.base.backoff import Backoff
from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale.series import Matrix, Value
from gpuscale.server.sources.prometheus.client import PrometheusSource

T = TypeVar("T")

POINTS_PER_QUERY = 5_000
"""Of one part of a range; far below Prometheus' limit, so that a part takes it seconds."""
_TRIES = 4
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 8.0


async def columns(
    source: PrometheusSource,
    queries: Mapping[str, str],
    start_ms: int,
    step_ms: int,
    steps: int,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, tuple[float | None, ...]]:
    """Return each query's value at each of `steps` times; None where there is none.

    Args:
        source: what is asked, one part at a time.
        queries: by name; each gives one series at most.
        start_ms: the first moment.
        step_ms: between two moments.
        steps: how many moments.
        progress: called with the share done, 0 to 1, after each part.

    Raises:
        QueryError: a query is wrong.
        UpstreamError: an answer has several series, or is none.
        UnavailableError: no answer, however often it was asked.
    """
    found: dict[str, tuple[float | None, ...]] = {}
    parts = range(0, steps, POINTS_PER_QUERY)
    for number, (name, promql) in enumerate(queries.items()):
        values: list[float | None] = [None] * steps
        for part, first in enumerate(parts):
            last = min(first + POINTS_PER_QUERY, steps) - 1
            from_ms, to_ms = start_ms + first * step_ms, start_ms + last * step_ms
            answer = await persistently(source.query_range, promql, from_ms, to_ms, step_ms)
            _put(values, answer, promql, start_ms, step_ms)
            progress((number + (part + 1) / len(parts)) / len(queries))
        found[name] = tuple(values)
    return found


def _put(
    values: list[float | None], answer: Value, promql: str, start_ms: int, step_ms: int
) -> None:
    if not isinstance(answer, Matrix) or len(answer.series) > 1:
        count = len(answer.series) if isinstance(answer, Matrix) else "no"
        raise UpstreamError(f"answered with {count} series, expected one; asked was {promql}")
    for series in answer.series:
        for time_ms, value in series.points:
            index, rest = divmod(time_ms - start_ms, step_ms)
            # Inf and NaN are no valid results here.
            if rest == 0 and 0 <= index < len(values) and abs(value) < float("inf"):
                values[index] = value


async def persistently(ask: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Return a response, retrying while the source doesn't answer.

    Raises:
        UnavailableError: there is none after four tries.
    """
    backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
    for _ in range(_TRIES - 1):
        try:
            return await ask(*arguments)
        except UnavailableError:
            await asyncio.sleep(backoff.jittered())
    return await ask(*arguments)
