"""The TARGETS column of `kubectl get hpa`.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go (formatHPAMetrics).
"""

from collections.abc import Sequence

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
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
    average = _quantity(None if status is None else status.average_value_milli)
    is_average = isinstance(spec, PodsMetric) or spec.target.average_value is not None
    match spec:
        case PodsMetric() | ObjectMetric() | ExternalMetric():
            total = _quantity(None if status is None else status.value_milli)
            return f"{average if is_average else total}/{target_text(spec)}"
        case ResourceMetric() | ContainerResourceMetric():
            percent = None if status is None else status.average_utilization
            used = _UNKNOWN if percent is None else f"{percent}%"
            return f"{spec.name}: {average if is_average else used}/{target_text(spec)}"


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


def _quantity(milli: int | None) -> str:
    return _UNKNOWN if milli is None else str(Quantity.from_milli(milli))
