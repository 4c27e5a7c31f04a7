"""Pods that claim devices, among nodes that have some."""

from dataclasses import replace

import pytest

from device_objects import CLASS, claim_of, node_of
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, Pod, PodClaim, PodSpec
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling import Placer, find_victims, misfits, node_state
from gpuscale.hpa.cluster.scheduling.claims import unmatched

ONE = "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}"
SERVED = CLASS + "  extendedResourceName: example.com/gpu\n"
HUNDRED = {"cpu": parse_quantity(100), "memory": parse_quantity("100Gi"), "pods": parse_quantity(9)}


def devices(*names: str, classes=(CLASS,)):
    listed = ", ".join(
        f"{{name: {each}, attributes: {{large: {{bool: false}}}}}}" for each in names
    )
    return node_of(f"devices: [{listed}]", classes=classes)


def node(name: str, has, **allocatable) -> Node:
    meta = ObjectMeta(name, "", {"kubernetes.io/hostname": name})
    return Node(meta, {**HUNDRED, **allocatable}, devices=has)


def placer(*nodes: Node) -> Placer:
    return Placer([node_state(each, ()) for each in nodes])


def pod(name: str, claim: str = ONE, **spec) -> Pod:
    claims = (PodClaim("gpu", "one", asks=claim_of(claim)),) if claim else ()
    return Pod(ObjectMeta(name), PodSpec((Container("c"),), claims=claims, **spec))


def test_a_device_is_had_by_one_pod() -> None:
    place = placer(node("a", devices("d0", "d1")), node("b", devices())).place
    found = [place(pod(name)) for name in ("p", "q", "r")]
    assert [each.node for each in found] == ["a", "a", None]
    assert [{key[2] for key in each.devices} for each in found] == [{"d0"}, {"d1"}, set()]
    assert found[2].message == "0/2 nodes are available: 2 cannot allocate all claims."


def test_what_a_pod_got_is_kept_for_it() -> None:
    there = replace(pod("p", node_name="a"), devices=frozenset({("gpu.example.com", "n", "d1")}))
    state = node_state(node("a", devices("d0", "d1")), [there])
    assert {key[2] for key in state.held} == {"d1"}
    assert not misfits(pod("q").spec, state)
    assert misfits(pod("r").spec, state.with_pod(pod("q").spec)) == ("cannot allocate all claims",)


def test_other_rules_are_told_before_claims() -> None:
    # As the order of plugins is: resources, spread and affinity of pods, then claims.
    full = placer(node("a", devices(), cpu=parse_quantity(0)))
    spec = pod("p").spec
    wants = replace(spec, containers=(Container("c", requests={"cpu": parse_quantity(1)}),))
    message = full.place(replace(pod("p"), spec=wants)).message
    assert message == "0/1 nodes are available: 1 Insufficient cpu."


def test_nodes_with_the_preferred_alternative_come_first() -> None:
    text = (
        "{requests: [{name: r, firstAvailable: [{name: two, deviceClassName: gpu, count: 2},"
        " {name: one, deviceClassName: gpu}]}]}"
    )
    # The first node would be taken by its place; the other has 8 points in place of 7: 100 of 100.
    of = placer(node("a", devices("d0")), node("b", devices("d0", "d1")))
    assert of.best_nodes(pod("p", text)) == ("b",)
    assert of.place(pod("p", text)).node == "b"
    assert of.place(pod("q", text)).node == "a"


