"""Bounds for comparing policies: a constant replica count, an oracle, and the best simple rule in hindsight.

The oracle is a bound. The best simple rule is none: a rule outside of its family may save more.

All keep the same promise: a share of steps, at the most, in which demand exceeds the ready pods. A pod
serves once it was wanted throughout the start-up time, so the pods that are ready are the lowest of what was
wanted within it, and the pods that are paid for are what is wanted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from gpuscale.lab.plan.windows import highest_ahead, highest_behind, lowest_behind, mean_behind
from gpuscale.triggers.policies import Numbers, ReplaySettings

_HOLDS_S = (0, 120, 300, 600, 1200, 2400, 3600, 7200)
_HEADROOMS = (1.0, 1.1, 1.25, 1.5, 2.0)
_MEANS_S = (120, 300, 600, 1200, 2400)
_DEVIATIONS = (0.0, 1.0, 2.0, 3.0)
_MEANS_HELD_S = (0, 300, 1200)


@dataclass(frozen=True, slots=True)
class GpuHourBounds:
    """GPU-hours of the three bounds, with one GPU for each replica."""

    static_replicas: int
    """The fewest that keep the promise."""
    static_hours: float
    oracle_hours: float
    """Knows the demand to come, and serves it up to the static number of replicas."""
    simple_rule_hours: float
    """Of the best simple rule in hindsight: the least of the fixed number and of some hundred rules that know
    demand without lag, chosen with its margin on the demand itself. They follow the highest demand of a
    window, times a headroom, or a window's mean with so many standard deviations, held for a while."""

    def share(self, hours: float) -> float | None:
        """Return the saving as a share of the oracle's; None if the oracle saves nothing."""
        saving = self.static_hours - self.oracle_hours
        return (self.static_hours - hours) / saving if saving > 0 else None


def bounds(demand: Numbers, service: ReplaySettings, promise: float) -> GpuHourBounds:
    """Return the bounds of a demand.

    Args:
        demand: pods' worth of work, one number a step.
        service: start-up time and step.
        promise: share of steps that may be short.
    """
    start_up = max(1, int(numpy.ceil(service.start_up_s / service.step_s)))
    hours_per_step = service.step_s / 3600
    static = max(service.least, float(numpy.ceil(_quantile(demand, 1 - promise))))
    known = numpy.ceil(highest_ahead(numpy.minimum(demand, static), start_up) - 1e-9)
    simple = static * len(demand)
    for base in _bases(demand, service.step_s):
        simple = min(simple, _least_steps(demand, base, start_up, promise, simple))
    return GpuHourBounds(
        static_replicas=int(static),
        static_hours=static * len(demand) * hours_per_step,
        oracle_hours=float(numpy.maximum(known, service.least).sum()) * hours_per_step,
        simple_rule_hours=simple * hours_per_step,
    )


def _quantile(column: Numbers, share: float) -> float:
    """Return the smallest value that at most `1 - share` of the values exceed."""
    ordered = numpy.sort(column)
    return float(ordered[min(len(ordered) - 1, max(0, int(numpy.ceil(share * len(ordered))) - 1))])


def _bases(demand: Numbers, step_s: float) -> Iterator[Numbers]:
    """Yield the columns that simple rules follow, such as recent maxima."""
    for hold in sorted({round(hold_s / step_s) for hold_s in _HOLDS_S}):
        highest = highest_behind(demand, hold)
        yield from (highest * headroom for headroom in _HEADROOMS)
    for steps in sorted({max(1, round(mean_s / step_s)) for mean_s in _MEANS_S}):
        mean = mean_behind(demand, steps)
        spread = numpy.sqrt(numpy.maximum(mean_behind(demand * demand, steps) - mean * mean, 0.0))
        for hold in sorted({round(hold_s / step_s) for hold_s in _MEANS_HELD_S}):
            for deviations in _DEVIATIONS:
                yield highest_behind(mean + deviations * spread, hold)


def _least_steps(
    demand: Numbers, base: Numbers, start_up: int, promise: float, known: float
) -> float:
    """Return the pod-steps of the smallest margin on a base that keeps the promise.

    Infinity where that can't be fewer than the `known` ones: a margin that takes as many is too small.
    """

    def keeps(wanted: Numbers) -> bool:
        return float((demand > lowest_behind(wanted, start_up) + 1e-9).mean()) <= promise

    def wanted_with(margin: float) -> Numbers:
        wanted: Numbers = numpy.maximum(numpy.ceil(base + margin - 1e-9), 1.0)
        return wanted

    if not keeps(wanted_with((known - float(base.sum())) / len(base) + 2e-9)):
        return numpy.inf
    low, high = -1.0, float(demand.max()) + 1.0
    best = numpy.inf
    for _ in range(12):
        margin = (low + high) / 2
        wanted = wanted_with(margin)
        if keeps(wanted):
            best, high = float(wanted.sum()), margin
        else:
            low = margin
    return best
