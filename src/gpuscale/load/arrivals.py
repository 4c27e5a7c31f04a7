"""The times of an open loop's requests, which don't depend on responses."""

import random
from collections.abc import Iterator
from itertools import chain
from typing import Literal

from gpuscale.base.loads import Load

Arrivals = Literal["poisson", "even"]

_STEP_S = 0.01
"""Within a step the rate counts as constant; jumps of the rate begin a step of their own."""


def arrival_times(load: Load, end_s: float, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Yield the times in [0, end_s) at which requests are due, in seconds, ascending.

    With `even` the k-th request is due when the load's integral reaches k - 1/2, so that a constant load has
    equal gaps. With `poisson` the gaps of the integral are exponential with mean 1: a Poisson process with
    the load's rate at each moment (time rescaling).

    Args:
        load: requests over time.
        end_s: where it ends.
        arrivals: how requests follow each other.
        seed: of `poisson`; the same seed gives the same moments.
    """
    draw = random.Random(seed)  # noqa: S311 - a load, no secret
    wanted = draw.expovariate(1.0) if arrivals == "poisson" else 0.5
    start, before = 0.0, load.requests_until(0.0)
    for end in _edges(load, end_s):
        after = load.requests_until(end)
        rate = (after - before) / (end - start)
        while wanted <= after:
            due = start + (wanted - before) / rate
            if due >= end_s:
                return
            yield due
            wanted += draw.expovariate(1.0) if arrivals == "poisson" else 1.0
        start, before = end, after


def _edges(load: Load, end_s: float) -> Iterator[float]:
    """Yield the ends of steps in which the rate doesn't jump."""
    jumps = iter(chain(sorted({t for t in load.changes(end_s) if t > 0}), (float("inf"),)))
    jump, index = next(jumps), 1
    while True:
        edge = min(index * _STEP_S, end_s)
        while jump < edge:
            yield jump
            jump = next(jumps)
        if jump == edge:
            jump = next(jumps)
        yield edge
        if edge >= end_s:
            return
        index += 1
