"""Query results in the JSON shapes of the Prometheus API.

Source: prometheus web/api/v1 (json_codec.go), prometheus.io/docs/prometheus/latest/querying/api.
"""

from collections.abc import Iterator
from typing import Any, assert_never

from gpuscale.exposition.write import positional
from gpuscale.promapi.axis import SAME_TIME, TimeAxis
from gpuscale.series.values import Matrix, Scalar, StringValue, Value, Vector


def query_result(value: Value, at_ms: int, axis: TimeAxis = SAME_TIME) -> tuple[str, Iterator[Any]]:
    """Return a query's `resultType`, and its `result` piece by piece.

    Samples of a vector carry the time of evaluation.

    Args:
        value: what the query gave.
        at_ms: when it was evaluated, in the store's time.
        axis: to the caller's time.
    """
    evaluated_ms = axis.to_caller_ms(at_ms)
    match value:
        case Vector():
            return "vector", (
                {"metric": dict(sample.labels), "value": point(evaluated_ms, sample.value)}
                for sample in value.samples
            )
        case Matrix():
            return "matrix", (
                {
                    "metric": dict(series.labels),
                    "values": [
                        point(axis.to_caller_ms(t_ms), number) for t_ms, number in series.points
                    ],
                }
                for series in value.series
            )
        case Scalar():
            return "scalar", iter(point(evaluated_ms, value.value))
        case StringValue():
            return "string", iter((seconds(evaluated_ms), value.value))
        case _:
            assert_never(value)


def limited(value: Value, limit: int) -> Value:
    """Return a vector or matrix with at most so many series; the same value where it has no more."""
    match value:
        case Vector() if len(value.samples) > limit:
            return Vector(value.samples[:limit])
        case Matrix() if len(value.series) > limit:
            return Matrix(value.series[:limit])
        case _:
            return value


def point(t_ms: int, value: float) -> list[float | str]:
    """Return a time in seconds and a value as text."""
    return [seconds(t_ms), positional(value)]


def seconds(t_ms: int) -> float:
    """Return seconds, a whole number where it is one."""
    return t_ms / 1000 if t_ms % 1000 else t_ms // 1000
