"""Objects of shipped scenarios: what refers to what, when things happened, what is counted."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from gpuscale.hpa.types import FetchError
from gpuscale.lab.kube_api.kinds import (
    ENDPOINT_SLICE,
    GROUP_KINDS,
    HPA,
    KINDS,
    LEASE,
    SCALED_OBJECT,
)
from gpuscale.lab.kube_api.tables.table import table
from gpuscale.lab.scenarios import find_setup
from live_objects import StoredRun, shipped

MOMENTS = [
    *(("ack-bert", 130), ("eks-vision", 620), ("aks-mnist-jobs", 400)),
    *(("keda-zero", 700), ("lws-llm", 900)),
]
SCENARIOS = pytest.mark.parametrize(("scenario", "seconds"), MOMENTS)


def everything(run: StoredRun) -> list[dict]:
    return [body for bodies in run.all().values() for body in bodies]


@SCENARIOS
def test_owners_are_there_under_their_uid(scenario: str, seconds: int) -> None:
    bodies = everything(shipped(scenario).run_to(seconds))
    known = {(body["kind"], body["metadata"]["name"], body["metadata"]["uid"]) for body in bodies}
    owners = {
        (owner["kind"], owner["name"], owner["uid"])
        for body in bodies
        for owner in body["metadata"].get("ownerReferences", ())
    }
    assert owners
    assert owners <= known


@SCENARIOS
def test_no_two_objects_share_a_uid(scenario: str, seconds: int) -> None:
    bodies = everything(shipped(scenario).run_to(seconds))
    assert max(Counter(body["metadata"]["uid"] for body in bodies).values()) == 1


@SCENARIOS
def test_events_are_about_what_is_or_was_there(scenario: str, seconds: int) -> None:
    run = shipped(scenario).run_to(seconds)
    uids = {body["metadata"]["uid"] for body in everything(run)}
    nodes = {body["metadata"]["name"] for body in run.bodies("nodes")}
    for event in run.bodies("events"):
        about = event["involvedObject"]
        if about["kind"] != "Node" or about["name"] in nodes:
            assert about["uid"] in uids, about  # no pod has gone in these runs yet
        assert about["apiVersion"]


@SCENARIOS
def test_selectors_find_the_pods_that_counts_are_of(scenario: str, seconds: int) -> None:
    run = shipped(scenario).run_to(seconds)
    for replica_set in run.bodies("replicasets.apps"):
        wanted = replica_set["spec"]["selector"]["matchLabels"].items()
        found = [pod for pod in run.bodies("pods") if wanted <= pod["metadata"]["labels"].items()]
        assert len(found) == replica_set["status"]["replicas"]


@SCENARIOS
def test_every_row_has_a_cell_for_each_column(scenario: str, seconds: int) -> None:
    run = shipped(scenario).run_to(seconds)
    for kind in (*KINDS, SCALED_OBJECT, *GROUP_KINDS):
        shown = table(kind, run.bodies(kind.stored_as), {}, 0)
        assert {len(row["cells"]) for row in shown["rows"]} <= {len(shown["columnDefinitions"])}


def test_a_group_is_counted_when_all_of_it_is_ready_and_the_hpa_finds_its_leader() -> None:
    # Five nodes: two groups of two are whole, the third has a leader and no room for its worker.
    run = shipped("lws-llm").run_to(900)
    (item,) = run.bodies("leaderworkersets.leaderworkerset.x-k8s.io")
    assert item["spec"]["replicas"] == 3
    assert (item["status"]["replicas"], item["status"]["readyReplicas"]) == (3, 2)
    assert item["status"]["conditions"][0]["reason"] == "GroupsProgressing"
    wanted = dict(each.split("=") for each in item["status"]["hpaPodSelector"].split(","))
    found = [
        pod["metadata"]["name"]
        for pod in run.bodies("pods")
        if wanted.items() <= pod["metadata"]["labels"].items()
    ]
    assert sorted(found) == ["llm-0", "llm-1", "llm-2"]
    ready = {
        each["metadata"]["name"]: each["status"].get("readyReplicas", 0)
        for each in run.bodies("statefulsets.apps")
    }
    assert ready == {"llm": 3, "llm-0": 1, "llm-1": 1, "llm-2": 0}


def test_times_are_those_of_the_machine() -> None:
    # The second pod is made by the HPA's sync at 75 s of the scenario; ten times as fast, that is 7.5 s.
    run = shipped("ack-bert", speed=10.0).run_to(130)
    made = sorted(
        pod["metadata"]["creationTimestamp"]
        for pod in run.bodies("pods")
        if pod["metadata"]["generateName"].startswith("bert")
    )
    assert made == ["2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z"]


def test_a_pod_without_a_node_says_why() -> None:
    (pod,) = [
        body
        for body in shipped("ack-bert").run_to(130).bodies("pods")
        if body["status"]["phase"] == "Pending"
    ]
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in condition["message"]
    assert "containerStatuses" not in pod["status"]


def test_a_completed_job_has_its_times() -> None:
    # Submitted at 60 s with a node there: 15 s for the image, 100 s of work.
    jobs = shipped("aks-mnist-jobs").run_to(400).bodies("jobs.batch")
    (first,) = [job for job in jobs if job["metadata"]["name"] == "samples-tf-mnist-demo-1"]
    assert first["status"]["startTime"] == "2026-01-01T00:01:00Z"
    assert first["status"]["completionTime"] == "2026-01-01T00:02:55Z"
    assert first["status"]["succeeded"] == 1
    assert "active" not in first["status"]


def test_a_warning_that_comes_again_is_counted() -> None:
    run = shipped("ack-bert").run_to(1)
    before = {event["metadata"]["name"] for event in run.bodies("events")}
    for second in range(3):
        run.controller.sync("default/gpu-hpa", [FetchError("nobody answers")], second)
    run.run_to(2)
    new = [event for event in run.bodies("events") if event["metadata"]["name"] not in before]
    assert {event["count"] for event in new} == {3}
    assert {event["type"] for event in new} == {"Warning"}
    reasons = sorted(event["reason"] for event in new)
    assert reasons == ["FailedComputeMetricsReplicas", "FailedGetPodsMetric"]


@pytest.mark.parametrize(("release", "generation"), [("1.36", None), ("1.37", 1)])
def test_an_hpa_has_a_generation_from_1_37_on(release: str, generation: int | None) -> None:
    """Source: kubernetes v1.37 horizontal.go (setStatus), horizontalpodautoscaler/strategy.go."""
    setup = find_setup("ack-bert")
    pipeline = setup.pipeline.model_copy(update={"kubernetes_version": release})
    run = StoredRun(replace(setup, pipeline=pipeline)).run_to(20)
    (hpa,) = run.bodies("horizontalpodautoscalers.autoscaling")
    assert hpa["metadata"].get("generation") == generation
    assert hpa["status"].get("observedGeneration") == generation


def test_an_hpa_whose_metric_failed_shows_no_number() -> None:
    run = shipped("ack-bert").run_to(1)
    run.controller.sync("default/gpu-hpa", [FetchError("nobody answers")], 0)
    (hpa,) = run.run_to(2).bodies("horizontalpodautoscalers.autoscaling")
    assert hpa["status"]["currentMetrics"] in (None, [{"type": ""}])
    rows = table(HPA, [hpa], {}, 0)["rows"]
    assert "<unknown>/20" in rows[0]["cells"]


def test_a_scale_up_is_an_event_of_the_pods_that_it_is_for() -> None:
    events = shipped("ack-bert").run_to(130).bodies("events")
    (found,) = [event for event in events if event["reason"] == "TriggeredScaleUp"]
    assert found["involvedObject"]["kind"] == "Pod"
    assert found["source"] == {"component": "cluster-autoscaler"}
    assert re.fullmatch(r"pod triggered scale-up: \[\{gpu 1->2 \(max: 10\)\}\]", found["message"])


def test_a_change_of_replicas_is_an_event_of_the_deployment() -> None:
    run = shipped("ack-bert").run_to(60)
    run.run_to(130)
    events = [each for each in run.bodies("events") if each["reason"] == "ScalingReplicaSet"]
    (deployment,) = run.bodies("deployments.apps")
    (replica_set,) = run.bodies("replicasets.apps")
    name = replica_set["metadata"]["name"]
    assert sorted(each["message"] for each in events) == [
        f"Scaled up replica set {name} from 0 to 1",
        f"Scaled up replica set {name} from 1 to 2",
    ]
    assert deployment["metadata"]["generation"] == 2


def test_what_the_same_look_gives_is_no_change() -> None:
    run = shipped("eks-vision").run_to(620)
    version = run.store.version
    assert not run.store.take(run.objects.facts())
    assert run.store.version == version


def test_a_kubelet_renews_its_lease_every_ten_seconds_and_reports_every_five_minutes() -> None:
    # Kubernetes' defaults: nodeLeaseDurationSeconds 40, renewed at a quarter of that; reports every 5m.
    run = shipped("ack-bert", speed=10.0)
    for seconds, renewed, reported in ((0, "00:00", "00:00"), (199, "00:10", "00:00")):
        (node,), (lease,) = run.run_to(seconds).bodies("nodes"), run.bodies(LEASE.resource)
        assert lease["spec"]["holderIdentity"] == node["metadata"]["name"]
        assert lease["spec"]["renewTime"] == f"2026-01-01T00:{renewed}.000000Z"
        beats = {each["lastHeartbeatTime"] for each in node["status"]["conditions"]}
        assert beats == {f"2026-01-01T00:{reported}Z"}
    node = shipped("ack-bert").run_to(310).bodies("nodes")[0]
    beats = {each["lastHeartbeatTime"] for each in node["status"]["conditions"]}
    assert beats == {"2026-01-01T00:05:00Z"}


@pytest.mark.parametrize("seconds", [130, 216, 225, 300])
def test_the_endpoints_of_a_service_are_its_pods_with_an_address(seconds: int) -> None:
    # The second pod waits for a node, has its image pulled, starts, and serves.
    run = shipped("ack-bert").run_to(seconds)
    slices = {
        each["metadata"]["labels"]["kubernetes.io/service-name"]: each
        for each in run.bodies(ENDPOINT_SLICE.resource)
    }
    pods = [
        pod
        for pod in run.bodies("pods")
        if pod["metadata"]["labels"].get("app") == "bert-intent-detection"
        and "podIP" in pod["status"]
    ]
    assert pods
    found = slices["bert-intent-detection-svc"]
    assert found["ports"] == [{"name": "http", "port": 80, "protocol": "TCP"}]
    shown = {each["targetRef"]["uid"]: each for each in found["endpoints"]}
    assert shown.keys() == {pod["metadata"]["uid"] for pod in pods}
    for pod in pods:
        endpoint = shown[pod["metadata"]["uid"]]
        assert endpoint["addresses"] == [pod["status"]["podIP"]]
        assert endpoint["nodeName"] == pod["spec"]["nodeName"]
        is_ready = {"type": "Ready", "status": "True"}.items()
        ready = any(is_ready <= each.items() for each in pod["status"]["conditions"])
        wanted = {"ready": ready, "serving": ready, "terminating": False}
        assert endpoint["conditions"] == wanted
    labels = slices["dcgm-exporter"]["metadata"]["labels"]
    assert labels["service.kubernetes.io/headless"] == ""