def test_a_resource_is_served_by_devices_where_no_plugin_offers_it() -> None:
    by_plugin = {"example.com/gpu": parse_quantity(1)}
    nodes = (
        node("a", devices("d0", classes=[SERVED])),
        node("b", devices("d0", classes=[SERVED]), **by_plugin),
        node("c", devices(classes=[SERVED])),
    )
    of = placer(*nodes)
    asking = PodSpec((Container("c", requests={"example.com/gpu": parse_quantity(1)}),))
    found = [of.place(Pod(ObjectMeta(name), asking)) for name in ("p", "q", "r")]
    assert [(each.node, len(each.devices)) for each in found] == [("a", 1), ("b", 0), (None, 0)]
    assert found[2].message == (
        "0/3 nodes are available: 1 Insufficient example.com/gpu, 2 cannot allocate all claims."
    )
    # By the class's own name too.
    implicit = {"deviceclass.resource.kubernetes.io/gpu": parse_quantity(1)}
    by_name = Pod(ObjectMeta("s"), PodSpec((Container("c", requests=implicit),)))
    assert placer(*nodes).place(by_name).node == "a"


def test_init_containers_share_the_devices_of_those_that_come_after() -> None:
    # 3 for a while and 1 + 1 for long: the long ones' 2, and 1 more.
    def containers(**counts):
        return tuple(
            Container(name, requests={"example.com/gpu": parse_quantity(count)})
            for name, count in counts.items()
        )

    spec = PodSpec(containers(c=1, d=1), containers(first=3, second=2))
    for count, fits in ((3, True), (2, False)):
        has = devices(*(f"d{number}" for number in range(count)), classes=[SERVED])
        assert bool(not misfits(spec, node_state(node("a", has), ()))) is fits


def test_a_claim_that_cannot_be_judged_keeps_a_pod_off_all_nodes() -> None:
    of = placer(node("a", devices("d0")), node("b", devices("d0")))
    rack = 'device.attributes["gpu.example.com"].rack == 1'
    claim = (
        "{requests: [{name: r, exactly: {deviceClassName: gpu,"
        f" selectors: [{{cel: {{expression: '{rack}'}}}}]}}}}]}}"
    )
    found = of.place(pod("p", claim))
    assert (found.node, found.message) == (
        None,
        'running "DynamicResources" filter plugin: claim gpu: selector #0 on device gpu.example.com/n/d0: '
        "CEL runtime error: no such key: rack",
    )


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ("{name: r, exactly: {deviceClassName: gpu, count: 9}}", ""),
        (
            "{name: r, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: SMALL}}]}}",
            "",
        ),
        (
            "{name: r, exactly: {deviceClassName: gpu, selectors: "
            "[{cel: {expression: SMALL}}, {cel: {expression: LARGE}}]}}",
            "LARGE",
        ),
        (
            "{name: r, firstAvailable: [{name: a, deviceClassName: gpu, selectors: "
            "[{cel: {expression: LARGE}}]}, {name: b, deviceClassName: gpu}]}",
            "",
        ),
    ],
)
def test_the_expression_that_no_device_satisfies_is_named(requests, expected) -> None:
    small = 'device.attributes["gpu.example.com"].large == false'
    large = 'device.attributes["gpu.example.com"].large'
    of = {"SMALL": f"'{small}'", "LARGE": f"'{large}'"}
    for name, text in of.items():
        requests = requests.replace(name, text)
    has = devices("d0", "d1")
    claim = claim_of(f"{{requests: [{requests}]}}")
    found = unmatched(claim, has.classes, has.pools[0].devices)
    assert found == of.get(expected, "''").strip("'")


def test_nobody_is_preempted_for_devices() -> None:
    # UnschedulableAndUnresolvable; and what victims have counts as allocated while they are looked for.
    of = placer(node("a", devices("d0"), cpu=parse_quantity(1)))
    low, high = pod("low"), pod("high", priority=10)
    one_cpu = (Container("c", requests={"cpu": parse_quantity(1)}),)
    assert of.place(low).node == "a"
    assert find_victims(of, high, ()).message == (
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    of = placer(node("a", devices("d0"), cpu=parse_quantity(1)))
    assert of.place(replace(low, spec=replace(low.spec, containers=one_cpu))).node == "a"
    found = find_victims(of, replace(high, spec=replace(high.spec, containers=one_cpu)), ())
    assert found.message == "0/1 nodes are available: 1 cannot allocate all claims."
