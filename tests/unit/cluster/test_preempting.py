"""Who goes for a pod of a higher priority; kube-scheduler's rules, one by one.

Source: kubernetes v1.37 pkg/scheduler/framework/plugins/defaultpreemption/default_preemption_test.go
(TestPickBestCandidate, TestSelectBestCandidate, TestDryRunPreemption) and framework/preemption/preemption.go
(pickOneNodeForPreemption).
"""

import pytest

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, Pod, PodSpec, PodStatus
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling.fit import node_state
from gpuscale.hpa.cluster.scheduling.placing import Placer
from gpuscale.hpa.cluster.scheduling.preempting import find_victims


def pod(name, gpus, priority=0, start=0, app="a", **more):
    asks = {"nvidia.com/gpu": parse_quantity(gpus)}
    spec = PodSpec((Container("c", requests=asks),), priority=priority, **more)
    return Pod(ObjectMeta(name, labels={"app": app}), spec, PodStatus(start_ms=start))


def node(name, *pods, gpus=4, taints=()):
    offered = {"nvidia.com/gpu": parse_quantity(gpus), "pods": parse_quantity(110)}
    return node_state(Node(ObjectMeta(name, ""), offered, taints), pods)


def victims(asks, *nodes, budgets=()):
    """Return the equally good choices, node to names."""
    found = find_victims(Placer(nodes), asks, budgets)
    return {each.node: {p.metadata.name for p in each.victims} for each in found.choices}


HIGH = pod("high", 4, 100)


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        # The lowest of the highest priorities of victims: 1 is lower than 2.
        ([node("a", pod("x", 4, 2)), node("b", pod("y", 4, 1))], {"b": {"y"}}),
        # Then the smallest sum of priorities, each counted from the lowest possible one on: fewer pods.
        (
            [node("a", pod("x", 2, 1), pod("y", 2, 1)), node("b", pod("z", 4, 1))],
            {"b": {"z"}},
        ),
        # Then the latest start of the earliest of the most important victims.
        ([node("a", pod("x", 4, 1, 10)), node("b", pod("y", 4, 1, 20))], {"b": {"y"}}),
        # Then any.
        ([node("a", pod("x", 4, 1, 5)), node("b", pod("y", 4, 1, 5))], {"a": {"x"}, "b": {"y"}}),
    ],
)
def test_the_node_with_the_least_harm(nodes, chosen) -> None:
    assert victims(HIGH, *nodes) == chosen


def test_no_more_pods_go_than_have_to_and_the_more_important_stay() -> None:
    small = pod("small", 1, 100)
    assert victims(small, node("a", pod("x", 2, 5), pod("y", 1, 3), pod("z", 1, 4))) == {"a": {"y"}}
    # Of one priority, those that run for longer stay.
    assert victims(small, node("a", pod("old", 2, 5, 1), pod("new", 2, 5, 9))) == {"a": {"new"}}


def test_a_broken_budget_is_worse_than_a_higher_priority() -> None:
    budget = PodDisruptionBudget(ObjectMeta("b"), selector_of_labels({"app": "kept"}))
    nodes = [node("a", pod("x", 4, 1, app="kept")), node("b", pod("y", 4, 50))]
    assert victims(HIGH, *nodes, budgets=[budget]) == {"b": {"y"}}
    # Where there is no other way, budgets are no obstacle.
    assert victims(HIGH, nodes[0], budgets=[budget]) == {"a": {"x"}}


def test_why_nobody_goes() -> None:
    def why(asks, *nodes):
        return find_victims(Placer(nodes), asks, ()).message

    tainted = node("t", pod("x", 4), taints=(Taint("k"),))
    full = node("f", pod("y", 4, 100))
    assert why(HIGH, tainted, full) == (
        "0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    # A node that is too small even when empty is not looked at.
    assert why(pod("huge", 8, 100), full) == (
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert why(pod("kind", 4, 100, may_preempt=False), full) == (
        "not eligible due to preemptionPolicy=Never."
    )
