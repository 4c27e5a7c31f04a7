"""Will a node come: autoscalers' messages, clouds' answers, and the verdict over facts of pools."""

from dataclasses import replace

import pytest

from gpuscale.base.objects.devices import (
    Device,
    DeviceAsk,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    device_classes,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, PodClaim, PodSpec
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.hpa.cluster.verdicts import (
    ComingNode,
    DenialKind,
    Offered,
    Outlook,
    PoolFacts,
    PoolLabels,
    Reason,
    Why,
    cards_of,
    cluster_autoscalers_reasons,
    denial_in,
    judge,
    karpenters_reasons,
)

GPU = "nvidia.com/gpu"


def whys(reasons):
    return [(each.pool, each.why) for each in reasons]


# What autoscalers say


def test_karpenters_reasons_are_one_for_each_pool() -> None:
    said = (
        'Failed to schedule pod, incompatible with nodepool "a", daemonset overhead={"cpu":"1"}, did not '
        'tolerate taint (taint=sku=gpu:NoSchedule); incompatible with nodepool "b", daemonset overhead={}, '
        'incompatible requirements, label "x/y" does not have known values; all available instance types '
        'exceed limits for nodepool: "c"'
    )
    found = karpenters_reasons(said)
    assert whys(found) == [("a", Why.TAINT), ("b", Why.UNKNOWN_LABEL), ("c", Why.LIMIT)]
    assert found[0].has == ("sku=gpu:NoSchedule",)
    assert found[1].key == "x/y"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        # The first three are about types, the fourth about stock (nodeclaim.go, FailureReason).
        ("no instance type has enough resources", Why.TOO_LARGE),
        (
            "no instance type met the scheduling requirements or had enough resources or had a required "
            "offering",
            Why.TOO_LARGE,
        ),
        (
            "no instance type which met the scheduling requirements and the required offering had the "
            "required resources",
            Why.TOO_LARGE,
        ),
        ("no instance type has the required offering", Why.NO_OFFERING),
        ("no instance type met all requirements", Why.LABEL),
        ("did not tolerate dedicated=eck-logs:NoSchedule", Why.TAINT),
        ("something new", Why.OTHER),
    ],
)
def test_karpenters_words_of_a_pool(said, why) -> None:
    (found,) = karpenters_reasons(f'incompatible with nodepool "gpu", {said}')
    assert (found.pool, found.why) == ("gpu", why)


def test_what_the_pod_and_the_daemon_sets_ask_for_is_read() -> None:
    said = 'no instance type satisfied resources {"cpu":"17185m","nvidia.com/gpu":"2"} and requirements x'
    (found,) = karpenters_reasons(
        f'incompatible with nodepool "gpu", {said} (no instance type has enough resources)'
    )
    assert found.asked == (("cpu", "17185m"), (GPU, "2"))


@pytest.mark.parametrize("said", ["0/3 nodes are available: 3 Insufficient cpu.", ""])
def test_what_another_scheduler_says_is_not_karpenters(said) -> None:
    assert karpenters_reasons(said) == ()


def test_cluster_autoscalers_reasons_in_old_and_new_words() -> None:
    old = (
        "pod didn't trigger scale-up (it wouldn't fit if a new node is added): 1 max limit reached"
    )
    assert whys(cluster_autoscalers_reasons(old)) == [("", Why.AT_MAX)]
    new = (
        "pod didn't trigger scale-up: 2 max cluster cpu, memory limit reached, 1 node(s) had taint {sku: "
        f"gpu}}, that the pod didn't tolerate, 1 in backoff after failed scale-up, 3 Insufficient {GPU}"
    )
    found = cluster_autoscalers_reasons(new)
    assert [each.why for each in found] == [
        Why.CLUSTER_LIMIT,
        Why.TAINT,
        Why.BACKOFF,
        Why.TOO_LARGE,
    ]
    assert (found[0].key, found[1].has, found[3].key) == ("cpu, memory", ("sku=gpu",), GPU)


# What clouds say


@pytest.mark.parametrize(
    ("text", "code", "kind", "says"),
    [
        (
            "InsufficientInstanceCapacity: We currently do not have sufficient p5.48xlarge capacity in the "
            "Availability Zone you requested (us-east-1a).",
            "",
            DenialKind.STOCK,
            "InsufficientInstanceCapacity of p5.48xlarge in us-east-1a",
        ),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", DenialKind.STOCK, "ZONE_RESOURCE_POOL_EXHAUSTED"),
        ("The zone is out", "OperationDenied.NoStock", DenialKind.STOCK, "OperationDenied.NoStock"),
        ("no Standard_NC6s_v3", "SkuNotAvailable", DenialKind.STOCK, "SkuNotAvailable"),
        ("exceeding approved Total Regional Cores quota", "", DenialKind.QUOTA, ""),
        ("VcpuLimitExceeded: limit of 64", "", DenialKind.QUOTA, "VcpuLimitExceeded"),
        (
            "InsufficientFreeAddressesInSubnet: subnet-1",
            "",
            DenialKind.ADDRESSES,
            "InsufficientFreeAddressesInSubnet",
        ),
        ("UnauthorizedOperation: no", "", DenialKind.RIGHTS, "UnauthorizedOperation"),
        ("it failed", "", DenialKind.UNKNOWN, ""),
    ],
)
def test_a_clouds_answer_says_what_is_lacking(text, code, kind, says) -> None:
    denial = denial_in(text, code)
    assert denial.kind is kind
    assert str(denial).startswith(says)


