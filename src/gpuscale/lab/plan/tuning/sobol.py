"""Sobol points, which fill a box evenly, best in numbers of 2^k.

The points are shifted by bits that the seed draws, which keeps how evenly they lie.

Source: direction numbers of Joe and Kuo 2008, "Constructing Sobol sequences with better two-dimensional
projections", file new-joe-kuo-6; the order of points is that of Antonov and Saleev 1979.
"""

import numpy
import numpy.typing

_BITS = 30
_DIRECTIONS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
    (5, 11, (1, 1, 5, 1, 1)),
    (5, 13, (1, 1, 1, 3, 11)),
    (5, 14, (1, 3, 5, 5, 31)),
    (6, 1, (1, 3, 3, 9, 7, 49)),
    (6, 13, (1, 1, 1, 15, 21, 21)),
    (6, 16, (1, 3, 1, 13, 27, 49)),
)
"""Of the second dimension and on: degree and coefficients of the polynomial, and the first numbers."""
MAX_DIMENSIONS = len(_DIRECTIONS) + 1
MAX_POINTS = 2**_BITS


def points(
    dimensions: int, count: int, seed: int
) -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]:
    """Return points in [0, 1), one in each row.

    Args:
        dimensions: at most MAX_DIMENSIONS.
        count: how many; at most MAX_POINTS.
        seed: of the shift.

    Raises:
        ValueError: more dimensions or points than there are.
    """
    if not 0 <= dimensions <= MAX_DIMENSIONS or not 0 <= count <= MAX_POINTS:
        limits = f"at most {MAX_DIMENSIONS} dimensions and {MAX_POINTS} points"
        raise ValueError(f"found {dimensions} dimensions and {count} points, expected {limits}")
    numbers = numpy.arange(count, dtype=numpy.uint32)
    gray = numbers ^ (numbers >> numpy.uint32(1))
    shifts = numpy.random.default_rng(seed).integers(0, 2**_BITS, dimensions, dtype=numpy.uint32)
    found = numpy.empty((count, dimensions))
    for at in range(dimensions):
        column = numpy.full(count, shifts[at], dtype=numpy.uint32)
        for bit, direction in enumerate(_directions(at)):
            is_set = (gray >> numpy.uint32(bit)) & numpy.uint32(1)
            column ^= is_set * numpy.uint32(direction)
        found[:, at] = column / 2**_BITS
    return found


def _directions(dimension: int) -> list[int]:
    """Return the direction numbers of a dimension as integers of _BITS bits."""
    if dimension == 0:
        return [1 << (_BITS - 1 - bit) for bit in range(_BITS)]
    degree, coefficients, first = _DIRECTIONS[dimension - 1]
    found = [number << (_BITS - 1 - bit) for bit, number in enumerate(first)]
    for bit in range(degree, _BITS):
        number = found[bit - degree] ^ (found[bit - degree] >> degree)
        for term in range(1, degree):
            if (coefficients >> (degree - 1 - term)) & 1:
                number ^= found[bit - term]
        found.append(number)
    return found
