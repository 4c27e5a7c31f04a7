import math

import pytest

from gpuscale.series.promql.elementwise import (
    ARITHMETIC,
    ELEMENTWISE,
    divide,
    greater,
    lesser,
    modulo,
    power,
)

INF, NAN = math.inf, math.nan


def same(left, right):
    return left == right or (math.isnan(left) and math.isnan(right))


# From the special cases listed in Go's package math.
@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (0, -1, INF),
        (-0.0, -1, -INF),
        (-0.0, -2, INF),
        (-8, 1 / 3, NAN),
        (10, 400, INF),
        (-10, 401, -INF),
        (NAN, 0, 1),
        (1, NAN, 1),
        (INF, -1, 0),
    ],
)
def test_power_at_the_edges(left, right, expected) -> None:
    assert same(power(left, right), expected)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(1, 0, INF), (-1, 0, -INF), (1, -0.0, -INF), (0, 0, NAN), (NAN, 0, NAN), (INF, INF, NAN)],
)
def test_divide_at_the_edges(left, right, expected) -> None:
    assert same(divide(left, right), expected)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(5, 3, 2), (-5, 3, -2), (5, -3, 2), (5, 0, NAN), (INF, 2, NAN), (5, INF, 5)],
)
def test_modulo_at_the_edges(left, right, expected) -> None:
    assert same(modulo(left, right), expected)


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 0.5, 1e308, -1e308, INF, -INF, NAN])
def test_functions_never_raise(name, value) -> None:
    assert isinstance(ELEMENTWISE[name](value), float)


@pytest.mark.parametrize("name", sorted(ARITHMETIC))
@pytest.mark.parametrize("left", [0.0, -1.5, 1e308, INF, NAN])
@pytest.mark.parametrize("right", [0.0, -0.0, -1.5, 1e308, -INF, NAN])
def test_operators_never_raise(name, left, right) -> None:
    assert isinstance(ARITHMETIC[name](left, right), float)


@pytest.mark.parametrize(
    ("left", "right", "larger", "smaller"),
    [
        (1.0, 2.0, 2.0, 1.0),
        (NAN, 1.0, NAN, NAN),
        # Go's math.Max and math.Min look for infinities first.
        (NAN, math.inf, math.inf, NAN),
        (NAN, -math.inf, NAN, -math.inf),
    ],
)
def test_the_larger_and_the_smaller_of_two_numbers(left, right, larger, smaller) -> None:
    assert same(greater(left, right), larger)
    assert same(lesser(right, left), smaller)


def test_cosh_of_a_large_negative_number_is_positive() -> None:
    assert ELEMENTWISE["cosh"](-1e6) == math.inf
