"""Sobol points: they have the properties that define them."""

import itertools

import numpy
import pytest

from gpuscale.lab.plan.tuning.sobol import MAX_DIMENSIONS, points


def test_the_first_points_are_those_of_the_paper():
    # In Gray-code order, unshifted (Joe and Kuo 2008). The shift is an exclusive or, so that it falls out
    # between two points.
    whole = (points(3, 8, seed=4) * 2**30).astype(numpy.int64)
    unshifted = (whole ^ whole[0]) / 2**30
    assert unshifted.tolist() == [
        [0, 0, 0],
        [0.5, 0.5, 0.5],
        [0.75, 0.25, 0.25],
        [0.25, 0.75, 0.75],
        [0.375, 0.375, 0.625],
        [0.875, 0.875, 0.125],
        [0.625, 0.125, 0.875],
        [0.125, 0.625, 0.375],
    ]


@pytest.mark.parametrize("dimension", range(MAX_DIMENSIONS))
def test_each_slot_of_a_dimension_has_one_point(dimension):
    # Any 2^k points from the beginning on have one in each of 2^k slots, whatever the shift.
    for count in (2, 64, 1024):
        column = points(MAX_DIMENSIONS, count, seed=9)[:, dimension]
        assert sorted((column * count).astype(int)) == list(range(count))


def test_no_two_dimensions_are_alike_and_pairs_fill_the_square():
    found = points(MAX_DIMENSIONS, 4096, seed=1)
    for one, other in itertools.combinations(range(MAX_DIMENSIONS), 2):
        cells = set(
            zip((found[:, one] * 8).astype(int), (found[:, other] * 8).astype(int), strict=True)
        )
        # 64 points to each of 64 cells. Two dimensions with the same numbers would fill the diagonal alone.
        assert len(cells) == 64, (one, other)


def test_a_seed_gives_the_same_points():
    assert points(4, 100, 7).tolist() == points(4, 100, 7).tolist()
    assert points(4, 100, 7).tolist() != points(4, 100, 8).tolist()


@pytest.mark.parametrize(
    ("dimensions", "count"), [(MAX_DIMENSIONS + 1, 4), (2, 2**30 + 1), (-1, 1)]
)
def test_more_than_there_are_is_refused(dimensions, count):
    with pytest.raises(ValueError, match="at most 16 dimensions"):
        points(dimensions, count, 1)
