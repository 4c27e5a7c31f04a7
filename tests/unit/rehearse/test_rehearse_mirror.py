"""A site kept as an API server says: pods hold GPUs, and what a kubelet would tell is told."""

import pytest

from gpuscale.base.objects.hpa import (
    CrossVersionObjectReference,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    TargetType,
)
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import parse_quantity
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.mirror import Mirror, hpa_figures
from gpuscale.lab.rehearse.placing import placed
from gpuscale.lab.rehearse.site import AddNode, CreateJob, OfferGpus, RehearsalSite, RemoveNode
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.autoscaler import SyncFigures
from gpuscale.lab.sim.document.document import summary

WHOLE = ObjectMetric(
    CrossVersionObjectReference("Service", "web"),
    "requests",
    MetricTarget(TargetType.VALUE, value=parse_quantity("200")),
)
PER_POD = PodsMetric(
    "gpu", MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity("70"))
)
NOW = 1_700_000_000_000
KEY = "ns/bert-intent-detection-5d5-x1"
DEPLOYMENT = "ns/bert-intent-detection"


@pytest.fixture
def site():
    site = RehearsalSite(placed(find_setup("ack-bert"), RehearsalMark("r", "ns")), NOW)
    site.cloud.start()
    return site


def pod(version, *, node="", phase="Pending", ready="", deleted=False, stuck=False, uid="u1"):
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    if stuck:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "o", "controller": True}
    return {
        "metadata": {
            "name": KEY.partition("/")[2],
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"app": "bert-intent-detection"},
            "ownerReferences": [owner | {"name": "bert-intent-detection-5d5"}],
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def node_of(site):
    (node,) = site.cluster.nodes
    return node


def test_a_pod_takes_a_gpu_when_it_is_bound_and_works_once_it_runs(site) -> None:
    mirror, node = Mirror(site), node_of(site)
    mirror.see_pods({KEY: pod(1)}, NOW)
    assert site.cluster.devices.holders(node) == [()]
    mirror.see_pods({KEY: pod(2, node=node)}, NOW + 10)
    assert site.cluster.devices.holders(node) == [(KEY,)]
    assert KEY not in site.containers.processes
    mirror.see_pods({KEY: pod(3, node=node, phase="Running", ready="False")}, NOW + 20)
    assert site.containers.processes[KEY].started_ms == NOW + 20
    assert site.ready_pods(DEPLOYMENT) == 0
    mirror.see_pods({KEY: pod(4, node=node, phase="Running", ready="True")}, NOW + 30)
    assert site.ready_pods(DEPLOYMENT) == 1
    assert site.cluster.pods[KEY].status.ready_transition_ms == NOW + 30
    kinds = [event.kind for event in site.cluster.events.since(0)]
    assert kinds == ["NodeReady", "Started"]


def test_a_pod_that_ends_takes_no_requests_and_frees_its_gpu_when_it_is_gone(site) -> None:
    mirror, node = Mirror(site), node_of(site)
    mirror.see_pods({KEY: pod(1, node=node, phase="Running", ready="True")}, NOW)
    mirror.see_pods({KEY: pod(2, node=node, phase="Running", ready="True", deleted=True)}, NOW + 5)
    assert site.ready_pods(DEPLOYMENT) == 0
    assert site.cluster.devices.holders(node) == [(KEY,)]
    assert site.cluster.events.since(0)[-1].kind == "Killing"
    mirror.see_pods({}, NOW + 10)
    assert site.cluster.devices.holders(node) == [()]
    assert not site.containers.processes


def test_a_finished_pod_gives_its_gpu_back_and_stays(site) -> None:
    mirror, node = Mirror(site), node_of(site)
    mirror.see_pods({KEY: pod(1, node=node, phase="Running", ready="True")}, NOW)
    mirror.see_pods({KEY: pod(2, node=node, phase="Succeeded", ready="False")}, NOW + 5)
    assert site.cluster.devices.holders(node) == [()]
    assert site.cluster.pods[KEY].status.phase is PodPhase.SUCCEEDED
    assert not site.containers.processes


def test_another_pod_of_the_same_name_is_a_new_one(site) -> None:
    mirror, node = Mirror(site), node_of(site)
    mirror.see_pods({KEY: pod(1, node=node, phase="Running", ready="True")}, NOW)
    mirror.see_pods({KEY: pod(2, uid="u2")}, NOW + 5)
    assert site.cluster.devices.holders(node) == [()]
    assert site.cluster.pods[KEY].metadata.creation_ms == NOW + 5


def test_only_pods_that_the_scheduler_failed_on_ask_for_nodes(site) -> None:
    mirror = Mirror(site)
    mirror.see_pods({KEY: pod(1)}, NOW)
    assert site.control_plane.unschedulable() == []
    mirror.see_pods({KEY: pod(2, stuck=True)}, NOW + 5)
    assert [each.metadata.key for each in site.control_plane.unschedulable()] == [KEY]
    mirror.see_pods({KEY: pod(3, node=node_of(site))}, NOW + 9)
    assert site.control_plane.unschedulable() == []


def test_a_pod_that_went_with_its_node_does_not_come_back(site) -> None:
    mirror, node = Mirror(site), node_of(site)
    mirror.see_pods({KEY: pod(1, node=node, phase="Running", ready="True")}, NOW)
    site.cluster.remove_node(node)
    mirror.see_pods({KEY: pod(2, node=node, phase="Running", ready="False")}, NOW + 5)
    assert KEY not in site.cluster.pods


@pytest.fixture
def jobs():
    """A site whose pods work by themselves, so that their nodes are asked for their GPUs."""
    site = RehearsalSite(placed(find_setup("aks-mnist-jobs"), RehearsalMark("r", "ns")), NOW)
    site.begin(NOW)
    site.engine.run_until(NOW + 60_000)  # the scenario's `at: 60s`
    return site


def job_pod(jobs, version, node, uid="u1", **more):
    name = next(iter(jobs.cluster.jobs.values())).metadata.name
    body = pod(version, node=node, phase="Running", ready="True", uid=uid, **more)
    body["metadata"]["ownerReferences"] = [{"kind": "Job", "name": name, "controller": True}]
    body["metadata"]["name"] = f"mnist-{uid}"
    return body


def test_a_pod_on_a_node_that_has_left_here_does_not_work(jobs) -> None:
    # The scheduler may bind a pod to a node between its leaving and the end of the Node object.
    mirror = Mirror(jobs)
    mirror.see_pods({"ns/mnist-u1": job_pod(jobs, 1, "gone-1")}, NOW + 60_000)
    jobs.engine.run_until(NOW + 120_000)
    assert not jobs.containers.processes
    mirror.see_pods({}, NOW + 120_000)
    assert not jobs.cluster.pods.keys() & {"ns/mnist-u1"}


def test_a_pod_works_once_the_one_before_it_on_its_gpu_is_seen_to_be_gone(site) -> None:
    mirror, node = Mirror(site), node_of(site)
    before = pod(1, node=node, phase="Running", ready="True")
    after = pod(2, node=node, phase="Running", ready="True", uid="u2")
    after["metadata"]["name"] = "next"
    mirror.see_pods({KEY: before}, NOW)
    mirror.see_pods({"ns/next": after, KEY: before}, NOW + 5)
    assert set(site.containers.processes) == {KEY}
    mirror.see_pods({"ns/next": after}, NOW + 10)
    assert site.cluster.devices.holders(node) == [("ns/next",)]
    assert set(site.containers.processes) == {"ns/next"}
    assert site.ready_pods(DEPLOYMENT) == 1


def test_a_deployments_count_is_taken_over(site) -> None:
    Mirror(site).see_deployments({DEPLOYMENT: {"spec": {"replicas": 7}}})
    assert site.cluster.deployments[DEPLOYMENT].replicas == 7


def test_complete_jobs_are_counted(site) -> None:
    done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    Mirror(site).see_jobs({"ns/a": done, "ns/b": {"status": {"active": 1}}})
    assert site.cluster.completed_jobs == {"ns/a"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, None, id="before the first sync"),
        pytest.param(
            {
                "desiredReplicas": 2,
                "conditions": [{}],
                "currentMetrics": [
                    {"type": "Pods", "pods": {"current": {"averageValue": "11500m"}}}
                ],
            },
            SyncFigures(2, 11_500),
            id="per pod",
        ),
        pytest.param(
            {
                "desiredReplicas": 3,
                "conditions": [{}],
                "currentMetrics": [{"type": "Object", "object": {"current": {"value": "36"}}}],
            },
            SyncFigures(3, 36_000),
            id="whole",
        ),
        pytest.param(
            {"desiredReplicas": 1, "conditions": [{}], "currentMetrics": None},
            SyncFigures(1, None),
            id="no data is no zero",
        ),
        pytest.param(
            {
                "desiredReplicas": 3,
                "currentReplicas": 2,
                "conditions": [{}],
                "currentMetrics": [
                    {"type": "Object", "object": {"current": {"value": "64500m"}}},
                    {"type": "Pods", "pods": {"current": {"averageValue": "100"}}},
                ],
            },
            SyncFigures(3, 100_000, 1),  # 64.5 of 200 asks for 1, 100 of 70 for 3
            id="the metric that decides",
        ),
        pytest.param(
            {
                "desiredReplicas": 2,
                "currentReplicas": 2,
                "conditions": [{}],
                # The controller leaves an entry without a type for a metric that failed.
                "currentMetrics": [
                    {"type": ""},
                    {"type": "Pods", "pods": {"current": {"averageValue": "7"}}},
                ],
            },
            SyncFigures(2, 7_000, 1),
            id="the one that has a value",
        ),
    ],
)
def test_an_hpas_figures_are_those_of_its_status(status, expected) -> None:
    listed = status.get("currentMetrics") or [{"type": "Pods"}]
    specs = [WHOLE if each["type"] in ("Object", "") else PER_POD for each in listed]
    assert hpa_figures({"status": status}, specs) == expected


