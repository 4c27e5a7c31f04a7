"""The metrics of an HPA as plain numbers, for code that compares or draws them.

Quantities such as `11500m` are for reading beside kubectl; a page that parses them again gets them
wrong by a factor of a thousand.
"""

from collections.abc import Sequence

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.quantity import Format, Quantity
from gpuscale.hpa import MetricStatus
from gpuscale.hpa.controller import deciding_metric
from gpuscale.hpa.decisions import current_milli

PERCENT = "%"
BINARY = "binary"
"""Bytes, as a rule: shown with Ki, Mi, Gi."""


def metric_figures(
    hpa: HorizontalPodAutoscaler, statuses: Sequence[MetricStatus]
) -> list[dict[str, object]]:
    """Return one entry for each metric of the HPA, in its order.

    Each has `name`, `value`, `target` and `ratio` (value to target), with null for what is not known,
    `unit`: `%` of the request, `binary` for amounts written with Ki or Mi, else empty, and `decides`: whether
    it asks for most replicas.

    Args:
        hpa: whose metrics they are.
        statuses: of its latest sync; empty before the first.
    """
    by_index = {status.index: status for status in statuses}
    deciding = deciding_metric(statuses)
    return [
        {
            **_figures(spec, by_index.get(index)),
            "decides": deciding is not None and deciding.index == index,
        }
        for index, spec in enumerate(hpa.metrics)
    ]


def _figures(spec: MetricSpec, status: MetricStatus | None) -> dict[str, object]:
    quantity = _target_quantity(spec)
    percent = spec.target.average_utilization
    value: float | None = None
    if quantity is not None:
        target: float | None = float(quantity)
        milli = None if status is None else current_milli(status)
        value = None if milli is None else milli / 1000
    else:
        target = None if percent is None else float(percent)
        value = None if status is None else status.average_utilization
    return {
        "name": spec.name,
        "value": value,
        "target": target,
        "ratio": value / target if value is not None and target else None,
        "unit": _unit(spec, quantity),
    }


def _target_quantity(spec: MetricSpec) -> Quantity | None:
    """Return the target used by the controller: for an Object metric, its type decides."""
    target = spec.target
    if isinstance(spec, ObjectMetric) and target.type is TargetType.VALUE:
        return target.value
    return target.average_value or target.value


def _unit(spec: MetricSpec, quantity: Quantity | None) -> str:
    if quantity is None:
        return PERCENT
    is_resource = isinstance(spec, ResourceMetric | ContainerResourceMetric)
    in_bytes = is_resource and spec.name in {"memory", "ephemeral-storage"}
    return BINARY if in_bytes or quantity.format is Format.BINARY_SI else ""
