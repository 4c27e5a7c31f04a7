"""Bounds for comparing policies: a constant replica count, an oracle, and the best simple rule in hindsight.

The oracle is a bound of plans that serve all work as it comes. A promise that lets requests wait can be kept
for less. The best simple rule is no bound: a rule outside of its family may save more.

All keep the same promise to users. A pod serves once it was wanted throughout the start-up time, so the pods
that are ready are the lowest of what was wanted within it, and the pods that are paid for are what is wanted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import cast

import numpy

from gpuscale.base import compiling
from gpuscale.base.errors import UsageError
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import DEFAULT_REQUESTS
from gpuscale.lab.plan.waiting import Requests
from gpuscale.lab.plan.windows import highest_ahead, highest_behind, lowest_behind, mean_behind
from gpuscale.triggers.policies import Numbers, Replayed, ReplaySettings, work_of_step

_HOLDS_S = (0, 120, 300, 600, 1200, 2400, 3600, 7200)
_HEADROOMS = (1.0, 1.1, 1.25, 1.5, 2.0)
_MEANS_S = (120, 300, 600, 1200, 2400)
_DEVIATIONS = (0.0, 1.0, 2.0, 3.0)
_MEANS_HELD_S = (0, 300, 1200)
_MORE_THAN_ENOUGH = 100
"""Pods for each that work is there for: nothing waits."""


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


def bounds(
    demand: Numbers,
    service: ReplaySettings,
    promise: Promise,
    requests: Requests = DEFAULT_REQUESTS,
) -> GpuHourBounds:
    """Return the bounds of a demand.

    Args:
        demand: pods' worth of work, one number a step.
        service: start-up time, step and patience.
        promise: to users.
        requests: what one takes.

    Raises:
        UsageError: no number of pods keeps the promise.
    """
    start_up = max(1, int(numpy.ceil(service.start_up_s / service.step_s)))
    hours_per_step = service.step_s / 3600
    keeps = _keeper(demand, service, promise, requests)
    static = fewest_standing(demand, service, promise, requests)
    known = numpy.ceil(highest_ahead(numpy.minimum(demand, static), start_up) - 1e-9)
    simple = static * len(demand)
    for base in _bases(demand, service.step_s):
        simple = min(simple, _least_steps(demand, base, start_up, keeps, simple))
    return GpuHourBounds(
        static_replicas=int(static),
        static_hours=static * len(demand) * hours_per_step,
        oracle_hours=float(numpy.maximum(known, service.least).sum()) * hours_per_step,
        simple_rule_hours=simple * hours_per_step,
    )


def fewest_standing(
    demand: Numbers,
    service: ReplaySettings,
    promise: Promise,
    requests: Requests = DEFAULT_REQUESTS,
) -> float:
    """Return the fewest pods that keep a promise standing still; arguments and errors as `bounds`."""
    keeps = _keeper(demand, service, promise, requests)

    def stands(pods: float) -> bool:
        return keeps(numpy.full(len(demand), pods))

    if not stands(_MORE_THAN_ENOUGH * (1 + float(demand.max()))):
        takes = f"a request takes {requests.service_s:g} s where nothing waits"
        raise UsageError(f"--promise: found {promise}, which no number of pods keeps: {takes}")
    low, high = -1.0, max(1.0, float(numpy.ceil(service.least)))
    while not stands(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if stands(middle) else (middle, high)
    return max(service.least, high)


def _keeper(
    demand: Numbers, service: ReplaySettings, promise: Promise, requests: Requests
) -> Callable[[Numbers], bool]:
    """Return what says whether ready pods keep a promise."""
    counted = promise.counted_in_all(demand, service.step_s)

    def keeps(ready: Numbers) -> bool:
        replayed = _served(demand, ready, service, has_queue=promise.needs_queue)
        return promise.used(promise.missed(replayed, requests).sum(axis=1) / counted) <= 1

    return keeps


def _served(
    demand: Numbers, ready: Numbers, service: ReplaySettings, *, has_queue: bool
) -> Replayed:
    """Return what ready pods make of a demand; the queue stays empty where nobody asks for it."""
    queue, given_up = numpy.zeros(len(demand)), numpy.zeros(len(demand))
    if has_queue:
        _queue_filler()(demand, ready, service.step_s, service.patience_s, queue, given_up)
    return Replayed(service, demand, ready, ready, queue, given_up)


def _fill_queue(
    demand: Numbers,
    ready: Numbers,
    step_s: float,
    patience_s: float,
    queue: Numbers,
    given_up: Numbers,
) -> None:
    waiting = 0.0
    for at in range(len(demand)):
        _, waiting, given_up[at] = work_of_step(waiting, demand[at], ready[at], step_s, patience_s)
        queue[at] = waiting


@cache
def _queue_filler() -> Callable[[Numbers, Numbers, float, float, Numbers, Numbers], None]:
    """Return `_fill_queue`, compiled if numba is installed."""
    numba = compiling.numba()
    if numba is None:
        return _fill_queue
    column, number = numba.float64[::1], numba.float64
    signature = numba.void(column, column, number, number, column, column)
    return compiling.compiled(cast("FunctionType", _fill_queue), signature, lambda line: None)


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
    demand: Numbers,
    base: Numbers,
    start_up: int,
    keeps: Callable[[Numbers], bool],
    known: float,
) -> float:
    """Return the pod-steps of the smallest margin on a base that keeps the promise.

    Infinity where that can't be fewer than the `known` ones: a margin that takes as many is too small.
    """

    def wanted_with(margin: float) -> Numbers:
        wanted: Numbers = numpy.maximum(numpy.ceil(base + margin - 1e-9), 1.0)
        return wanted

    def ready_with(margin: float) -> Numbers:
        return lowest_behind(wanted_with(margin), start_up)

    if not keeps(ready_with((known - float(base.sum())) / len(base) + 2e-9)):
        return numpy.inf
    low, high = -1.0, float(demand.max()) + 1.0
    best = numpy.inf
    for _ in range(12):
        margin = (low + high) / 2
        if keeps(ready_with(margin)):
            best, high = float(wanted_with(margin).sum()), margin
        else:
            low = margin
    return best
