"""Jobs of a load: what is made of a manifest, how objects of the API server are read, and the result."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.load.jobs.chronicle import MAX_POINTS, Chronicle
from gpuscale.load.jobs.result import job_document, job_faults_text, junit_text
from gpuscale.load.jobs.running import JobPlan, JobRun, moments
from gpuscale.load.jobs.states import JobState, Standing, node_sight, standing_of
from gpuscale.load.jobs.template import read_template, run_selector, sample_template

FROM_A_CLUSTER = """
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: ml
  uid: 1-2-3
  resourceVersion: "77"
  labels: {team: vision, job-name: train, batch.kubernetes.io/controller-uid: 1-2-3}
  annotations: {note: keep}
spec:
  manualSelector: true
  ttlSecondsAfterFinished: 0
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: 1-2-3}}
  template:
    metadata:
      labels: {app: train, controller-uid: 1-2-3, batch.kubernetes.io/job-name: train}
    spec:
      containers:
      - {name: c, image: i, resources: {limits: {nvidia.com/gpu: 2, cpu: 1}}}
status: {succeeded: 1}
"""


def test_a_job_that_was_read_from_a_cluster_becomes_a_new_one() -> None:
    template = read_template(FROM_A_CLUSTER, "job.yaml")
    assert (template.namespace, template.resources) == ("ml", frozenset({"nvidia.com/gpu"}))
    marks = {
        "app.kubernetes.io/managed-by": "gpuscale-load",
        "gpuscale.dev/load-run": "3fa2c1",
    }
    assert template.job("here", "3fa2c1", 7, 20) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train-3fa2c1-07",
            "namespace": "here",
            "labels": {"team": "vision", **marks},
            "annotations": {"note": "keep"},
        },
        "spec": {
            "ttlSecondsAfterFinished": 60,  # or its end might go by unseen
            "template": {
                "metadata": {"labels": {"app": "train", **marks}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 1}},
                        }
                    ],
                    "restartPolicy": "Never",
                },
            },
        },
    }
    # The manifest itself is as it was.
    assert template.job("here", "3fa2c1", 7, 20) == template.job("here", "3fa2c1", 7, 20)


@given(
    name=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    count=st.integers(1, 5000),
)
def test_names_are_labels_of_their_pods_and_differ(name, count) -> None:
    text = FROM_A_CLUSTER.replace("name: train\n  namespace", f"name: '{name}'\n  namespace")
    template = read_template(text, "job.yaml")
    made = {
        template.job("ns", "0a1b2c", number, count)["metadata"]["name"] for number in (1, count)
    }
    assert all(len(each) <= 63 and each.isascii() for each in made)
    assert len(made) == (1 if count == 1 else 2)


def test_the_sample_is_a_training_on_one_gpu() -> None:
    job = sample_template().job("default", "0a1b2c", 1, 1)
    assert job["metadata"]["name"] == "samples-tf-mnist-demo-0a1b2c-1"
    assert sample_template().resources == {"nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: Job", "kind: Deployment", "job.yaml:3: kind: found Deployment of batch/v1"),
        ("name: train\n  namespace", "namespace", "metadata.name: found no name"),
        ("name: train\n  namespace", "name: Train\n  namespace", "found 'Train'"),
        (
            "      containers:",
            "      restartPolicy: Always\n      containers:",
            "found Always, expected",
        ),
        ("  manualSelector", "  paralelism: 2\n  manualSelector", "did you mean parallelism"),
        ("status:", "---\nstatus:", "found 2 documents, expected one Job"),
    ],
)
def test_other_manifests_are_refused_with_the_place(old, new, said) -> None:
    with pytest.raises(ConfigError) as caught:
        read_template(FROM_A_CLUSTER.replace(old, new, 1), "job.yaml")
    assert said in str(caught.value)


def test_selectors_find_what_has_both_labels() -> None:
    assert run_selector() == "app.kubernetes.io/managed-by=gpuscale-load,gpuscale.dev/load-run"
    assert run_selector("3fa2c1").endswith(",gpuscale.dev/load-run=3fa2c1")


def pod(phase="Pending", node="", conditions=(), waiting=None, **metadata):
    containers = [{"state": {"waiting": waiting}}] if waiting else []
    return {
        "metadata": {"name": "p", **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": containers,
        },
    }


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": ""}
MESSAGE = UNSCHEDULABLE["message"]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], Standing(JobState.PENDING, "no pod yet")),
        ([pod()], Standing(JobState.PENDING, "the scheduler has not looked at its pod")),
        ([pod(conditions=[GATED])], Standing(JobState.PENDING, "SchedulingGated")),
        ([pod(conditions=[UNSCHEDULABLE])], Standing(JobState.UNSCHEDULABLE, MESSAGE)),
        (
            [pod(conditions=[UNSCHEDULABLE], name="promised")],
            Standing(JobState.WAITING_FOR_NODE, MESSAGE),
        ),
        ([pod(node="n")], Standing(JobState.STARTING, "", "n")),
        (
            [pod(node="n", waiting={"reason": "ContainerCreating"})],
            Standing(JobState.STARTING, "ContainerCreating", "n"),
        ),
        (
            [pod(node="n", waiting={"reason": "ImagePullBackOff", "message": "no such image"})],
            Standing(JobState.PULL_FAILS, "ImagePullBackOff: no such image", "n"),
        ),
        ([pod("Running", "n")], Standing(JobState.RUNNING, "", "n")),
        # One that runs says more than one that waits, and one that is being removed says nothing.
        ([pod("Running", "n"), pod(conditions=[UNSCHEDULABLE])], Standing(JobState.RUNNING, "", "n")),
        ([pod("Running", "n", deletionTimestamp="t")], Standing(JobState.PENDING, "no pod yet")),
        # The Job says when it is over: this pod may be one of several, or tried again.
        ([pod("Succeeded", "n")], Standing(JobState.RUNNING, "", "n")),
        ([pod("Failed", "n")], Standing(JobState.PENDING, "a pod failed")),
        # Objects of another shape are read as far as they go.
        (
            [{"metadata": 1, "spec": [], "status": "x"}],
            Standing(JobState.PENDING, "the scheduler has not looked at its pod"),
        ),
    ],
)  # fmt: skip
def test_a_job_stands_as_its_furthest_pod_does(pods, expected) -> None:
    assert standing_of({"spec": {}}, pods, frozenset({"promised"})) == expected


def test_a_job_whose_pod_can_not_be_made_says_why() -> None:
    quota = "exceeded quota: none"
    assert standing_of({}, [], frozenset(), quota) == Standing(JobState.PENDING, quota)
    assert standing_of({}, [pod("Running", "n")], frozenset(), quota).state is JobState.RUNNING


def test_a_job_is_over_when_it_says_so() -> None:
    def job(**condition):
        return {"spec": {"suspend": True}, "status": {"conditions": [condition]}}

    complete = job(type="Complete", status="True")
    failed = job(type="Failed", status="True", reason="BackoffLimitExceeded", message="too often")
    assert standing_of(complete, [pod("Running", "n")], frozenset()).state is JobState.DONE
    assert standing_of(failed, [], frozenset()) == Standing(
        JobState.FAILED, "BackoffLimitExceeded: too often"
    )
    suspended = standing_of(job(type="Complete", status="False"), [], frozenset())
    assert suspended.reason.startswith("suspended")


@pytest.mark.parametrize(
    ("allocatable", "wanted", "offered"),
    [
        ({"nvidia.com/gpu": "8", "cpu": "4"}, {"nvidia.com/gpu"}, 8),
        ({"cpu": "4"}, {"nvidia.com/gpu"}, 0),
        ({"cpu": "4"}, set(), 1),
        ({"nvidia.com/gpu": "1e99"}, {"nvidia.com/gpu"}, 0),
        (None, {"nvidia.com/gpu"}, 0),
    ],
)
def test_nodes_offer_what_the_jobs_ask_for(allocatable, wanted, offered) -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}
    sight = node_sight(node, frozenset(wanted))
    assert (sight.offered, sight.is_ready) == (offered, False)


def test_jobs_come_when_they_are_due() -> None:
    assert moments(3, 10.0, None, 1) == (0.0, 10.0, 20.0)
    # All at once is still not more than 20 a second.
    assert moments(3, None, None, 1) == (0.0, 0.05, 0.1)
    random = moments(2_000, None, 0.5, 1)
    assert random == moments(2_000, None, 0.5, 1) != moments(2_000, None, 0.5, 2)
    # 2 000 gaps with a mean of 2 s: the sum is within 5 % (two standard deviations) of 4 000 s.
    assert random[-1] == pytest.approx(4_000, rel=0.05)


def run_of(chronicle, count):
    template = read_template(FROM_A_CLUSTER, "job.yaml")
    plan = JobPlan(template, "ml", count, moments(count, None, None, 1), 60.0, 120.0)
    return JobRun("3fa2c1", "https://api", plan, chronicle)


def test_a_run_is_reported_job_by_job() -> None:
    chronicle = Chronicle("5 × train", 1_000, has_nodes=True)
    for number in range(1, 5):
        chronicle.made(f"train-{number}", 1_000)
    chronicle.refuse("train-5", "exceeded quota", 1_100)
    waiting = Standing(JobState.UNSCHEDULABLE, "no GPU")
    gpu = {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    for number in range(1, 5):
        chronicle.see(f"train-{number}", waiting, 2_000)
    chronicle.see_nodes([], 2_000)
    chronicle.see_nodes([node_sight(gpu, frozenset({"nvidia.com/gpu"}))], 3_000)
    chronicle.see("train-1", Standing(JobState.RUNNING, "", "a"), 4_000)
    chronicle.see("train-1", Standing(JobState.DONE), 9_000)
    chronicle.see("train-1", Standing(JobState.RUNNING, "", "a"), 9_500)  # late news of the pod
    chronicle.see("train-2", Standing(JobState.RUNNING, "", "a"), 6_000)
    chronicle.see("train-2", Standing(JobState.FAILED, "BackoffLimitExceeded"), 8_000)
    chronicle.see("train-3", Standing(JobState.REMOVED, "from outside"), 8_000)
    chronicle.record(10_000)
    document = job_document(run_of(chronicle, 6))
    assert document["jobs"] == {
        "wanted": 6, "made": 4, "done": 1, "failed": 1, "timedOut": 0, "removedByOthers": 1,
        "refused": 1, "unfinished": 2,
    }  # fmt: skip
    # Waits of 3 s and 5 s until they ran; one of them was done, after 5 s.
    assert document["waitMilliseconds"] == {"p50": 3_000, "p90": 5_000, "p100": 5_000}
    assert document["runMilliseconds"] == {"p50": 5_000, "p90": 5_000, "p100": 5_000}
    assert document["nodes"] == {"most": 1, "atEnd": 1, "added": 1, "removed": 0}
    assert document["items"][0] == {
        "job": "train-1", "state": "done", "waitedFor": ["no GPU"], "node": "a",
        "madeMs": 1_000, "runningMs": 4_000, "endedMs": 9_000,
    }  # fmt: skip
    lane = [each for each in document["timeline"]["spans"] if each["lane"] == "train-1"]
    assert [(each["state"], each["fromMs"], each["toMs"]) for each in lane] == [
        ("pending", 1_000, 2_000),
        ("unschedulable", 2_000, 4_000),
        ("running", 4_000, 9_000),
    ]
    assert job_faults_text(document) == [
        "1 of 6 Jobs failed",
        "1 of 6 Jobs were removed from outside",
        "1 of 6 Jobs were refused by the API server",
        "2 of 6 Jobs were not done when the run ended",
    ]
    suite = ElementTree.fromstring(junit_text(document))
    assert suite.attrib | {"name": ""} == {
        "name": "", "tests": "6", "failures": "1", "errors": "2", "skipped": "2", "time": "9.000",
    }  # fmt: skip
    outcomes = [next((each.tag for each in case), "") for case in suite]
    assert outcomes == ["", "failure", "error", "skipped", "error", "skipped"]
    assert suite[1][0].get("message") == "failed: BackoffLimitExceeded; no GPU"


@given(st.text(max_size=50))
def test_junit_xml_is_xml_whatever_a_cluster_says(text) -> None:
    chronicle = Chronicle("1 × train", 0, has_nodes=False)
    chronicle.made("train-1", 0)
    chronicle.see("train-1", Standing(JobState.FAILED, text), 1_000)
    chronicle.record(1_000)
    suite = ElementTree.fromstring(junit_text(job_document(run_of(chronicle, 1))))
    assert suite.get("failures") == "1"


def test_what_is_not_seen_is_a_gap_and_a_long_run_stays_small() -> None:
    chronicle = Chronicle("train", 0, has_nodes=True)
    chronicle.made("train-1", 0)
    chronicle.record(500, are_nodes_seen=False)
    chronicle.record(1_000, are_jobs_seen=False)
    tracks = {track.name: track.points for track in chronicle.timeline("nvidia.com/gpu").tracks}
    assert tracks["pending"] == ((500, 1.0), (1_000, None))
    assert tracks["nodes"] == ((500, None), (1_000, None))
    assert tracks["made"] == ((500, 1.0), (1_000, 1.0))
    for step in range(3, 100_000):
        chronicle.record(step * 500)
    points = chronicle.timeline("").tracks[0].points
    assert MAX_POINTS / 2 <= len(points) <= MAX_POINTS
    assert points[-1][0] > 0.98 * 100_000 * 500
