# mypy: disable-error-code="attr-defined"
"""How far Jobs have got, held against a time table that is worked out by hand."""

from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.lab.sim.document.document import document, row
from gpuscale.lab.sim.document.jobs import JobProgress, job_progress
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 4
  parallelism: 3
  template:
    metadata: {labels: {app: train}}
    spec:
      containers:
      - name: main
        image: train:1
        resources: {limits: {nvidia.com/gpu: 1}}
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: batch}
spec:
  duration: 20m
  manifests: [{file: job.yaml}]
  nodeAutoscaler: {unneededTime: 1m, delayAfterAdd: 1m}
  nodePools:
  - {name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 3, provisioningTime: 10s}
  workloads:
  - job: train
    imagePull: 0s
    run: {at: 60s, duration: 300s}
"""


def world():
    return World(load_setup(SCENARIO, "s.yaml", {"job.yaml": JOB}.__getitem__), 0)


def at(site, seconds):
    site.engine.run_until(seconds * 1000)
    return job_progress(site)["train"]


def test_completions_are_counted_from_submission_to_success() -> None:
    site = world()
    assert at(site, 59) == JobProgress(planned=4, submitted=0, pending=0, running=0, succeeded=0)
    # One GPU is there at 60 s. The other two of `parallelism` wait for nodes, the fourth for a turn.
    assert at(site, 61) == JobProgress(4, 4, 3, 1, 0)
    # The pool grows 30 s after the pods were found to fit nowhere, at the next scan, 10 s at most; then 10 s.
    assert at(site, 111) == JobProgress(4, 4, 1, 3, 0)
    # The first ends at 360 s and the fourth takes its place until 660 s; the second and third end by 410 s.
    assert at(site, 361) == JobProgress(4, 4, 0, 3, 1)
    assert at(site, 411) == JobProgress(4, 4, 0, 1, 3)
    assert at(site, 661) == JobProgress(4, 4, 0, 0, 4)


def test_what_succeeded_stays_so_when_its_node_leaves() -> None:
    site = world()
    # Two nodes are empty from 410 s at the latest and leave 60 s later, long before the Job's end.
    assert at(site, 600) == JobProgress(4, 4, 0, 1, 3)
    assert site.cloud.sizes("gpu") == (1, 1)
    at(site, 1200)
    created = [e for e in site.cluster.events.since(0) if e.kind == "SuccessfulCreate"]
    assert len(created) == 4


def test_the_document_has_jobs_as_series_and_in_its_summary() -> None:
    site, recorder = world(), SeriesRecorder()
    for seconds in (0, 61, 661):
        at(site, seconds)
        recorder.add(seconds, row(site, {}, {}))
    run = document(site, recorder)
    counts = {key: values for key, values in run["series"].items() if key.startswith("jobs/")}
    assert counts == {
        "jobs/train/pending": [0, 3, 0],
        "jobs/train/running": [0, 1, 0],
        "jobs/train/succeeded": [0, 0, 4],
    }
    assert run["summary"]["jobs"] == {
        "train": {"submitted": 4, "pending": 0, "running": 0, "succeeded": 4}
    }


def test_copies_of_a_job_are_counted_together() -> None:
    text = SCENARIO.replace("at: 60s,", "copies: 5, at: 60s, every: 1000s,")
    site = World(load_setup(text, "s.yaml", {"job.yaml": JOB}.__getitem__), 0)
    assert at(site, 661) == JobProgress(planned=20, submitted=4, pending=0, running=0, succeeded=4)
