"""The kinds of things that happen, each with the query that finds it and the sentence that tells it.

A query gives a point for each moment in which it was so, and none for the others.

Source: kube-state-metrics v2.13 docs/metrics (workload/horizontalpodautoscaler-metrics.md,
    workload/pod-metrics.md, workload/deployment-metrics.md, workload/job-metrics.md,
    workload/replicaset-metrics.md, cluster/node-metrics.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuscale.base.words import counted
from gpuscale.ops.gpu_series import GPU_RESOURCES, of_pods

Labels = Mapping[str, str]
_HPA = "namespace, horizontalpodautoscaler"
_OF_HPA = "kube_horizontalpodautoscaler"
_WAITS = (
    "CrashLoopBackOff|ImagePullBackOff|ErrImagePull|InvalidImageName|CreateContainerConfigError"
)
_OWNER = (
    "on (namespace, pod) group_left (owner_kind, owner_name) "
    "max by (namespace, pod, owner_kind, owner_name) (kube_pod_owner)"
)
_HAS_GPUS = (
    "and on (namespace, pod) "
    f"max by (namespace, pod) (kube_pod_container_resource_requests{{{GPU_RESOURCES}}})"
)
_GPU = "Hostname, hostname, gpu, UUID"
_OWNED_USE = of_pods("DCGM_FI_DEV_GPU_UTIL")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that lasts for a while."""

    id: str
    needs: str
    """The series without which nothing can be said."""
    query: str
    about: Callable[[Labels], str]
    """Names what it happened to, from the labels of a series."""
    tell: Callable[[Labels, float], str]
    """Says what happened, from the labels and the highest value."""
    least_s: int = 0
    """Shorter ones are left out: they are how things always go."""
    begins_only: bool = False
    """Whether it is told only where it begins within the range: a count or a code that stays."""


def _hpa(labels: Labels) -> str:
    return f"hpa/{labels.get('namespace', '')}/{labels.get('horizontalpodautoscaler', '')}"


def _workload(labels: Labels) -> str:
    kind, name = labels.get("owner_kind", "").lower(), labels.get("owner_name", "")
    return f"{kind or 'pod'}/{labels.get('namespace', '')}/{name or labels.get('pod', '')}"


def _gpu(labels: Labels) -> str:
    node = labels.get("Hostname") or labels.get("hostname", "")
    return f"gpu/{node}/{labels.get('gpu', '')}"


def _number(value: float) -> int:
    return round(value)


