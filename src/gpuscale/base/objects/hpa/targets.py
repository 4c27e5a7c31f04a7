"""The column TARGETS of an HPA, from its manifest and status.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go (formatHPAMetrics).
"""

from collections.abc import Mapping, Sequence
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


def times_target(spec: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return a metric's value as a multiple of its target; None where it has no value."""
    field = _FIELDS.get(spec.get("type", ""), "")
    wanted: Mapping[str, Any] = (spec.get(field) or {}).get("target") or {}
    current: Mapping[str, Any] = (status.get(field) or {}).get("current") or {}
    key = next((each for each in _AMOUNTS if each in wanted), "")
    try:
        target = parse_quantity(str(wanted[key]))
        return float(parse_quantity(str(current[key]))) / float(target) if target.nano else None
    except (KeyError, ValueError):
        return None
