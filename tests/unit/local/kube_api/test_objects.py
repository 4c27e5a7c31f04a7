"""Objects of shipped scenarios: what refers to what, when things happened, what is counted."""

import re
from collections import Counter

import pytest

from gpuscale.hpa.types import FetchError
from gpuscale.local.kube_api.kinds import HPA, KINDS, SCALED_OBJECT
from gpuscale.local.kube_api.tables.table import table
from live_objects import StoredRun, shipped

MOMENTS = [("ack-bert", 130), ("eks-vision", 620), ("aks-mnist-jobs", 400), ("keda-zero", 700)]
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
    for kind in (*KINDS, SCALED_OBJECT):
        shown = table(kind, run.bodies(kind.stored_as), {}, 0)
        assert {len(row["cells"]) for row in shown["rows"]} <= {len(shown["columnDefinitions"])}


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
