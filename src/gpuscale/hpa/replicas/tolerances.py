"""The dead band around ratio 1 in which nothing is scaled.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (Tolerances),
    horizontal.go (tolerancesForHpa).
"""

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, ScalingRules
from gpuscale.hpa.kernel.proposals import Tolerances
from gpuscale.hpa.types import ControllerSettings


def tolerances_text(tolerances: Tolerances) -> str:
    """Return the dead band in words, such as `0.9 to 1.1`."""
    return f"{round(1.0 - tolerances.scale_down, 4):g} to {round(1.0 + tolerances.scale_up, 4):g}"


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
