"""Replica counts from metrics that every pod has: raw averages and utilization.

Both follow one course. The ratio over the pods with samples decides the direction. If pods are
missing or unready, they are filled in against that direction, and the count follows the ratio over
the enlarged set, unless it then points the other way.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go
    (calcPlainMetricReplicas, GetResourceReplicas).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.core.words import counted, shown_number, shown_ratio
from gpuscale.hpa.replicas.arithmetic import (
    ceil_replicas,
    metric_usage_ratio,
    resource_utilization_ratio,
    saturated_sum,
    truncated_quotient,
)
from gpuscale.hpa.replicas.pods import PodGroups, Sample, calculate_requests, group_pods
from gpuscale.hpa.replicas.tolerances import Tolerances
from gpuscale.hpa.types import ControllerSettings, PodInfo, UncomputableError


@dataclass(frozen=True, slots=True)
class SyncContext:
    """What every metric of one sync is computed against."""

    current_replicas: int
    """`spec.replicas` of the scale."""
    status_replicas: int
    pods: Sequence[PodInfo]
    tolerances: Tolerances
    settings: ControllerSettings
    now_ms: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """The count that one metric asks for, and what it measured."""

    replicas: int
    value_milli: int | None = None
    average_value_milli: int | None = None
    average_utilization: int | None = None
    explanation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PodCalculation:
    """The part in which raw averages and utilization differ."""

    metrics_milli: Mapping[str, int]
    groups: PodGroups
    usage_ratio_of: Callable[[Mapping[str, int]], float]
    missing_usage_milli: Callable[[str], int]
    """What a pod without a sample counts as on a scale-down."""
    missing_usage_words: str


def plain_metric_replicas(
    metrics: Mapping[str, Sample], target_usage_milli: int, resource: str, sync: SyncContext
) -> Proposal:
    """Return the count for an average against a raw target; `resource` is empty for custom metrics.

    Raises:
        UncomputableError: there are no pods, or none has a sample that counts.
    """
    groups, counted_milli = _counted_metrics(metrics, resource, sync)
    usage = metric_usage_ratio(counted_milli, target_usage_milli)
    calculation = _PodCalculation(
        counted_milli,
        groups,
        lambda enlarged: metric_usage_ratio(enlarged, target_usage_milli).usage_ratio,
        lambda _: target_usage_milli,
        "exactly on target",
    )
    measured = (
        f"The average over {counted(len(counted_milli), 'pod')} is "
        f"{shown_number(usage.current_usage_milli)} against a target of "
        f"{shown_number(target_usage_milli)}: ratio {shown_ratio(usage.usage_ratio)}."
    )
    replicas, steps = _replicas(calculation, usage.usage_ratio, sync)
    return Proposal(
        replicas,
        average_value_milli=usage.current_usage_milli,
        explanation=(measured, *steps),
    )


def plain_metric_total_milli(
    metrics: Mapping[str, Sample], target_usage_milli: int, sync: SyncContext
) -> int:
    """Return the total that asks for as many pods, held per pod, as the average of a custom metric does.

    The total of an External metric knows nothing of missing and unready pods. Where the average without them
    would ask for another count than with them, they are in it.

    Raises:
        UncomputableError: there are no pods, or none has a sample that counts.
    """
    groups, counted_milli = _counted_metrics(metrics, "", sync)
    if not groups.missing_pods and not groups.unready_pods:
        return saturated_sum(counted_milli.values())
    replicas = plain_metric_replicas(metrics, target_usage_milli, "", sync).replicas
    total_milli = saturated_sum(counted_milli.values())
    fewest, most = (replicas - 1) * target_usage_milli + 1, replicas * target_usage_milli
    return min(max(total_milli, fewest), most)


def resource_replicas(
    metrics: Mapping[str, Sample],
    target_utilization: int,
    resource: str,
    container: str,
    sync: SyncContext,
) -> Proposal:
    """Return the count for a percentage of the requests; an empty `container` takes all of a pod.

    Raises:
        UncomputableError: there are no pods, no samples that count, or a request is missing.
    """
    groups, counted_milli = _counted_metrics(metrics, resource, sync)
    requests = calculate_requests(sync.pods, container, resource)
    usage = resource_utilization_ratio(counted_milli, requests, target_utilization)
    fallback_utilization = max(100, target_utilization)
    calculation = _PodCalculation(
        counted_milli,
        groups,
        lambda enlarged: (
            resource_utilization_ratio(enlarged, requests, target_utilization).usage_ratio
        ),
        lambda pod: truncated_quotient(requests[pod] * fallback_utilization, 100),
        f"using {fallback_utilization}% of their request",
    )
    measured = (
        f"The {resource} utilization over {counted(len(counted_milli), 'pod')} is "
        f"{usage.current_utilization}% against a target of {target_utilization}%: "
        f"ratio {shown_ratio(usage.usage_ratio)}."
    )
    replicas, steps = _replicas(calculation, usage.usage_ratio, sync)
    return Proposal(
        replicas,
        average_value_milli=usage.raw_average_value_milli,
        average_utilization=usage.current_utilization,
        explanation=(measured, *steps),
    )


def _counted_metrics(
    metrics: Mapping[str, Sample], resource: str, sync: SyncContext
) -> tuple[PodGroups, dict[str, int]]:
    groups = group_pods(sync.pods, metrics, resource, sync.settings, sync.now_ms)
    dropped = groups.ignored_pods | groups.unready_pods
    kept = {pod: sample.value_milli for pod, sample in metrics.items() if pod not in dropped}
    if not kept:
        raise UncomputableError("did not receive metrics for targeted pods (pods might be unready)")
    return groups, kept


_Steps = tuple[str, ...]


def _replicas(
    calculation: _PodCalculation, usage_ratio: float, sync: SyncContext
) -> tuple[int, _Steps]:
    groups = calculation.groups
    scale_up_with_unready = bool(groups.unready_pods) and usage_ratio > 1.0
    if scale_up_with_unready or groups.missing_pods:
        return _rebalanced_replicas(calculation, usage_ratio, sync)
    if sync.tolerances.is_within(usage_ratio):
        return sync.current_replicas, (_within_tolerance(sync),)
    replicas = ceil_replicas(usage_ratio * float(groups.ready_pod_count))
    steps = (*_left_out(groups), _rounded_up(groups.ready_pod_count, usage_ratio, replicas))
    return replicas, steps


def _left_out(groups: PodGroups) -> _Steps:
    if not groups.unready_pods:
        return ()
    return (f"{counted(len(groups.unready_pods), 'unready pod')} left out of a scale-down.",)


def _rebalanced_replicas(
    calculation: _PodCalculation, usage_ratio: float, sync: SyncContext
) -> tuple[int, _Steps]:
    metrics_milli, steps = _enlarged(calculation, usage_ratio)
    new_usage_ratio = calculation.usage_ratio_of(metrics_milli)
    steps = (*steps, f"With them the ratio is {shown_ratio(new_usage_ratio)}.")
    if sync.tolerances.is_within(new_usage_ratio):
        return sync.current_replicas, (*steps, _within_tolerance(sync))
    if _turned(usage_ratio, new_usage_ratio):
        return sync.current_replicas, (*steps, _no_change("that points the other way"))
    new_replicas = ceil_replicas(new_usage_ratio * float(len(metrics_milli)))
    steps = (*steps, _rounded_up(len(metrics_milli), new_usage_ratio, new_replicas))
    if (new_usage_ratio < 1.0 and new_replicas > sync.current_replicas) or (
        new_usage_ratio > 1.0 and new_replicas < sync.current_replicas
    ):
        return sync.current_replicas, (*steps, _no_change("that goes against the ratio"))
    return new_replicas, steps


def _enlarged(calculation: _PodCalculation, usage_ratio: float) -> tuple[dict[str, int], _Steps]:
    """Return the samples with missing and unready pods filled in against the direction."""
    groups = calculation.groups
    metrics_milli = dict(calculation.metrics_milli)
    steps: list[str] = []
    if groups.missing_pods and usage_ratio < 1.0:
        metrics_milli |= {p: calculation.missing_usage_milli(p) for p in groups.missing_pods}
        steps.append(_filled_in(groups.missing_pods, "", calculation.missing_usage_words))
    elif groups.missing_pods and usage_ratio > 1.0:
        metrics_milli |= dict.fromkeys(groups.missing_pods, 0)
        steps.append(_filled_in(groups.missing_pods, "", "0"))
    if groups.unready_pods and usage_ratio > 1.0:
        metrics_milli |= dict.fromkeys(groups.unready_pods, 0)
        steps.append(_filled_in(groups.unready_pods, "unready ", "0"))
    return metrics_milli, tuple(steps)


def _turned(usage_ratio: float, new_usage_ratio: float) -> bool:
    return (usage_ratio < 1.0 and new_usage_ratio > 1.0) or (
        usage_ratio > 1.0 and new_usage_ratio < 1.0
    )


def _filled_in(pods: frozenset[str], state: str, words: str) -> str:
    names = counted(len(pods), f"{state}pod")
    which = names if state else f"{names} without a sample"
    return f"{which} count{'s' if len(pods) == 1 else ''} as {words}."


def _within_tolerance(sync: SyncContext) -> str:
    return _no_change(f"the ratio lies within the tolerance, {sync.tolerances}")


def _no_change(why: str) -> str:
    return f"No change: {why}."


def _rounded_up(count: int, ratio: float, replicas: int) -> str:
    return f"{counted(count, 'pod')} x {shown_ratio(ratio)} rounds up to {replicas}."
