"""Distributions of times in scenario files."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from gpuscale.base.documents.models import Model
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.lab.queueing.times import (
    Constant,
    Exponential,
    Lognormal,
    ObservedTimes,
    Quantiles,
    Times,
    Uniform,
)

MAX_S = 30 * 86_400.0
MAX_MEASURED = 100_000
MAX_QUANTILES = 1_000


def _seconds(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise ValueError(f"found {value!r}, expected a duration such as 15s or 250ms")
    return parse_duration_ms(value) / 1000


Seconds = Annotated[
    float, BeforeValidator(_seconds, json_schema_input_type=str | float), Field(ge=0, le=MAX_S)
]
"""A duration: text such as `250ms`, or a number of seconds, which may be less than a millisecond."""
PositiveSeconds = Annotated[Seconds, Field(gt=0)]


class ConstantTimes(Model):
    """Always the same."""

    shape: Literal["constant"]
    value: Seconds


class ExponentialTimes(Model):
    """Many short ones, few long ones."""

    shape: Literal["exponential"]
    mean: PositiveSeconds


class UniformTimes(Model):
    """Anything between two."""

    shape: Literal["uniform"]
    low: Seconds
    high: PositiveSeconds

    @model_validator(mode="after")
    def _ordered(self) -> "UniformTimes":
        if self.low > self.high:
            raise ValueError(f"found low {self.low:g} above high {self.high:g}")
        return self


class LognormalTimes(Model):
    """Most near the median, and a long tail."""

    shape: Literal["lognormal"]
    median: PositiveSeconds
    p99: PositiveSeconds
    """The 99th percentile."""

    @model_validator(mode="after")
    def _ordered(self) -> "LognormalTimes":
        if self.p99 <= self.median:
            found = f"found p99 {self.p99:g} with median {self.median:g}"
            raise ValueError(f"{found}, expected a p99 above the median")
        return self


class QuantileTimes(Model):
    """Known percentiles: straight lines between them, flat before the first and after the last."""

    shape: Literal["quantiles"]
    quantiles: dict[Annotated[float, Field(ge=0, le=100)], Seconds] = Field(
        min_length=1, max_length=MAX_QUANTILES
    )
    """Percent of all cases to the time that they are within."""

    @model_validator(mode="after")
    def _rising(self) -> "QuantileTimes":
        ordered = [self.quantiles[percent] for percent in sorted(self.quantiles)]
        if any(later < earlier for earlier, later in pairwise(ordered)):
            raise ValueError("found a shorter time for a higher quantile, expected times that rise")
        if not ordered[-1]:
            raise ValueError("found only times of 0, expected one above 0")
        return self


class MeasuredTimes(Model):
    """Times as they were seen; with `counts`, a histogram."""

    shape: Literal["measured"]
    times: tuple[Seconds, ...] = Field(min_length=1, max_length=MAX_MEASURED)
    counts: tuple[Annotated[float, Field(gt=0, le=1e12)], ...] | None = None
    """How often each was seen; absent: once."""

    @model_validator(mode="after")
    def _paired(self) -> "MeasuredTimes":
        if self.counts is not None and len(self.counts) != len(self.times):
            found = f"found {len(self.times)} times and {len(self.counts)} counts"
            raise ValueError(f"{found}, expected one count for each time")
        if not any(self.times):
            raise ValueError("found only times of 0, expected one above 0")
        return self


TimesSpec = Annotated[
    ConstantTimes
    | ExponentialTimes
    | UniformTimes
    | LognormalTimes
    | QuantileTimes
    | MeasuredTimes,
    Field(discriminator="shape"),
]


def _is_distribution(value: object) -> str:
    return "(distribution)" if isinstance(value, (dict, Model)) else "(duration)"


DurationOrTimes = Annotated[
    Annotated[Seconds, Tag("(duration)")] | Annotated[TimesSpec, Tag("(distribution)")],
    Discriminator(_is_distribution),
]
"""A duration that is always the same, or a distribution."""


def times_of(found: float | TimesSpec) -> Times:
    """Return a distribution in seconds."""
    match found:
        case ExponentialTimes():
            return Exponential(found.mean)
        case UniformTimes():
            return Uniform(found.low, found.high)
        case LognormalTimes():
            return Lognormal(found.median, found.p99)
        case QuantileTimes():
            pairs = sorted(found.quantiles.items())
            return Quantiles([percent / 100 for percent, _ in pairs], [time for _, time in pairs])
        case MeasuredTimes():
            return ObservedTimes(found.times, found.counts)
        case ConstantTimes():
            return Constant(found.value)
    return Constant(found)
