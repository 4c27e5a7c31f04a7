"""A cluster's days, recorded in a real Prometheus, come back as a scenario whose replay does the same."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pyarrow import csv, parquet

from cluster_samples import hpa_series, samples_of
from gpuscale.testing.prometheus import serve

GPUSCALE = Path(sys.executable).parent / "gpuscale"
START_MS = 1_767_225_600_000
HOURS = 4
MANIFESTS = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: llm}
spec:
  replicas: 1
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
      - {name: main, image: "chat:1", resources: {limits: {nvidia.com/gpu: 1}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: llm}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 1
  maxReplicas: 12
  metrics:
  - type: Pods
    pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: "60"}}
"""
# 25 GPU-ms a request: 40 to 280 requests/s are 1 to 7 GPUs.
SCENARIO = f"""apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: chat}}
spec:
  duration: {HOURS}h
  manifests: [{{file: chat.yaml}}]
  pipeline: {{honorLabels: true}}
  nodePools:
  - {{name: h100, gpuModel: NVIDIA H100 80GB HBM3, gpus: 1, min: 1, max: 12, provisioningTime: 150s}}
  workloads:
  - deployment: llm/chat
    imagePull: 30s
    startup: 45s
    service: {{gpuSecondsPerRequest: 0.025}}
    load: {{shape: sine, mean: 160, amplitude: 120, period: 2h}}
"""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]


def gpuscale(*arguments, cwd):
    done = subprocess.run(
        [GPUSCALE, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with the cluster's manifests, what ran there, and a Prometheus that recorded it."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "chat.yaml").write_text(MANIFESTS)
    (folder / "scenario.yaml").write_text(SCENARIO)
    run = json.loads(gpuscale("simulate", "scenario.yaml", "-o", "json", cwd=folder).stdout)
    slices = samples_of(
        run,
        START_MS,
        namespace="llm",
        deployment="chat",
        model="NVIDIA H100 80GB HBM3",
        startup_s=45,
    )
    times_ms = [START_MS + round(t * 1000) for t in run["series"]["t"]]
    metric = "DCGM_FI_DEV_GPU_UTIL"
    of_hpa = hpa_series("llm", "chat", "chat", metric, 60.0, 12.0, times_ms)
    with serve([], folder) as prometheus:
        for one, other in zip(slices, of_hpa, strict=True):
            prometheus.write([*one, *other])
        yield folder, run, prometheus


def replay(recorded, *more):
    folder, _, prometheus = recorded
    until = START_MS // 1000 + HOURS * 3600
    basic = ("--from-prometheus", prometheus.url, "--workload", "llm/chat", "--range", f"{HOURS}h")
    done = gpuscale("simulate", *basic, "--until", until, *more, "-o", "json", cwd=folder)
    return json.loads(done.stdout)


def gpu_hours(run):
    return sum(run["series"]["hpa/chat/current"]) * 15 / 3600


def test_a_replay_needs_the_gpu_hours_that_were_needed(recorded) -> None:
    """The demand is made of utilisation alone, and the HPA is the one that ran."""
    _, run, _ = recorded
    found = replay(recorded, "--manifests", "chat.yaml")["replay"]
    assert found["podGpuHours"]["recorded"] == pytest.approx(gpu_hours(run), rel=0.01)
    assert abs(found["podGpuHours"]["differencePercent"]) <= 5
    assert abs(found["nodeGpuHours"]["differencePercent"]) <= 5
    assert found["replicasDifferPercent"] <= 10
    assert found["missingPercent"] < 1


def test_kube_state_metrics_alone_are_enough_for_an_hpa_on_pods(recorded) -> None:
    found = replay(recorded)["replay"]
    assert abs(found["podGpuHours"]["differencePercent"]) <= 5
    assert found["metricSeen"] is True


def test_a_fluid_replay_needs_them_too_and_claims_nothing_of_the_metric(recorded) -> None:
    """Its HPA sees steps, not values, so there is nothing to say of whether the metric was there."""
    found = replay(recorded, "--manifests", "chat.yaml", "--fidelity", "fluid")["replay"]
    assert abs(found["podGpuHours"]["differencePercent"]) <= 5
    assert abs(found["nodeGpuHours"]["differencePercent"]) <= 5
    assert found["metricSeen"] is None


def test_start_and_provisioning_times_are_those_of_the_pods(recorded) -> None:
    folder, _, _ = recorded
    replay(recorded, "--save-scenario", "kept")
    spec = yaml.safe_load((folder / "kept/scenario.yaml").read_text())["spec"]
    assert spec["workloads"][0]["startup"] == "1m15s"  # 30 s for the image, 45 s for the model
    assert spec["nodePools"][0]["gpuModel"] == "NVIDIA H100 80GB HBM3"
    assert spec["nodePools"][0]["gpus"] == 1


def test_what_was_kept_runs_again_and_its_recording_can_be_read(recorded) -> None:
    folder, _, _ = recorded
    first = replay(recorded, "--manifests", "chat.yaml", "--save-scenario", "again")
    kept = gpuscale("simulate", "again/scenario.yaml", "-o", "json", cwd=folder)
    assert json.loads(kept.stdout)["series"] == first["series"]
    table = ("--from-file", "again/recorded.csv", "--workload", "llm/chat")
    done = gpuscale("simulate", *table, "--manifests", "chat.yaml", "-o", "json", cwd=folder)
    again = json.loads(done.stdout)
    # The facts of the Prometheus are in the file, so nothing else is assumed, and the days are the same.
    assert again["replay"]["assumed"] == first["replay"]["assumed"]
    for hours in ("podGpuHours", "nodeGpuHours"):
        kept_hours, live_hours = again["replay"][hours], first["replay"][hours]
        assert kept_hours["recorded"] == live_hours["recorded"]
        # A file has nine digits of what it keeps.
        assert kept_hours["replayed"] == pytest.approx(live_hours["replayed"], rel=0.005)
    parquet.write_table(csv.read_csv(folder / "again/recorded.csv"), folder / "recorded.parquet")
    table = ("--from-file", "recorded.parquet", "--workload", "llm/chat")
    same = gpuscale("simulate", *table, "--manifests", "chat.yaml", "-o", "json", cwd=folder)
    assert json.loads(same.stdout)["series"] == json.loads(done.stdout)["series"]
