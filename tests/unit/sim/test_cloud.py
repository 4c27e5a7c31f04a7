"""Nodes that come late, don't come, or go with pods on them: what a node policy asks of the cloud."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.taints import Taint
from gpuscale.hpa.cluster.nodes import (
    LaunchFailure,
    LookAgain,
    NodeRequest,
    NotTriggered,
    Offering,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.nodes.pools import Action
from gpuscale.lab.queueing.times import Constant
from gpuscale.lab.sim.control.supply import Stock, StockOut, Supply
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import START_MS, simulate

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
BUDGET = """\
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"""
Scan = Callable[[NodeRequest], Sequence[Action]]


def setup(pool: str, manifests: str = WEB, more: str = "") -> Setup:
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: small}}
spec:
  duration: 20m
  manifests: [{{file: m}}]
  nodePools: [{{{pool}}}]
{more}"""
    return load_setup(text, "s.yaml", lambda _: manifests)


EQUAL = "name: gpu, gpuModel: Tesla T4, gpus: 1, max: 4, provisioningTime: 60s"


def run(of: Setup, scan: Scan, *, eager: bool = False) -> tuple[dict[str, Any], list[NodeRequest]]:
    """Return the document of a run under a policy, and what it was asked."""
    asked: list[NodeRequest] = []

    class Scripted:
        on_unschedulable = eager

        def scan(self, request: NodeRequest) -> Sequence[Action]:
            asked.append(request)
            return scan(request)

    return simulate(of, node_policy=Scripted), asked


def times(document: dict[str, Any], kind: str, about: str = "") -> list[float]:
    """Return when events of a kind happened, in seconds."""
    return [
        event["t"]
        for event in document["events"]
        if event["kind"] == kind and about in event["object"]
    ]


def second(request: NodeRequest) -> float:
    return (request.now_ms - START_MS) / 1000


def once(at_s: float, *actions: Action) -> Scan:
    """Return a policy that does this at its first scan from a time on, and nothing else."""
    left = list(actions)

    def scan(request: NodeRequest) -> Sequence[Action]:
        if second(request) < at_s:
            return ()
        done, left[:] = tuple(left), []
        return done

    return scan


def test_a_node_with_pods_is_drained_before_it_goes() -> None:
    """Its pod is evicted, its controller makes another, and only then the node goes."""
    took: list[str] = []

    def scan(request: NodeRequest) -> Sequence[Action]:
        if second(request) < 300 or took:
            return ()
        node = next(node for node in request.nodes if not node.empty)
        took.append(node.state.name)
        away = ScaleDown("gpu", node.state.name, 3, "underused", Taint("going"))
        return (away, LookAgain(request.now_ms + 500))

    document, asked = run(setup(f"{EQUAL}, min: 3"), scan)
    (killed,) = times(document, "Killing")
    assert killed == 300
    assert len(times(document, "SuccessfulCreate")) == 3
    assert document["summary"]["nodePools"]["gpu"]["finalNodes"] == 2
    leaving = [each for request in asked for each in request.nodes if each.leaving]
    assert {each.state.name for each in leaving} == set(took)
    assert all(Taint("going") in each.state.node.taints for each in leaving)
    # Two nodes for 20 minutes; the third until its pod had stopped.
    stopped_s = document["summary"]["nodeHours"] * 3600 - 2 * 1200
    assert 300 < stopped_s <= 300 + 31


def test_a_budget_holds_evictions_back_until_another_pod_is_ready() -> None:
    """Of two pods, two must stay: the node waits with its pod, for ever."""

    def scan(request: NodeRequest) -> Sequence[Action]:
        (budget,) = request.budgets
        assert budget.disruptions_allowed == 0
        going = any(node.leaving for node in request.nodes)
        busy = [node.state.name for node in request.nodes if not node.empty]
        return () if going or second(request) < 300 else (ScaleDown("gpu", busy[0], 3),)

    document, _ = run(setup(f"{EQUAL}, min: 3", WEB + BUDGET), scan)
    assert not times(document, "Killing")
    assert document["summary"]["nodePools"]["gpu"]["finalNodes"] == 3