KINDS = (
    Kind(
        "no-metric",
        "kube_horizontalpodautoscaler_status_condition",
        f'max by ({_HPA}) ({_OF_HPA}_status_condition{{condition="ScalingActive",status="false"}} == 1) '
        f"unless max by ({_HPA}) ({_OF_HPA}_status_desired_replicas == 0)",
        _hpa,
        lambda labels, most: "could not scale: no metric had a value (ScalingActive was False)",
    ),
    Kind(
        "at-maximum",
        "kube_horizontalpodautoscaler_status_target_metric",
        f"(max by ({_HPA}) ({_OF_HPA}_status_desired_replicas) "
        f">= max by ({_HPA}) ({_OF_HPA}_spec_max_replicas)) and (max by ({_HPA}) ("
        f"{_OF_HPA}_status_target_metric / on ({_HPA}, metric_name, metric_target_type) "
        f"{_OF_HPA}_spec_target_metric) > 1.1)",
        _hpa,
        lambda labels, most: f"wanted more than its maximum of {counted(_number(most), 'replica')}",
    ),
    Kind(
        "pods-pending",
        "kube_pod_status_unschedulable",
        f"sum by (namespace, owner_kind, owner_name) ((max by (namespace, pod) "
        f"(kube_pod_status_unschedulable == 1) {_HAS_GPUS}) * {_OWNER})",
        _workload,
        lambda labels, most: f"{counted(_number(most), 'pod')} waited for a node",
        least_s=120,
    ),
    Kind(
        "short-of-pods",
        "kube_deployment_status_replicas_ready",
        "(max by (namespace, deployment) (kube_deployment_spec_replicas) - max by (namespace, deployment) "
        "(kube_deployment_status_replicas_ready) > 0) and on (namespace, deployment) label_replace("
        f'max by (namespace, scaletargetref_name) ({_OF_HPA}_info{{scaletargetref_kind="Deployment"}}), '
        '"deployment", "$1", "scaletargetref_name", "(.+)")',
        lambda labels: f"deployment/{labels.get('namespace', '')}/{labels.get('deployment', '')}",
        lambda labels, most: f"had up to {counted(_number(most), 'pod')} fewer ready than wanted",
        least_s=300,
    ),
    Kind(
        "containers-waiting",
        "kube_pod_container_status_waiting_reason",
        "sum by (namespace, owner_kind, owner_name, reason) (max by (namespace, pod, reason) "
        f'(kube_pod_container_status_waiting_reason{{reason=~"{_WAITS}"}} == 1) * {_OWNER})',
        _workload,
        lambda labels, most: (
            f"{counted(_number(most), 'container')} did not run: {labels.get('reason', '')}"
        ),
    ),
    Kind(
        "job-failed",
        "kube_job_status_failed",
        "max by (namespace, job_name) (kube_job_status_failed > 0)",
        lambda labels: f"job/{labels.get('namespace', '')}/{labels.get('job_name', '')}",
        lambda labels, most: f"{counted(_number(most), 'pod')} failed",
        begins_only=True,
    ),
    Kind(
        "node-not-ready",
        "kube_node_status_condition",
        'max by (node) (kube_node_status_condition{condition="Ready",status=~"false|unknown"} == 1) '
        f"and on (node) max by (node) (kube_node_status_allocatable{{{GPU_RESOURCES}}} > 0)",
        lambda labels: f"node/{labels.get('node', '')}",
        lambda labels, most: "was not Ready",
    ),
    Kind(
        "gpu-unhealthy",
        "gpuscale_gpu_healthy",
        f'max by ({_GPU}, reason) (gpuscale_gpu_health_problem{{severity="fatal"}} == 1)',
        _gpu,
        lambda labels, most: f"was no capacity: {labels.get('reason', '')}",
    ),
    Kind(
        "gpu-error",
        "DCGM_FI_DEV_XID_ERRORS",
        f"max by ({_GPU}) (DCGM_FI_DEV_XID_ERRORS > 0)",
        _gpu,
        lambda labels, most: f"had Xid {_number(most)}",
        begins_only=True,
    ),
    Kind(
        "exporter-away",
        "up",
        'max by (job, instance, node) (up{job=~".*(dcgm|gpuscale|gpu-operator).*"} == 0)',
        lambda labels: (
            f"target/{labels.get('job', '')}/{labels.get('node') or labels.get('instance', '')}"
        ),
        lambda labels, most: "could not be scraped",
    ),
    Kind(
        "gpus-idle",
        "DCGM_FI_DEV_GPU_UTIL",
        f"count by (namespace, owner_kind, owner_name) ((max by (namespace, pod, UUID) ({_OWNED_USE}) < 1) "
        f"* {_OWNER})",
        _workload,
        lambda labels, most: f"held {counted(_number(most), 'GPU')} that did nothing",
        least_s=3600,
    ),
)
"""In the order in which they are told where they begin together."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A kind of number whose every change is told."""

    id: str
    needs: str
    """As of `Kind`."""
    query: str
    about: Callable[[Labels], str]
    tell: Callable[[float, float], str]
    """Says what changed, from the numbers before and after."""


STEPS = (
    Steps(
        "scaled",
        "kube_horizontalpodautoscaler_status_desired_replicas",
        f"max by ({_HPA}) ({_OF_HPA}_status_desired_replicas)",
        _hpa,
        lambda before, after: (
            f"scaled from {_number(before)} to {counted(_number(after), 'replica')}"
        ),
    ),
    Steps(
        "nodes",
        "kube_node_status_allocatable",
        f"count(max by (node) (kube_node_status_allocatable{{{GPU_RESOURCES}}}) > 0) "
        "or 0 * count(kube_node_info)",
        lambda labels: "nodes",
        lambda before, after: f"GPU nodes: {_number(before)} to {_number(after)}",
    ),
)
SPARSE = frozenset(
    {
        *("kube_pod_status_unschedulable", "kube_pod_container_status_waiting_reason"),
        "kube_job_status_failed",
    }
)
"""Series that are there only while something is wrong, so that their absence proves nothing."""
PRESENT_QUERY = 'group by (__name__) ({{__name__=~"{}"}})'.format(
    "|".join(dict.fromkeys(each.needs for each in (*KINDS, *STEPS)))
)
"""The names of the series that are there."""
METRIC_QUERY = (
    f"{_OF_HPA}_status_target_metric / on ({_HPA}, metric_name, metric_target_type) "
    f"group_left () {_OF_HPA}_spec_target_metric"
)
"""Each metric of an HPA as a multiple of its target, which says why it scaled."""


def makers_query(range_s: int) -> str:
    """Return the instant query, at the end of a range, for who made the ReplicaSets in it."""
    return (
        "group by (namespace, replicaset, owner_kind, owner_name) "
        f'(last_over_time(kube_replicaset_owner{{owner_kind!=""}}[{range_s}s]))'
    )
