"""Points of nodes, with numbers from kube-scheduler's own tests and formulas.

Source: kubernetes v1.37 pkg/scheduler/framework/plugins (noderesources, podtopologyspread, tainttoleration,
nodeaffinity, interpodaffinity), the _test.go files named beside each case.
"""

import pytest

from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, PodSpec
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling.fit import NodeState, node_state
from gpuscale.hpa.cluster.scheduling.placing import Placer
from gpuscale.hpa.cluster.scheduling.resources import pod_requests, unasked
from gpuscale.hpa.cluster.scheduling.scoring import (
    SchedulerSettings,
    ScoringStrategy,
    nodes_to_score,
    resource_score,
)


def amounts(**of):
    named = {name.replace("gpu", "nvidia.com/gpu"): value for name, value in of.items()}
    return {name: parse_quantity(value) for name, value in named.items()}


def asking(**of):
    return PodSpec((Container("c", requests=amounts(**of)),))


def node(name="n", labels=(), taints=(), **of):
    return Node(ObjectMeta(name, "", dict(labels)), amounts(**of), tuple(taints))


def pod(spec="{containers: [{name: c}]}", labels="{app: a}"):
    (found,) = load_manifests(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, labels: {labels}}}\nspec: {spec}\n", "p"
    )
    return found


def points(strategy, spec, state, plugin="NodeResourcesFit"):
    settings = SchedulerSettings(strategy, {plugin: 1})
    return resource_score(settings, pod_requests(spec), unasked(spec), state)


@pytest.mark.parametrize(
    ("strategy", "offers", "used", "asks", "expected"),
    [
        # least_allocated_test.go "nothing scheduled, resources requested, differently sized nodes":
        # (4000 - 3000) * 100 / 4000 = 25, (10000 - 5000) * 100 / 10000 = 50; their mean is 37.
        ("LeastAllocated", {"cpu": 4, "memory": 10000}, {}, {"cpu": 3, "memory": 5000}, 37),
        ("LeastAllocated", {"cpu": 6, "memory": 10000}, {}, {"cpu": 3, "memory": 5000}, 50),
        # most_allocated_test.go, the same nodes: 75 and 50, 50 and 50.
        ("MostAllocated", {"cpu": 4, "memory": 10000}, {}, {"cpu": 3, "memory": 5000}, 62),
        ("MostAllocated", {"cpu": 6, "memory": 10000}, {}, {"cpu": 3, "memory": 5000}, 50),
        # A pod that asks for no CPU counts as 100m (pkg/scheduler/util/pod_resources.go): 900 of 1000.
        ("LeastAllocated", {"cpu": 1}, {}, {}, 90),
    ],
)
def test_cpu_and_memory(strategy, offers, used, asks, expected) -> None:
    state = node_state(node(**offers), [asking(**used)] if used else [])
    assert points(ScoringStrategy(strategy), asking(**asks), state) == expected


@pytest.mark.parametrize(("used", "expected"), [(6, 87), (0, 12)])
def test_a_packing_profile_prefers_the_fuller_node(used, expected) -> None:
    # 7 of 8 GPUs are 87.5 %, 1 of 8 are 12.5 %; points are whole.
    strategy = ScoringStrategy("MostAllocated", (("nvidia.com/gpu", 1),))
    state = node_state(node(gpu=8), [asking(gpu=used)] if used else [])
    assert points(strategy, asking(gpu=1), state) == expected


def test_a_resource_that_the_pod_does_not_ask_for_does_not_count() -> None:
    # resource_allocation.go: an extended resource without a request is left out of the mean.
    strategy = ScoringStrategy("MostAllocated", (("nvidia.com/gpu", 10), ("cpu", 1)))
    assert points(strategy, asking(cpu=2), NodeState(node(gpu=8, cpu=8))) == 25


