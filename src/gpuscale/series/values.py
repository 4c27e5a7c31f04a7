"""The results of queries: a vector, a scalar, a string, or a matrix.

Two values say that there is no value. Prometheus marks the end of a series with one NaN of its own, apart
from the NaN that a target may expose. The other one never leaves the store: it fills the place of a series
that has no sample of a time that it shares.

Source: prometheus model/value (StaleNaN).
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class VectorSample:
    """One element of an instant vector."""

    labels: Mapping[str, str]
    """Without `__name__` where PromQL drops it."""
    value: float
    measured_ms: int
    """When it was measured: a selector's own sample; of a range function the last sample of the range;
    of an aggregation or operation the oldest of what contributed."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A value for each label set, at one time."""

    samples: tuple[VectorSample, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number without labels."""

    value: float


@dataclass(frozen=True, slots=True)
class StringValue:
    """A string; only a query that is a string literal has this result."""

    value: str


Point = tuple[int, float]
"""`(t_ms, value)`."""


class Points(Sequence[Point]):
    """Points as two sequences, so that series can share their times; equal to a tuple of the same points.

    Args:
        times_ms: ascending.
        values: as many.
    """

    __slots__ = ("times_ms", "values")

    def __init__(self, times_ms: Sequence[int], values: Sequence[float]) -> None:
        self.times_ms = times_ms
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Point]:
        return zip(self.times_ms, self.values, strict=True)

    @overload
    def __getitem__(self, place: int) -> Point: ...

    @overload
    def __getitem__(self, place: slice) -> "Points": ...

    def __getitem__(self, place: int | slice) -> "Point | Points":
        if isinstance(place, slice):
            return Points(self.times_ms[place], self.values[place])
        return self.times_ms[place], self.values[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Points | tuple):
            return tuple(self) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class MatrixSeries:
    """The points of one label set."""

    labels: Mapping[str, str]
    points: Sequence[Point]
    """Time ascending."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix: points over time for each label set, sorted by labels."""

    series: tuple[MatrixSeries, ...]


Value = Vector | Scalar | StringValue | Matrix


STALE_BITS = 0x7FF0000000000002
ABSENT_BITS = 0x7FF800000000AB5E

_STALE = struct.pack("=Q", STALE_BITS)
_ABSENT = struct.pack("=Q", ABSENT_BITS)


def _float(bits: int) -> float:
    value: float = struct.unpack("=d", struct.pack("=Q", bits))[0]
    return value


STALE = _float(STALE_BITS)
"""Written where a series ends. Compare with `is_stale`, never with `==`."""
ABSENT = _float(ABSENT_BITS)
"""In the place of a sample where there is none; only arrays of several series hold it."""


def is_stale(value: float) -> bool:
    """Return whether a stored value is a series' end marker."""
    return value != value and struct.pack("=d", value) == _STALE


def is_absent(value: float) -> bool:
    """Return whether a stored value stands for an absent sample."""
    return value != value and struct.pack("=d", value) == _ABSENT
