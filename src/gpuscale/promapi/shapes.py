"""Query results in the JSON shapes of the Prometheus API.

Source: prometheus web/api/v1 (json_codec.go), prometheus.io/docs/prometheus/latest/querying/api.
"""

from typing import Any, assert_never

from gpuscale.exposition.write import positional
from gpuscale.promapi.axis import SAME_TIME, TimeAxis
from gpuscale.series.values import Matrix, Scalar, StringValue, Value, Vector


def query_data(value: Value, at_ms: int, axis: TimeAxis = SAME_TIME) -> dict[str, Any]:
    """Return the `data` of a query's answer; vector samples carry the time of evaluation.

    Args:
        value: what the query gave.
        at_ms: when it was evaluated, in the store's time.
        axis: to the caller's time.
    """
    evaluated_ms = axis.to_caller_ms(at_ms)
    match value:
        case Vector():
            result: Any = [
                {"metric": dict(sample.labels), "value": point(evaluated_ms, sample.value)}
                for sample in value.samples
            ]
            return {"resultType": "vector", "result": result}
        case Matrix():
            result = [
                {
                    "metric": dict(series.labels),
                    "values": [
                        point(axis.to_caller_ms(t_ms), number) for t_ms, number in series.points
                    ],
                }
                for series in value.series
            ]
            return {"resultType": "matrix", "result": result}
        case Scalar():
            return {"resultType": "scalar", "result": point(evaluated_ms, value.value)}
        case StringValue():
            return {"resultType": "string", "result": [seconds(evaluated_ms), value.value]}
        case _:
            assert_never(value)


def point(t_ms: int, value: float) -> list[float | str]:
    """Return a time in seconds and a value as text."""
    return [seconds(t_ms), positional(value)]


def seconds(t_ms: int) -> float:
    """Return seconds, a whole number where it is one."""
    return t_ms / 1000 if t_ms % 1000 else t_ms // 1000