def test_no_other_zone_is_advised_against_a_quota() -> None:
    assert "zones" in DenialKind.STOCK.value
    assert "other zones don't help" in DenialKind.QUOTA.value


# The verdict


def pod(gpus=1, **more):
    requests = {GPU: parse_quantity(str(gpus)), "cpu": parse_quantity("4")}
    return PodSpec((Container("main", requests=requests, limits=requests),), **more)


def pool(name="a", **more):
    return PoolFacts(name, **more)


SKU = Taint("sku", "gpu")
TWO = parse_quantity("2")
FULL = {"limits": {GPU: parse_quantity("8")}, "used": {GPU: parse_quantity("7")}}


@pytest.mark.parametrize(
    ("spec", "facts", "why"),
    [
        (pod(), {}, None),
        (pod(), {"taints": (SKU,)}, Why.TAINT),
        (pod(tolerations=(Toleration("sku", "Exists"),)), {"taints": (SKU,)}, None),
        (pod(node_selector={"team": "x"}), {}, Why.LABEL),
        (pod(node_selector={"team": "x"}), {"labels": PoolLabels({"team": "x"})}, None),
        (pod(), FULL, None),  # 7 of 8 used, and it asks for 1
        (pod(2), FULL, Why.LIMIT),
        (pod(8), {"largest": {GPU: 4}}, Why.TOO_LARGE),
        (pod(4), {"largest": {GPU: 4}}, None),
        (pod(), {"fault": "SubnetsReady: none"}, Why.NOT_READY),
        (pod(), {"denied": "no stock"}, Why.BACKOFF),
        (
            pod(),
            {"limits": {"nodes": parse_quantity("2")}, "used": {"nodes": parse_quantity("2")}},
            Why.LIMIT,
        ),
    ],
)
def test_a_pool_makes_a_node_or_it_is_known_why_not(spec, facts, why) -> None:
    verdict = judge(spec, [pool(**facts)])
    if why is None:
        assert (verdict.outlook, verdict.pools) == (Outlook.EXPECTED, ("a",))
    else:
        assert [each.why for each in verdict.reasons] == [why]
        later = Outlook.LATER if why is Why.BACKOFF else Outlook.NEVER
        assert verdict.outlook is later


def test_one_pool_that_may_is_enough() -> None:
    verdict = judge(pod(), [pool("a", taints=(SKU,)), pool("b")])
    assert (verdict.outlook, verdict.pools) == (Outlook.EXPECTED, ("b",))
    assert whys(verdict.reasons) == [("a", Why.TAINT)]


def test_what_the_autoscaler_says_outweighs_what_the_facts_allow() -> None:
    verdict = judge(pod(), [pool()], [Reason(Why.NO_OFFERING, "a")])
    assert verdict.outlook is Outlook.LATER
    assert judge(pod(), [pool()], [Reason(Why.CLAIMS)]).outlook is Outlook.NEVER


def test_the_node_that_was_asked_for_first_is_on_its_way() -> None:
    late, early = ComingNode("a-2", 9_000), ComingNode("b-1", 4_000)
    verdict = judge(pod(), [pool("a", coming=(late,)), pool("b", coming=(early,)), pool("c")])
    assert (verdict.outlook, verdict.node, verdict.pools) == (Outlook.COMING, early, ("b",))
    kept_off = judge(pod(), [pool("b", coming=(early,), taints=(SKU,))])
    assert kept_off.outlook is Outlook.NEVER


def test_a_node_that_takes_the_pod_comes_before_all_pools() -> None:
    small, large = (
        NodeState(Node(ObjectMeta(name), {GPU: parse_quantity(count), "cpu": parse_quantity("8")}))
        for name, count in (("small", "1"), ("large", "4"))
    )
    verdict = judge(pod(2), [pool()], nodes=[small, large])
    assert (verdict.outlook, verdict.fits) == (Outlook.FITS, "large")
    assert judge(pod(8), [pool()], nodes=[small, large]).outlook is Outlook.EXPECTED


def test_without_pools_nothing_is_known() -> None:
    assert judge(pod(), []).outlook is Outlook.UNKNOWN


# Claims for devices


SPEC = PodSpec((Container("c"),))
A100 = Device("gpu-0", "gpu.nvidia.com", {"productName": "A100"})
CLASSES = device_classes([DeviceClass("gpu", ('device.driver == "gpu.nvidia.com"',))])


def claiming(*selectors: str, of: str = "gpu") -> PodSpec:
    ask = DeviceAsk("", of, selectors=selectors)
    claim = PodClaim("gpus", "template", asks=DeviceClaim((DeviceRequest("one", (ask,)),)))
    return replace(SPEC, claims=(claim,))


