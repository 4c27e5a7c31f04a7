"""Conclusions from a fitted queue: latency curve, knee, highest rate within the objective.

Source of the knee: L. Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in
computer communications", ICC 1979: throughput divided by mean latency is largest where a line from the origin
touches the curve. For M/G/1 that is at 1 / (1 + sqrt((1 + c²) / 2)) of the capacity, c the coefficient of
variation of service.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.load.calibrate.fitting import Fit
from gpuscale.load.calibrate.levels import PERCENTILES, Level, Objective, percentile_of
from gpuscale.load.calibrate.queues import Queue, poisson, shapes

_REQUESTS = 24_000
_SKIPPED = 2_000
"""The first ones find an empty replica."""
_NEAR = (0.5, 1.15)
"""Levels at such parts of the highest rate say how far the model is off there."""
_LEAST_DOUBT = 0.03


@dataclass(frozen=True, slots=True)
class Point:
    """A prediction at one rate."""

    rate: float
    mean_ms: float
    percentile_ms: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Limit:
    """The highest rate at which one replica keeps the objective."""

    rate: float
    low: float
    high: float
    """About 90 % of such calibrations have the right value between the two."""
    doubt: float
    """Of the predicted percentile there, as a share."""


@dataclass(slots=True)
class Curve:
    """Predictions of a fitted queue; each rate is replayed once, with the same random numbers.

    Args:
        fit: the queue.
    """

    fit: Fit
    _unit: tuple[float, ...] = field(default=(), repr=False)
    _shape: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self._unit = poisson(_REQUESTS, 7)
        self._shape = shapes(self.fit.baseline.latencies_ms, _REQUESTS, 7)

    def at(self, rate: float, *more: float, queue: Queue | None = None) -> Point:
        """Return the prediction at a rate of Poisson arrivals, with the percentiles in `more`.

        Args:
            rate: requests per second.
            more: percentiles besides the usual ones.
            queue: another one than the fitted.
        """
        latencies = self._latencies(rate, queue or self.fit.queue)
        return Point(
            rate,
            sum(latencies) / len(latencies),
            {each: percentile_of(latencies, each) for each in dict.fromkeys((*PERCENTILES, *more))},
        )

    def _latencies(self, rate: float, queue: Queue) -> list[float]:
        arrivals = [each / rate for each in self._unit]
        answers = list(queue.answers(arrivals, self._shape))
        return sorted(1000 * latency for _, latency in answers[_SKIPPED:])

    def knee(self) -> Point:
        """Return where throughput divided by mean latency is largest."""
        capacity = self.fit.queue.capacity
        low, high = 0.02, 0.99
        golden = (math.sqrt(5) - 1) / 2
        while high - low > 0.002:
            left, right = high - golden * (high - low), low + golden * (high - low)
            if self._power(left * capacity) < self._power(right * capacity):
                low = left
            else:
                high = right
        return self.at((low + high) / 2 * capacity)

    def _power(self, rate: float) -> float:
        return rate / self.at(rate).mean_ms

    def limit(self, objective: Objective) -> Limit | None:
        """Return the highest rate that keeps the objective; None where the queue has none.

        Near the limit, the model's own mistake is known from the levels there, and taken out; what is
        left of it and the doubt about the capacity make the interval.
        """
        first = self._highest(objective, 1.0, self.fit.queue)
        if first is None:
            return None
        factor, doubt = self.correction(objective, first)
        rate = self._highest(objective, factor, self.fit.queue)
        if rate is None:
            return None
        least, most = (self.fit.queue.with_capacity(each) for each in self.fit.capacity)
        low = self._highest(objective, factor * (1 + doubt), least)
        high = self._highest(objective, factor / (1 + doubt), most)
        return Limit(rate, min(rate, low or 0.0), max(rate, high or rate), doubt)

    def correction(self, objective: Objective, rate: float) -> tuple[float, float]:
        """Return the factor by which to correct percentiles around a rate, and its relative uncertainty.

        It is what was measured there, divided by what the replay of the same arrivals gives. How much
        that moves by chance is known from replays with other service times; what may be chance is left out.
        """
        found = [
            ratio
            for level in self.fit.levels
            if _NEAR[0] * rate <= level.rate <= _NEAR[1] * rate
            and (ratio := self._ratio(level, objective)) is not None
        ]
        if not found:
            return 1.0, max(_LEAST_DOUBT, 1.6 * self.fit.difference)
        count = len(found)
        mean = sum(ratio for ratio, _ in found) / count
        spread = sum((ratio - mean) ** 2 for ratio, _ in found) / max(1, count - 1)
        chance = sum(variance for _, variance in found) / count
        error = math.sqrt(max(spread, chance) / count)
        part = max(0.0, 1 - (error / mean) ** 2) if mean else 0.0
        return math.exp(part * mean), max(_LEAST_DOUBT, 1.6 * error)

    def predicted_ms(self, level: Level, objective: Objective) -> float:
        """Return the predicted percentile of the objective, for a level's own arrivals."""
        factor, _ = self.correction(objective, level.rate)
        replays = [each for each in self.fit.replayed(level) if each]
        if not replays:
            return (
                factor
                * self.at(level.rate, objective.percentile).percentile_ms[objective.percentile]
            )
        found = [math.log(percentile_of(each, objective.percentile)) for each in replays]
        return factor * math.exp(sum(found) / len(found))

    def _ratio(self, level: Level, objective: Objective) -> tuple[float, float] | None:
        """Return the logarithm of measured by replayed, and its variance by chance."""
        found = level.percentile_ms.get(objective.percentile)
        replays = [
            math.log(percentile_of(each, objective.percentile))
            for each in self.fit.replayed(level)
            if each
        ]
        if not found or not replays:
            return None
        mean = sum(replays) / len(replays)
        variance = sum((each - mean) ** 2 for each in replays) / max(1, len(replays) - 1)
        return math.log(found) - mean, variance * (1 + 1 / len(replays))

    def _highest(self, objective: Objective, factor: float, queue: Queue) -> float | None:
        """Return the highest rate whose corrected percentile is within the objective."""

        def is_kept(share: float) -> bool:
            latencies = self._latencies(share * queue.capacity, queue)
            return factor * percentile_of(latencies, objective.percentile) <= objective.limit_ms

        low, high = 0.02, 0.995
        if not is_kept(low):
            return None
        for _ in range(11):
            middle = (low + high) / 2
            low, high = (middle, high) if is_kept(middle) else (low, middle)
        return low * queue.capacity
