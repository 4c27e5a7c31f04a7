"""Query results as JSON text in the form of Prometheus' API.

Ten thousand series at hundreds of steps are millions of points. So numbers are formatted many at a time, and
the times of series that share them once.

A run at ten times real time has series whose clock gets ahead of the machine's. Clients such as Grafana and
promtool ask by the machine's time, so the API answers by it: a second of the caller is `speed` seconds of the
store. Durations inside a query, such as `[5m]`, stay the store's.

Source: prometheus web/api/v1 (json_codec.go), prometheus.io/docs/prometheus/latest/querying/api.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from gpuscale.base.exposition.write import positional
from gpuscale.series.promapi.body import encoded
from gpuscale.series.values import (
    Matrix,
    MatrixSeries,
    Point,
    Points,
    Scalar,
    StringValue,
    Value,
    Vector,
    VectorSample,
)


class TimeAxis:
    """A mapping from the caller's time to the store's; by default they are equal.

    Args:
        origin_ms: the moment at which both show the same.
        speed: seconds of the store per second of the caller.
    """

    def __init__(self, origin_ms: int = 0, speed: float = 1.0) -> None:
        self.speed = speed
        """As it is now; while time stands still, as it was before."""
        self._callers = [origin_ms]
        """When each stretch of one speed begins, in the caller's time; the first has no beginning."""
        self._stores = [origin_ms]
        self._speeds = [speed]

    def turn(self, caller_ms: int, store_ms: int, speed: float, *, is_paused: bool) -> None:
        """Go on at another speed from a moment of both times, or stand still."""
        self.speed = speed
        self._callers.append(caller_ms)
        self._stores.append(store_ms)
        self._speeds.append(0.0 if is_paused else speed)

    def to_store_ms(self, caller_ms: int) -> int:
        """Return the store's time for a time of the caller."""
        at = max(0, bisect_right(self._callers, caller_ms) - 1)
        return self._stores[at] + round((caller_ms - self._callers[at]) * self._speeds[at])

    def to_caller_ms(self, store_ms: int) -> int:
        """Return the caller's time for a time of the store; where it stood still, when it stopped."""
        at = max(0, bisect_left(self._stores, store_ms) - 1)
        return self._callers[at] + round(
            (store_ms - self._stores[at]) / (self._speeds[at] or self.speed)
        )

    def step_to_store_ms(self, step_ms: int) -> int:
        """Return the store's time span for a step of the caller."""
        return round(step_ms * self.speed)


SAME_TIME = TimeAxis()


_POINTS_AT_ONCE = 1_000
_MOST_TEXTS = 50_000
_NEGATIVE_ZERO = struct.pack("=d", -0.0)


def query_result(
    value: Value, at_ms: int, axis: TimeAxis = SAME_TIME, *, shows_measured: bool = False
) -> tuple[str, Iterator[bytes]]:
    """Return a query's `resultType`, and the elements of its `result` as pieces of JSON.

    Args:
        value: what the query gave.
        at_ms: when it was evaluated, in the store's time.
        axis: to the caller's time.
        shows_measured: whether the samples of a vector carry the time they were measured at, rather than
            that of the evaluation.
    """
    evaluated = _seconds(axis.to_caller_ms(at_ms))
    match value:
        case Vector() if shows_measured:
            return "vector", _samples(
                value.samples, lambda each: _seconds(axis.to_caller_ms(each.measured_ms))
            )
        case Vector():
            return "vector", _samples(value.samples, lambda _: evaluated)
        case Matrix():
            return "matrix", _series(value.series, axis)
        case Scalar():
            return "scalar", iter((evaluated, b'"%s"' % _number(value.value)))
        case StringValue():
            return "string", iter((evaluated, encoded(value.value)))
        case _:
            assert_never(value)


def limited(value: Value, limit: int) -> Value:
    """Return a vector or matrix cut to a number of series; the same object if it has no more."""
    match value:
        case Vector() if len(value.samples) > limit:
            return Vector(value.samples[:limit])
        case Matrix() if len(value.series) > limit:
            return Matrix(value.series[:limit])
        case _:
            return value


def _samples(
    samples: Sequence[VectorSample], seconds: Callable[[VectorSample], bytes]
) -> Iterator[bytes]:
    for start in range(0, len(samples), _POINTS_AT_ONCE):
        some = samples[start : start + _POINTS_AT_ONCE]
        for each, number in zip(some, _numbers([each.value for each in some]), strict=True):
            labels = encoded(dict(each.labels.items()))
            yield b'{"metric":%s,"value":[%s,"%s"]}' % (labels, seconds(each), number)


def _series(series: Sequence[MatrixSeries], axis: TimeAxis) -> Iterator[bytes]:
    write = _points_writer(axis)
    for each in series:
        points = b",".join(write(each.points))
        yield b'{"metric":%s,"values":[%s]}' % (encoded(dict(each.labels.items())), points)


def _points_writer(axis: TimeAxis) -> Callable[[Sequence[Point]], Iterator[bytes]]:
    """Return a writer of points; consecutive series with equal times share the text of these."""
    texts = _Texts()
    shared: Sequence[int] = ()
    templates: list[bytes] = []

    def write(points: Sequence[Point]) -> Iterator[bytes]:
        nonlocal shared, templates
        if not isinstance(points, Points):
            points = Points([t_ms for t_ms, _ in points], [value for _, value in points])
        if points.times_ms is not shared:
            shared = points.times_ms
            templates = [
                b",".join(
                    b'[%s,"%%s"]' % _seconds(axis.to_caller_ms(t_ms))
                    for t_ms in shared[start : start + _POINTS_AT_ONCE]
                )
                for start in range(0, len(shared), _POINTS_AT_ONCE)
            ]
        for place, template in enumerate(templates):
            start = place * _POINTS_AT_ONCE
            yield template % texts.of(points.values[start : start + _POINTS_AT_ONCE])

    return write


class _Texts:
    """A cache of numbers' texts, while they are few, as gauges repeat their values."""

    def __init__(self) -> None:
        self._known: dict[float, bytes] = {}

    def of(self, values: Sequence[float]) -> tuple[bytes, ...]:
        if not isinstance(values, array) or _NEGATIVE_ZERO in values.tobytes():
            # A dictionary treats the negative zero and zero as equal.
            return _numbers(values)
        try:
            return tuple(map(self._known.__getitem__, values))
        except KeyError:
            texts = _numbers(values)
            if len(self._known) < _MOST_TEXTS:
                self._known.update(zip(values, texts, strict=True))
            return texts


def _numbers(values: Sequence[float]) -> tuple[bytes, ...]:
    """Return numbers in Prometheus' form, which is mostly JSON's without `.0`."""
    text = encoded(list(values))
    if b"e" in text or b"n" in text:
        # A number with an exponent, or null for an infinity or NaN, which JSON lacks.
        return tuple(positional(value).encode() for value in values)
    return tuple((text[1:-1] + b",").replace(b".0,", b",")[:-1].split(b","))


def _number(value: float) -> bytes:
    (text,) = _numbers((value,))
    return text


def _seconds(t_ms: int) -> bytes:
    """Return a time in seconds, as an integer if possible."""
    return repr(t_ms / 1000 if t_ms % 1000 else t_ms // 1000).encode()
