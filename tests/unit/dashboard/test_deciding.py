"""How an HPA came to a new size: decided from what was seen before it, by values of then or of now."""

import pytest

from gpuscale.ops.dashboard.deciding import Scaled, explain, why_scaled
from seen_hpa import seen


@pytest.mark.parametrize(
    ("then", "later", "size", "said"),
    [
        ("40", "5", 4, "ratio 2"),  # 2 pods x 40/20
        ("20", "30", 3, "ratio 1.5"),  # 20/20 is no reason; 2 pods x 30/20 is
    ],
)
def test_the_words_are_of_the_values_that_gave_the_size(
    then: str, later: str, size: int, said: str
) -> None:
    scaled = why_scaled(seen(2, then), seen(size, later), size)
    assert scaled.before == 2
    assert said in " ".join(scaled.why)


def test_a_size_that_no_values_give_has_no_words() -> None:
    assert why_scaled(seen(2, "40"), seen(7, "40"), 7) == Scaled(2, ())


def test_the_age_is_of_the_oldest_value() -> None:
    explained = explain(seen(2, "40"))
    assert (explained.desired, explained.value_age_s) == (4, 12.0)
