"""Which devices claims get on a node."""

import sys

import pytest

from device_objects import claim_of, node_of, slice_of
from gpuscale.base.errors import ConfigError, UnavailableError
from gpuscale.base.objects.devices import Device, Version
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling.devices import selecting
from gpuscale.hpa.cluster.scheduling.devices.allocating import (
    AllocationError,
    NamedClaim,
    allocate,
)
from gpuscale.hpa.cluster.scheduling.devices.selecting import SelectorError

FOUR = """\
devices:
- {name: gpu-0, attributes: {numa: {int: 0}, model: {string: a}}, capacity: {memory: {value: 40Gi}}}
- {name: gpu-1, attributes: {numa: {int: 1}, model: {string: a}}, capacity: {memory: {value: 80Gi}}}
- {name: gpu-2, attributes: {numa: {int: 0}, model: {string: b}}, capacity: {memory: {value: 80Gi}}}
- {name: gpu-3, attributes: {numa: {int: 1}, model: {string: b}}, capacity: {memory: {value: 40Gi}}}
"""
LARGE = 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))'
# A GPU of 7 slices, whole or as a half and two quarters; each takes what it is of the GPU's counters.
COUNTERS = "sharedCounters: [{name: gpu-0, counters: {slices: {value: 7}}}]"
PARTS = "devices:\n" + "".join(
    f"- name: {name}\n"
    f"  consumesCounters: [{{counterSet: gpu-0, counters: {{slices: {{value: {count}}}}}}}]\n"
    for name, count in (("whole", 7), ("half", 4), ("quarter-0", 2), ("quarter-1", 2))
)


def named(number: int, text: str) -> NamedClaim:
    return NamedClaim(f"default/c{number}", claim_of(text))


def got(node, *claims, held=()):
    """Return the names of the devices of each claim, or None."""
    keys = frozenset(("gpu.example.com", "n", each) for each in held)
    found = allocate([named(*each) for each in enumerate(claims)], node, keys)
    return found and [[key[2] for key in each] for each in found.devices]


def one(more: str = "", name: str = "r") -> str:
    return f"{{name: {name}, exactly: {{deviceClassName: gpu{more}}}}}"


def asks(*requests: str, constraints: str = "") -> str:
    more = f", constraints: [{constraints}]" if constraints else ""
    return f"{{requests: [{', '.join(requests)}]{more}}}"


def test_the_first_devices_that_are_free_are_had() -> None:
    node = node_of(FOUR)
    assert got(node, asks(one())) == [["gpu-0"]]
    assert got(node, asks(one(", count: 2")), held=["gpu-0"]) == [["gpu-1", "gpu-2"]]
    assert got(node, asks(one(", count: 3")), held=["gpu-0", "gpu-1"]) is None
    assert got(node, asks(one()), asks(one(", count: 2"))) == [["gpu-0"], ["gpu-1", "gpu-2"]]


def test_an_early_choice_is_given_up_for_the_sake_of_a_later_one() -> None:
    # The first request would take gpu-1, one of the two that the second can have; both are then needed.
    large = f", count: 2, selectors: [{{cel: {{expression: '{LARGE}'}}}}]"
    node = node_of(FOUR)
    assert got(node, asks(one(), one(large, "s")), held=["gpu-0"]) == [["gpu-3", "gpu-1", "gpu-2"]]


def test_devices_of_a_claim_have_an_attribute_in_common_or_all_another() -> None:
    node = node_of(FOUR)
    same = "{matchAttribute: gpu.example.com/numa}"
    other = "{distinctAttribute: gpu.example.com/numa}"
    assert got(node, asks(one(", count: 2"), constraints=same)) == [["gpu-0", "gpu-2"]]
    assert got(node, asks(one(", count: 3"), constraints=same)) is None
    assert got(node, asks(one(", count: 2"), constraints=other)) == [["gpu-0", "gpu-1"]]
    assert got(node, asks(one(", count: 3"), constraints=other)) is None
    both = f"{same}, {{matchAttribute: gpu.example.com/model}}"
    assert got(node, asks(one(", count: 2"), constraints=both)) is None
    # A constraint on the other request alone.
    of_s = "{matchAttribute: gpu.example.com/numa, requests: [s]}"
    assert got(node, asks(one(), one(", count: 2", "s"), constraints=of_s)) == [
        ["gpu-0", "gpu-1", "gpu-3"]
    ]
    unknown = "{matchAttribute: gpu.example.com/rack}"
    assert got(node, asks(one(), constraints=unknown)) is None


