"""Scale-up as the Cluster Autoscaler does it; each case names the upstream file (release 1.35) it is from."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler_cases import MINUTE, SECOND, Cluster, pod, pods, pool
from gpuscale.base.objects.taints import Taint
from gpuscale.hpa.cluster.nodes import AutoscalerSettings, LookAgain, ScaleUp
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.estimator import PodGroup, estimate
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.scale_up import balance
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import PodKinds, Snapshot
from gpuscale.hpa.cluster.nodes.pools import NotTriggered
from gpuscale.hpa.cluster.scheduling import NodeState, misfits

NOT_TRIGGERED = "pod didn't trigger scale-up: "


def told(actions):
    return {each.pod: each.message for each in actions if isinstance(each, NotTriggered)}


# core/static_autoscaler.go: allPodsAreNew, filterOutYoungPods


def test_a_gpu_pod_brings_a_node_at_30_s_and_a_cpu_pod_beside_it_waits_too():
    cluster = Cluster([pool("gpu"), pool("cpu", gpus=0)])
    gpu, cpu = pod("gpu", 1, "1"), pod("cpu", 0, "1", at=12 * SECOND)
    for second in (0, 10, 20):
        assert cluster.grown(second * SECOND, [gpu, cpu][: 1 + (second >= 12)]) == {}
    assert cluster.grown(30 * SECOND, [gpu, cpu]) != {}


def test_a_cpu_pod_alone_brings_one_at_2_s():
    cluster = Cluster([pool("cpu", gpus=0)])
    waiting = [pod("cpu", 0, "1", at=10 * SECOND)]
    assert cluster.grown(10 * SECOND, waiting) == {}
    assert cluster.grown(12 * SECOND - 1, waiting) == {}
    assert cluster.grown(12 * SECOND, waiting) == {"cpu": 1}


def test_the_oldest_gpu_pod_counts_for_all():
    cluster = Cluster([pool()])
    waiting = [pod("old", 1, "1"), pod("young", 8, "1", at=29 * SECOND)]
    assert cluster.grown(30 * SECOND, waiting) == {"gpu": 2}


def test_nothing_goes_while_pods_are_too_young():
    # DisableScaleDownForLoop
    cluster = Cluster([pool()], AutoscalerSettings(unneeded_time_ms=0))
    cluster.node("a")
    young = [pod("p", 9, "1", at=MINUTE - SECOND)]
    assert cluster.gone(MINUTE, young) == []
    assert cluster.gone(MINUTE) == ["a"]


@pytest.mark.parametrize(
    ("flag", "annotation", "delay"),
    [
        (0, "2m", 120),
        (180, "2m", 180),  # the annotation may only raise it
        (60, "much", 60),  # and is passed over where it is no duration
    ],
)
def test_pods_may_ask_for_a_later_scale_up(flag, annotation, delay):
    settings = AutoscalerSettings(new_pod_scale_up_delay_ms=flag * SECOND)
    cluster = Cluster([pool()], settings)
    key = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
    waiting = [pod("p", 1, "1", annotations={key: annotation})]
    assert cluster.grown(delay * SECOND - 1, waiting) == {}
    assert cluster.grown(delay * SECOND, waiting) == {"gpu": 1}


# core/podlistprocessor


def test_pods_below_the_priority_cut_off_bring_nothing():
    # filter_out_expendable.go; expendable-pods-priority-cutoff is -10
    cluster = Cluster([pool(gpus=1)])
    assert cluster.grown(MINUTE, [pod("low", 1, priority=-20)]) == {}
    assert cluster.grown(MINUTE, [pod("edge", 1, priority=-10)]) == {"gpu": 1}


def test_what_expendable_pods_hold_is_free():
    # static_autoscaler.go leaves them out of the snapshot
    cluster = Cluster([pool(gpus=1)])
    cluster.node("a", [pod("low", 1, priority=-11)])
    assert cluster.grown(MINUTE, [pod("p", 1)]) == {}
    cluster.node("a", [pod("high", 1)])
    assert cluster.grown(MINUTE, [pod("p", 1)]) == {"gpu": 1}


def test_pods_of_daemon_sets_bring_nothing():
    # filter_out_daemon_sets.go
    cluster = Cluster([pool()])
    by_owner = pod("d", 1, owner="DaemonSet")
    by_word = pod("e", 1, annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"})
    assert cluster.grown(MINUTE, [by_owner, by_word]) == {}


def test_nodes_on_their_way_count_with_all_their_gpus():
    # filter_out_schedulable.go, static_autoscaler.go: addUpcomingNodesToClusterSnapshot
    cluster = Cluster([pool()])
    cluster.coming("a")
    assert cluster.grown(MINUTE, pods(8, 1)) == {}
    assert cluster.grown(MINUTE, pods(9, 1)) == {"gpu": 1}


def test_important_pods_take_the_free_places_first():
    # filter_out_schedulable.go sorts by priority
    cluster = Cluster([pool(gpus=1), pool("big", gpus=8, cpu="192")])
    cluster.node("a")
    waiting = [pod("low", 1), pod("high", 1, priority=5)]
    (growth,) = [each for each in cluster.scan(MINUTE, waiting) if isinstance(each, ScaleUp)]
    assert growth.pods == ("default/low",)


def test_pods_go_to_nodes_in_turn():
    # simulator/clustersnapshot/predicate/plugin_runner.go: lastIndex. Two pods of 1 GPU are put on two nodes,
    # so a pod of 8 GPUs fits on neither.
    cluster = Cluster([pool()])
    cluster.coming("a")
    cluster.coming("b")
    assert cluster.grown(MINUTE, [*pods(2, 1), pod("whole", 8)]) == {"gpu": 1}


def test_pods_of_a_node_that_is_being_drained_need_another():
    # currently_drained_nodes.go
    cluster = Cluster([pool(high=3)], AutoscalerSettings(unneeded_time_ms=0, delay_after_add_ms=0))
    moving = pods(2, 1, at=1)
    cluster.node("a", moving)
    cluster.node("b", pods(4, 1, prefix="q"))
    assert cluster.gone(MINUTE) == ["a"]
    # By the next loop the room on b is taken, so the two pods need a node.
    cluster.node("a", moving, leaving=True)
    cluster.node("b", pods(8, 1, prefix="q"))
    assert cluster.grown(2 * MINUTE) == {"gpu": 1}
    ending = [pod(each.metadata.name, 1, at=1, ending_at=MINUTE) for each in moving]
    cluster.node("a", ending, leaving=True)
    cluster.policy = type(cluster.policy)()
    assert cluster.grown(2 * MINUTE) == {}


# estimator/binpacking_estimator.go, decreasing_pod_orderer.go


def test_pods_are_packed_by_cpu_and_memory_and_not_by_gpus():
    # 10/96 > 2/96: four small pods share the first node, and each of the large ones opens its own.
    cluster = Cluster([pool(memory="1000Gi")])
    large, small = pods(2, 5, "2", prefix="l"), pods(4, 1, "10", prefix="s")
    assert cluster.grown(MINUTE, [*large, *small]) == {"gpu": 3}
    cluster = Cluster([pool(memory="1000Gi")])
    assert cluster.grown(MINUTE, [*small, *large]) == {"gpu": 3}


def test_memory_counts_in_the_order_as_cpu_does():
    # 0.25 + 0.5 of the node is more than 0.5 + 0; so 2 x (2 GPUs) with memory come first and fill one node
    # with 4 GPUs, on which the third still fits.
    cluster = Cluster([pool(gpus=6, cpu="8", memory="8Gi")])
    heavy = pods(2, 2, "2", "4Gi", prefix="h")
    assert cluster.grown(MINUTE, [pod("l", 2, "4"), *heavy]) == {"gpu": 1}


def test_nodes_without_a_pod_are_not_counted_and_end_the_opening_of_more():
    # tryToScheduleOnNewNodes: the newest node is empty, so no other would help; pods that fit come after it.
    template = NodeState(pool().node("t"))
    kinds = PodKinds()

    def group(*of):
        return PodGroup(kinds.of(of[0].spec), of)

    too_big = group(*pods(3, 9, "50", prefix="b"))
    fits = group(*pods(2, 8, "1", prefix="f"))
    found = estimate([too_big, fits], template, 10)
    assert (found.nodes, len(found.pods)) == (2, 2)
    assert estimate([too_big], template, 10).nodes == 0


def test_groups_that_do_not_fit_any_more_leave_room_for_others():
    # Once no node may be opened, later groups still fill those that are open.
    template = NodeState(pool().node("t"))
    kinds = PodKinds()
    first, second = pods(3, 5, "40", prefix="a"), pods(5, 1, "1", prefix="b")
    groups = [PodGroup(kinds.of(of[0].spec), tuple(of)) for of in (first, second)]
    found = estimate(groups, template, 1)
    # 5 GPUs are one of the first; 3 are left for the second.
    assert (found.nodes, len(found.pods)) == (1, 4)


def test_growth_stops_at_the_largest_size():
    # estimator/sng_capacity_threshold.go
    cluster = Cluster([pool(high=3, gpus=1)])
    cluster.node("a", [pod("on", 1)])
    (growth,) = cluster.scan(MINUTE, pods(19, 1))
    assert (growth.from_nodes, growth.to_nodes, len(growth.pods)) == (1, 3, 2)


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({"max_nodes_per_scaleup": 4}, 4),  # static_threshold.go
        ({"max_nodes_total": 6}, 5),  # cluster_capacity_threshold.go: 6, of which one is there
        ({"cores_total": (0, 480)}, 4),  # resourcequotas/tracker.go: 480 / 96 = 5 less one
        ({"memory_total": (0, 3_500)}, 2),  # 3500 GiB less 1000, by 1000
        ({}, 9),
    ],
)
def test_limits_of_one_scale_up_and_of_the_cluster(settings, nodes):
    cluster = Cluster([pool(high=10)], AutoscalerSettings(**settings))
    cluster.node("a", [pod("on", 8)])
    assert cluster.grown(MINUTE, pods(20, 8)) == {"gpu": nodes}


# core/scaleup/orchestrator: filterValidScaleUpNodeGroups; processors/status/eventing_scale_up_processor.go


def test_each_pool_that_can_not_help_is_a_reason():
    pools = [
        pool("two", gpus=2),
        pool("four", gpus=4),
        pool("full", gpus=8, high=1),
        pool("other", gpus=8, taints=[Taint("sku", "gpu")]),
    ]
    cluster = Cluster(pools)
    cluster.node("a", [pod("on", 8)], of=pools[2])
    assert told(cluster.scan(MINUTE, [pod("p", 8)])) == {
        "default/p": NOT_TRIGGERED
        + "2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s), "
        "1 max node group size reached"
    }


def test_it_is_said_once_for_each_reason_and_not_while_another_pool_grows():
    pools = [pool("small", gpus=1, high=1), pool("cpu", gpus=0)]
    cluster = Cluster(pools)
    cluster.node("a", [pod("on", 1)], of=pools[0])
    waiting = [pod("p", 1)]
    reasons = "1 Insufficient nvidia.com/gpu, 1 max node group size reached"
    assert told(cluster.scan(MINUTE, waiting)) == {"default/p": NOT_TRIGGERED + reasons}
    assert told(cluster.scan(MINUTE + 10, waiting)) == {}
    # "Skipping event processing for unschedulable pods since there is a ScaleUp attempt this loop"
    assert told(cluster.scan(MINUTE + 20, [*waiting, pod("c", 0, "1")])) == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_nodes_total": 1}, "max total nodes in cluster reached"),
        ({"cores_total": (0, 100)}, "1 max cluster cpu limit reached"),  # skippedreasons.go (1.34)
        (
            {"cores_total": (0, 100), "memory_total": (0, 1_100)},
            "1 max cluster cpu, memory limit reached",
        ),
    ],
)
def test_limits_of_the_cluster_are_named(settings, words):
    cluster = Cluster([pool()], AutoscalerSettings(**settings))
    cluster.node("a", [pod("on", 8)])
    assert told(cluster.scan(MINUTE, [pod("p", 8)])) == {"default/p": NOT_TRIGGERED + words}


def test_of_nothing_ready_nothing_comes_where_scale_up_from_zero_is_off():
    # processors/actionablecluster
    cluster = Cluster([pool()], AutoscalerSettings(scale_up_from_zero=False))
    assert cluster.grown(MINUTE, [pod("p", 1)]) == {}
    cluster.node("a", [pod("on", 8)])
    assert cluster.grown(MINUTE, [pod("p", 1)]) == {"gpu": 1}


def test_a_pool_below_its_smallest_size_grows_only_where_that_is_asked_for():
    # ScaleUpToNodeGroupMinSize; enforce-node-group-min-size is off
    cluster = Cluster([pool(low=2)])
    cluster.node("a")
    assert cluster.grown(MINUTE) == {}
    cluster.settings = AutoscalerSettings(enforce_node_group_min_size=True)
    assert cluster.grown(MINUTE) == {"gpu": 1}


# processors/nodegroupset/balancing_processor.go, compare_nodegroups.go

BALANCED = AutoscalerSettings(balance_similar_node_groups=True)


def zoned(name, zone, **others):
    labels = {"topology.kubernetes.io/zone": zone, **others.pop("labels", {})}
    return pool(name, labels=labels, **{"gpus": 1, **others})


def test_equal_pools_share_new_nodes():
    pools = [zoned("a", "1"), zoned("b", "2")]
    assert Cluster(pools, BALANCED).grown(MINUTE, pods(4, 1)) == {"a": 2, "b": 2}
    assert sorted(Cluster(pools).grown(MINUTE, pods(4, 1)).values()) == [4]


@pytest.mark.parametrize(
    ("sizes", "new", "grown"),
    [
        ({"a": (1, 5), "b": (3, 5)}, 2, {"a": 2}),
        ({"a": (1, 5), "b": (3, 5)}, 4, {"a": 3, "b": 1}),
        ({"a": (1, 2), "b": (1, 9), "c": (1, 9)}, 7, {"a": 1, "b": 3, "c": 3}),
        ({"a": (2, 3), "b": (3, 4)}, 9, {"a": 1, "b": 1}),
        ({"a": (3, 3), "b": (0, 4)}, 2, {"b": 2}),
    ],
)
def test_the_smallest_pool_that_is_not_full_gets_each_node(sizes, new, grown):
    assert balance(sizes, new) == grown


@pytest.mark.parametrize(
    ("other", "is_similar"),
    [
        ({"memory": "986Gi"}, True),  # 1.4 % of 1000
        ({"memory": "984Gi"}, False),  # 1.6 %; memory-difference-ratio is 1.5 %
        ({"cpu": "95"}, False),  # capacity but memory must be the same
        ({"labels": {"kubernetes.io/hostname": "x"}}, True),
        ({"labels": {"workload": "x"}}, False),
    ],
)
def test_what_makes_pools_similar(other, is_similar):
    pools = [zoned("a", "1"), zoned("b", "2", **other)]
    grown = Cluster(pools, BALANCED).grown(MINUTE, pods(4, 1))
    assert (len(grown) == 2) is is_similar


def test_a_shared_label_may_be_all_that_counts():
    # The flag balancing-label, of label_nodegroups.go
    settings = AutoscalerSettings(balance_similar_node_groups=True, balancing_label=("team",))
    pools = [zoned("a", "1", labels={"team": "x"}), zoned("b", "2", labels={"team": "x"}, cpu="8")]
    assert Cluster(pools, settings).grown(MINUTE, pods(4, 1)) == {"a": 2, "b": 2}


def test_labels_of_the_cloud_and_of_the_flag_do_not_count():
    # aws_nodegroups.go; balancing-ignore-label
    nodegroup = "eks.amazonaws.com/nodegroup"
    pools = [zoned(name, name, labels={nodegroup: name, "rack": name}) for name in ("a", "b")]
    settings = AutoscalerSettings(
        balance_similar_node_groups=True, balancing_ignore_label=("rack",)
    )
    aws = replace(settings, cloud_provider="aws")
    assert len(Cluster(pools, aws).grown(MINUTE, pods(4, 1))) == 2
    assert len(Cluster(pools, settings).grown(MINUTE, pods(4, 1))) == 1


# simulator/scheduling/hinting_simulator.go: a kind's nodes are kept from pod to pod; one by one is the same


GPUS, CPUS = st.integers(0, 4), st.sampled_from(["1", "3", "6"])
REQUESTS = st.tuples(GPUS, CPUS, st.sampled_from(["", "a", "b", "n2"]))
NODES = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("ab")), max_size=6)


@given(st.lists(REQUESTS, max_size=25), NODES)
def test_kinds_find_the_node_that_a_look_at_all_nodes_finds(asked, there):
    states = []
    for number, (gpus, label) in enumerate(there):
        of = pool(gpus=gpus, cpu="12", labels={"pool": label})
        states.append(NodeState(of.node(f"n{number}")))
    snapshot = Snapshot(states, PodKinds(), {})
    turn = 0
    for number, (gpus, cpu, where) in enumerate(asked):
        key = "kubernetes.io/hostname" if where == "n2" else "pool"
        each = pod(f"p{number}", gpus, cpu, node_selector={key: where} if where else {})
        in_turn = [*range(turn, len(states)), *range(turn)]
        found = next((at for at in in_turn if not misfits(each.spec, states[at])), None)
        assert snapshot.put(each) is (found is not None)
        if found is not None:
            assert [at for at, on in snapshot.placed.items() if each in on] == [found]
            states[found] = states[found].with_pod(each.spec)
            turn = (found + 1) % len(states)


def one_by_one(groups, template, limit):
    """Return the number of nodes and of pods as binpacking_estimator.go comes to it, pod by pod."""
    opened, with_pods, placed, turn, may_open = [], set(), 0, 0, True

    def put(each, at):
        nonlocal placed
        if misfits(each.spec, opened[at]):
            return False
        opened[at] = opened[at].with_pod(each.spec)
        with_pods.add(at)
        placed += 1
        return True

    for group in groups:
        waiting = list(group.pods)
        while waiting and opened:
            in_turn = [(turn + step) % len(opened) for step in range(len(opened))]
            found = next((at for at in in_turn if put(waiting[0], at)), None)
            if found is None:
                break
            waiting.pop(0)
            turn = (found + 1) % len(opened)
        for each in waiting if may_open else ():
            if opened and put(each, len(opened) - 1):
                continue
            if opened and len(opened) - 1 not in with_pods:
                break
            if len(opened) >= limit:
                may_open = False
                break
            opened.append(template)
            if not put(each, len(opened) - 1):
                break
    return len(with_pods), placed


@given(
    st.lists(st.tuples(st.integers(0, 5), CPUS, st.integers(1, 9)), max_size=6), st.integers(1, 9)
)
def test_packing_by_kinds_is_packing_pod_by_pod(asked, limit):
    template = NodeState(pool(gpus=4, cpu="16").node("t"))
    kinds = PodKinds()
    by_kind = {}
    for number, (gpus, cpu, count) in enumerate(asked):
        of = pods(count, gpus, cpu, prefix=f"p{number}-")
        by_kind.setdefault(kinds.of(of[0].spec), []).extend(of)
    groups = [PodGroup(kind, tuple(of)) for kind, of in by_kind.items()]
    largest_first = sorted(groups, key=lambda each: -each.kind.requests["cpu"])
    found = estimate(groups, template, limit)
    assert (found.nodes, len(found.pods)) == one_by_one(largest_first, template, limit)


# The file loop/trigger.go


def again(actions):
    return [each.at_ms // SECOND for each in actions if isinstance(each, LookAgain)]


def test_frequent_loops_come_an_interval_after_the_last_one_and_at_once_after_a_change():
    cluster = Cluster([pool()], frequent=True)
    cluster.scan(0)
    assert cluster.policy.on_unschedulable
    # The pod is seen at 3 s, in between: from then on the loops are at 13, 23 and 33 s, when it is 30 s old.
    waiting = [pod("p", 1, at=3 * SECOND)]
    assert again(cluster.scan(3 * SECOND, waiting)) == [13]
    assert again(cluster.scan(10 * SECOND, waiting)) == []
    assert again(cluster.scan(13 * SECOND, waiting)) == [23]
    assert again(cluster.scan(23 * SECOND, waiting)) == [33]
    growth, once_more = cluster.scan(33 * SECOND, waiting)
    assert (growth.to_nodes, once_more.at_ms) == (1, 33 * SECOND)
    cluster.coming("a")
    assert again(cluster.scan(33 * SECOND, waiting)) == [43]


def test_without_them_nobody_is_asked_to_look_again():
    cluster = Cluster([pool()])
    assert again(cluster.scan(30 * SECOND, [pod("p", 1)])) == []
    assert not cluster.policy.on_unschedulable
