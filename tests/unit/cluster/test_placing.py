"""Many pods placed by classes, against one attempt after the other on all nodes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, Pod, PodAffinityTerm, PodSpec
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling import placing
from gpuscale.hpa.cluster.scheduling.fit import NodeState, misfits_but_devices
from gpuscale.hpa.cluster.scheduling.neighbours import HOSTNAME
from gpuscale.hpa.cluster.scheduling.placing import Placer

TAINT = Taint("sku", "gpu", "NoSchedule")
SELECTOR = selector_of_labels({"app": "a"})


def pod(gpus, cpu="1", pool=None, *, tolerates=False, app="a", apart=False):
    amounts = {"nvidia.com/gpu": parse_quantity(gpus), "cpu": parse_quantity(cpu)}
    term = PodAffinityTerm("zone", selector_of_labels({"app": app}), is_anti=True, weight=7)
    spec = PodSpec(
        (Container("c", requests=amounts),),
        node_selector={"pool": pool} if pool else {},
        tolerations=(Toleration("sku", "Exists"),) if tolerates else (),
        affinity=(term,) if apart else (),
    )
    return Pod(ObjectMeta("p", labels={"app": app}), spec)


def state(name, gpus, pool="a", *, tainted=False, pods=110):
    amounts = {"nvidia.com/gpu": gpus, "cpu": 8, "memory": "32Gi", "pods": pods}
    allocatable = {key: parse_quantity(value) for key, value in amounts.items()}
    return NodeState(
        Node(
            ObjectMeta(name, "", {"pool": pool, "zone": name[-1], HOSTNAME: name}),
            allocatable,
            (TAINT,) if tainted else (),
        )
    )


def one_by_one(nodes, pods):
    """Return nodes and messages of pods that each meet a placer that knows nothing yet."""
    states, found = {each.name: each for each in nodes}, []
    for each in pods:
        placer = Placer(states.values(), selector_of=lambda _pod: SELECTOR)
        placement = placer.place(each)
        found.append((placement.node, placement.message))
        states = dict(placer.states)
    return found


PODS = st.builds(
    pod,
    st.integers(1, 4),
    st.sampled_from(["1", "3", "500m"]),
    st.sampled_from([None, "a", "b"]),
    tolerates=st.booleans(),
    app=st.sampled_from("ab"),
    apart=st.booleans(),
)


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.sampled_from("ab"), st.booleans(), st.integers(1, 4)),
        max_size=8,
    ),
    st.lists(PODS, max_size=5),
    st.lists(st.integers(0, 4), max_size=40),
)
def test_classes_place_as_one_attempt_after_the_other_does(shapes, kinds, order):
    nodes = [
        state(f"n{number}", gpus, pool, tainted=tainted, pods=pods)
        for number, (gpus, pool, tainted, pods) in enumerate(shapes)
    ]
    pods = [kinds[index] for index in order if index < len(kinds)]
    placer = Placer(nodes, selector_of=lambda _pod: SELECTOR)
    placements = [placer.place(each) for each in pods]
    assert [(each.node, each.message) for each in placements] == one_by_one(nodes, pods)


def test_pods_that_are_alike_look_at_a_node_once_and_after_each_change(monkeypatch):
    looks = Counter()

    def counted(spec, there):
        looks[there.name] += 1
        return misfits_but_devices(spec, there)

    monkeypatch.setattr(placing, "misfits_but_devices", counted)
    placer = Placer([state(f"n{number:04}", 8) for number in range(1_000)])
    # A thousand services with specs of their own that ask for the same; all fit.
    assert all(placer.place(pod(1)).node for _ in range(4_000))
    # Each node at first, and one for each of the pods but the last, after which there is none to place.
    assert looks.total() == 1_000 + 4_000 - 1
