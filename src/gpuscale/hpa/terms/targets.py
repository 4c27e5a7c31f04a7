"""The TARGETS column of `kubectl get hpa`.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go (formatHPAMetrics).
"""

from collections.abc import Sequence

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.types import MetricStatus

_SHOWN = 2
_UNKNOWN = "<unknown>"


def targets_cell(hpa: HorizontalPodAutoscaler, statuses: Sequence[MetricStatus]) -> str:
    """Return the cell: the first two metrics as CURRENT/TARGET, and how many more there are."""
    if not hpa.metrics:
        return "<none>"
    by_index = {status.index: status for status in statuses}
    cells = [_cell(spec, by_index.get(i)) for i, spec in enumerate(hpa.metrics[:_SHOWN])]
    more = len(hpa.metrics) - _SHOWN
    return ", ".join(cells) + (f" + {more} more..." if more > 0 else "")


def _cell(spec: MetricSpec, status: MetricStatus | None) -> str:
    match spec:
        case PodsMetric():
            return f"{_average(status)}/{target_text(spec)}"
        case ObjectMetric() | ExternalMetric():
            return f"{_total_current(spec.target, status)}/{target_text(spec)}"
        case ResourceMetric() | ContainerResourceMetric():
            return f"{spec.name}: {_resource_current(spec.target, status)}/{target_text(spec)}"


def target_text(spec: MetricSpec) -> str:
    """Return a metric's target as the column writes it, such as `20`, `5 (avg)` or `80%`."""
    target = spec.target
    match spec:
        case PodsMetric():
            return str(target.average_value)
        case ObjectMetric() | ExternalMetric():
            average = target.average_value
            return str(target.value) if average is None else f"{average} (avg)"
        case ResourceMetric() | ContainerResourceMetric():
            if target.average_value is not None:
                return str(target.average_value)
            percent = target.average_utilization
            return "<auto>" if percent is None else f"{percent}%"


def _total_current(target: MetricTarget, status: MetricStatus | None) -> str:
    if target.average_value is not None:
        return _average(status)
    return _quantity(None if status is None else status.value_milli)


def _resource_current(target: MetricTarget, status: MetricStatus | None) -> str:
    if target.average_value is not None:
        return _average(status)
    if status is None or status.average_utilization is None:
        return _UNKNOWN
    return f"{status.average_utilization}%"


def _average(status: MetricStatus | None) -> str:
    return _quantity(None if status is None else status.average_value_milli)


def _quantity(milli: int | None) -> str:
    return _UNKNOWN if milli is None else str(Quantity.from_milli(milli))
