"""From metrics to replicas: readiness, missing pods, utilization, tolerance."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.replicas.calculator import SyncContext, plain_metric_total_milli
    from gpuscale.hpa.replicas.numbers import limits_of
    from gpuscale.hpa.replicas.pods import PodSample, pod_info
    from gpuscale.hpa.replicas.tolerances import tolerances_for_hpa
    from gpuscale.hpa.types import UncomputableError
else:
    __getattr__ = door(__name__)

__all__ = [
    "PodSample",
    "SyncContext",
    "UncomputableError",
    "limits_of",
    "plain_metric_total_milli",
    "pod_info",
    "tolerances_for_hpa",
]
