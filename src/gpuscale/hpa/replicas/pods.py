"""Which pods count, as what, and what they request of a resource.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (groupPods,
    getReadyPodsCount, calculateRequests).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.hpa.types import (
    ContainerInfo,
    ControllerSettings,
    PodInfo,
    PodUsage,
    ReadyCondition,
    UncomputableError,
)
from gpuscale.objects.metric_values import MetricValue
from gpuscale.objects.pods import Pod, PodPhase, PodStatus

CPU = "cpu"
NO_PODS = "no pods returned by selector while calculating replica count"
_LONG_AGO_MS = -(10**18)
"""Go's zero time: a condition that never says when it changed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A pod's value of one metric."""

    value_milli: int
    measured_ms: int
    window_ms: int


@dataclass(frozen=True, slots=True)
class PodGroups:
    """The pods of a target, sorted by what their samples are worth."""

    ready_pod_count: int
    unready_pods: frozenset[str]
    """Their samples are dropped; on a scale-up they count as idle."""
    missing_pods: frozenset[str]
    """They should have a sample and have none."""
    ignored_pods: frozenset[str]
    """Going away or failed; they do not count at all."""


def pod_info(pod: Pod) -> PodInfo:
    """Return what the controller looks at of a pod."""
    sidecars = (c for c in pod.spec.init_containers if c.restart_policy == "Always")
    return PodInfo(
        name=pod.metadata.name,
        labels=pod.metadata.labels,
        phase=pod.status.phase,
        deleted=pod.metadata.deletion_ms is not None,
        ready=_ready_condition(pod.status),
        ready_transition_ms=pod.status.ready_transition_ms,
        start_ms=pod.status.start_ms,
        containers=(
            *(ContainerInfo(c.name, c.requests) for c in pod.spec.containers),
            *(ContainerInfo(c.name, c.requests, sidecar=True) for c in sidecars),
        ),
    )


def _ready_condition(status: PodStatus) -> ReadyCondition:
    if status.ready is not None:
        return ReadyCondition.TRUE if status.ready else ReadyCondition.FALSE
    has_changed = status.ready_transition_ms is not None
    return ReadyCondition.UNKNOWN if has_changed else ReadyCondition.ABSENT


def sample_of(value: MetricValue | PodUsage, value_milli: int) -> Sample:
    """Return a sample with the times of an answer."""
    return Sample(value_milli, value.measured_ms, value.window_ms)


def group_pods(
    pods: Sequence[PodInfo],
    metrics: Mapping[str, Sample],
    resource: str,
    settings: ControllerSettings,
    now_ms: int,
) -> PodGroups:
    """Return the pods in their groups; `resource` is empty for metrics that are no resource.

    Raises:
        UncomputableError: there are no pods.
    """
    if not pods:
        raise UncomputableError(NO_PODS)
    ready_pod_count = 0
    unready: set[str] = set()
    missing: set[str] = set()
    ignored: set[str] = set()
    for pod in pods:
        sample = metrics.get(pod.name)
        if pod.deleted or pod.phase is PodPhase.FAILED:
            ignored.add(pod.name)
        elif pod.phase is PodPhase.PENDING:
            unready.add(pod.name)
        elif sample is None:
            missing.add(pod.name)
        elif resource == CPU and _is_unready(pod, sample, settings, now_ms):
            unready.add(pod.name)
        else:
            ready_pod_count += 1
    return PodGroups(ready_pod_count, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_unready(pod: PodInfo, sample: Sample, settings: ControllerSettings, now_ms: int) -> bool:
    """Return whether a CPU sample may show a pod's start instead of its load."""
    if pod.ready is ReadyCondition.ABSENT or pod.start_ms is None:
        return True
    changed_ms = _LONG_AGO_MS if pod.ready_transition_ms is None else pod.ready_transition_ms
    is_false = pod.ready is ReadyCondition.FALSE
    if pod.start_ms + settings.cpu_initialization_period_s * 1000 > now_ms:
        return is_false or sample.measured_ms < changed_ms + sample.window_ms
    never_ready = pod.start_ms + settings.initial_readiness_delay_s * 1000 > changed_ms
    return is_false and never_ready


def ready_pods_count(pods: Sequence[PodInfo]) -> int:
    """Return how many pods run and are ready; a pod that is going away still counts.

    Raises:
        UncomputableError: there are no pods.
    """
    if not pods:
        raise UncomputableError(f"unable to calculate ready pods: {NO_PODS}")
    return sum(p.phase is PodPhase.RUNNING and p.ready is ReadyCondition.TRUE for p in pods)


def calculate_requests(pods: Sequence[PodInfo], container: str, resource: str) -> dict[str, int]:
    """Return each pod's request in milli-units; a named container counts alone.

    Raises:
        UncomputableError: a request is missing, or a pod lacks the named container.
    """
    if container:
        return {pod.name: _container_request(pod, container, resource) for pod in pods}
    return {pod.name: _pod_request(pod, resource) for pod in pods}


def _pod_request(pod: PodInfo, resource: str) -> int:
    if pod.pod_requests:
        return _pod_level_request(pod, resource)
    return sum(_container_request(pod, c.name, resource) for c in pod.containers)


def _pod_level_request(pod: PodInfo, resource: str) -> int:
    """Return the pod's own request, or for a resource it leaves open what its containers request."""
    if resource in pod.pod_requests:
        return pod.pod_requests[resource].milli_value()
    requests = [
        c.requests[resource].milli_value() for c in pod.containers if resource in c.requests
    ]
    if not requests:
        raise UncomputableError(f"missing pod-level request for {resource} in Pod {pod.name}")
    return sum(requests)


def _container_request(pod: PodInfo, container: str, resource: str) -> int:
    for candidate in pod.containers:
        if candidate.name == container:
            if resource in candidate.requests:
                return candidate.requests[resource].milli_value()
            raise UncomputableError(
                f"missing request for {resource} in container {container} of Pod {pod.name}"
            )
    raise UncomputableError(f"container {container} not found in Pod {pod.name}")
