"""What a query gives back: a vector, a scalar, a text, or a matrix of points over time."""

from collections.abc import Mapping
from dataclasses import dataclass


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
    """One value per label set at one time."""

    samples: tuple[VectorSample, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number without labels."""

    value: float


@dataclass(frozen=True, slots=True)
class StringValue:
    """A text; only a query that is nothing but a string literal gives one."""

    value: str


@dataclass(frozen=True, slots=True)
class MatrixSeries:
    """The points of one label set."""

    labels: Mapping[str, str]
    points: tuple[tuple[int, float], ...]
    """`(t_ms, value)`, time ascending."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Points over time, sorted by labels."""

    series: tuple[MatrixSeries, ...]


Value = Vector | Scalar | StringValue | Matrix
