"""How far the usage of pods lies from its target.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/utilization.go. The means and the
    percentage are integer divisions there, and here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpuscale.hpa.failures import UncomputableError
from gpuscale.hpa.replicas.arithmetic import float_quotient, saturated_sum, truncated_quotient


class MetricUsage(NamedTuple):
    """The mean of a raw metric."""

    usage_ratio: float
    current_usage_milli: int


class ResourceUtilization(NamedTuple):
    """The utilization of what was requested."""

    usage_ratio: float
    current_utilization: int
    """Whole percent."""
    raw_average_value_milli: int


def metric_usage_ratio(metrics_milli: Mapping[str, int], target_usage_milli: int) -> MetricUsage:
    """Return the mean of at least one value, and its ratio to the target."""
    total = saturated_sum(metrics_milli.values())
    usage = truncated_quotient(total, len(metrics_milli))
    return MetricUsage(float_quotient(usage, target_usage_milli), usage)


def resource_utilization_ratio(
    metrics_milli: Mapping[str, int], requests_milli: Mapping[str, int], target_utilization: int
) -> ResourceUtilization:
    """Return the utilization of the pods that have both a value and a request.

    Raises:
        UncomputableError: no pod has both.
    """
    known = [pod for pod in metrics_milli if pod in requests_milli]
    metrics_total = saturated_sum(metrics_milli[pod] for pod in known)
    requests_total = saturated_sum(requests_milli[pod] for pod in known)
    if requests_total == 0:
        raise UncomputableError("no metrics returned matched known pods")
    utilization = truncated_quotient(metrics_total * 100, requests_total)
    return ResourceUtilization(
        usage_ratio=float_quotient(utilization, target_utilization),
        current_utilization=utilization,
        raw_average_value_milli=truncated_quotient(metrics_total, len(known)),
    )
