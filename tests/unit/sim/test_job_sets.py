# mypy: disable-error-code="attr-defined"
"""JobSets in a simulation, held against time tables that are worked out by hand."""

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.sim.document.jobs import JobProgress, job_progress
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import check_no_groups
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.sim.world import World

JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: driver
    template:
      spec:
        template:
          spec:
            containers: [{name: main, image: train:1}]
  - name: workers
    replicas: 2
    template:
      spec:
        completions: 2
        parallelism: 2
        template:
          spec:
            containers:
            - {name: main, image: train:1, resources: {limits: {nvidia.com/gpu: 1}}}
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: sets}
spec:
  duration: 20m
  manifests: [{file: set.yaml}]
  nodeAutoscaler: {unneededTime: 1h}
  nodePools:
  - {name: gpu, gpuModel: Tesla T4, gpus: 1, min: 3, max: 4, provisioningTime: 60s}
  workloads:
  - jobSet: train
    imagePull: 10s
    run: {at: 60s, duration: 300s, utilization: 50}
"""


def setup_of(manifest=JOB_SET, scenario=SCENARIO):
    return load_setup(scenario, "s.yaml", {"set.yaml": manifest}.__getitem__)


def at(site, seconds):
    site.engine.run_until(seconds * 1000)
    return job_progress(site)["train"]


def test_jobs_have_the_names_that_the_controller_gives_them() -> None:
    # jobset v0.12 pkg/util/placement/placement.go (GenJobName)
    names = [each.job.metadata.name for each in setup_of().jobs]
    assert names == ["train-driver-0", "train-workers-0", "train-workers-1"]
    twice = setup_of(scenario=SCENARIO.replace("{at: 60s", "{copies: 2, at: 60s"))
    assert [each.job.metadata.name for each in twice.jobs][3:] == [
        "train-2-driver-0",
        "train-2-workers-0",
        "train-2-workers-1",
    ]


def test_pods_compute_once_all_of_them_run() -> None:
    site = World(setup_of(), 0)
    # Three workers run from 70 s on. The fourth needs a node: 30 s, a scan within 10 s, 60 s, and its image.
    assert at(site, 71) == JobProgress(5, 5, 1, 4, 0)
    assert site.busy_gpu_hours() == 0
    at(site, 165)
    (ready_ms,) = [e.time_ms for e in site.cluster.events.since(0) if e.kind == "NodeReady"][3:]
    assert 150_000 <= ready_ms <= 160_000
    starts_s = ready_ms // 1000 + 10
    # Whoever ran first ends with the last: 300 s after that one began.
    assert at(site, starts_s + 299) == JobProgress(5, 5, 0, 5, 0)
    assert at(site, starts_s + 301) == JobProgress(5, 5, 0, 0, 5)
    # 4 GPUs half busy for 300 s.
    assert site.busy_gpu_hours() == pytest.approx(4 * 0.5 * 300 / 3600, rel=0.01)


def test_a_lost_pod_makes_all_start_over() -> None:
    site = World(setup_of(scenario=SCENARIO.replace("min: 3", "min: 4")), 0)
    assert at(site, 200) == JobProgress(5, 5, 0, 5, 0)
    lost = next(key for key in site.cluster.pods if "train-workers-1" in key)
    site.control_plane.evict(lost)
    # It takes 2 s to end and frees its node then; the next has its image 10 s later: 212 s, and 300 s more.
    assert at(site, 511) == JobProgress(5, 5, 0, 5, 0)
    assert at(site, 513) == JobProgress(5, 5, 0, 0, 5)
    # Of the first 130 s nothing is left, but they cost: 4 GPUs half busy from 70 to 200 and 212 to 512 s.
    assert site.busy_gpu_hours() == pytest.approx(4 * 0.5 * 430 / 3600, rel=0.01)


def test_formulas_give_what_the_pipeline_gives() -> None:
    by_formula, through = simulate(setup_of()), simulate(setup_of(), through_pipeline=True)
    assert [each.pop("fidelity")["used"] for each in (by_formula, through)] == [
        "formula",
        "pipeline",
    ]
    assert by_formula == through
    assert by_formula["summary"]["jobs"] == {
        "train": {"submitted": 5, "pending": 0, "running": 0, "succeeded": 5}
    }


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("spec:\n", "spec:\n  startupPolicy: {startupPolicyOrder: InOrder}\n", "startupPolicy"),
        ("spec:\n", "spec:\n  successPolicy: {operator: Any}\n", "successPolicy"),
        ("    replicas: 2\n", "    dependsOn: [{name: driver}]\n", "replicatedJobs[1].dependsOn"),
    ],
)
def test_what_is_not_simulated_is_refused(old, new, field) -> None:
    with pytest.raises(
        ConfigError, match=rf"set\.yaml:\d+: spec\.{field}".replace("[1]", r"\[1\]")
    ):
        setup_of(JOB_SET.replace(old, new, 1))


def test_a_job_set_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"jobSet: found 'other', expected a JobSet of the"):
        setup_of(scenario=SCENARIO.replace("jobSet: train", "jobSet: other"))
    with pytest.raises(UsageError, match=r"sets: tune: found JobSet default/train, expected Jobs"):
        check_no_groups(setup_of(), "tune")