@pytest.mark.parametrize(
    ("shape", "used", "expected"),
    [
        # requested_to_capacity_ratio.go, helper/shape_score.go: lines between the points, out of 10.
        (((0, 0), (100, 10)), 4, 50),
        (((0, 10), (100, 0)), 2, 75),
        (((0, 0), (50, 8), (100, 2)), 6, 50),  # 80 at 50 %, then down 60 in 50: 75 % is 50
        (((40, 2), (100, 10)), 2, 20),  # before the first point
    ],
)
def test_a_shape_of_points(shape, used, expected) -> None:
    strategy = ScoringStrategy("RequestedToCapacityRatio", (("nvidia.com/gpu", 1),), shape)
    assert points(strategy, asking(gpu=used), NodeState(node(gpu=8))) == expected


@pytest.mark.parametrize(
    ("used", "asks", "expected"),
    [
        # balanced_allocation.go of 1.37: 50 + (50 + with the pod - without it) / 2. Without pods a node is
        # even (100); with half the CPU alone, the deviation is 0.25: 50 + (50 + 75 - 100) / 2.
        ({}, {"cpu": 4}, 62),
        ({"cpu": 4}, {"memory": 5000}, 87),
        ({}, {"cpu": 4, "memory": 5000}, 75),
        ({}, {}, 0),  # best effort: not scored
    ],
)
def test_evenness_of_cpu_and_memory(used, asks, expected) -> None:
    state = node_state(node(cpu=8, memory=10000), [asking(**used)] if used else [])
    plugin = "NodeResourcesBalancedAllocation"
    assert points(ScoringStrategy(), asking(**asks), state, plugin) == expected


def big(name, labels=(), taints=()):
    labels = {"kubernetes.io/hostname": name, **dict(labels)}
    return node(name, labels, taints, cpu=64, memory="64Gi", pods=110)


def test_a_soft_taint_loses_against_any_node_without_one() -> None:
    nodes = [NodeState(big("a", taints=[Taint("k", "", "PreferNoSchedule")])), NodeState(big("b"))]
    assert Placer(nodes).place(pod()).node == "b"
    tolerant = pod("{containers: [{name: c}], tolerations: [{key: k, operator: Exists}]}")
    assert Placer(nodes).best_nodes(tolerant) == ("a", "b")


def test_preferred_node_affinity_adds_its_weights() -> None:
    preferred = (
        "{containers: [{name: c}], affinity: {nodeAffinity: {"
        "preferredDuringSchedulingIgnoredDuringExecution: ["
        "{weight: 2, preference: {matchExpressions: [{key: a, operator: Exists}]}},"
        "{weight: 3, preference: {matchExpressions: [{key: b, operator: Exists}]}}]}}}"
    )
    nodes = [NodeState(big(n, labels)) for n, labels in (("x", {"a": "1"}), ("y", {"b": "1"}))]
    assert Placer(nodes).best_nodes(pod(preferred)) == ("y",)


def test_pods_of_a_service_are_spread_without_asking_for_it() -> None:
    # podtopologyspread/plugin.go: system defaults by host name (skew 3) and zone (skew 5).
    zones = {"topology.kubernetes.io/zone": "z"}
    nodes = [node_state(big("a", zones), [pod()]), NodeState(big("b", zones))]
    placer = Placer(nodes, SchedulerSettings(weights={"PodTopologySpread": 2}))
    assert placer.best_nodes(pod()) == ("a", "b")  # no Service: nothing to spread by
    of_service = Placer(
        nodes,
        SchedulerSettings(weights={"PodTopologySpread": 2}),
        lambda _pod: selector_of_labels({"app": "a"}),
    )
    assert of_service.best_nodes(pod()) == ("b",)


def test_a_hard_constraint_names_itself() -> None:
    constraint = (
        "{containers: [{name: c}], topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, "
        "whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}}]}"
    )
    nodes = [
        node_state(big("a", {"zone": "1"}), [pod()]),
        NodeState(node("b", {"zone": "2"}, cpu=0)),
        NodeState(big("c")),
    ]
    asks = constraint.replace("{name: c}", "{name: c, resources: {requests: {cpu: 1}}}")
    assert Placer(nodes).place(pod(asks)).message == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread "
        "constraints, 1 node(s) didn't match pod topology spread constraints (missing required label)."
    )


