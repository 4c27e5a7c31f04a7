"""The dead band around ratio 1 in which nothing is scaled.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (Tolerances),
    horizontal.go (tolerancesForHpa).
"""

from dataclasses import dataclass

from gpuscale.hpa.types import ControllerSettings
from gpuscale.objects.hpa import HorizontalPodAutoscaler, ScalingRules


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far below and above 1 a usage ratio may lie."""

    scale_down: float
    scale_up: float

    def is_within(self, usage_ratio: float) -> bool:
        """Return whether the ratio is too close to 1 to act on; both ends count as close."""
        return (1.0 - self.scale_down) <= usage_ratio <= (1.0 + self.scale_up)

    def __str__(self) -> str:
        return f"{round(1.0 - self.scale_down, 4):g} to {round(1.0 + self.scale_up, 4):g}"


def tolerances_for_hpa(hpa: HorizontalPodAutoscaler, settings: ControllerSettings) -> Tolerances:
    """Return the HPA's own tolerances, and the controller's for a direction without one."""
    if hpa.behavior is None:
        return Tolerances(settings.tolerance, settings.tolerance)
    return Tolerances(
        scale_down=_tolerance(hpa.behavior.scale_down, settings),
        scale_up=_tolerance(hpa.behavior.scale_up, settings),
    )


def _tolerance(rules: ScalingRules, settings: ControllerSettings) -> float:
    if rules.tolerance is None:
        return settings.tolerance
    return rules.tolerance.approximate_float64()
