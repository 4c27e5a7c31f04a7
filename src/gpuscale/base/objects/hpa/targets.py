"""The column TARGETS of an HPA, from its manifest and status.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go (formatHPAMetrics).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.base.quantity import parse_quantity

_MOST = 2
_UNKNOWN = "<unknown>"
_FIELDS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_AMOUNTS = ("averageValue", "averageUtilization", "value")
"""Keys of a target, of which one is given, and of the value that is held against it."""


def targets_text(specs: Sequence[Mapping[str, Any]], statuses: Sequence[Mapping[str, Any]]) -> str:
    """Return value and target of the first two metrics, and the number of the others."""
    if not specs:
        return "<none>"
    shown = [
        _target(spec, statuses[index] if index < len(statuses) else {})
        for index, spec in enumerate(specs)
    ]
    text = ", ".join(shown[:_MOST])
    return text if len(shown) <= _MOST else f"{text} + {len(shown) - _MOST} more..."


def _target(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    field = _FIELDS.get(spec["type"])
    if field is None:
        return "<unknown type>"
    wanted: Mapping[str, Any] = spec[field]["target"]
    current: Mapping[str, Any] = (status.get(field) or {}).get("current", {})
    if field == "pods":
        return f"{current.get('averageValue', _UNKNOWN)}/{wanted.get('averageValue')}"
    if field in {"external", "object"}:
        if "averageValue" in wanted:
            return f"{current.get('averageValue', _UNKNOWN)}/{wanted['averageValue']} (avg)"
        return f"{current.get('value', _UNKNOWN)}/{wanted.get('value')}"
    name = spec[field]["name"]
    if "averageValue" in wanted:
        return f"{name}: {current.get('averageValue', _UNKNOWN)}/{wanted['averageValue']}"
    return f"{name}: {_percent(current, _UNKNOWN)}/{_percent(wanted, '<auto>')}"


def _percent(amounts: Mapping[str, Any], otherwise: str) -> str:
    found = amounts.get("averageUtilization")
    return otherwise if found is None else f"{found}%"


@dataclass(frozen=True, slots=True)
class MetricAmounts:
    """A metric's value and target as plain numbers; None where the HPA has none."""

    name: str
    value: float | None
    target: float | None
    is_percent: bool
    """Of the request."""

    @property
    def times_target(self) -> float | None:
        """Return the value as a multiple of the target."""
        if self.value is None or not self.target:
            return None
        return self.value / self.target


def metric_amounts(spec: Mapping[str, Any], status: Mapping[str, Any]) -> MetricAmounts:
    """Return what a metric of an HPA is, and should be."""
    kind = _FIELDS.get(spec.get("type", ""), "")
    source: Mapping[str, Any] = spec.get(kind) or {}
    wanted: Mapping[str, Any] = source.get("target") or {}
    current: Mapping[str, Any] = (status.get(kind) or {}).get("current") or {}
    key = next((each for each in _AMOUNTS if each in wanted), "")
    name = source.get("name") or (source.get("metric") or {}).get("name") or ""
    value, target = _amount(current, key), _amount(wanted, key)
    return MetricAmounts(str(name), value, target, key == "averageUtilization")


def _amount(amounts: Mapping[str, Any], key: str) -> float | None:
    try:
        return float(parse_quantity(str(amounts[key])))
    except (KeyError, ValueError):
        return None
