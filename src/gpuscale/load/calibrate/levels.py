"""The measurement of a replica at one rate, and the objective."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

IN_FLIGHT = "requests in flight"
RATE = "requests per second"
OWN_SIGNALS = (IN_FLIGHT, RATE)
"""Signals that the load itself gives, so that there always are some to compare with."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
_LATE_SHARE = 0.3
_LATE_MS = 5.0
_APART = 1.25
"""By what a percentile of a few seconds is off by chance; rates this near may change places."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level objective: a percentile of the latency, and few errors."""

    percentile: float
    limit_ms: float
    errors_percent: float = 1.0

    @property
    def text(self) -> str:
        """Return the objective in the form of `--promise`."""
        return f"p{self.percentile:g}={self.limit_ms:g}ms"

    @property
    def most_late_ms(self) -> float:
        """Return how late the generator may be.

        Its delays are in the arrivals and not in the latencies; but what is that late with requests reads
        answers late too, and has bursts where chance had none.
        """
        return max(_LATE_MS, _LATE_SHARE * self.limit_ms)


@dataclass(frozen=True, slots=True)
class Level:
    """A constant rate. Only the time from `warmup_s` to `end_s` was measured, from the start."""

    rate: float
    """Requests per second that were asked for."""
    arrivals: Sequence[float]
    """When requests were sent, ascending; in an open loop, so answers changed nothing about it."""
    warmup_s: float
    end_s: float
    answered: int
    """Answers below status 400 in the measured time."""
    failed: int
    """Requests that failed there: other answers, none, or not sent."""
    mean_ms: float | None
    """Latency from the moment a request was to be sent, free connection or not; None without an answer."""
    percentile_ms: Mapping[float, float] = field(default_factory=dict)
    late_ms: float = 0.0
    """p99 of how late the generator itself was."""
    in_flight: float = 0.0
    """Mean of requests without an answer yet."""
    signals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values of each signal, one for each time it was read; none where it could not be read."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """What failed, by status or kind."""
    cut: str = ""
    """Why the level ended before its time; empty where it didn't."""

    @property
    def measured_s(self) -> float:
        """Return the length of the measured time."""
        return max(0.0, self.end_s - self.warmup_s)

    @property
    def answered_per_s(self) -> float:
        """Return the throughput."""
        return self.answered / self.measured_s if self.measured_s else 0.0

    @property
    def offered_per_s(self) -> float:
        """Return the rate of requests due in the measured time."""
        count = sum(1 for due in self.arrivals if self.warmup_s <= due < self.end_s)
        return count / self.measured_s if self.measured_s else 0.0

    @property
    def errors_percent(self) -> float | None:
        """Return the share of requests that failed; None where none ended."""
        ended = self.answered + self.failed
        return 100 * self.failed / ended if ended else None

    def is_late(self, objective: Objective) -> bool:
        """Return whether the load generator was too late for the level to be valid."""
        return self.late_ms > objective.most_late_ms

    def has_errors(self, objective: Objective) -> bool:
        """Return whether more requests failed than the objective allows."""
        return self.errors_percent is None or self.errors_percent > objective.errors_percent

    def keeps(self, objective: Objective) -> bool:
        """Return whether the objective was met."""
        found = self.percentile_ms.get(objective.percentile)
        return found is not None and found <= objective.limit_ms and not self.has_errors(objective)

    def keeps_up(self) -> bool:
        """Return whether as many requests were answered as arrived, within statistical error."""
        offered = self.offered_per_s * self.measured_s
        return self.answered + self.failed >= offered - 3 * math.sqrt(offered) - 0.03 * offered


@dataclass(frozen=True, slots=True)
class Baseline:
    """The unloaded service: requests one after another."""

    latencies_ms: tuple[float, ...]
    """Ascending."""
    late_ms: float = 0.0
    """p99 of how late the generator itself was meanwhile."""

    def is_late(self, objective: Objective) -> bool:
        """Return whether the load generator was too late for a valid measurement."""
        return self.late_ms > objective.most_late_ms

    @property
    def mean_ms(self) -> float:
        """Return the mean."""
        return sum(self.latencies_ms) / len(self.latencies_ms)

    def percentile_ms(self, percentile: float) -> float:
        """Return a percentile."""
        return percentile_of(self.latencies_ms, percentile)


@dataclass(frozen=True, slots=True)
class ObjectiveCrossing:
    """The rates between which the objective starts to be missed, from measurements alone."""

    kept: float
    """Highest rate that kept it, below all that missed it but those in `against`; 0 where there is none."""
    missed: float | None
    """The next rate, which missed it."""
    against: tuple[Level, ...]
    """Levels that say otherwise, too far from the two to be so by chance."""


def measured_limit(levels: Sequence[Level], objective: Objective) -> ObjectiveCrossing:
    """Return the two rates between which the objective starts to be missed, with the fewest exceptions.

    One level that something else held up is against the rest, and moves nothing; of two places with as many
    against them it is the lower one.
    """
    ordered = sorted(levels, key=lambda each: each.rate)
    kept = [each.keeps(objective) for each in ordered]
    wrong = [
        sum(not each for each in kept[:place]) + sum(kept[place:])
        for place in range(len(ordered) + 1)
    ]
    place = wrong.index(min(wrong))
    low = max((each.rate for each in ordered[:place] if each.keeps(objective)), default=0.0)
    high = min((each.rate for each in ordered[place:] if not each.keeps(objective)), default=None)
    against = [
        each
        for index, each in enumerate(ordered)
        if each.keeps(objective) == (index >= place)
        and not (low / _APART <= each.rate <= (high or each.rate) * _APART)
    ]
    return ObjectiveCrossing(low, high, tuple(against))


def percentile_of(ascending: Sequence[float], percentile: float) -> float:
    """Return the smallest value that as many percent of the values don't exceed, as histograms count it."""
    index = math.ceil(len(ascending) * percentile / 100) - 1
    return ascending[min(len(ascending) - 1, max(0, index))]
