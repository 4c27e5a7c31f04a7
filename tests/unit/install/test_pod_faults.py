"""Why pods don't come up, from statuses as the kubelet, the scheduler and controllers write them."""

import pytest

from gpuscale.ops.install.cluster.pod_faults import creation_faults, pod_faults

# Messages as Kubernetes 1.36 writes them: pkg/kubelet/images, pkg/kubelet/kuberuntime, pkg/scheduler.
NOT_FOUND = (
    'Back-off pulling image "gpuscale:0.1.0": ErrImagePull: failed to pull and unpack image '
    '"docker.io/library/gpuscale:0.1.0": pull access denied, repository does not exist'
)
BACK_OFF = "back-off 40s restarting failed container=agent pod=agent-a_gpuscale(1)"
NO_NODE = "0/3 nodes are available: 3 node(s) had untolerated taint {sku: gpu}."
QUOTA = 'pods "gpuscale-metrics-api-1" is forbidden: exceeded quota: pods, requested: pods=1'


def pod(name, *, ends=False, **status):
    metadata = {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ends else {})}
    spec = {
        "initContainers": [{"name": "first", "image": "b:1"}],
        "containers": [{"name": "agent", "image": "a:1"}],
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def waiting(reason, message=None, **more):
    said = {} if message is None else {"message": message}
    return {"name": "agent", "state": {"waiting": {"reason": reason, **said}}, **more}


def told(*pods):
    return [str(fault) for fault in pod_faults(pods)]


def test_an_image_that_can_not_be_pulled_is_told_with_the_kubelets_words() -> None:
    found = told(pod("a", containerStatuses=[waiting("ImagePullBackOff", NOT_FOUND)]))
    assert found == [f"pod a can't get its image a:1: ImagePullBackOff: {NOT_FOUND}"]


def test_what_many_pods_have_is_told_once() -> None:
    sick = [
        pod(name, containerStatuses=[waiting("ErrImageNeverPull", "not present")]) for name in "abc"
    ]
    assert told(*sick) == [
        "3 pods (a, ...) can't get its image a:1: ErrImageNeverPull: not present"
    ]


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (
            {"exitCode": 2, "reason": "Error", "message": "a line\ngpuscale: no NVML\n"},
            "it ended with exit code 2 (Error): gpuscale: no NVML",
        ),
        ({"exitCode": 137, "reason": "OOMKilled"}, "it ended with exit code 137 (OOMKilled)"),
    ],
)
def test_a_container_that_ends_again_and_again_is_told_with_its_last_words(
    ended, said: str
) -> None:
    status = waiting("CrashLoopBackOff", BACK_OFF, lastState={"terminated": ended})
    assert told(pod("a", containerStatuses=[status])) == [
        f"pod a can't keep its container agent running: {said}"
    ]


def test_what_fits_on_no_node_is_told_with_the_schedulers_words() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    found = told(pod("a", conditions=[{**unschedulable, "message": NO_NODE}]))
    assert found == [f"pod a can't be scheduled: {NO_NODE}"]


def test_containers_that_start_first_count_too() -> None:
    status = {**waiting("CreateContainerConfigError", 'secret "x" not found'), "name": "first"}
    assert told(pod("a", initContainerStatuses=[status])) == [
        'pod a can\'t start its container first: CreateContainerConfigError: secret "x" not found'
    ]


def test_what_is_on_its_way_is_no_fault() -> None:
    scheduled = {"type": "PodScheduled", "status": "True"}
    running = {"name": "agent", "state": {"running": {}}}
    assert (
        told(
            pod("a", conditions=[scheduled], containerStatuses=[waiting("ContainerCreating")]),
            pod("b", containerStatuses=[running]),
            pod("c"),
            pod("d", ends=True, containerStatuses=[waiting("ImagePullBackOff", NOT_FOUND)]),
        )
        == []
    )


SECURITY = (
    'pods "gpuscale-node-agent-x" is forbidden: violates PodSecurity "restricted:latest": restricted volume '
    'types (volume "kubelet" uses restricted volume type "hostPath")'
)
"""Of a Kubernetes 1.37 API server, shortened."""


@pytest.mark.parametrize(
    ("status", "message", "is_refusal", "is_lasting"),
    [
        ({"desiredNumberScheduled": 2}, SECURITY, True, True),
        ({"desiredNumberScheduled": 2}, QUOTA, True, False),
        # Some nodes have their pod: the others are no reason to take those away.
        ({"desiredNumberScheduled": 2, "currentNumberScheduled": 1}, SECURITY, False, False),
        ({"desiredNumberScheduled": 2, "currentNumberScheduled": 1}, QUOTA, False, False),
        ({"replicas": 1}, QUOTA, False, False),
    ],
)
def test_what_no_pod_can_pass_is_told_from_what_some_do(
    status, message, is_refusal, is_lasting
) -> None:
    body = {"kind": "DaemonSet", "metadata": {"namespace": "gpu"}, "status": status}
    (fault,) = creation_faults(body, [{"message": message}])
    assert (fault.is_refusal, fault.is_lasting) == (is_refusal, is_lasting)
    command = (
        "kubectl label namespace gpu pod-security.kubernetes.io/enforce=privileged --overwrite"
    )
    assert (command in str(fault)) == (message == SECURITY)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_only_the_node_agent_is_said_to_need_folders_of_its_node(kind) -> None:
    body = {"kind": kind, "metadata": {"namespace": "gpu"}, "status": {}}
    (fault,) = creation_faults(body, [{"message": SECURITY}])
    assert str(fault) == f"pods can't be created: {SECURITY}"
    assert fault.is_lasting


def test_pods_that_can_not_be_created_are_told_from_the_condition_or_the_last_event() -> None:
    failed = {"type": "ReplicaFailure", "status": "True", "message": QUOTA}
    assert [str(each) for each in creation_faults({"status": {"conditions": [failed]}}, ())] == [
        f"pods can't be created: {QUOTA}"
    ]
    past = {"status": {"conditions": [{**failed, "status": "False"}]}}
    assert creation_faults(past, ()) == []
    events = [{"message": "older"}, {"message": QUOTA}]
    assert [str(each) for each in creation_faults({}, events)] == [
        f"pods can't be created: {QUOTA}"
    ]
