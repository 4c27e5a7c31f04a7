"""Replica counts from one total: Object and External metrics.

A Value target is for all pods together and multiplies the *ready* pods; an AverageValue target is
each pod's share and divides the total, whatever the pods do.

Known difference: at 0 replicas upstream divides the total of an AverageValue by 0; here there is no
average to report then.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go
    (getUsageRatioReplicaCount, GetObjectPerPodMetricReplicas, GetExternalPerPodMetricReplicas).
"""

import math
from collections.abc import Iterable

from gpuscale.core.words import counted, shown_number, shown_ratio
from gpuscale.hpa.replicas.arithmetic import MAX_INT64, ceil_replicas, float_quotient
from gpuscale.hpa.replicas.calculator import Proposal, SyncContext
from gpuscale.hpa.replicas.pods import ready_pods_count


def value_replicas(usage_milli: int, target_usage_milli: int, sync: SyncContext) -> Proposal:
    """Return the count for a total against a total.

    Raises:
        UncomputableError: the ratio is outside the tolerance and there are no pods.
    """
    usage_ratio = float_quotient(usage_milli, target_usage_milli)
    replicas, step = _usage_ratio_replica_count(usage_ratio, sync)
    return Proposal(
        replicas,
        value_milli=usage_milli,
        explanation=(_measured(usage_milli, target_usage_milli, "", usage_ratio), step),
    )


def _usage_ratio_replica_count(usage_ratio: float, sync: SyncContext) -> tuple[int, str]:
    if sync.current_replicas == 0:
        replicas = ceil_replicas(usage_ratio)
        return replicas, f"With no replicas the ratio alone counts, rounded up to {replicas}."
    if sync.tolerances.is_within(usage_ratio):
        return sync.current_replicas, _within_tolerance(sync)
    ready_pod_count = ready_pods_count(sync.pods)
    replicas = ceil_replicas(usage_ratio * float(ready_pod_count))
    pods = counted(ready_pod_count, "ready pod")
    return replicas, f"{pods} x {shown_ratio(usage_ratio)} rounds up to {replicas}."


def per_pod_replicas(
    usage_milli: int, target_average_usage_milli: int, sync: SyncContext
) -> Proposal:
    """Return the count for a total against each pod's share of it."""
    share_milli = float(target_average_usage_milli) * float(sync.status_replicas)
    usage_ratio = float_quotient(usage_milli, share_milli)
    measured = _measured(
        usage_milli,
        target_average_usage_milli,
        f" for each of {counted(sync.status_replicas, 'replica')}",
        usage_ratio,
    )
    if sync.tolerances.is_within(usage_ratio):
        replicas, step = sync.status_replicas, _within_tolerance(sync)
    else:
        replicas = ceil_replicas(float_quotient(usage_milli, target_average_usage_milli))
        step = f"The total divided by the target rounds up to {replicas}."
    return Proposal(
        replicas,
        average_value_milli=_per_pod_usage(usage_milli, sync.status_replicas),
        explanation=(measured, step),
    )


def external_total(values_milli: Iterable[int], *, per_pod: bool) -> int:
    """Return the sum of an External metric's series, held at the largest int64.

    For a per-pod target upstream takes a running sum below zero for an overflow, so that negative
    values end at the largest int64 as well.
    """
    total = 0
    for value in values_milli:
        total += value
        if total > MAX_INT64 or (per_pod and total < 0):
            return MAX_INT64
    return total


def _per_pod_usage(usage_milli: int, status_replicas: int) -> int | None:
    if status_replicas == 0:
        return None
    if float(usage_milli) >= float(MAX_INT64):
        return MAX_INT64
    return math.ceil(float(usage_milli) / float(status_replicas))


def _measured(usage_milli: int, target_milli: int, share: str, usage_ratio: float) -> str:
    return (
        f"The total is {shown_number(usage_milli)} against a target of "
        f"{shown_number(target_milli)}{share}: ratio {shown_ratio(usage_ratio)}."
    )


def _within_tolerance(sync: SyncContext) -> str:
    return f"No change: the ratio lies within the tolerance, {sync.tolerances}."
