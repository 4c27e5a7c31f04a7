"""The index of a cluster's pods answers what a look at every pod would, whatever happened to them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.objects.label_index import SelectorIndex
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, Pod, PodPhase, PodSpec, PodStatus
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling.fit import node_state
from gpuscale.hpa.selectors import hpas_selecting
from gpuscale.hpa.types import PodInfo
from gpuscale.lab.sim.autoscaler import selecting_hpas
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.pod_index import FINISHED, is_daemon

SELECTORS = ("", "app=a", "app in (a,b)", "app=a,tier=x", "tier!=x", "!tier", "app in (b),tier")
OWNERS = (("ReplicaSet", "a"), ("ReplicaSet", "b"), ("Job", "a"), ("DaemonSet", "agent"))
PHASES = (PodPhase.PENDING, PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED)

labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from("abc"), "tier": st.sampled_from("xy")}
)
steps = st.one_of(
    st.tuples(st.just("add"), labels, st.sampled_from(OWNERS), st.sampled_from(("n1", "n2"))),
    st.tuples(st.just("bind"), st.integers(0, 20), st.sampled_from(("node0", "node1"))),
    st.tuples(st.just("status"), st.integers(0, 20), st.sampled_from(PHASES), st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("look")),
)


def cluster() -> Cluster:
    made = Cluster(1)
    for name in ("node0", "node1"):
        made.add_node(Node(ObjectMeta(name, ""), {"nvidia.com/gpu": parse_quantity("3")}), 3)
    return made


def play(made: Cluster, number: int, step: tuple) -> None:
    match step:
        case ("add", found, (kind, owner), namespace):
            name = made.new_pod_name(namespace, owner, kind, owner)
            meta = ObjectMeta(name, namespace, found, {}, number, None, OwnerReference(kind, owner))
            gpu = Container("c", requests={"nvidia.com/gpu": parse_quantity("1")})
            made.add_pod(Pod(meta, PodSpec((gpu,))))
        case ("look",):
            made.node_states()
        case (what, index, *rest) if made.pods:
            key = list(made.pods)[index % len(made.pods)]
            pod = made.pods[key]
            if what == "remove":
                made.remove_pod(key)
            elif what == "delete":
                made.mark_deleted(key, number)
            elif what == "status":
                made.set_status(key, PodStatus(rest[0], 1, rest[1], number))
            elif not pod.spec.node_name and () in made.devices.holders(rest[0]):
                made.bind(key, rest[0])


def check(made: Cluster) -> None:
    pods, index = list(made.pods.values()), made.index
    for namespace in ("n1", "n2"):
        inside = [pod for pod in pods if pod.metadata.namespace == namespace]
        for text in SELECTORS:
            selector = parse_selector(text)
            expected = [pod for pod in inside if selector.matches(pod.metadata.labels)]
            assert made.selected(namespace, selector) == expected
        for kind, name in OWNERS:
            own = [pod for pod in inside if pod.metadata.owner == OwnerReference(kind, name)]
            live = [
                pod
                for pod in own
                if pod.metadata.deletion_ms is None and pod.status.phase not in FINISHED
            ]
            key = (kind, namespace, name)
            assert made.owned_by(*key) == own
            assert index.live[key] == len(live)
            assert index.ready[key] == sum(pod.status.ready is True for pod in live)
            assert index.running[key] == sum(pod.status.phase is PodPhase.RUNNING for pod in own)
    assert made.unscheduled() == [
        pod for pod in pods if not pod.spec.node_name and pod.metadata.deletion_ms is None
    ]
    assert index.pending == sum(pod.status.phase is PodPhase.PENDING for pod in pods)
    assert +index.namespaces == {
        name: count
        for name in ("n1", "n2")
        if (count := sum(pod.metadata.namespace == name for pod in pods))
    }
    states = made.node_states()
    assert list(states) == list(made.nodes)
    for name, node in made.nodes.items():
        held = [
            pod for pod in pods if pod.spec.node_name == name and pod.status.phase not in FINISHED
        ]
        assert states[name] == node_state(node, held)
        assert index.busy[name] == sum(not is_daemon(pod) for pod in held)
        assert sorted(pod.metadata.key for pod in made.pods_on(name)) == sorted(
            pod.metadata.key for pod in pods if pod.spec.node_name == name
        )


@at_most(60)
@given(st.lists(steps, max_size=40))
def test_each_answer_is_that_of_a_look_at_every_pod(history) -> None:
    made = cluster()
    for number, step in enumerate(history):
        play(made, number, step)
    check(made)


@at_most(60)
@given(st.lists(steps, max_size=25), steps)
def test_a_selection_that_changes_has_another_version(history, last) -> None:
    made = cluster()
    for number, step in enumerate(history):
        play(made, number, step)
    selectors = [parse_selector(text) for text in SELECTORS]
    before = [
        (each, made.selected("n1", each), made.index.selection_version("n1", each))
        for each in selectors
    ]
    play(made, 100, last)
    for selector, found, version in before:
        if made.selected("n1", selector) != found:
            now = made.index.selection_version("n1", selector)
            assert all(new > old for new, old in zip(now, version, strict=True))


@at_most(60)
@given(
    st.dictionaries(st.sampled_from("pqrstu"), st.sampled_from(SELECTORS)),
    st.lists(labels, max_size=5),
)
def test_hpas_are_found_by_labels_as_one_after_the_other(texts, found) -> None:
    selectors = {f"default/{key}": parse_selector(text) for key, text in texts.items()}
    info = PodInfo("p", {}, PodPhase.RUNNING)
    pods = [replace(info, labels=each) for each in found]
    ranked = SelectorIndex(((rank, key), selectors[key]) for rank, key in enumerate(selectors))
    assert selecting_hpas(ranked, pods) == hpas_selecting(pods, selectors)


def test_a_generated_name_that_is_taken_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(("aaaaa", "aaaaa", "bbbbb"))
    monkeypatch.setattr("gpuscale.lab.sim.cluster.name_suffix", lambda *_: next(drawn))
    made = Cluster(1)
    for expected in ("web-aaaaa", "web-bbbbb"):
        name = made.new_pod_name("default", "web", "x")
        assert name == expected
        made.add_pod(Pod(ObjectMeta(name), PodSpec((Container("c"),))))
