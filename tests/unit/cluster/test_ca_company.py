"""Pods with rules about other pods; upstream runs the scheduler's filters for them (release 1.35)."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoscaler_cases import MINUTE, Cluster, pod, pods, pool
from gpuscale.base.objects.pods import PodAffinityTerm, SpreadConstraint
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.hpa.cluster.nodes import AutoscalerSettings
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import PodKinds, Snapshot, Trial
from gpuscale.hpa.cluster.nodes.pools import NotTriggered
from gpuscale.hpa.cluster.scheduling import NodeState, Placer

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB = {"app": "web"}
AT_ONCE = AutoscalerSettings(unneeded_time_ms=0, delay_after_add_ms=0)


def term(key, app="web", *, anti=False):
    return PodAffinityTerm(key, selector_of_labels({"app": app}), anti)


def spread(key, skew=1):
    return SpreadConstraint(skew, key, True, selector_of_labels(WEB))


APART: dict[str, Any] = {"labels": WEB, "affinity": (term(HOST, anti=True),)}


def zoned(name, zone, **others):
    return pool(name, labels={ZONE: zone}, **others)


def test_pods_that_keep_apart_get_a_node_each():
    cluster = Cluster([pool()])
    cluster.node("a", [pod("on", 1, **APART)])
    assert cluster.grown(MINUTE, pods(3, 1, **APART)) == {"gpu": 3}
    # Without the rule there is room for seven.
    assert cluster.grown(MINUTE, pods(3, 1, labels=WEB, prefix="q", namespace="other")) == {}


def test_a_pod_that_was_refused_is_tried_again_where_pods_moved():
    of, there = pool(), [pod(f"on-{number}", 1, **APART) for number in range(3)]
    states = [NodeState(of.node(f"n{number}")) for number in range(3)]
    on = {f"n{number}": [each] for number, each in enumerate(there)}
    snapshot = Snapshot(states, PodKinds(), {}, on.__getitem__, repelling=True)
    asked = pod("asked", 1, **APART)
    assert snapshot.place(asked, Trial(), but=0) is None
    # What was left out is looked at next time, and what was not, stays.
    assert snapshot.place(asked, Trial(), but=1) is None
    snapshot.company.take(there[0], 0)
    assert snapshot.place(asked, Trial(), but=0) is None
    snapshot.company.take(there[2], 2)
    trial = Trial()
    assert snapshot.place(asked, trial, but=0) == 2
    assert snapshot.place(pod("next", 1, **APART), trial, but=0) is None
    snapshot.drop(trial)
    assert snapshot.place(asked, Trial()) == 0


def test_pods_on_a_node_may_keep_others_off():
    cluster = Cluster([pool()])
    cluster.node("a", [pod("on", 1, affinity=(term(HOST, "batch", anti=True),))])
    assert cluster.grown(MINUTE, [pod("p", 1, labels={"app": "batch"})]) == {"gpu": 1}
    assert cluster.grown(MINUTE, [pod("q", 1, labels=WEB)]) == {}


def test_pods_that_were_put_somewhere_in_the_same_pass_count():
    cluster = Cluster([pool()])
    cluster.node("a")
    first = pod("first", 1, labels=WEB, priority=5)
    assert cluster.grown(MINUTE, [first]) == {}
    second = pod("second", 1, affinity=(term(HOST, anti=True),))
    assert cluster.grown(MINUTE, [second, first]) == {"gpu": 1}


def test_zones_are_filled_evenly():
    pools = [zoned("a", "1"), zoned("b", "2", high=3)]
    cluster = Cluster(pools)
    cluster.node("one", [pod("on", 8, labels=WEB)], of=pools[0])
    cluster.node("two", [pod("full", 8)], of=pools[1])
    # Zone 1 has one of them and zone 2 none: with a skew of 1 the next goes to zone 2.
    waiting = [pod("p", 8, labels=WEB, spread=(spread(ZONE),))]
    assert cluster.grown(MINUTE, waiting) == {"b": 1}
    only = Cluster([pools[0], replace(pools[1], max_nodes=1)])
    only.nodes, only.on = cluster.nodes, cluster.on
    (note,) = only.scan(MINUTE, waiting)
    assert isinstance(note, NotTriggered)
    assert note.message == (
        "pod didn't trigger scale-up: 1 node(s) didn't match pod topology spread constraints, "
        "1 max node group size reached"
    )


def test_new_nodes_take_no_more_than_the_skew():
    # Two full nodes have one pod each. A new one takes two (1 - 0, then 2 - 1), and a third would be 3 - 1.
    cluster = Cluster([pool()])
    for name in ("a", "b"):
        cluster.node(name, [pod(f"on-{name}", 8, labels=WEB)])
    waiting = pods(4, 1, labels=WEB, spread=(spread(HOST),))
    assert cluster.grown(MINUTE, waiting[:2]) == {"gpu": 1}
    assert cluster.grown(MINUTE, waiting) == {"gpu": 2}


def test_pods_go_where_those_are_that_they_want_to_be_near():
    pools = [zoned("a", "1"), zoned("b", "2")]
    cluster = Cluster(pools)
    cluster.node("one", [pod("db", 8, labels={"app": "db"})], of=pools[1])
    assert cluster.grown(MINUTE, [pod("p", 8, affinity=(term(ZONE, "db"),))]) == {"b": 1}
    (note,) = cluster.scan(MINUTE, [pod("q", 8, affinity=(term(ZONE, "none"),))])
    assert note.message.endswith("2 node(s) didn't match pod affinity rules")


def test_the_first_of_a_company_may_begin_it_anywhere():
    cluster = Cluster([zoned("a", "1")])
    assert cluster.grown(MINUTE, pods(9, 1, labels=WEB, affinity=(term(ZONE),))) == {"a": 2}


def test_a_pod_does_not_move_to_where_it_may_not_be():
    cluster = Cluster([pool()], AT_ONCE)
    for name in ("a", "b"):
        cluster.node(name, [pod(f"on-{name}", 1, **APART)])
    assert cluster.gone(MINUTE) == []
    cluster.node("c", pods(5, 1, prefix="o"))
    # There is room for one of the two beside others.
    assert cluster.gone(20 * MINUTE) == ["a"]


def test_what_moved_in_a_trial_that_failed_is_where_it_was():
    # x would go to c, and y, of another node's kind, nowhere: so b's pod still may go to c.
    apart = pool("apart", gpus=8, low=2)
    cluster = Cluster([pool(), apart], AT_ONCE)
    cluster.node("a", [pod("x", 1, **APART), pod("y", 1, node_selector={"none": "x"})])
    cluster.node("b", [pod("z", 1, **APART)])
    cluster.node("c", pods(5, 1, prefix="o"), of=apart)
    assert cluster.gone(MINUTE) == ["b"]


def test_preferences_bring_no_nodes():
    cluster = Cluster([pool()])
    cluster.node("a", [pod("on", 1, labels=WEB)])
    liked = replace(term(HOST, anti=True), weight=100)
    soft = replace(spread(HOST), required=False)
    assert cluster.grown(MINUTE, [pod("p", 1, labels=WEB, affinity=(liked,), spread=(soft,))]) == {}


RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "even on nodes": {"spread": (spread(HOST),)},
    "even in zones": {"spread": (spread(ZONE), spread(HOST, 2))},
    "a node each": {"affinity": (term(HOST, anti=True),)},
    "away from batch": {"affinity": (term(ZONE, "batch", anti=True),)},
    "near": {"affinity": (term(ZONE),)},
    "on one node": {"affinity": (term(HOST),)},
}
ASKED = st.tuples(st.integers(0, 2), st.sampled_from(["web", "batch"]), st.sampled_from([*RULES]))


@given(st.lists(ASKED, max_size=25), st.lists(st.sampled_from("ab"), max_size=6))
def test_pods_with_rules_go_to_the_next_node_that_the_schedulers_filters_let_them_onto(
    asked, zones
):
    of = pool(gpus=4)
    states = [
        NodeState(replace(of, labels={ZONE: zone}).node(f"n{number}"))
        for number, zone in enumerate(zones)
    ]
    each_pod = [
        pod(f"p{number}", gpus, labels={"app": app}, **RULES[rules])
        for number, (gpus, app, rules) in enumerate(asked)
    ]
    snapshot = Snapshot(states, PodKinds(), {}, repelling=True)
    turn = 0
    for each in each_pod:
        placer = Placer(states)
        in_turn = [*range(turn, len(states)), *range(turn)]
        found = next((at for at in in_turn if not placer.misfits_with(each, states[at])), None)
        assert snapshot.put(each) is (found is not None)
        if found is not None:
            assert [at for at, on in snapshot.placed.items() if each in on] == [found]
            states[found] = states[found].with_pod(each.spec, each)
            turn = (found + 1) % len(states)
