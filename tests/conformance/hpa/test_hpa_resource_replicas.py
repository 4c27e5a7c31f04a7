"""Utilization of requests, raw resource targets, and the readiness rules of cpu.

Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go (GetResourceReplicas,
    calculateRequests, groupPods), metrics/utilization.go, metrics/client.go, and the situations of
    replica_calculator_test.go.
"""

from dataclasses import dataclass, replace

import pytest

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    MetricTarget,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import (
    ContainerInfo,
    ContainerUsages,
    ControllerSettings,
    PodInfo,
    PodUsage,
    ReadyCondition,
)


@dataclass(frozen=True)
class Case:
    name: str
    target: int
    spec: int
    pods: str
    usages_milli: tuple
    replicas: int
    utilization: int
    raw_milli: int


# Every pod requests 1 cpu, so that 300 milli is 30 %. Pods are two hours old; a pod that is unready
# has been so since its start.
CASES = [
    # 1500 / 3000 = 50 %, / 30 = 1.6667, * 3 = 5
    Case("ScaleUp", 30, 3, "ready ready ready", (300, 500, 700), 5, 50, 500),
    # unready p0: 1200 / 2000 = 60 %; enlarged (0 + 500 + 700) / 3000 = 40 %, / 30 = 1.333, * 3 = 4
    Case("ScaleUpUnreadyLessScale", 30, 3, "unready ready ready", (300, 500, 700), 4, 60, 600),
    # unready p1, p2: 400 / 1000 = 40 %; enlarged 400 / 3000 = 13 %, / 30 < 1: turned around
    Case("ScaleUpUnreadyNoScale", 30, 3, "ready unready unready", (400, 500, 700), 3, 40, 400),
    # Ready=Unknown is not False: counts; 1500 / 3000 = 50 %
    Case("ScaleUpUnknownCounts", 30, 3, "unknown ready ready", (300, 500, 700), 5, 50, 500),
    # no Ready condition: unready, as in ScaleUpUnreadyLessScale
    Case("ScaleUpNoCondition", 30, 3, "no-condition ready ready", (300, 500, 700), 4, 60, 600),
    # (500 + 700) / 2000 = 60 %, / 30 = 2, * 2 = 4
    Case("ScaleUpIgnoresFailedPods", 30, 2, "ready ready failed", (500, 700, 0), 4, 60, 600),
    Case("ScaleUpIgnoresDeletedPods", 30, 2, "ready ready deleted", (500, 700, 0), 4, 60, 600),
    # 1400 / 5000 = 28 %, / 50 = 0.56, * 5 = 2.8000000000000003 -> 3
    Case("ScaleDown", 50, 5, "ready " * 5, (100, 300, 500, 250, 250), 3, 28, 280),
    # unready p2, p3, p4 are left out: 500 / 2000 = 25 %, / 50 = 0.5, * 2 = 1
    Case(
        "ScaleDownExcludesUnreadyPods",
        50,
        5,
        "ready ready unready unready unready",
        (200, 300, 500, 250, 250),
        1,
        25,
        250,
    ),
    # 3060 / 3000 = 102 %, / 100 = 1.02: within tolerance
    Case("Tolerance", 100, 3, "ready " * 3, (1010, 1030, 1020), 3, 102, 1020),
    # 1110 / 1000 is 111 %, cut off from 111.9 %; 1.11 > 1.1; ceil(1.11 * 1) = 2
    Case("PercentIsCutOff", 100, 1, "ready", (1119,), 2, 111, 1119),
    # 110.9 % is cut off to 110 %, which lies on the edge of the tolerance
    Case("CutOffPercentFallsOnTheEdge", 100, 1, "ready", (1109,), 1, 110, 1109),
    # missing on scale-down uses 100 % of its request: (100 + 400 + 1000) / 3000 = 50 %, / 70 =
    # 0.714, * 3 = 2.14 -> 3
    Case("MissingScaleDown", 70, 3, "ready " * 3, (100, 400, None), 3, 25, 250),
    # target above 100 %: missing uses the target, 300 %: (100 + 3000) / 2000 = 155 %, / 300 = 0.5167,
    # * 2 = 1.03 -> 2; with 100 % it would be 55 %, 0.183 * 2 -> 1
    Case("MissingScaleDownTargetOver100", 300, 2, "ready " * 2, (100, None), 2, 10, 100),
    # ratio exactly 1: missing pods are left out; filled in with their request they would make it
    # (500 + 1000) / 2000 = 75 % and 3 replicas
    Case("MissingAtRatioOneIsLeftOut", 50, 2, "ready " * 2, (500, None), 2, 50, 500),
    # missing on scale-up uses nothing: (2100 + 0) / 2000 = 105 %, / 30 = 3.5, * 2 = 7
    Case("MissingScaleUp", 30, 2, "ready " * 2, (2100, None), 7, 210, 2100),
    # missing and unready: 950 / 1000 = 95 %, enlarged 950 / 3000 = 31 %, / 50 = 0.62: turned around
    Case(
        "MissingMetricsUnreadyScaleUp", 50, 3, "ready ready unready", (950, None, 600), 3, 95, 950
    ),
    # the second pod's sample is dropped with the pod: 100 / 1000 = 10 %, / 50 = 0.2, * 1 -> 1
    Case("UnreadyScaleDown", 50, 4, "ready unready unready unready", (100, 9, 9, 9), 1, 10, 100),
    # phase Pending is unready for any metric; 1200 / 2000 = 60 %, enlarged 40 %, as above
    Case("ScaleUpPending", 30, 3, "pending ready ready", (300, 500, 700), 4, 60, 600),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_utilization(given, case) -> None:
    decision = given.decide(
        given.hpa(given.resource(case.target)),
        given.usages(*case.usages_milli),
        spec=case.spec,
        pods=given.pods(case.pods, cpu="1"),
    )
    status = decision.metrics[0]
    assert status.proposed_replicas == case.replicas
    assert status.average_utilization == case.utilization
    assert status.average_value_milli == case.raw_milli


@dataclass(frozen=True)
class Readiness:
    name: str
    ready: ReadyCondition
    age_s: float
    """Since the pod's start."""
    changed_s: float
    """Since the Ready condition changed."""
    sample_age_s: float
    counts: bool


# The defaults: initialization period 300 s, readiness delay 30 s; the sample's window is 60 s.
READINESS = [
    # within the initialization period (age < 300): must be ready, and for a full window
    Readiness("YoungReadyForAWindow", ReadyCondition.TRUE, 200, 100, 0, True),
    Readiness("YoungUnready", ReadyCondition.FALSE, 200, 100, 0, False),
    # sample at -0 s; ready since 60 s, window 60 s: not before, so it counts
    Readiness("YoungReadyForExactlyAWindow", ReadyCondition.TRUE, 200, 60, 0, True),
    Readiness("YoungReadyForLessThanAWindow", ReadyCondition.TRUE, 200, 59, 0, False),
    # ready since 100 s, but the sample is 50 s old: it was taken 50 s after, less than its window
    Readiness("YoungSampleTooSoon", ReadyCondition.TRUE, 200, 100, 50, False),
    Readiness("YoungUnknownForAWindow", ReadyCondition.UNKNOWN, 200, 100, 0, True),
    # start + 300 s > now is strict: at 300 s the second rule holds
    Readiness("AgeAtTheEdgeUsesTheSecondRule", ReadyCondition.TRUE, 300, 5, 0, True),
    # later: unready counts, unless it turned so within 30 s of the start
    Readiness("OldNeverReady", ReadyCondition.FALSE, 1000, 1000, 0, False),
    # changed 29 s after the start: start + 30 > changed -> never ready
    Readiness("OldUnreadySince29sAfterStart", ReadyCondition.FALSE, 1000, 971, 0, False),
    # changed 30 s after the start: not after -> was ready once
    Readiness("OldUnreadySince30sAfterStart", ReadyCondition.FALSE, 1000, 970, 0, True),
    Readiness("OldReady", ReadyCondition.TRUE, 1000, 1, 0, True),
    Readiness("OldNoCondition", ReadyCondition.ABSENT, 1000, 1000, 0, False),
]


@pytest.mark.parametrize("case", READINESS, ids=lambda case: case.name)
def test_cpu_readiness(given, case) -> None:
    now_ms = given.now_ms
    judged = PodInfo(
        "p0",
        ready=case.ready,
        start_ms=round(now_ms - case.age_s * 1000),
        ready_transition_ms=round(now_ms - case.changed_s * 1000),
        containers=(ContainerInfo("main", {"cpu": parse_quantity(1)}),),
    )
    other = given.pods("ready ready", cpu="1")[1]
    usages = ContainerUsages(
        (
            PodUsage("p0", {"main": 900}, round(now_ms - case.sample_age_s * 1000), 60_000),
            PodUsage("p1", {"main": 100}, now_ms, 60_000),
        )
    )
    hpa = given.hpa(given.resource(50))
    decision = given.decide(hpa, usages, spec=2, pods=(judged, other))
    # counted: (900 + 100) / 2000 = 50 %; passed over: 100 / 1000 = 10 %
    assert decision.metrics[0].average_utilization == (50 if case.counts else 10)


def test_pod_without_start_time_is_unready_for_cpu(given) -> None:
    pods = given.pods("ready ready", cpu="1")
    pods = (replace(pods[0], start_ms=None), pods[1])
    decision = given.decide(
        given.hpa(given.resource(50)), given.usages(900, 100), spec=2, pods=pods
    )
    assert decision.metrics[0].average_utilization == 10


def test_ready_pod_whose_condition_never_says_when_it_changed_counts(given) -> None:
    pods = tuple(
        replace(p, ready_transition_ms=None) for p in given.pods("ready", cpu="1", age_s=5)
    )
    decision = given.decide(given.hpa(given.resource(50)), given.usages(500), spec=1, pods=pods)
    assert decision.metrics[0].average_utilization == 50


def test_readiness_periods_are_settings(given) -> None:
    # upstream's own tests run with 2 min and 10 s: at 150 s a pod is past the first
    settings = ControllerSettings(cpu_initialization_period_s=120, initial_readiness_delay_s=10)
    pods = tuple(
        replace(p, ready_transition_ms=given.now_ms - 1000)
        for p in given.pods("unready ready", cpu="1", age_s=150)
    )
    decision = given.decide(
        given.hpa(given.resource(50)),
        given.usages(900, 100),
        spec=2,
        pods=pods,
        settings=settings,
    )
    assert decision.metrics[0].average_utilization == 50


def test_readiness_is_not_looked_at_for_memory(given) -> None:
    requests = {"memory": parse_quantity("1000")}
    pods = tuple(
        replace(p, containers=(ContainerInfo("main", requests),))
        for p in given.pods("unready unready", age_s=1)
    )
    hpa = given.hpa(given.resource(50, "memory"))
    # usage is in milli-bytes: 1000 bytes are 1_000_000
    decision = given.decide(hpa, given.usages(1_000_000, 1_000_000), spec=2, pods=pods)
    # 100 % / 50 % = 2, * 2 pods = 4
    assert decision.metrics[0].proposed_replicas == 4


def test_raw_resource_target_uses_the_plain_algorithm_with_cpu_readiness(given) -> None:
    metric = ResourceMetric("cpu", given.average("300m"))
    pods = given.pods("unready ready ready")
    decision = given.decide(given.hpa(metric), given.usages(900, 500, 700), spec=3, pods=pods)
    # 600m / 300m = 2; with the unready pod as 0: 400m / 300m = 1.3333, * 3 = 4
    assert decision.metrics[0].proposed_replicas == 4
    assert decision.metrics[0].average_value_milli == 600


TWO_CONTAINERS = (
    ContainerInfo("main", {"cpu": parse_quantity("500m")}),
    ContainerInfo("proxy", {"cpu": parse_quantity("300m")}),
)
AGENT = (ContainerInfo("agent", {"cpu": parse_quantity("200m")}, sidecar=True),)


def two_container_pods(given):
    return tuple(
        replace(p, containers=TWO_CONTAINERS, init_containers=AGENT) for p in given.pods("ready")
    )


def test_all_containers_and_sidecars_are_summed(given) -> None:
    usage = ContainerUsages(
        (PodUsage("p0", {"main": 400, "proxy": 100, "agent": 100}, given.now_ms),)
    )
    decision = given.decide(
        given.hpa(given.resource(50)), usage, spec=1, pods=two_container_pods(given)
    )
    # 600 / (500 + 300 + 200) = 60 %
    assert decision.metrics[0].average_utilization == 60


def test_named_container_counts_alone(given) -> None:
    target = MetricTarget(TargetType.UTILIZATION, average_utilization=50)
    metric = ContainerResourceMetric("cpu", "main", target)
    usage = ContainerUsages((PodUsage("p0", {"main": 400, "proxy": 9999}, given.now_ms),))
    decision = given.decide(given.hpa(metric), usage, spec=1, pods=two_container_pods(given))
    # 400 / 500 = 80 %, / 50 = 1.6 -> 2
    assert decision.metrics[0].average_utilization == 80
    assert decision.metrics[0].proposed_replicas == 2


def test_pod_level_requests_come_before_those_of_containers(given) -> None:
    pods = tuple(
        replace(p, pod_requests={"cpu": parse_quantity(2)}) for p in two_container_pods(given)
    )
    usage = ContainerUsages((PodUsage("p0", {"main": 600}, given.now_ms),))
    decision = given.decide(given.hpa(given.resource(50)), usage, spec=1, pods=pods)
    assert decision.metrics[0].average_utilization == 30  # 600 / 2000


def test_pod_level_requests_without_the_resource_leave_it_to_the_containers(given) -> None:
    pods = tuple(
        replace(p, pod_requests={"memory": parse_quantity("1Gi")})
        for p in two_container_pods(given)
    )
    usage = ContainerUsages((PodUsage("p0", {"main": 600}, given.now_ms),))
    decision = given.decide(given.hpa(given.resource(50)), usage, spec=1, pods=pods)
    assert decision.metrics[0].average_utilization == 60  # 600 / 1000


CPU, MEMORY = "cpu", "memory"


def asking(name: str, amount, *, sidecar: bool = False) -> ContainerInfo:
    return ContainerInfo(name, {CPU: parse_quantity(amount)} if amount else {}, sidecar)


INIT, SIDECAR = asking("init", 4), asking("agent", "500m", sidecar=True)
OF_MEMORY, OF_CPU = {MEMORY: parse_quantity("1Gi")}, {CPU: parse_quantity(2)}
OVERHEAD = {CPU: parse_quantity("250m")}


# Main container 1 core, usage 1 core; request by PodRequests of k8s.io/component-helpers v0.37
# (resource/helpers.go) where the pod asks for anything of its own, else by the sum of what keeps running
# (kubernetes v1.37 replica_calculator.go, calculatePodRequestsFromContainers).
@pytest.mark.parametrize(
    ("init", "own", "overhead", "percent"),
    [
        pytest.param((INIT,), {}, {}, 100, id="an init container that ends counts not"),
        pytest.param((SIDECAR,), {}, OVERHEAD, 66, id="1 + 0.5, without overhead"),
        pytest.param((INIT,), OF_MEMORY, {}, 25, id="max(4, 1)"),
        pytest.param((SIDECAR, INIT), OF_MEMORY, {}, 22, id="max(0.5 + 4, 1 + 0.5)"),
        pytest.param((INIT, SIDECAR), OF_MEMORY, {}, 25, id="max(4, 1 + 0.5)"),
        pytest.param((SIDECAR,), OF_MEMORY, OVERHEAD, 57, id="1 + 0.5 + 0.25"),
        pytest.param((INIT,), OF_CPU, OVERHEAD, 44, id="2 + 0.25"),
        pytest.param((INIT,), {"nvidia.com/gpu": parse_quantity(1)}, {}, 100, id="not a pod's own"),
        pytest.param((), {"hugepages-2Mi": parse_quantity("4Mi")}, OVERHEAD, 80, id="1 + 0.25"),
    ],
)
def test_what_a_pod_asks_for(given, init, own, overhead, percent: int) -> None:
    (pod,) = given.pods("ready")
    pod = replace(
        pod,
        containers=(asking("main", 1),),
        init_containers=init,
        pod_requests=own,
        overhead=overhead,
    )
    usage = ContainerUsages((PodUsage("p0", {"main": 1000}, given.now_ms),))
    decision = given.decide(given.hpa(given.resource(50)), usage, spec=1, pods=(pod,))
    assert decision.metrics[0].average_utilization == percent


def test_sample_with_a_container_that_reports_nothing_is_absent(given) -> None:
    usage = ContainerUsages(
        (
            PodUsage("p0", {"main": 400, "proxy": None}, given.now_ms),
            PodUsage("p1", {"main": 100}, given.now_ms),
        )
    )
    decision = given.decide(
        given.hpa(given.resource(50)), usage, spec=2, pods=given.pods("ready ready", cpu="1")
    )
    # p0 is missing: 100 / 1000 = 10 %
    assert decision.metrics[0].average_utilization == 10


@pytest.mark.parametrize(
    ("container", "requests", "error"),
    [
        pytest.param(
            "", {}, "missing request for cpu in container main of Pod p0", id="MissingRequest"
        ),
        pytest.param("other", {}, "container other not found in Pod p0", id="NoSuchContainer"),
    ],
)
def test_missing_requests_fail_the_metric(given, container: str, requests, error: str) -> None:
    target = MetricTarget(TargetType.UTILIZATION, average_utilization=50)
    metric = (
        ContainerResourceMetric("cpu", container, target)
        if container
        else ResourceMetric("cpu", target)
    )
    name = container or "main"
    usage = ContainerUsages((PodUsage("p0", {name: 400}, given.now_ms),))
    decision = given.decide(given.hpa(metric), usage, spec=1, pods=given.pods("ready"))
    assert decision.metrics[0].error == f"failed to get cpu utilization: {error}"
    assert not decision.rescale


def test_missing_pod_level_request_fails_the_metric(given) -> None:
    pods = tuple(
        replace(p, pod_requests={"memory": parse_quantity(1)}) for p in given.pods("ready")
    )
    decision = given.decide(given.hpa(given.resource(50)), given.usages(400), spec=1, pods=pods)
    assert decision.metrics[0].error == (
        "failed to get cpu utilization: missing pod-level request for cpu in Pod p0"
    )


def test_samples_of_unknown_pods_alone_fail_the_metric(given) -> None:
    usage = ContainerUsages((PodUsage("gone", {"main": 400}, given.now_ms),))
    decision = given.decide(
        given.hpa(given.resource(50)), usage, spec=1, pods=given.pods("ready", cpu="1")
    )
    assert decision.metrics[0].error == (
        "failed to get cpu utilization: no metrics returned matched known pods"
    )


def test_unknown_samples_are_no_part_of_the_percentage_but_of_the_count(given) -> None:
    # p0 210 %, p1 missing as 0: 2100 / 2000 = 105 %, / 30 = 3.5; 3 entries with the unknown one:
    # 3.5 * 3 = 10.5 -> 11
    usage = ContainerUsages(
        (
            PodUsage("p0", {"main": 2100}, given.now_ms),
            PodUsage("gone", {"main": 5}, given.now_ms),
        )
    )
    decision = given.decide(
        given.hpa(given.resource(30)), usage, spec=2, pods=given.pods("ready ready", cpu="1")
    )
    assert decision.metrics[0].proposed_replicas == 11