def test_all_devices_are_had_or_none() -> None:
    node = node_of(FOUR)
    everything = ", allocationMode: All"
    assert got(node, asks(one(everything))) == [["gpu-0", "gpu-1", "gpu-2", "gpu-3"]]
    assert got(node, asks(one(everything)), held=["gpu-3"]) is None
    assert got(node_of("devices: []"), asks(one(everything))) is None
    with pytest.raises(AllocationError, match=r"cannot add device gpu.example.com/n/gpu-1 because"):
        got(node, asks(one(everything), constraints="{matchAttribute: gpu.example.com/numa}"))


def test_the_least_capacity_is_heeded() -> None:
    node = node_of(FOUR)
    assert got(node, asks(one(", capacity: {requests: {memory: 41Gi}}"))) == [["gpu-1"]]
    assert got(node, asks(one(", capacity: {requests: {cores: 1}}"))) is None


def test_the_first_alternative_that_can_be_had_is_had_and_earlier_ones_have_more_points() -> None:
    node = node_of(FOUR)
    text = (
        "{requests: [{name: r, firstAvailable: ["
        f"{{name: large, deviceClassName: gpu, count: 2, selectors: [{{cel: {{expression: '{LARGE}'}}}}]}},"
        "{name: any, deviceClassName: gpu, count: 3}]}]}"
    )
    found = allocate([named(0, text)], node, frozenset())
    assert found is not None
    assert ([key[2] for key in found.devices[0]], found.points) == (["gpu-1", "gpu-2"], 8)
    held = frozenset({("gpu.example.com", "n", "gpu-1")})
    found = allocate([named(0, text)], node, held)
    assert found is not None
    assert ([key[2] for key in found.devices[0]], found.points) == (["gpu-0", "gpu-2", "gpu-3"], 7)


def test_parts_of_a_gpu_are_had_as_far_as_its_counters_reach() -> None:
    node = node_of(COUNTERS, PARTS)
    assert got(node, asks(one())) == [["whole"]]
    # 4 + 2 of 7 slices; another 2 are not left.
    assert got(node, asks(one()), held=["half"]) == [["quarter-0"]]
    assert got(node, asks(one(", count: 2")), held=["half"]) is None
    assert got(node, asks(one(", count: 2"))) == [["half", "quarter-0"]]
    assert got(node, asks(one(", count: 3"))) is None
    assert got(node, asks(one()), held=["whole"]) is None


def test_a_taint_keeps_off_whoever_does_not_tolerate_it() -> None:
    node = node_of(
        "devices:\n"
        "- {name: a, taints: [{key: broken, value: ecc, effect: NoSchedule}]}\n"
        "- {name: b, taints: [{key: worn, effect: NoExecute}, {key: noted, effect: None}]}\n"
    )
    assert got(node, asks(one())) is None
    for toleration, device in (
        ("{key: broken, value: ecc}", "a"),
        ("{key: broken, operator: Exists, effect: NoSchedule}", "a"),
        ("{key: worn, operator: Exists}", "b"),
        ("{operator: Exists, effect: NoExecute}", "b"),
    ):
        assert got(node, asks(one(f", tolerations: [{toleration}]"))) == [[device]]
    for toleration in (
        "{key: broken, value: hot}",
        "{operator: Exists, effect: NoExecute, key: x}",
    ):
        assert got(node, asks(one(f", tolerations: [{toleration}]"))) is None


def test_a_claim_has_at_most_32_devices() -> None:
    many = "devices:\n" + "".join(f"- {{name: d{number:02}}}\n" for number in range(40))
    node = node_of(many)
    (found,) = got(node, asks(one(", count: 32")))
    assert found == [f"d{number:02}" for number in range(32)]
    with pytest.raises(AllocationError, match="adding 33 devices exceeds the claim limit of 32"):
        got(node, asks(one(", count: 33")))
    with pytest.raises(
        AllocationError, match=r"adding 20 devices .* with 20 already accounted for"
    ):
        got(node, asks(one(", count: 20"), one(", count: 20", "s")))
    # 20 and the first alternative are too many; the second fits.
    lists = (
        "{name: s, firstAvailable: [{name: a, deviceClassName: gpu, count: 20},"
        " {name: b, deviceClassName: gpu, count: 12}]}"
    )
    (found,) = got(node, asks(one(", count: 20"), lists))
    assert len(found) == 32


def test_pools_come_in_the_order_of_their_names_and_slices_too() -> None:
    node = node_of("pool: {name: z}\ndevices: [{name: a}]", "pool: {name: b}\ndevices: [{name: c}]")
    assert got(node, asks(one())) == [["c"]]
    node = node_of("devices: [{name: b}]", "devices: [{name: a}]")
    assert got(node, asks(one())) == [["b"]]


