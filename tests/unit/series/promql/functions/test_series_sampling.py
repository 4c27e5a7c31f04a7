"""The hash behind limit_ratio, against the vectors of xxHash and of a running Prometheus 3."""

import pytest

from gpuscale.series.labels import LabelSet
from gpuscale.series.promql.functions.sampling import is_sampled, xxh64
from gpuscale.series.promql.functions.sorting import natural_order


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # https://github.com/Cyan4973/xxHash and the documentation of its bindings.
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64(content: bytes, expected: int) -> None:
    assert xxh64(content) == expected


def test_a_ratio_and_its_complement_share_out_all_label_sets() -> None:
    for i in range(200):
        labels = LabelSet([("__name__", "m"), ("i", str(i)), ("long", "x" * i * 2)])
        assert is_sampled(labels, 0.3) != is_sampled(labels, -0.7)


def test_the_share_is_about_the_ratio() -> None:
    kept = sum(is_sampled(LabelSet([("i", str(i))]), 0.25) for i in range(2_000))
    # Binomial: 500 expected, standard deviation 19.4; the hash is fixed, so the test is, too.
    assert abs(kept - 500) < 5 * 19.4


@pytest.mark.parametrize(
    ("left", "right"),
    [("a9", "a10"), ("9", "a"), ("a", "b"), ("a1b2", "a1b10"), ("", "a"), ("a1", "a1b")],
)
def test_natural_order_compares_numbers_as_numbers(left: str, right: str) -> None:
    assert natural_order(left, right) < 0 < natural_order(right, left)
    assert natural_order(left, left) == 0