H100_ONLY = 'device.attributes["gpu.nvidia.com"].productName == "H100"'


@pytest.mark.parametrize(
    ("spec", "devices", "why", "wanted"),
    [
        (claiming(), [A100], None, ()),
        (claiming(H100_ONLY), [A100], Why.NO_DEVICE, (H100_ONLY,)),
        (claiming(), [], Why.NO_DEVICE, ()),
        (claiming(), None, None, ()),
        (claiming(of="other"), [A100], Why.NO_CLASS, ()),
        (claiming(of="other"), None, Why.NO_CLASS, ()),
        # A template that is not known asks for nothing.
        (replace(SPEC, claims=(PodClaim("gpus", "template"),)), [], None, ()),
    ],
)
def test_a_claim_that_no_device_matches_gets_no_node(spec, devices, why, wanted) -> None:
    found = judge(spec, [PoolFacts("a")], offered=Offered(CLASSES, devices))
    assert found.outlook is (Outlook.EXPECTED if why is None else Outlook.NEVER)
    assert [(each.why, each.wanted) for each in found.reasons] == ([(why, wanted)] if why else [])


def test_a_node_on_its_way_may_have_the_device() -> None:
    coming = PoolFacts("a", coming=(ComingNode("n", 0),))
    assert judge(claiming(), [coming], offered=Offered(CLASSES, [])).outlook is Outlook.COMING


# GPUs that HAMi shares: two cards of 16 GiB, of each of which a pod has 10 GiB and 30 % of the cores


TWO_CARDS = (
    '[{"id": "GPU-a", "count": 10, "devmem": 16384, "devcore": 100, "type": "NVIDIA-T4", "health": true},'
    '{"id": "GPU-b", "count": 10, "devmem": 16384, "devcore": 100, "type": "NVIDIA-T4", "health": true}]'
)
OLDER_FORM = "GPU-a,10,16384,100,NVIDIA-T4,0,true:GPU-b,10,16384,100,NVIDIA-T4,0,true:"
TAKEN = ("GPU-a,NVIDIA,10240,30:;", "GPU-b,NVIDIA,10240,30:;")


def sharing(**asks: str) -> PodSpec:
    names = {"mem": "gpumem", "percent": "gpumem-percentage", "cores": "gpucores", "gpus": "gpu"}
    limits = {f"nvidia.com/{names[key]}": parse_quantity(each) for key, each in asks.items()}
    return PodSpec((Container("main", limits=limits),))


@pytest.mark.parametrize("registered", [TWO_CARDS, OLDER_FORM])
@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (sharing(mem="6144"), True),
        # 12 GiB are free, 6 GiB on each card.
        (sharing(mem="10240"), False),
        (sharing(gpus="2", mem="6144"), True),
        (sharing(gpus="3", mem="1024"), False),
        (sharing(percent="37"), True),  # 6062 MiB
        (sharing(percent="38"), False),  # 6225 MiB
        (sharing(mem="1024", cores="70"), True),
        (sharing(mem="1024", cores="71"), False),
        # How much memory a pod gets that asks for none is a setting of HAMi's.
        (sharing(gpus="3"), True),
    ],
)
def test_a_share_has_to_fit_on_single_cards(registered, spec, fits) -> None:
    cards = cards_of(registered, TAKEN)
    assert cards is not None
    found = judge(spec, (), cards=[("n", cards)])
    assert [each.why for each in found.reasons] == ([] if fits else [Why.NO_CARD])
    # One more node with a card that is free.
    free = cards_of("GPU-c,10,65536,100,NVIDIA-L40S,0,true:" * 3, ())
    assert free is not None
    asks_for_several = spec.containers[0].limits.get(GPU, parse_quantity(1)).value() > 1
    also = judge(spec, (), cards=[("n", cards), ("free", free)])
    assert asks_for_several or not also.reasons


@pytest.mark.parametrize(
    ("registered", "fits"),
    [
        ("GPU-a,1,16384,100,NVIDIA-T4,0,true:", False),  # as many pods as may share it
        ("GPU-a,10,16384,100,NVIDIA-T4,0,false:", False),
        ("GPU-a,10,16384,100,NVIDIA-T4,0,true:", True),
    ],
)
def test_cards_that_are_full_or_ill_take_nothing(registered, fits) -> None:
    cards = cards_of(registered, ("GPU-a,NVIDIA,1024,0:;",))
    assert cards is not None
    assert bool(judge(sharing(mem="1024"), (), cards=[("n", cards)]).reasons) is not fits


@pytest.mark.parametrize(
    ("registered", "allocated"),
    [("[]", ()), ("[{}]", ()), ("x", ()), ("{", ()), (OLDER_FORM, ("GPU-z,NVIDIA,1,1:;",))],
)
def test_cards_that_are_not_known_are_no_cards(registered, allocated) -> None:
    assert cards_of(registered, allocated) is None
