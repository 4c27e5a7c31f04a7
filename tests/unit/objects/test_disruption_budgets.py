"""How many pods a budget lets go: kubernetes v1.37 pkg/controller/disruption/disruption.go."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.selectors import selector_of_labels


@pytest.mark.parametrize(
    ("least", "most", "healthy", "expected", "allowed"),
    [
        (1, None, 1, 1, 0),
        (1, None, 3, 3, 2),
        ("50%", None, 3, 3, 1),  # 1.5 is rounded up to 2
        ("0%", None, 3, 3, 3),
        (None, 0, 3, 3, 0),
        (None, 1, 3, 3, 1),
        (None, 1, 2, 3, 0),  # one is gone already
        (None, "30%", 3, 3, 1),  # 0.9 is rounded up to 1
        (None, "100%", 2, 3, 2),
        (5, None, 3, 3, 0),
    ],
)
def test_what_is_healthy_beyond_what_is_needed_may_go(
    least: int | str | None, most: int | str | None, healthy: int, expected: int, allowed: int
) -> None:
    budget = PodDisruptionBudget(ObjectMeta("b"), selector_of_labels({}), least, most)
    assert budget.allowed(healthy, expected) == allowed


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("{}", "one of minAvailable and maxUnavailable"),
        ("{minAvailable: 1, maxUnavailable: 1}", "one of minAvailable and maxUnavailable"),
        ("{minAvailable: half}", "a number from 0, or a percentage such as 50%"),
        ("{maxUnavailable: -1}", "a number from 0, or a percentage such as 50%"),
    ],
)
def test_a_budget_says_one_of_two(spec: str, fault: str) -> None:
    text = (
        f"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b}}\nspec: {spec}\n"
    )
    with pytest.raises(ConfigError, match=fault):
        load_manifests(text, "b.yaml")
