"""The changes that tuning makes to an HPA, by manifest path."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gpuscale.base.documents.documents import Path
from gpuscale.base.documents.edited import Value
from gpuscale.base.objects.hpa import Behavior, MetricSpec, ScalingRules
from gpuscale.base.objects.hpa.manifest import rules_manifest
from gpuscale.lab.plan.tuning.contender import LEAST, MOST
from gpuscale.lab.plan.tuning.rates import UP_TOLERANCE_NAME, UP_WINDOW_NAME, rate_names
from gpuscale.lab.tuning.autoscaler import TARGET, TOLERANCE, WINDOW, TunedHpa

_UP, _DOWN = "scaleUp", "scaleDown"


def changes(
    autoscaler: TunedHpa, values: Mapping[str, float], manifest: Mapping[str, Any]
) -> dict[Path, Value]:
    """Return the values to write into a manifest; unchanged ones are left out.

    Args:
        autoscaler: with the HPA as it is.
        values: of what was searched, by name.
        manifest: the document that is changed, which may leave out what has a default.
    """
    hpa = autoscaler.hpa
    if hpa is None:
        return {}
    found: dict[Path, Value] = {}
    if values[TARGET] != autoscaler.share:
        target = value_text(values[TARGET] * autoscaler.full)
        found[_target_path(hpa.metrics[0])] = target
    behavior = hpa.behavior or Behavior()
    up, down = behavior.scale_up, behavior.scale_down
    controller = autoscaler.controller
    windows = ((_UP, up, UP_WINDOW_NAME, 0.0), (_DOWN, down, WINDOW, controller.window_s))
    for direction, rules, name, default_s in windows:
        own_s = rules.stabilization_window_s
        if values.get(name, own_s) != (default_s if own_s is None else own_s):
            path = ("spec", "behavior", direction, "stabilizationWindowSeconds")
            found[path] = round(values[name])
    for direction, rules, name in ((_UP, up, UP_TOLERANCE_NAME), (_DOWN, down, TOLERANCE)):
        own = controller.tolerance if rules.tolerance is None else float(rules.tolerance)
        if values.get(name, own) != own:
            found["spec", "behavior", direction, "tolerance"] = value_text(values[name])
    names = rate_names(behavior)
    for direction, rules, of_rules in (
        (_UP, up, names[: len(up.policies)]),
        (_DOWN, down, names[len(up.policies) :]),
    ):
        found |= _rates(direction, rules, of_rules, values, manifest)
    for name, field, before in (
        (LEAST, "minReplicas", 1 if hpa.min_replicas is None else hpa.min_replicas),
        (MOST, "maxReplicas", hpa.max_replicas),
    ):
        if values.get(name, before) != before:
            found["spec", field] = round(values[name])
    return found


def value_text(value: float) -> str:
    """Return a metric's value as a quantity with four digits."""
    if value >= 1000:
        return str(round(value))
    return f"{Decimal(f'{value:.4g}'):f}"


def _rates(
    direction: str,
    rules: ScalingRules,
    names: list[str],
    values: Mapping[str, float],
    manifest: Mapping[str, Any],
) -> dict[Path, Value]:
    """Return one direction's changed rates: each at its path, or all if the manifest has none."""
    tuned = [
        round(values.get(name, each.value))
        for name, each in zip(names, rules.policies, strict=True)
    ]
    changed = [at for at, each in enumerate(rules.policies) if tuned[at] != each.value]
    place: Path = ("spec", "behavior", direction, "policies")
    there: Any = manifest
    for part in place:
        there = there.get(part) if isinstance(there, Mapping) else None
    if there:
        return {(*place, at, "value"): tuned[at] for at in changed}
    policies = rules_manifest(rules)["policies"]
    whole = [each | {"value": value} for each, value in zip(policies, tuned, strict=True)]
    return {place: whole} if changed else {}


def _target_path(metric: MetricSpec) -> Path:
    kind = type(metric).__name__.removesuffix("Metric").lower()
    field = "value" if metric.target.average_value is None else "averageValue"
    return ("spec", "metrics", 0, kind, "target", field)
