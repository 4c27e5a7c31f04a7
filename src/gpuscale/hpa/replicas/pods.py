"""Which pods count as ready, missing or ignored, and their requests.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (getReadyPodsCount,
    calculateRequests).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.objects.pods import Pod, PodPhase, PodStatus
from gpuscale.base.objects.requests import is_pod_level, total_requests
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.kernel.numbers import wrapped64
from gpuscale.hpa.kernel.pods import (
    ABSENT,
    GONE,
    NEVER_MS,
    PENDING,
    READY,
    SAMPLED,
    SILENT,
    STRANGER,
    UNKNOWN,
    UNREADY,
    Column,
    PodColumns,
)
from gpuscale.hpa.types import (
    ContainerInfo,
    PodInfo,
    PodUsage,
    ReadyCondition,
    UncomputableError,
)

CPU = "cpu"
NO_PODS_TEXT = "no pods returned by selector while calculating replica count"


@dataclass(frozen=True, slots=True)
class PodSample:
    """A pod's value of one metric."""

    value_milli: int
    measured_ms: int
    window_ms: int


def pod_info(pod: Pod) -> PodInfo:
    """Return the controller's view of a pod."""
    return PodInfo(
        name=pod.metadata.name,
        labels=pod.metadata.labels,
        phase=pod.status.phase,
        deleted=pod.metadata.deletion_ms is not None,
        ready=_ready_condition(pod.status),
        ready_transition_ms=pod.status.ready_transition_ms,
        start_ms=pod.status.start_ms,
        containers=tuple(ContainerInfo(c.name, c.requests) for c in pod.spec.containers),
        init_containers=tuple(
            ContainerInfo(c.name, c.requests, c.sidecar) for c in pod.spec.init_containers
        ),
        pod_requests=pod.spec.requests,
        overhead=pod.spec.overhead,
    )


def _ready_condition(status: PodStatus) -> ReadyCondition:
    if status.ready is not None:
        return ReadyCondition.TRUE if status.ready else ReadyCondition.FALSE
    has_changed = status.ready_transition_ms is not None
    return ReadyCondition.UNKNOWN if has_changed else ReadyCondition.ABSENT


def sample_of(value: MetricValue | PodUsage, value_milli: int) -> PodSample:
    """Return a sample with an answer's time."""
    return PodSample(value_milli, value.measured_ms, value.window_ms)


def pod_columns(
    pods: Sequence[PodInfo],
    metrics: Mapping[str, PodSample],
    requests: Mapping[str, int],
    column: Callable[[list[int]], Column],
    *,
    with_times: bool,
) -> PodColumns:
    """Return pods and samples in columns; times are left out if unused."""
    names = {pod.name for pod in pods}
    strangers = [sample for name, sample in metrics.items() if name not in names]
    known = [metrics.get(pod.name, _NO_SAMPLE) for pod in pods]
    samples = (*known, *strangers)
    more = [0] * len(strangers)
    none = column([0] * len(samples))
    return PodColumns(
        states=column([*(_state(pod, metrics) for pod in pods), *(STRANGER for _ in strangers)]),
        samples_milli=column([sample.value_milli for sample in samples]),
        requests_milli=column([*(requests.get(pod.name, 0) for pod in pods), *more]),
        readiness=column([*(_READINESS[pod.ready] for pod in pods), *more]) if with_times else none,
        starts_ms=column([*(_moment(pod.start_ms) for pod in pods), *more]) if with_times else none,
        changes_ms=(
            column([*(_moment(pod.ready_transition_ms) for pod in pods), *more])
            if with_times
            else none
        ),
        measured_ms=column([sample.measured_ms for sample in samples]) if with_times else none,
        windows_ms=column([sample.window_ms for sample in samples]) if with_times else none,
    )


_NO_SAMPLE = PodSample(0, 0, 0)
_READINESS = {
    ReadyCondition.TRUE: READY,
    ReadyCondition.FALSE: UNREADY,
    ReadyCondition.UNKNOWN: UNKNOWN,
    ReadyCondition.ABSENT: ABSENT,
}


def _state(pod: PodInfo, metrics: Mapping[str, PodSample]) -> int:
    if pod.deleted or pod.phase is PodPhase.FAILED:
        return GONE
    if pod.phase is PodPhase.PENDING:
        return PENDING
    return SAMPLED if pod.name in metrics else SILENT


def _moment(time_ms: int | None) -> int:
    return NEVER_MS if time_ms is None else time_ms


def ready_pods_count(pods: Sequence[PodInfo]) -> int:
    """Return how many pods run and are ready; a pod that is going away still counts."""
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
    """Return the sum of the containers' requests, or the pod's own, if it has any.

    The second where the pod as a whole asks for anything, be it of another resource.
    """
    if any(map(is_pod_level, pod.pod_requests)):
        total = total_requests(pod.containers, pod.init_containers, pod.pod_requests, pod.overhead)
        if resource not in total:
            raise UncomputableError(f"missing pod-level request for {resource} in Pod {pod.name}")
        return wrapped64(Quantity(total[resource]).milli_value())
    return wrapped64(sum(_container_request(pod, c.name, resource) for c in _lasting(pod)))


def _lasting(pod: PodInfo) -> tuple[ContainerInfo, ...]:
    return (*pod.containers, *(each for each in pod.init_containers if each.sidecar))


def _container_request(pod: PodInfo, container: str, resource: str) -> int:
    for candidate in _lasting(pod):
        if candidate.name == container:
            if resource in candidate.requests:
                return wrapped64(candidate.requests[resource].milli_value())
            raise UncomputableError(
                f"missing request for {resource} in container {container} of Pod {pod.name}"
            )
    raise UncomputableError(f"container {container} not found in Pod {pod.name}")
