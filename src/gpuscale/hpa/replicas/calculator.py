"""Metrics that every pod has, as numbers for the kernel: raw averages and utilization.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (calcPlainMetricReplicas,
    GetResourceReplicas).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from gpuscale.hpa.kernel.functions import PLAIN, Kernel
from gpuscale.hpa.kernel.numbers import wrapped64
from gpuscale.hpa.kernel.pods import CpuRules, PodTotals
from gpuscale.hpa.kernel.proposals import (
    NO_MATCH,
    NO_PODS,
    NO_REQUEST,
    NO_SAMPLES,
    Proposal,
    Tolerances,
)
from gpuscale.hpa.replicas.pods import (
    CPU,
    NO_PODS_TEXT,
    PodSample,
    calculate_requests,
    pod_columns,
)
from gpuscale.hpa.types import ControllerSettings, PodInfo, UncomputableError

_FAILURES = {
    NO_PODS: NO_PODS_TEXT,
    NO_SAMPLES: "did not receive metrics for targeted pods (pods might be unready)",
    NO_MATCH: "no metrics returned matched known pods",
}


@dataclass(frozen=True, slots=True)
class SyncContext:
    """The inputs that all metrics of one sync share."""

    current_replicas: int
    """`spec.replicas` of the scale."""
    status_replicas: int
    pods: Sequence[PodInfo]
    tolerances: Tolerances
    settings: ControllerSettings
    now_ms: int
    kernel: Kernel = PLAIN


class Measure(Enum):
    """The form in which a metric is compared with its target."""

    AVERAGE = "average"
    UTILIZATION = "utilization"
    VALUE = "value"
    SHARE = "share"
    """Of each replica in a total."""


@dataclass(frozen=True, slots=True)
class MetricProposal:
    """One metric's proposal, in numbers."""

    proposal: Proposal
    measure: Measure
    target: int
    """Thousandths; percent for utilization."""
    totals: PodTotals | None = None
    """Of the pods, for an average and for utilization."""
    resource: str = ""


def plain_metric_replicas(
    metrics: Mapping[str, PodSample], target_milli: int, resource: str, sync: SyncContext
) -> MetricProposal:
    """Return the count for an average against a raw target; `resource` is empty for custom metrics.

    Raises:
        UncomputableError: there are no pods, or none has a sample that counts.
    """
    totals = _totals(metrics, resource, {}, 0, sync)
    proposal = sync.kernel.average_proposal(
        totals, target_milli, sync.current_replicas, sync.tolerances
    )
    raise_failure(proposal)
    return MetricProposal(proposal, Measure.AVERAGE, target_milli, totals, resource)


def plain_metric_total_milli(
    metrics: Mapping[str, PodSample], target_milli: int, sync: SyncContext
) -> int:
    """Return the total that asks for as many pods, held per pod, as the average of a custom metric does.

    The total of an External metric knows nothing of missing and unready pods. Where the average without them
    would ask for another count than with them, they are in it.

    Raises:
        UncomputableError: there are no pods, or none has a sample that counts.
    """
    asked = plain_metric_replicas(metrics, target_milli, "", sync)
    totals, replicas = asked.totals, asked.proposal.replicas
    if totals is None:
        raise_failure(asked.proposal)
        return 0
    total_milli = wrapped64(totals.counted_milli + totals.strangers_milli)
    if not totals.missing and not totals.unready:
        return total_milli
    fewest, most = (replicas - 1) * target_milli + 1, replicas * target_milli
    return min(max(total_milli, fewest), most)


def resource_replicas(
    metrics: Mapping[str, PodSample], percent: int, resource: str, container: str, sync: SyncContext
) -> MetricProposal:
    """Return the count for a utilization target; an empty `container` means all of a pod.

    Raises:
        UncomputableError: there are no pods, no samples that count, or a request is missing.
    """
    requests: Mapping[str, int] = {}
    fault: UncomputableError | None = None
    try:
        requests = calculate_requests(sync.pods, container, resource)
    except UncomputableError as error:
        fault = error
    totals = _totals(metrics, resource, requests, percent, sync)
    proposal = sync.kernel.utilization_proposal(
        totals, percent, int(fault is not None), sync.current_replicas, sync.tolerances
    )
    if fault is not None and proposal.outcome == NO_REQUEST:
        raise fault
    raise_failure(proposal)
    return MetricProposal(proposal, Measure.UTILIZATION, percent, totals, resource)


def _totals(
    metrics: Mapping[str, PodSample],
    resource: str,
    requests: Mapping[str, int],
    percent: int,
    sync: SyncContext,
) -> PodTotals:
    is_cpu = resource == CPU
    columns = pod_columns(sync.pods, metrics, requests, sync.kernel.column, with_times=is_cpu)
    rules = CpuRules(
        is_cpu=int(is_cpu),
        now_ms=sync.now_ms,
        initialization_ms=sync.settings.cpu_initialization_period_s * 1000,
        readiness_delay_ms=sync.settings.initial_readiness_delay_s * 1000,
    )
    return sync.kernel.pod_totals(columns, rules, percent)


def raise_failure(proposal: Proposal, prefix: str = "") -> None:
    """Raise the reason if a metric has no proposal.

    Raises:
        UncomputableError: with the controller's text.
    """
    if proposal.outcome in _FAILURES:
        raise UncomputableError(f"{prefix}{_FAILURES[proposal.outcome]}")