def test_a_selector_that_asks_for_what_a_device_has_not_is_an_error() -> None:
    node = node_of(FOUR)
    text = 'device.attributes["gpu.example.com"].rack == "r1"'
    claim = asks(one(f", selectors: [{{cel: {{expression: '{text}'}}}}]"))
    with pytest.raises(
        AllocationError, match=r"claim default/c0: selector #0 on device .*/n/gpu-0: CEL"
    ):
        got(node, claim)
    with pytest.raises(AllocationError, match="could not retrieve device class tpu"):
        got(node, "{requests: [{name: r, exactly: {deviceClassName: tpu}}]}")


DEVICE = Device(
    "gpu-0",
    "gpu.example.com",
    {
        "type": "gpu",
        "index": 3,
        "ok": True,
        "driverVersion": Version("550.54.15"),
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    },
    capacity={"memory": parse_quantity("40Gi")},
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.allowMultipleAllocations", False),
        ('device.attributes["gpu.example.com"].type == "mig"', False),
        ('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"', True),
        ('cel.bind(own, device.attributes["gpu.example.com"], own.index == 3 && own.ok)', True),
        ('device.attributes["gpu.example.com"].?rack.orValue("r0") == "r0"', True),
        # A domain that the device has nothing of is an empty map, and is not there.
        ('"rack" in device.attributes["other.example.com"]', False),
        ('device.attributes["other.example.com"].?rack.orValue(0) == 0', True),
        ('"other.example.com" in device.attributes', False),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40960Mi")) == 0', True),
        ('device.capacity["gpu.example.com"].memory == quantity("40Gi")', True),
        ('device.capacity["gpu.example.com"].memory.isLessThan(quantity("40G"))', False),
        (
            'device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("550.9.0"))',
            True,
        ),
        ('device.attributes["gpu.example.com"].driverVersion.major() >= 550', True),
        # semver.org 2.0.0, 11: a version before its release, numbers before words, fewer parts first.
        ('semver("1.0.0-alpha.1").isLessThan(semver("1.0.0-alpha.beta"))', True),
        ('semver("1.0.0-alpha").isLessThan(semver("1.0.0-alpha.1"))', True),
        ('semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))', True),
        ('semver("v1.2", true) == semver("1.2.0")', True),
        ('isSemver("1.2") || isQuantity("ten")', False),
        ('quantity("1500m").isInteger()', False),
        ('quantity("2k").asInteger() + quantity("-1").sign() == 1999', True),
        ('quantity("1").add(quantity("500m")).sub(1) == quantity("0.5")', True),
    ],
)
def test_selectors_are_evaluated_as_kubernetes_does(expression, expected) -> None:
    assert selecting.matches(expression, DEVICE) is expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ('device.attributes["gpu.example.com"].rack == 1', "runtime error: no such key: rack"),
        ('device.attributes["gpu.example.com"].type', "it gives 'gpu', not true or false"),
        ('quantity("500m").asInteger() == 0', "cannot convert value to integer"),
        ("device.driver ==", "CEL compile error"),
        ("rack(device)", "undeclared reference to 'rack'"),
    ],
)
def test_an_expression_that_fails_says_why(expression, said) -> None:
    with pytest.raises(SelectorError, match=said):
        selecting.matches(expression, DEVICE)


def test_without_the_package_the_error_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    selecting._environment.cache_clear()
    with pytest.raises(UnavailableError, match=r"pip install 'gpuscale\[dra\]'"):
        selecting.check_selector("device.driver == 'asked for the first time'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allNodes: true\ndevices: [{name: a}]", "found one, expected devices of one node"),
        ("devices: [{name: a, allowMultipleAllocations: true}]", "none: it is not simulated"),
        (
            "devices: [{name: a, attributes: {x: {int: yes}}}]",
            "one of string, int, bool and version",
        ),
        ("devices: [{name: a}]\nsharedCounters: [{name: c}]", "each in a slice of its own"),
    ],
)
def test_devices_that_are_not_simulated_are_refused(text, said) -> None:
    with pytest.raises(ConfigError, match=said):
        slice_of(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (asks(one(", adminAccess: true")), "adminAccess"),
        (asks(one(", count: 0")), "a number from 1 on"),
        (asks(one(), constraints="{matchAttribute: numa}"), "a name with its domain"),
        (
            asks(one(", tolerations: [{key: a, operator: Exists, tolerationSeconds: 5}]")),
            "simulated",
        ),
        ("{requests: []}", "at least one request"),
    ],
)
def test_claims_that_are_not_simulated_are_refused(text, said) -> None:
    with pytest.raises(ConfigError, match=said):
        claim_of(text)


def test_a_claim_in_the_form_of_v1beta1_is_the_same() -> None:
    assert claim_of("{requests: [{name: r, deviceClassName: gpu, count: 2}]}") == claim_of(
        asks(one(", count: 2"))
    )
