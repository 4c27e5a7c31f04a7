import pytest

from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.taints import Taint, Toleration, tolerates, untolerated
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling.fit import NodeState, misfits, node_state
from gpuscale.hpa.cluster.scheduling.placing import Placer
from gpuscale.hpa.cluster.scheduling.resources import NANO, gpu_count, pod_requests


def spec(text="{containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}"):
    (pod,) = load_manifests(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {text}\n", "pod.yaml"
    )
    return pod.spec


def pod(of):
    return Pod(ObjectMeta("p"), of)


def node(name="n1", gpus=1, labels=None, taints=(), unschedulable=False, **resources):
    amounts = {"nvidia.com/gpu": gpus, "cpu": "8", "memory": "32Gi", "pods": 110} | resources
    allocatable = {key: parse_quantity(value) for key, value in amounts.items()}
    return Node(ObjectMeta(name, "", labels or {}), allocatable, tuple(taints), unschedulable)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("sku", "Equal", "gpu", "NoSchedule"), True),
        (Toleration("sku", "Equal", "gpu", ""), True),  # no effect: every effect
        (Toleration("sku", "Exists"), True),
        (Toleration("", "Exists"), True),  # no key: every taint
        (Toleration("sku", "Equal", "cpu"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("sku", "Equal", "gpu", "NoExecute"), False),
    ],
)
def test_tolerations_follow_kubernetes(toleration, tolerated: bool) -> None:
    assert tolerates(toleration, Taint("sku", "gpu", "NoSchedule")) is tolerated


def test_a_soft_taint_keeps_nobody_away() -> None:
    assert untolerated((Taint("a", "b", "PreferNoSchedule"),), ()) is None


# One container with 1 core and 1 Gi. Source: k8s.io/component-helpers v0.37 resource/helpers.go
# (PodRequests); kubernetes v1.37 pkg/apis/core/v1/defaults.go (defaultPodRequests).
@pytest.mark.parametrize(
    ("more", "cores"),
    [
        pytest.param("initContainers: [SIDECAR, INIT]", 4, id="start-up: 3 beside the sidecar's 1"),
        pytest.param("initContainers: [INIT, SIDECAR]", 3, id="start-up alone: 3"),
        pytest.param("initContainers: [SIDECAR]", 2, id="running: 1 + 1"),
        pytest.param("overhead: {cpu: 1}", 2, id="overhead beside"),
        pytest.param("resources: {requests: {cpu: 5}}, overhead: {cpu: 1}", 6, id="own requests"),
        pytest.param("resources: {requests: {cpu: 500m}}", 0.5, id="own requests below the sum"),
        pytest.param("resources: {limits: {cpu: 8}}", 1, id="own limits, and containers' requests"),
        pytest.param("resources: {requests: {nvidia.com/gpu: 4}}", 1, id="no resource of a pod"),
    ],
)
def test_what_a_pod_takes_of_its_node(more: str, cores: float) -> None:
    more = more.replace(
        "SIDECAR", "{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}"
    )
    more = more.replace("INIT", "{name: i, resources: {requests: {cpu: 3}}}")
    main = "containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]"
    requests = pod_requests(spec(f"{{{main}, {more}}}"))
    assert (requests["cpu"], requests["memory"]) == (cores * NANO, 2**30 * NANO)
    assert "nvidia.com/gpu" not in requests


def test_a_limit_of_the_pod_alone_is_its_request() -> None:
    asked = spec("{containers: [{name: c}], resources: {limits: {cpu: 2}}}")
    assert pod_requests(asked)["cpu"] == 2 * NANO


def test_gpus_are_counted_whole() -> None:
    assert (
        gpu_count(spec("{containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}")) == 2
    )
    assert gpu_count(spec("{containers: [{name: c}]}")) == 0


@pytest.mark.parametrize(
    ("there", "reasons"),
    [
        pytest.param(node(), (), id="it fits"),
        pytest.param(node(gpus=0), ("Insufficient nvidia.com/gpu",), id="no gpu"),
        pytest.param(node(unschedulable=True), ("node(s) were unschedulable",), id="cordoned"),
        pytest.param(
            node(taints=[Taint("sku", "gpu")]),
            ("node(s) had untolerated taint(s)",),
            id="tainted",
        ),
        pytest.param(
            node(gpus=0, cpu="0", pods=0),
            ("Too many pods", "Insufficient nvidia.com/gpu"),
            id="full",
        ),
    ],
)
def test_misfits_are_named_in_the_schedulers_words(there, reasons) -> None:
    assert misfits(spec(), NodeState(there)) == reasons


def test_selectors_and_affinity_choose_nodes() -> None:
    wanted = spec(
        "{containers: [{name: c}], nodeSelector: {accelerator: nvidia-gpu}, affinity: {nodeAffinity: "
        "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["
        "{matchExpressions: [{key: type, operator: In, values: [g4dn.xlarge]}]}]}}}}"
    )
    labels = {"accelerator": "nvidia-gpu", "type": "g4dn.xlarge"}
    mismatch = ("node(s) didn't match Pod's node affinity/selector",)
    assert misfits(wanted, NodeState(node(labels=labels))) == ()
    assert misfits(wanted, NodeState(node(labels={**labels, "type": "p2.xlarge"}))) == mismatch
    assert misfits(wanted, NodeState(node(labels={"type": "g4dn.xlarge"}))) == mismatch


def test_bound_pods_take_their_room() -> None:
    state = node_state(node(gpus=2), [spec()])
    assert state.free("nvidia.com/gpu") == 1 * NANO
    assert misfits(spec(), state.with_pod(spec())) == ("Insufficient nvidia.com/gpu",)


def test_the_least_allocated_node_wins_and_the_oldest_of_equal_ones() -> None:
    asks = spec("{containers: [{name: c, resources: {requests: {cpu: 2}}}]}")
    busy = node_state(node("a"), [asks])
    nodes = [busy, NodeState(node("c")), NodeState(node("b"))]
    assert Placer(nodes).place(pod(asks)).node == "c"


def test_a_pod_that_fits_nowhere_gets_the_schedulers_message() -> None:
    full = node_state(node("a"), [spec()])
    tainted = NodeState(node("b", taints=[Taint("sku", "gpu")]))
    assert Placer([full, tainted, node_state(node("c"), [spec()])]).place(pod(spec())).message == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), "
        "2 Insufficient nvidia.com/gpu."
    )
    assert Placer([]).place(pod(spec())).message == "no nodes available to schedule pods"