def test_gpus_may_come_after_the_node_is_ready() -> None:
    """Node after 60 s, GPU 120 s after that: the pod waits for both, and the rental starts at once."""
    pool = f"{EQUAL}, min: 1, gpuStartTime: 120s"
    document, asked = run(setup(pool), once(10, ScaleUp("gpu", 1, 2, ())))
    assert times(document, "NodeReady") == [0, 70]
    assert times(document, "Scheduled") == [0, 190]
    coming = [node for request in asked for node in request.nodes if not node.ready]
    assert {node.joined_ms and (node.joined_ms - START_MS) // 1000 for node in coming} == {None, 70}
    offered = {str(node.state.node.allocatable["nvidia.com/gpu"]) for node in coming}
    assert offered == {"1"}, "what it will have counts from the start"


def test_a_stock_out_is_told_and_the_size_stays() -> None:
    """No stock from 0 to 5 minutes; asked at 10 s for two, and again when it is over."""
    pool = f"{EQUAL}, min: 1, stockOuts: [{{length: 5m, code: OutOfCapacity}}]"

    def scan(request: NodeRequest) -> Sequence[Action]:
        size = len(request.nodes)
        return (ScaleUp("gpu", size, 2, ()),) if size < 2 else ()

    document, asked = run(setup(pool), scan)
    assert times(document, "TriggeredScaleUp") == [300]
    refused = times(document, "FailedToScaleUpGroup")
    assert refused == [10.0 * each for each in range(1, 30)]
    told = [failure for request in asked for failure in request.failures]
    assert len(told) == 29, "each once, in the scan after it"
    offering = asked[0].pools[0].template.offerings[0]
    assert told[0] == LaunchFailure("gpu", "gpu", offering, START_MS + 10_000, "OutOfCapacity")


def test_a_quota_bounds_what_comes() -> None:
    pool = f"{EQUAL}, min: 1, quotaGpus: 2"
    document, asked = run(setup(pool), once(10, ScaleUp("gpu", 1, 4, ())))
    assert document["summary"]["nodePools"]["gpu"]["finalNodes"] == 2
    (event,) = (e for e in document["events"] if e["kind"] == "FailedToScaleUpGroup")
    assert "QuotaExceeded; 2 of 3 nodes" in event["reason"]
    assert [f.code for request in asked for f in request.failures] == ["QuotaExceeded"]


def test_drawn_stock_outs_are_equal_in_every_run_of_a_seed() -> None:
    drawn = (
        "stockOuts: [{length: {shape: exponential, mean: 60s}, "
        "every: {shape: exponential, mean: 60s}}]"
    )
    pool = f"{EQUAL}, min: 1, {drawn}"

    def refused(seed: int) -> list[float]:
        def scan(request: NodeRequest) -> Sequence[Action]:
            coming = [node.state.name for node in request.nodes if not node.ready]
            asks = ScaleUp("gpu", len(request.nodes) - len(coming), 2, ())
            return (*(ScaleDown("gpu", name, 2) for name in coming), asks)

        document, _ = run(setup(pool, more=f"  seed: {seed}\n"), scan)
        return times(document, "FailedToScaleUpGroup")

    first = refused(1)
    assert first == refused(1)
    assert first != refused(2)
    # Half of the time there is none: of 120 scans, 20 minutes with means of a minute each.
    assert 20 < len(first) < 100


SEVERAL = """\
name: any, min: 0, max: 9, provisioningTime: 60s, instanceTypes: [
  {name: small, gpuModel: Tesla T4, gpus: 1, offerings: [{pricePerHour: 0.5},
    {pricePerHour: 0.2, capacityType: spot}]},
  {name: large, gpuModel: l40s, gpus: 8, offerings: [{pricePerHour: 7.0, zone: b}]}]"""


def test_of_several_instance_types_the_cheapest_that_can_be_had_is_taken() -> None:
    pool = f"{SEVERAL}, stockOuts: [{{length: 15m, capacityTypes: [spot]}}]"
    ups = (ScaleUp("any", 0, 1, ()), ScaleUp("any", 1, 2, (), ("large",)))
    document, asked = run(setup(pool), once(10, *ups))
    small, large = asked[-1].nodes
    assert (small.instance_type, small.offering.capacity_type) == ("small", "on-demand")
    assert (large.instance_type, large.offering.zone) == ("large", "b")
    assert str(large.state.node.allocatable["nvidia.com/gpu"]) == "8"
    labels = large.state.node.metadata.labels
    assert labels["topology.kubernetes.io/zone"] == "b"
    assert labels["node.kubernetes.io/instance-type"] == "large"
    # From 10 s to 20 min: 1 190 s of both.
    assert document["summary"]["cost"] == pytest.approx(1190 / 3600 * (0.5 + 7.0), abs=1e-3)
    assert document["summary"]["gpuHours"] == pytest.approx(1190 / 3600 * 9, abs=1e-3)


def test_spot_nodes_are_taken_back_after_a_notice() -> None:
    """Ready at 70 s, told 300 s later, gone two minutes after that; its pods have gone before."""
    pool = f"{SEVERAL}, interruptions: {{after: 300s}}"
    document, _ = run(setup(pool), once(10, ScaleUp("any", 0, 1, (), ("small",))))
    assert times(document, "SpotInterrupted") == [370]
    assert times(document, "Killing") == [370]
    assert document["summary"]["nodePools"]["any"]["finalNodes"] == 0
    assert document["summary"]["nodeHours"] * 3600 <= 370 + 120 - 10


def test_a_policy_says_when_it_wants_to_look_again() -> None:
    document, asked = run(setup(f"{EQUAL}, min: 1"), once(10, LookAgain(START_MS + 12_500)))
    assert [second(each) for each in asked][:3] == [10, 12.5, 20]
    assert document["summary"]["nodePools"]["gpu"]["finalNodes"] == 1


def test_a_policy_may_look_as_soon_as_a_pod_finds_no_node() -> None:
    _, asked = run(setup(f"{EQUAL}, min: 1"), lambda _: (), eager=True)
    assert [second(each) for each in asked][:2] == [0, 10]
    assert len(asked[0].unschedulable) == 1


@pytest.mark.parametrize(
    ("pool", "fault"),
    [
        (f"{SEVERAL}, gpus: 1", "found instanceTypes beside gpus, expected one description"),
        (
            "name: gpu, min: 0, max: 1",
            "found no gpuModel and gpus, expected both, an instanceType, or instanceTypes",
        ),
        (f"{SEVERAL}, stockOuts: [{{length: 1m, instanceTypes: [huge]}}]", "found huge, expected"),
        (f"{EQUAL}, min: 0, disruption: {{budgets: [{{nodes: 120%}}]}}", "found '120%'"),
        (
            f"{EQUAL}, min: 0, limits: {{cpu: lots}}",
            "nodePools[0].limits.cpu: found 'lots', expected",
        ),
    ],
)
def test_a_pool_that_can_not_be_is_refused(pool: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        setup(pool)
    assert any(fault in str(problem) for problem in caught.value.problems), caught.value


def test_fluid_says_what_it_does_not_model() -> None:
    with pytest.raises(Exception, match="node pool any: found instanceTypes, stockOuts"):
        simulate(setup(SEVERAL), fidelity="fluid")


def test_a_removal_that_a_budget_holds_back_is_given_up() -> None:
    """As Cluster Autoscaler gives up after `max-pod-eviction-time`: the node takes pods again."""

    def scan(request: NodeRequest) -> Sequence[Action]:
        going = any(node.leaving for node in request.nodes)
        busy = [node.state.name for node in request.nodes if not node.empty]
        if going or not 300 <= second(request) < 310:
            return ()
        return (ScaleDown("gpu", busy[0], 3, delay_ms=5_000, give_up_ms=125_000),)

    document, asked = run(setup(f"{EQUAL}, min: 3", WEB + BUDGET), scan)
    assert times(document, "ScaleDownFailed") == [425]
    assert not times(document, "Killing")
    assert not any(node.leaving or node.state.node.taints for node in asked[-1].nodes)


def test_a_node_that_will_be_replaced_takes_no_more_pods() -> None:
    def scan(request: NodeRequest) -> Sequence[Action]:
        if second(request) != 300:
            return ()
        empty = next(node.state.name for node in request.nodes if node.empty)
        return (ScaleUp("gpu", 3, 4, (), replaces=(empty,)),)

    _, asked = run(setup(f"{EQUAL}, min: 3"), scan)
    closed = [node for node in asked[-1].nodes if node.state.node.taints]
    assert [str(each.state.node.taints[0]) for each in closed] == [
        "karpenter.sh/disrupted:NoSchedule"
    ]
    assert not closed[0].leaving


def test_why_no_node_comes_is_told_once_for_each_reason() -> None:
    def scan(request: NodeRequest) -> Sequence[Action]:
        reason = "full" if second(request) < 100 else "fuller"
        return [NotTriggered(pod.metadata.key, reason) for pod in request.unschedulable]

    document, _ = run(setup(f"{EQUAL}, min: 1"), scan)
    told = [(e["t"], e["reason"]) for e in document["events"] if e["kind"] == "NotTriggerScaleUp"]
    assert told == [(10, "full"), (100, "fuller")]


RESERVED = """\
name: any, min: 0, max: 9, provisioningTime: 60s, instanceTypes: [{name: large, gpuModel: l40s, gpus: 8,
  offerings: [{capacityType: reserved, count: 1, start: 5m, end: 15m, pricePerHour: 4.0},
    {pricePerHour: 7.0}]}]"""


def test_a_reservation_holds_so_many_nodes_for_its_time() -> None:
    """One node from 5 to 15 minutes; before, beside and after it the dearer offering is taken."""

    def scan(request: NodeRequest) -> Sequence[Action]:
        size = len(request.nodes)
        wanted = 1 if second(request) < 310 else 3
        return (ScaleUp("any", size, wanted, ()),) if size < wanted else ()

    document, asked = run(setup(RESERVED), scan)
    early, reserved, beside, *late = sorted(
        {node.state.name: node for request in asked for node in request.nodes}.values(),
        key=lambda node: node.ordered_ms,
    )
    kinds = [node.offering.capacity_type for node in (early, reserved, beside)]
    assert kinds == ["on-demand", "reserved", "on-demand"]
    # Two minutes before the end its pods are told; another is asked for once it is gone.
    assert times(document, "ReservationEnds") == [15 * 60 - 120]
    assert [node.offering.capacity_type for node in late] == ["on-demand"]
    codes = [failure.code for request in asked for failure in request.failures]
    assert set(codes) == {"ReservationNotActive", "ReservationCapacityExceeded"}


@pytest.mark.parametrize(
    ("offering", "fault"),
    [
        ("capacityType: reserved, pricePerHour: 1", "capacityType reserved and count"),
        ("count: 2, pricePerHour: 1", "capacityType reserved and count"),
        ("end: 5m, pricePerHour: 1", "start or end without a reservation"),
        (
            "capacityType: reserved, count: 1, start: 5m, end: 5m, pricePerHour: 1",
            "not after the start",
        ),
    ],
)
def test_a_reservation_that_can_not_be_is_refused(offering: str, fault: str) -> None:
    shape = f"{{name: l, gpuModel: l40s, gpus: 8, offerings: [{{{offering}}}]}}"
    with pytest.raises(ConfigError, match=fault):
        setup(f"name: any, min: 0, max: 9, instanceTypes: [{shape}]")


def test_stock_outs_last_a_second_at_least_and_are_a_second_apart() -> None:
    """However short they are drawn, so that a month of them fits in memory."""
    stock = Stock(Supply((StockOut(0, Constant(0.0), Constant(0.0)),)), 0, "gpu")
    refused = [bool(stock.refusal(at_ms, "t4", Offering(), 0)) for at_ms in range(0, 6000, 500)]
    assert refused == [True, True, False, False] * 3
