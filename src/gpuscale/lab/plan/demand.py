"""A workload's demand for each step, in busy pods."""

import math
from collections.abc import Callable

import numpy

from gpuscale.triggers.policies import Numbers

MAX_DAYS = 366
"""Of a demand; at 15 s a step that is two million numbers."""


def demand_column(
    until: Callable[[float], float], duration_s: float, work_s: float, step_s: float
) -> Numbers:
    """Return the demand at each step, in pods.

    Args:
        until: how many requests came in [0, t), for t in seconds.
        duration_s: how long; at most MAX_DAYS, and what is left over of a step counts as one.
        work_s: seconds of one pod that a request takes.
        step_s: length of a step.

    Raises:
        ValueError: nothing, or longer than that.
    """
    if not 0 < duration_s <= MAX_DAYS * 86_400:
        raise ValueError(
            f"found {duration_s / 86_400:.3g} days, expected more than 0 and at most {MAX_DAYS}"
        )
    edges = [
        until(min(step * step_s, duration_s)) for step in range(math.ceil(duration_s / step_s) + 1)
    ]
    return numpy.diff(numpy.array(edges, dtype=numpy.float64)) * (work_s / step_s)
