"""Rows of submitted Jobs, held against a time table that is worked out by hand."""

from gpuscale.lab.local.view import MAX_ROWS, job_rows
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
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
  duration: 1h
  manifests: [{file: job.yaml}]
  nodePools:
  - {name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 1, provisioningTime: 10s}
  workloads:
  - job: train
    imagePull: 0s
    run: {at: 60s, copies: COPIES, every: 10s, duration: 300s}
"""


def rows(copies, seconds):
    text = SCENARIO.replace("COPIES", str(copies))
    world = World(load_setup(text, "s.yaml", {"job.yaml": JOB}.__getitem__), 0)
    world.engine.run_until(seconds * 1000)
    return job_rows(world)


def test_nothing_is_listed_before_it_is_submitted() -> None:
    assert rows(3, 59) == []


def test_running_jobs_come_before_pending_ones() -> None:
    # submitted at 60, 70 and 80 s; the one GPU runs the first until 360 s and more
    found = rows(3, 300)
    assert [(row["running"], row["pending"], row["succeeded"]) for row in found] == [
        (1, 0, 0),
        (0, 1, 0),
        (0, 1, 0),
    ]
    assert [row["age"] for row in found] == [240, 230, 220]
    assert {row["completions"] for row in found} == {1}


def test_completed_jobs_come_last() -> None:
    found = rows(3, 500)
    assert [row["succeeded"] for row in found] == [0, 0, 1]
    assert found[2]["age"] == 440
    assert all(row["running"] + row["pending"] + row["succeeded"] == 1 for row in found)


def test_rows_are_bounded() -> None:
    assert len(rows(MAX_ROWS + 50, 3000)) == MAX_ROWS
