"""What the controller looks at of a pod."""

import pytest

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Container, Pod, PodPhase, PodSpec, PodStatus
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import ContainerInfo, PodInfo, ReadyCondition, pod_info

CPU = {"cpu": parse_quantity(1)}
MEMORY = {"memory": parse_quantity("1Gi")}


def pod(status: PodStatus = PodStatus(), deletion_ms: int | None = None) -> Pod:  # noqa: B008 - frozen
    spec = PodSpec(
        containers=(Container("main", requests=CPU),),
        init_containers=(
            Container("setup", requests=CPU),
            Container("agent", requests=CPU, restart_policy="Always"),
        ),
        requests=MEMORY,
        overhead=CPU,
    )
    meta = ObjectMeta("web-1", labels={"app": "web"}, deletion_ms=deletion_ms)
    return Pod(meta, spec, status)


def test_everything_that_counts_is_there() -> None:
    status = PodStatus(PodPhase.RUNNING, start_ms=5, ready=True, ready_transition_ms=7)
    assert pod_info(pod(status)) == PodInfo(
        name="web-1",
        labels={"app": "web"},
        phase=PodPhase.RUNNING,
        deleted=False,
        ready=ReadyCondition.TRUE,
        ready_transition_ms=7,
        start_ms=5,
        containers=(ContainerInfo("main", CPU),),
        init_containers=(ContainerInfo("setup", CPU), ContainerInfo("agent", CPU, sidecar=True)),
        pod_requests=MEMORY,
        overhead=CPU,
    )


@pytest.mark.parametrize(
    ("ready", "changed_ms", "condition"),
    [
        (True, 7, ReadyCondition.TRUE),
        (False, 7, ReadyCondition.FALSE),
        (False, None, ReadyCondition.FALSE),
        (None, 7, ReadyCondition.UNKNOWN),
        (None, None, ReadyCondition.ABSENT),
    ],
)
def test_unknown_and_absent_are_two_things(
    ready: bool | None, changed_ms: int | None, condition
) -> None:
    status = PodStatus(PodPhase.RUNNING, ready=ready, ready_transition_ms=changed_ms)
    assert pod_info(pod(status)).ready is condition


def test_deletion_is_seen() -> None:
    assert pod_info(pod(deletion_ms=0)).deleted