def test_nodes_and_jobs_are_ordered_from_the_api_server(site) -> None:
    order, use = site.orders
    assert isinstance(order, AddNode)
    assert use == OfferGpus(order.name, order.machine)
    site.orders.clear()
    site.cluster.remove_node(node_of(site))
    site.control_plane.node_left(order.name)
    assert list(site.orders) == [RemoveNode(order.name)]


def test_jobs_are_submitted_at_their_time_from_the_start() -> None:
    site = RehearsalSite(placed(find_setup("aks-mnist-jobs"), RehearsalMark("r", "ns")), NOW)
    site.begin(NOW + 5_000)
    site.engine.run_until(NOW + 5_000 + 59_999)
    assert not site.orders
    site.engine.run_until(NOW + 5_000 + 60_000)  # the scenario's `at: 60s`
    assert [type(each) for each in site.orders] == [CreateJob] * 20


def test_what_came_up_before_the_start_counts_from_it(site) -> None:
    assert site.seconds(NOW - 3_000) == 0.0
    site.begin(NOW + 5_000)
    assert (site.seconds(NOW), site.seconds(NOW + 6_000)) == (0.0, 1.0)
    assert [rental.from_ms for rental in site.cloud.rentals] == [NOW + 5_000]


def test_pods_that_are_there_before_the_start_are_up_at_once(site) -> None:
    owner = next(iter(site.gpus.work))
    assert site.lifecycle_now(owner).image_pull_ms == 0
    site.begin(NOW)
    assert site.lifecycle_now(owner).image_pull_ms == 15_000  # the scenario's `imagePull`


def test_nodes_that_were_up_before_the_start_have_no_hours_of_starting(site) -> None:
    """They count from second 0 on: one GPU for an hour, of which none was on its way."""
    site.begin(NOW + 12_000)
    site.engine.run_until(NOW + 12_000 + 3_600_000)
    found = summary(site)
    assert (found["nodeHours"], found["startingGpuHours"], found["idleGpuHours"]) == (1, 0, 1)
