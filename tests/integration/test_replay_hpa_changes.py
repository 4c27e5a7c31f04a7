"""An HPA that changed while it was recorded is replayed as it changed, by a real Prometheus and from a file.

The truth is planted: `planted_hpa` has an HPA of its own.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuscale.testing.prometheus import serve
from planted_hpa import planted

GPUSCALE = Path(sys.executable).parent / "gpuscale"
START_MS = 1_767_225_600_000
HOURS = 6
# What `kubectl get` says after the change.
MANIFESTS = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: llm}
spec:
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
  maxReplicas: 8
  metrics:
  - type: Pods
    pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: "80"}}
"""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with the manifests, what happened, and a Prometheus that has it."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "chat.yaml").write_text(MANIFESTS)
    half = HOURS * 120
    happened = planted(START_MS, [60.0] * half + [80.0] * half)
    with serve([], folder) as prometheus:
        for each in happened.slices:
            prometheus.write(each)
        yield folder, happened, prometheus


def gpuscale(folder, *arguments):
    command = [str(GPUSCALE), "simulate", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )


def asked(recorded, *more):
    folder, _, prometheus = recorded
    until = START_MS // 1000 + HOURS * 3600
    of = ("--from-prometheus", prometheus.url, "--workload", "llm/chat", "--range", f"{HOURS}h")
    return gpuscale(folder, *of, "--until", until, *more)


def replay(recorded, *more):
    done = asked(recorded, *more, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["replay"]


@pytest.fixture(scope="module")
def live(recorded):
    """The replay with manifests, and the folder `kept` of it."""
    return replay(recorded, "--manifests", "chat.yaml", "--save-scenario", "kept")


def check(found, happened):
    hours = found["podGpuHours"]
    assert hours["recorded"] == pytest.approx(happened.gpu_hours, rel=0.01)
    assert hours["replayed"] == pytest.approx(happened.gpu_hours, rel=0.05)
    before, after = found["hpaChanges"]
    assert before["targets"] == {"DCGM_FI_DEV_GPU_UTIL": 60}
    assert (after["at"], after["targets"]) == ("3h", {"DCGM_FI_DEV_GPU_UTIL": 80})


def test_the_replay_needs_the_gpu_hours_that_were_needed(recorded, live) -> None:
    check(live, recorded[1])


def test_kube_state_metrics_alone_say_how_it_changed(recorded) -> None:
    check(replay(recorded), recorded[1])


def test_the_present_hpa_throughout_would_need_others(recorded) -> None:
    """What makes the test above one: with 80 % for all hours the GPU-hours are far from those recorded."""
    _, happened, _ = recorded
    found = replay(recorded, "--manifests", "chat.yaml", "--set", "spec.hpaChanges=[]")
    assert found["hpaChanges"] == []
    assert found["podGpuHours"]["replayed"] < 0.95 * happened.gpu_hours


def test_a_kept_folder_changes_the_hpa_too(recorded, live) -> None:
    folder, _, _ = recorded
    table = ("--from-file", "kept/recorded.csv", "--workload", "llm/chat")
    done = gpuscale(folder, *table, "--manifests", "chat.yaml", "-o", "json")
    again = json.loads(done.stdout)["replay"]
    assert again["hpaChanges"] == live["hpaChanges"]
    kept_hours, live_hours = again["podGpuHours"], live["podGpuHours"]
    assert kept_hours["replayed"] == pytest.approx(live_hours["replayed"], rel=0.005)
    spec = yaml.safe_load((folder / "kept/scenario.yaml").read_text())["spec"]
    assert [each["at"] for each in spec["hpaChanges"]] == ["0s", "3h"]
    # The manifests stay as they were given: with the present HPA.
    _, hpa = yaml.safe_load_all((folder / "kept/manifests.yaml").read_text())
    assert hpa["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == "80"


def test_a_fluid_replay_refuses_it_and_says_what_to_do(recorded) -> None:
    done = asked(recorded, "--manifests", "chat.yaml", "--fidelity", "fluid")
    assert done.returncode == 2
    assert "found hpaChanges" in done.stderr
    assert "--set 'spec.hpaChanges=[]'" in done.stderr
