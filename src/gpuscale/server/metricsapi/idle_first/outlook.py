"""How many pods an HPA may take away soon, from what its controller wrote last.

The controller writes its status after the scale: a lower `desiredReplicas` comes too late. What comes before
is a recommendation that the window still holds up, so each metric of the status is held against its target.
Where the window is shorter than marks take, every value below its target counts.

Source: kubernetes v1.37 pkg/controller/podautoscaler/horizontal.go (a metric without a value blocks a
scale-in; external and object metrics by their mean are of `status.replicas`).
"""

import math
from collections.abc import Iterator, Mapping

from gpuscale.base.quantity import parse_quantity
from gpuscale.kube import mapping_of, text_of

SHORT_WINDOW_S = 60
_WINDOW_S = 300
"""The controller's own, where the HPA has none."""
_TOLERANCE = 0.1
_VALUES = ("averageUtilization", "averageValue", "value")
Body = Mapping[str, object]


def target_of(hpa: Body) -> tuple[str, str]:
    """Return kind and name of what an HPA scales."""
    target = mapping_of(mapping_of(hpa.get("spec")).get("scaleTargetRef"))
    return text_of(target.get("kind")), text_of(target.get("name"))


def leaving(hpa: Body) -> int:
    """Return how many pods an HPA may take away in its next syncs; 0 while it takes none."""
    spec, status = mapping_of(hpa.get("spec")), mapping_of(hpa.get("status"))
    rules = mapping_of(mapping_of(spec.get("behavior")).get("scaleDown"))
    current = _count(status.get("currentReplicas"), 0)
    least = _count(spec.get("minReplicas"), 1)
    if current <= least or rules.get("selectPolicy") == "Disabled":
        return 0
    ratios = list(_ratios(spec, status))
    wanted = current
    if ratios and all(ratio is not None for ratio in ratios):
        ratio = max(each for each in ratios if each is not None)
        tolerance = _number(rules.get("tolerance"))
        if ratio < 1 - (_TOLERANCE if tolerance is None else tolerance):
            wanted = math.ceil(ratio * current)
        elif (
            ratio < 1
            and _count(rules.get("stabilizationWindowSeconds"), _WINDOW_S) < SHORT_WINDOW_S
        ):
            wanted = current - 1
    wanted = min(wanted, _count(status.get("desiredReplicas"), current))
    return max(0, current - max(wanted, least))


def _ratios(spec: Body, status: Body) -> Iterator[float | None]:
    """Yield value by target of each metric of the spec; None where the status has no value."""
    seen = list(_metrics(status.get("currentMetrics")))
    for number, wanted in enumerate(_metrics(spec.get("metrics"))):
        current = mapping_of(seen[number].get("current")) if number < len(seen) else {}
        target = mapping_of(wanted.get("target"))
        name = next((each for each in _VALUES if each in target), "")
        value, limit = _number(current.get(name)), _number(target.get(name))
        yield value / limit if value is not None and limit else None


def _metrics(found: object) -> Iterator[Body]:
    """Yield what a list of metrics has below the field of each one's type."""
    for each in map(mapping_of, found if isinstance(found, list) else ()):
        kind = text_of(each.get("type"))
        yield mapping_of(each.get(kind[:1].lower() + kind[1:]))


def _number(value: object) -> float | None:
    """Return a quantity or a count; None for what is neither."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(parse_quantity(value))
    except ValueError:
        return None


def _count(value: object, fallback: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else fallback
