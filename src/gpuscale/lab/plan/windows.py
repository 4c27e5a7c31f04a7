"""Moving maximum, minimum and mean of a column, each in one pass."""

import numpy

from gpuscale.triggers.policies import Numbers


def highest_behind(column: Numbers, steps: int) -> Numbers:
    """Return, for each step, the maximum of its value and the `steps` before it; fewer at the start."""
    if steps <= 0:
        return column.copy()
    padded = numpy.concatenate([numpy.full(steps, -numpy.inf), column])
    # Two running maxima, from both ends of each block, cover any window of a block's length.
    size = steps + 1
    blocks = -(-len(padded) // size)
    whole = numpy.full(blocks * size, -numpy.inf)
    whole[: len(padded)] = padded
    grid = whole.reshape(blocks, size)
    forwards = numpy.maximum.accumulate(grid, axis=1).ravel()
    backwards = numpy.maximum.accumulate(grid[:, ::-1], axis=1)[:, ::-1].ravel()
    ends = numpy.arange(steps, steps + len(column))
    return numpy.maximum(forwards[ends], backwards[ends - steps])


def highest_ahead(column: Numbers, steps: int) -> Numbers:
    """Return, for each step, the maximum of its value and the `steps` after it."""
    return highest_behind(column[::-1].copy(), steps)[::-1].copy()


def lowest_behind(column: Numbers, steps: int) -> Numbers:
    """Return, for each step, the minimum of its value and the `steps` before it."""
    return -highest_behind(-column, steps)


def mean_behind(column: Numbers, steps: int) -> Numbers:
    """Return, for each step, the mean of its value and the `steps - 1` before it; fewer at the start."""
    total = numpy.concatenate([[0.0], numpy.cumsum(column)])
    ends = numpy.arange(1, len(column) + 1)
    starts = numpy.maximum(ends - steps, 0)
    mean: Numbers = (total[ends] - total[starts]) / (ends - starts)
    return mean
