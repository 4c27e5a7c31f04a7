"""Responses of Prometheus' HTTP API, decoded into rows and checked.

What is no JSON of the right shape, such as a number where a text is due, is an error; so are times that no
calendar has and numbers that Prometheus does not write.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gpuscale.base.errors import UpstreamError
from gpuscale.series import (
    Matrix,
    MatrixSeries,
    Scalar,
    StringValue,
    Value,
    Vector,
    VectorSample,
)

T = TypeVar("T")

LONG_BYTES = 64 * 1024
"""A shorter array is read at once, in a millisecond at most."""
_MAX_TRIES = 64
"""Of finding the end of a slice."""
_BETWEEN = b"},{"


async def read_array(
    body: bytes, decode: Callable[[bytes], Sequence[T]]
) -> AsyncIterator[Sequence[T]]:
    """Yield an array's items in batches; other tasks run between them.

    Args:
        body: the array.
        decode: reads an array at once.

    Raises:
        msgspec.DecodeError: as `decode` does, for what is no array of such items.
        UnicodeDecodeError: likewise, for a text that is not UTF-8.
    """
    position = 0
    while (found := _slice(body, position, decode)) is not None:
        items, position = found
        yield items
        await asyncio.sleep(0)
    yield decode(body if position == 0 else b"[" + body[position:])


def _slice(
    body: bytes, position: int, decode: Callable[[bytes], Sequence[T]]
) -> tuple[Sequence[T], int] | None:
    """Return a batch of items and where the next one begins; None if few items are left.

    What lies between two objects can also stand in a text, or further inside. Then what is before it is no
    list of whole items, and the next such place is tried.
    """
    end = position + LONG_BYTES
    before = b"[" if position else b""
    for _ in range(_MAX_TRIES):
        end = body.find(_BETWEEN, end)
        if end < 0:
            return None
        try:
            return decode(before + body[position : end + 1] + b"]"), end + 2
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            end += 1
    return None


MAX_ROWS = 100_000
"""Of the answer to a query; a container's memory holds more, what an HPA asks for is a few."""
MAX_SERIES = 400_000
"""Of the answer to a series query."""
_LAST_S = 253_402_300_800
"""The year 10 000."""
_NUMBER = re.compile(r"[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|Inf)|NaN")
MALFORMED = (msgspec.MsgspecError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading an answer of another shape raises."""


class Envelope(msgspec.Struct, gc=False):
    """A response whose `data` is not decoded yet."""

    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = msgspec.field(default="bad_response", name="errorType")
    error: str = "no reason given"


class _Result(msgspec.Struct, gc=False):
    kind: str = msgspec.field(name="resultType")
    rows: msgspec.Raw = msgspec.field(name="result")


class _Row(msgspec.Struct, gc=False):
    value: tuple[float, str]
    metric: dict[str, str]


class _Points(msgspec.Struct, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


_ENVELOPE = msgspec.json.Decoder(Envelope)
_RESULT = msgspec.json.Decoder(_Result)
_ROWS = msgspec.json.Decoder(list[_Row])
_LABELS = msgspec.json.Decoder(list[dict[str, str]])
_NAMES = msgspec.json.Decoder(frozenset[str])
_MATRIX = msgspec.json.Decoder(list[_Points])
_SCALAR = msgspec.json.Decoder(tuple[float, str])


def envelope(body: bytes) -> Envelope | None:
    """Return the response with undecoded data; None if it is no JSON, an empty one for other JSON."""
    try:
        return _ENVELOPE.decode(body)
    except msgspec.ValidationError:
        return Envelope()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


async def label_sets(data: msgspec.Raw) -> list[Mapping[str, str]]:
    """Return the label sets in a response of /api/v1/series.

    Raises:
        UpstreamError: there are too many.
        MALFORMED: another shape.
    """
    body = bytes(data)
    found: list[Mapping[str, str]] = []
    async for items in read_array(body, _LABELS.decode):
        found += items
        _bound(len(found), MAX_SERIES, "series", "narrow the seriesQuery of the rule")
    return found


def names_of(data: msgspec.Raw) -> frozenset[str]:
    """Return the names in a response that lists names.

    Raises:
        MALFORMED: another shape.
    """
    return _NAMES.decode(data)


async def value_of(data: msgspec.Raw) -> Value:
    """Return the value in a query's response.

    Raises:
        UpstreamError: there are too many rows.
        MALFORMED: another shape.
    """
    result = _RESULT.decode(data)
    if result.kind == "vector":
        return await _vector(result.rows)
    if result.kind == "scalar":
        return Scalar(number(_SCALAR.decode(result.rows)[1]))
    if result.kind == "string":
        return StringValue(_SCALAR.decode(result.rows)[1])
    if result.kind == "matrix":
        series = _MATRIX.decode(result.rows)
        points = sum(len(each.values) for each in series)
        _bound(points, MAX_ROWS, "points", "ask for a shorter range")
        return Matrix(tuple(_points(each) for each in series))
    raise ValueError(result.kind)


async def _vector(rows: msgspec.Raw) -> Vector:
    if memoryview(rows).nbytes < LONG_BYTES:
        return Vector(tuple(map(_sample, _ROWS.decode(rows))))
    found: list[VectorSample] = []
    async for items in read_array(bytes(rows), _ROWS.decode):
        found += map(_sample, items)
        _bound(len(found), MAX_ROWS, "rows", "aggregate in the metricsQuery of the rule")
    return Vector(tuple(found))


def _bound(count: int, most: int, what: str, fix: str) -> None:
    if count > most:
        raise UpstreamError(f"answered with more than {most} {what}; {fix}")


def _sample(row: _Row) -> VectorSample:
    seconds, text = row.value
    return VectorSample(row.metric, number(text), milliseconds(seconds))


def _points(series: _Points) -> MatrixSeries:
    points = tuple((milliseconds(seconds), number(text)) for seconds, text in series.values)
    return MatrixSeries(series.metric, points)


def milliseconds(seconds: float) -> int:
    """Return a time in milliseconds.

    Raises:
        ValueError: no time between 1970 and 9999.
    """
    if not 0 <= seconds < _LAST_S:
        raise ValueError(f"found the time {seconds}")
    return round(seconds * 1000)


def number(text: str) -> float:
    """Return a number as Prometheus writes it.

    Raises:
        ValueError: another text, such as `1_000`.
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"found the number {text!r}")
    return float(text)
