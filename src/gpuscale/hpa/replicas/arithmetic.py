"""The controller's arithmetic: int64 sums and float64 ratios with Go's rules at the edges.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/utilization.go. The means and the
    percentage are integer divisions there, and here.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuscale.hpa.types import UncomputableError

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1


def saturated_sum(values: Iterable[int]) -> int:
    """Return the sum, or the largest int64 where it would be larger."""
    return min(sum(values), MAX_INT64)


def truncated_quotient(dividend: int, divisor: int) -> int:
    """Return the quotient cut off toward zero, as Go divides integers."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def float_quotient(dividend: float, divisor: float) -> float:
    """Return the float64 quotient; a divisor of zero gives an infinity, or NaN for 0 / 0."""
    dividend, divisor = float(dividend), float(divisor)
    if divisor == 0.0:
        return math.nan if dividend == 0.0 else math.copysign(math.inf, dividend)
    return dividend / divisor


def ceil_replicas(count: float) -> int:
    """Return the count rounded up and held within int32."""
    if count >= MAX_INT32:
        return MAX_INT32
    if count <= -MAX_INT32:
        return -MAX_INT32
    return math.ceil(count)


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