def affine(kind, name="required", key="kubernetes.io/hostname", app="a"):
    term = f"{{topologyKey: {key}, labelSelector: {{matchLabels: {{app: {app}}}}}}}"
    if name == "preferred":
        term = f"{{weight: 5, podAffinityTerm: {term}}}"
    rule = f"{name}DuringSchedulingIgnoredDuringExecution"
    return f"{{containers: [{{name: c}}], affinity: {{{kind}: {{{rule}: [{term}]}}}}}}"


def test_the_first_of_a_company_may_begin_it() -> None:
    # The check of the pod itself (satisfiesSelfAffinityCheck) in interpodaffinity/filtering.go.
    together = affine("podAffinity")
    nodes = [NodeState(big("a")), NodeState(big("b"))]
    placer = Placer(nodes)
    assert [placer.place(pod(together)).node for _ in range(3)] == ["a", "a", "a"]
    stranger = pod(together, "{app: b}")
    assert Placer(nodes).place(stranger).message == (
        "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
    )


def test_apart_counts_both_ways() -> None:
    apart = affine("podAntiAffinity")
    nodes = [NodeState(big("a")), NodeState(big("b"))]
    placer = Placer(nodes)
    assert [placer.place(pod(apart)).node for _ in range(2)] == ["a", "b"]
    assert placer.place(pod(apart)).message == (
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    )
    # One that asks for nothing is kept off by those that do.
    assert placer.place(pod()).message == (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    )


def test_preferred_company_wins_over_free_room() -> None:
    nodes = [NodeState(big("a")), node_state(big("b"), [pod()])]
    assert Placer(nodes).place(pod(affine("podAffinity", "preferred"))).node == "b"
    assert Placer(nodes).place(pod(affine("podAntiAffinity", "preferred"))).node == "a"


def test_a_cordoned_node_takes_pods_that_tolerate_it() -> None:
    cordoned = Node(ObjectMeta("a", ""), amounts(cpu=8, memory="8Gi", pods=9), unschedulable=True)
    spec = "{containers: [{name: c}], tolerations: [{operator: Exists}]}"
    assert Placer([NodeState(cordoned)]).place(pod(spec)).node == "a"
    assert Placer([NodeState(cordoned)]).place(pod()).node is None


@pytest.mark.parametrize(
    ("count", "percentage", "expected"),
    [
        # As in TestNumFeasibleNodesToFind of schedule_one_test.go.
        (10, 0, 10),
        (10, 40, 10),
        (1_000, 0, 420),
        (1_000, 40, 400),
        (6_000, 0, 300),
        (6_000, 40, 2_400),
        # 50 - 5000 / 125 is 10 %; the least number is 100.
        (5_000, 0, 500),
        (150, 10, 100),
    ],
)
def test_how_many_nodes_are_looked_at(count, percentage, expected) -> None:
    assert nodes_to_score(count, percentage) == expected


def test_searches_take_turns() -> None:
    # The first 100 of 200 nodes, of two zones in turn, are looked at for the first pod; then the others.
    nodes = [
        NodeState(big(f"n{number:03}", {"topology.kubernetes.io/zone": "ab"[number >= 100]}))
        for number in range(200)
    ]
    asks = pod("{containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}")
    packing = ScoringStrategy("MostAllocated")
    some = Placer(nodes, SchedulerSettings(packing, percentage_of_nodes=50))
    assert [some.place(asks).node for _ in range(3)] == ["n000", "n050", "n000"]
    every = Placer(nodes, SchedulerSettings(packing))
    assert [every.place(asks).node for _ in range(3)] == ["n000", "n000", "n000"]
