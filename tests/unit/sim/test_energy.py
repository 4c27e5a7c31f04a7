"""The energy of a run's GPUs, by arithmetic: idle power while the node is there, and more while they work."""

import pytest

from gpuscale.lab.sim.fluid.run import simulate_fluid
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeSelector: {pool: NAME}
      containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]
"""
MODELS = """\
  gpuModels:
    - {name: Small, memoryGib: 16, powerWatts: 100, idleWatts: 20}
    - {name: Large, memoryGib: 80, powerWatts: 700, idleWatts: 100}
"""
SCENARIO = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: energy}}
spec:
  duration: 1h
  manifests: [{{file: manifests.yaml}}]
{MODELS}
  nodePools:
    - {{name: a, gpuModel: Small, gpus: 2, min: 1, max: 1, labels: {{pool: a}}}}
    - {{name: b, gpuModel: Large, gpus: 4, min: 1, max: 1, labels: {{pool: b}}}}
  workloads:
    - deployment: a
      service: {{gpuSecondsPerRequest: 0.5}}
      load: {{shape: constant, rate: 1}}
    - deployment: b
      service: {{gpuSecondsPerRequest: 0.5}}
      load: {{shape: constant, rate: 3}}
"""
BUSY_SHARE = 0.85 + 0.15 * 0.45
"""Of the span from idle to limit that a busy GPU draws: kernels, and memory traffic for 45 % of that time."""
IDLE_WH = 2 * 20 + 4 * 100
"""Of both pools in an hour."""


def setup() -> Setup:
    manifests = "---\n".join(DEPLOYMENT.replace("NAME", name) for name in "ab")
    return load_setup(SCENARIO, "energy.yaml", lambda _: manifests)


def energy(document: dict[str, object]) -> object:
    summary = document["summary"]
    assert isinstance(summary, dict)
    return summary["gpuEnergyKwh"]


def test_each_workload_draws_what_the_gpus_of_its_own_pool_do() -> None:
    # A request a second at 0.5 s is half a GPU-hour an hour, three are one and a half.
    work_wh = BUSY_SHARE * (0.5 * (100 - 20) + 1.5 * (700 - 100))
    expected = pytest.approx((IDLE_WH + work_wh) / 1000, rel=1e-3)
    assert energy(simulate(setup())) == expected
    assert energy(simulate(setup(), through_pipeline=True)) == expected
    assert energy(simulate_fluid(setup())) == expected


def test_jobs_draw_power_and_a_node_on_its_way_does_not() -> None:
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: jobs}}
spec:
  duration: 1h
  manifests: [{{file: job.yaml}}]
{MODELS}
  nodePools: [{{name: b, gpuModel: Large, gpus: 2, min: 0, max: 1, provisioningTime: 10m}}]
  nodeAutoscaler: {{unneededTime: 2h}}
  workloads:
    - job: train
      run: {{duration: 20m, utilization: 60}}
"""
    document = simulate(load_setup(text, "jobs.yaml", lambda _: JOB))
    summary = document["summary"]
    assert isinstance(summary, dict)
    assert summary["busyGpuHours"] == pytest.approx(2 * 0.6 / 3, rel=1e-3)
    there_hours = summary["nodeHours"] - 10 / 60
    work_wh = summary["busyGpuHours"] * BUSY_SHARE * 600
    assert summary["gpuEnergyKwh"] == pytest.approx(
        (there_hours * 2 * 100 + work_wh) / 1000, rel=1e-3
    )
