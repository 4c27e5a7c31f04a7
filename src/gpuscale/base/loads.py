"""Load shapes: the number of requests up to a given time.

Each shape is its own integral, so that the requests of an interval are exact whatever the step, and a
run at one step length sees the same number of requests as a run at another.

Times are seconds since the start of the scenario; rates are requests per second.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

_ALMOST = 1e-9
"""What rounding may have added to a whole request."""


class Load(Protocol):
    """A load over the time of a scenario."""

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        ...

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t); never falls as `t` grows."""
        ...

    def changes(self, end: float) -> tuple[float, ...]:
        """Return the times in [0, end] at which the rate jumps; empty for smooth loads."""
        ...


@dataclass(frozen=True, slots=True)
class StepsLoad:
    """A rate that holds until the next step; a constant load is one step."""

    steps: tuple[tuple[float, float], ...]
    """(time, rate), times ascending; zero before the first."""
    _totals: tuple[float, ...] = field(init=False, repr=False, compare=False, default=())
    """How many requests came before each step."""

    def __post_init__(self) -> None:
        totals = [0.0]
        for (start, rate), (end, _) in pairwise(self.steps):
            totals.append(totals[-1] + rate * (end - start))
        object.__setattr__(self, "_totals", tuple(totals))

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        index = bisect_right(self.steps, t, key=lambda step: step[0]) - 1
        return self.steps[index][1] if index >= 0 else 0.0

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        index = bisect_left(self.steps, t, key=lambda step: step[0]) - 1
        if index < 0:
            return 0.0
        start, rate = self.steps[index]
        return self._totals[index] + rate * (t - start)

    def changes(self, end: float) -> tuple[float, ...]:
        """Return the times at which the rate changes."""
        before = 0.0
        moments: list[float] = []
        for start, rate in self.steps:
            if rate != before and start <= end:
                moments.append(start)
            before = rate
        return tuple(moments)


@dataclass(frozen=True, slots=True)
class RampLoad:
    """A straight line from one rate to another; flat before and after."""

    from_rate: float
    to_rate: float
    start: float
    end: float

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        share = min(1.0, max(0.0, (t - self.start) / (self.end - self.start)))
        return self.from_rate + (self.to_rate - self.from_rate) * share

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        flat_before = self.from_rate * min(t, self.start)
        inside = min(max(t - self.start, 0.0), self.end - self.start)
        slope = (self.to_rate - self.from_rate) / (self.end - self.start)
        ramp = self.from_rate * inside + slope * inside * inside / 2
        return flat_before + ramp + self.to_rate * max(0.0, t - self.end)

    def changes(self, end: float) -> tuple[float, ...]:
        """Return nothing: the rate never jumps."""
        return ()


@dataclass(frozen=True, slots=True)
class SineLoad:
    """A day and a night: `mean + amplitude * sin(2π (t - offset) / period)`."""

    mean: float
    amplitude: float
    """At most the mean, so that the rate is never negative."""
    period: float
    offset: float = 0.0

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        return self.mean + self.amplitude * math.sin(2 * math.pi * (t - self.offset) / self.period)

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        circle = 2 * math.pi / self.period
        wave = math.cos(-circle * self.offset) - math.cos(circle * (t - self.offset))
        return self.mean * t + self.amplitude / circle * wave

    def changes(self, end: float) -> tuple[float, ...]:
        """Return nothing: the rate never jumps."""
        return ()


@dataclass(frozen=True, slots=True)
class SpikesLoad:
    """A base rate with a spike of `length` seconds at `first` and then once per `every` seconds."""

    base: float
    peak: float
    every: float
    length: float
    first: float = 0.0

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        since = t - self.first
        return self.peak if since >= 0 and since % self.every < self.length else self.base

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        since = max(0.0, t - self.first)
        whole, rest = divmod(since, self.every)
        spiking = whole * self.length + min(rest, self.length)
        return self.base * t + (self.peak - self.base) * spiking

    def changes(self, end: float) -> tuple[float, ...]:
        """Return the start and end of each spike."""
        moments: list[float] = []
        start = self.first
        while start <= end and self.peak != self.base:
            moments.extend(t for t in (start, start + self.length) if t <= end)
            start += self.every
        return tuple(moments)


class TraceLoad:
    """A recorded load: one arrival time per request, replayed at a scale.

    Args:
        arrivals: seconds since the start of the scenario, ascending.
        scale: how many requests each recorded one counts as; above zero.
        bin_s: the shown rate is the mean over bins of this many seconds.
    """

    def __init__(self, arrivals: Sequence[float], scale: float = 1.0, bin_s: float = 10.0) -> None:
        self.arrivals = tuple(arrivals)
        self.scale = scale
        self.bin_s = bin_s

    def rate(self, t: float) -> float:
        """Return requests per second, averaged over the bin that `t` is in."""
        start = math.floor(t / self.bin_s) * self.bin_s
        count = self.requests_until(start + self.bin_s) - self.requests_until(start)
        return count / self.bin_s

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        return bisect_left(self.arrivals, t) * self.scale

    def moment(self, count: float) -> float:
        """Return the time of the n-th request, from the first to the last."""
        return self.arrivals[math.ceil(count / self.scale - _ALMOST) - 1]

    def changes(self, end: float) -> tuple[float, ...]:
        """Return nothing: the rate of a trace moves all the time."""
        return ()

    @property
    def end_s(self) -> float:
        """Return the time of the last request."""
        return self.arrivals[-1]


class RateTraceLoad:
    """A recorded rate: it holds from each time to the next.

    Args:
        times: seconds since the start of the scenario, ascending, at least one.
        rates: requests per second, one per time; zero before the first.
        scale: what every rate is multiplied by.
    """

    def __init__(self, times: Sequence[float], rates: Sequence[float], scale: float = 1.0) -> None:
        self.times = tuple(times)
        self.rates = tuple(rate * scale for rate in rates)
        totals = [0.0]
        for index in range(1, len(self.times)):
            width = self.times[index] - self.times[index - 1]
            totals.append(totals[-1] + self.rates[index - 1] * width)
        self._totals = tuple(totals)

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        index = bisect_right(self.times, t) - 1
        return self.rates[index] if index >= 0 else 0.0

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        index = bisect_right(self.times, t) - 1
        if index < 0:
            return 0.0
        return self._totals[index] + self.rates[index] * (t - self.times[index])

    def changes(self, end: float) -> tuple[float, ...]:
        """Return nothing: the rate of a trace moves all the time."""
        return ()

    @property
    def end_s(self) -> float:
        """Return the end of the last rate, which holds as long as the one before it."""
        last = self.times[-1]
        return last + (last - self.times[-2]) if len(self.times) > 1 else last
