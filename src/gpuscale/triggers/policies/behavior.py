"""An HPA's own behavior, as numbers after its policy's parameters."""

from collections.abc import Sequence

import numpy

from gpuscale.base.objects.hpa import Behavior, PolicyType, ScalingRules, SelectPolicy
from gpuscale.hpa.kernel import DISABLED, MAX, MIN, PERCENT, PODS
from gpuscale.triggers.policies.policy import Numbers

_SELECTS = {
    SelectPolicy.MAX: MAX,
    SelectPolicy.MIN: MIN,
    SelectPolicy.DISABLED: DISABLED,
}
_KINDS = {PolicyType.PODS: PODS, PolicyType.PERCENT: PERCENT}


def behavior_settings(behavior: Behavior, tolerance: float, more: Sequence[float] = ()) -> Numbers:
    """Return what follows the parameters `target`, `down_window_s` and `tolerance`, of scale-down.

    Args:
        behavior: the HPA's.
        tolerance: the controller's own, where scale-up has none.
        more: what the policy takes behind them.
    """
    up, down = behavior.scale_up, behavior.scale_down
    numbers: list[float] = [
        tolerance if up.tolerance is None else float(up.tolerance),
        up.stabilization_window_s or 0,
        _SELECTS[up.select_policy],
        _SELECTS[down.select_policy],
        len(up.policies),
    ]
    return numpy.array([*numbers, *_policies(up), *_policies(down), *more], dtype=numpy.float64)


def _policies(rules: ScalingRules) -> list[float]:
    return [
        number
        for each in rules.policies
        for number in (_KINDS[each.type], each.value, each.period_s * 1000)
    ]
