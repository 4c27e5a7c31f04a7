"""How fast a workload scales, as an HPA of `autoscaling/v2` has it."""

from typing import Literal

from gpuscale.base.documents.models import Model
from gpuscale.ops.install.scale.metrics import Quantity


class Policy(Model):
    """How much the count may change within a period."""

    type: Literal["Pods", "Percent"]
    """Whether value counts pods or is a percentage of them."""
    value: int
    """Replicas that may come or go within a period."""
    period_seconds: int
    """Length of the period."""


class ScalingRules(Model):
    """How fast the count may move in one direction."""

    stabilization_window_seconds: int | None = None
    """How far back recommendations count: the lowest of them going up, the highest going down."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Of several policies the one with the largest change, or the smallest; or no change at all."""
    policies: tuple[Policy, ...] | None = None
    tolerance: Quantity | None = None
    """How far from the target, as a ratio such as 0.05, is still the target. Kubernetes 1.33 and later."""


class Behavior(Model):
    """The rules of both directions; what is left out has Kubernetes' defaults."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None
