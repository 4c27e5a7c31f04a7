"""Gangs get nodes together or not at all (kubernetes v1.37 pkg/scheduler/schedule_one_podgroup.go)."""

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, Pod, PodSpec
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.cluster.scheduling import Placer, node_state, place_gang

GPU = "nvidia.com/gpu"
NANO = 1_000_000_000


def placer(*gpus: int) -> Placer:
    nodes = []
    for number, count in enumerate(gpus):
        amounts = {GPU: Quantity(count * NANO), "pods": Quantity(110 * NANO)}
        nodes.append(Node(ObjectMeta(f"n{number}", ""), allocatable=amounts))
    return Placer(node_state(node, ()) for node in nodes)


def pods(count: int, gpus: int = 1) -> list[Pod]:
    spec = PodSpec((Container("c", requests={GPU: Quantity(gpus * NANO)}),))
    return [Pod(ObjectMeta(f"p{number}"), spec) for number in range(count)]


def test_a_gang_that_fits_gets_all_its_nodes() -> None:
    found = place_gang(placer(2, 2), pods(4), 4, 0)
    assert sorted(found.nodes.values()) == ["n0", "n0", "n1", "n1"]
    assert (found.messages, found.message) == ({}, "")


def test_a_part_that_fits_takes_no_room() -> None:
    nodes = placer(2, 1)
    found = place_gang(nodes, pods(5), 5, 0)
    assert (found.nodes, found.fitting) == ({}, 3)
    # The fourth fits nowhere, so the fifth is not tried.
    group = "minCount (5) cannot be satisfied: 3 scheduled, 1 remaining"
    refusal = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert found.message == group
    fitting = f"pod group is unschedulable, {group}"
    assert list(found.messages.values()) == [fitting, fitting, fitting, refusal, group]
    assert len(place_gang(nodes, pods(3), 3, 0).nodes) == 3


def test_pods_beyond_the_least_number_wait_by_themselves() -> None:
    found = place_gang(placer(3), pods(5), 2, 0)
    assert (len(found.nodes), len(found.messages), found.message) == (3, 2, "")


def test_pods_on_nodes_count() -> None:
    found = place_gang(placer(1), pods(2), 4, 3)
    assert (len(found.nodes), len(found.messages)) == (1, 1)
