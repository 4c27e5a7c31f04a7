"""More searched fields of an HPA's behavior: scale-up's window and tolerance, and all rates."""

from collections.abc import Iterator

from gpuscale.base.objects.hpa import Behavior, PolicyType, ScalingRules, SelectPolicy
from gpuscale.lab.plan.tuning.contender import Setting
from gpuscale.triggers.policies import FIRST_POLICY, UP_TOLERANCE, UP_WINDOW, Parameter

UP_WINDOW_NAME, UP_TOLERANCE_NAME = "up_window_s", "up_tolerance"
_LONGEST_UP_WINDOW_S = 900.0
_MOST_TOLERANCE = 0.5
_MOST = {PolicyType.PERCENT: 900.0, PolicyType.PODS: 64.0}
"""What a rate of scale-up is searched up to; scale-down by more than 100 % changes nothing."""


def behavior_searched(behavior: Behavior, tolerance: float, longest_s: float) -> Iterator[Setting]:
    """Yield the behavior's parameters besides target, scale-down window and tolerance, with today's values.

    Args:
        behavior: the HPA's.
        tolerance: the controller's own, where scale-up has none.
        longest_s: the longest window that a policy remembers.
    """
    up = behavior.scale_up
    window_s = float(up.stabilization_window_s or 0)
    longest_s = max(window_s, min(longest_s, _LONGEST_UP_WINDOW_S))
    yield Setting(Parameter(UP_WINDOW_NAME, window_s, 0, longest_s), UP_WINDOW)
    own = tolerance if up.tolerance is None else float(up.tolerance)
    most = max(own, _MOST_TOLERANCE)
    yield Setting(Parameter(UP_TOLERANCE_NAME, own, 0, most), UP_TOLERANCE)
    names = rate_names(behavior)
    rules = (up, behavior.scale_down)
    policies = [(rule, each) for rule in rules for each in rule.policies]
    for place, (name, (rule, each)) in enumerate(zip(names, policies, strict=True)):
        value = float(each.value)
        is_down_share = rule is not up and each.type is PolicyType.PERCENT
        least, most = 1.0, 100.0 if is_down_share else _MOST[each.type]
        if rule.select_policy is SelectPolicy.DISABLED or not value:
            least = most = value
        parameter = Parameter(name, value, min(least, value), max(most, value), is_log=value > 0)
        yield Setting(parameter, FIRST_POLICY + 3 * place + 1)


def rate_names(behavior: Behavior) -> list[str]:
    """Return the names of the behavior's policies, scale-up first: `up_percent`, then `up_percent_2`."""
    return [*_names("up", behavior.scale_up), *_names("down", behavior.scale_down)]


def _names(direction: str, rules: ScalingRules) -> Iterator[str]:
    count: dict[PolicyType, int] = {}
    for each in rules.policies:
        count[each.type] = count.get(each.type, 0) + 1
        number = f"_{count[each.type]}" if count[each.type] > 1 else ""
        yield f"{direction}_{each.type.value.lower()}{number}"
