"""Correctly rounded sums like `math.fsum`, for whole arrays.

Each number is cut into slices of bits, coarse ones first. The slices of one cut share a unit so coarse that
any sum of them is exact, in any order, and as a difference of two running totals. So a plain sum of each cut,
added up with its error term, is the sum of the numbers.

Source: Rump, Ogita and Oishi, Accurate floating-point summation (2008), algorithm 3.2 (ExtractVector).
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gpuscale.series.promql.vectorised.support import RowWiseError

Floats = npt.NDArray[np.float64]

_ALL = slice(None)


def exact_cuts(numbers: Floats, terms: int) -> Iterator[Floats]:
    """Yield arrays that add up to the given one; sums of up to `terms` elements of each are exact.

    Args:
        numbers: finite.
        terms: how many elements go into one sum at most.

    Raises:
        RowWiseError: the numbers are so large that a sum might overflow.
    """
    rest = numbers
    while rest.size:
        largest = max(float(rest.max()), -float(rest.min()))
        if largest == 0:
            return
        exponent = math.frexp(largest)[1] + max(1, terms).bit_length() + 1
        if exponent > 1_000:
            raise RowWiseError("a sum may overflow")
        # Adding this rounds each number to a unit of 2^-53 of it, so that the sum stays exact.
        unit = math.ldexp(1.0, exponent)
        cut = rest + unit
        cut -= unit
        rest = rest - cut
        yield cut


class Sums:
    """Running sums with error terms; the largest numbers should come first."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._high = np.zeros(shape)
        self._low = np.zeros(shape)

    def add(self, terms: Floats, columns: npt.NDArray[np.int64] | slice = _ALL) -> None:
        """Add a number to each sum, or to those in some columns."""
        before = self._high[..., columns]
        high = before + terms
        added = high - before
        self._low[..., columns] += (before - (high - added)) + (terms - added)
        self._high[..., columns] = high

    def rounded(self) -> Floats:
        total: Floats = self._high + self._low
        return total


class Compensated:
    """Running Kahan sums with error terms, for terms in a fixed order.

    Source: prometheus util/kahansum, 3.16 (Inc).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum = np.zeros(shape)
        self._error = np.zeros(shape)

    def add(self, terms: Floats, where: npt.NDArray[np.bool_]) -> None:
        """Add a number to each selected sum."""
        before, after = self._sum, self._sum + terms
        # The exact rounding error, whichever operand is larger (Knuth's TwoSum).
        added = after - before
        error = (before - (after - added)) + (terms - added)
        error += self._error
        endless = np.isinf(after)
        if endless.any():
            error[endless] = 0.0
        if where.all():
            self._sum, self._error = after, error
            return
        np.copyto(self._error, error, where=where)
        np.copyto(self._sum, after, where=where)

    def value(self) -> Floats:
        value: Floats = self._sum + self._error
        return value


def window_sums(running: Iterator[tuple[Floats, Floats]], shape: tuple[int, ...]) -> Floats:
    """Return sums over windows, from running totals of each cut at the windows' ends and starts."""
    sums = Sums(shape)
    for at_end, at_start in running:
        sums.add(at_end - at_start)
    return sums.rounded()
