"""The dead band around ratio 1."""

import pytest

from gpuscale.base.objects.hpa import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    ScalingRules,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.kernel.proposals import Tolerances, is_within
from gpuscale.hpa.replicas.tolerances import tolerances_for_hpa, tolerances_text
from gpuscale.hpa.types import ControllerSettings


@pytest.mark.parametrize(
    ("down", "up", "ratio", "within"),
    [
        (0.1, 0.1, 1.0, True),
        (0.1, 0.1, 0.9, True),
        (0.1, 0.1, 1.1, True),
        (0.1, 0.1, 0.8999, False),
        (0.1, 0.1, 1.1001, False),
        # abs(1 - 1.05) = 0.050000000000000044, and yet 1.05 <= 1.0 + 0.05
        (0.05, 0.05, 1.05, True),
        (0.0, 0.0, 1.0, True),
        (0.0, 0.0, 1.0000001, False),
        # each direction has its own
        (0.5, 0.0, 0.5, True),
        (0.5, 0.0, 1.01, False),
        (0.0, 0.5, 1.5, True),
        (0.0, 0.5, 0.99, False),
        # no number lies within no band
        (9.0, 9.0, float("nan"), False),
        (9.0, 9.0, float("inf"), False),
    ],
)
def test_both_ends_are_within(down: float, up: float, ratio, within: bool) -> None:
    assert is_within(ratio, Tolerances(down, up)) is within


def hpa(up: str | None, down: str | None) -> HorizontalPodAutoscaler:
    def rules(default: ScalingRules, text: str | None) -> ScalingRules:
        tolerance = None if text is None else parse_quantity(text)
        return ScalingRules(default.policies, tolerance=tolerance)

    return HorizontalPodAutoscaler(
        ObjectMeta("web"),
        CrossVersionObjectReference("Deployment", "web"),
        10,
        (),
        behavior=Behavior(rules(DEFAULT_SCALE_UP, up), rules(DEFAULT_SCALE_DOWN, down)),
    )


@pytest.mark.parametrize(
    ("up", "down", "tolerances"),
    [
        (None, None, Tolerances(0.2, 0.2)),
        ("0.05", None, Tolerances(0.2, 0.05)),
        (None, "0", Tolerances(0.0, 0.2)),
        ("0.05", "0.3", Tolerances(0.3, 0.05)),
        # 570 * 0.001, as Kubernetes reads 0.57
        ("0.57", None, Tolerances(0.2, 0.5700000000000001)),
    ],
)
def test_each_direction_overrides_the_controller(
    up: str | None, down: str | None, tolerances
) -> None:
    settings = ControllerSettings(tolerance=0.2)
    assert tolerances_for_hpa(hpa(up, down), settings) == tolerances


def test_shown_as_a_band() -> None:
    assert tolerances_text(Tolerances(0.1, 0.05)) == "0.9 to 1.05"
