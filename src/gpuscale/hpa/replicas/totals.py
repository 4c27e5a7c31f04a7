"""Object and External metrics, one total, as numbers for the kernel.

A Value target is for all pods together and multiplies the *ready* pods; an AverageValue target is
each pod's share and divides the total, whatever the pods do.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go
    (getUsageRatioReplicaCount, GetObjectPerPodMetricReplicas, GetExternalPerPodMetricReplicas).
"""

from gpuscale.hpa.replicas.calculator import Measure, MetricProposal, SyncContext, raise_failure
from gpuscale.hpa.replicas.pods import ready_pods_count


def value_replicas(total_milli: int, target_milli: int, sync: SyncContext) -> MetricProposal:
    """Return the count for a total against a total.

    Raises:
        UncomputableError: the ratio is outside the tolerance and there are no pods.
    """
    proposal = sync.kernel.value_proposal(
        total_milli,
        target_milli,
        sync.current_replicas,
        len(sync.pods),
        ready_pods_count(sync.pods),
        sync.tolerances,
    )
    raise_failure(proposal, "unable to calculate ready pods: ")
    return MetricProposal(proposal, Measure.VALUE, target_milli)


def per_pod_replicas(
    total_milli: int, target_milli: int, sync: SyncContext, *, is_external: bool
) -> MetricProposal:
    """Return the count for a total against each pod's share of it."""
    proposal = sync.kernel.share_proposal(
        total_milli, target_milli, sync.status_replicas, int(is_external), sync.tolerances
    )
    return MetricProposal(proposal, Measure.SHARE, target_milli)
