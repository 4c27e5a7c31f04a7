"""`gpuscale money --ledger` of recordings in files, with the exact twin."""

import csv
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

GPUSCALE = Path(sys.executable).parent / "gpuscale"
ROOT = Path(__file__).parents[2]
TRACES = ROOT.parent / "shared" / "data" / "traces"
START_S = 1_767_225_600
EVERY_S = 300
METRIC = "DCGM_FI_DEV_GPU_UTIL"
MANIFESTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat, namespace: ml}}
spec:
  selector: {{matchLabels: {{app: chat}}}}
  template:
    metadata: {{labels: {{app: chat}}}}
    spec:
      containers: [{{name: main, image: "web:1", resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: chat, namespace: ml}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: chat}}
  maxReplicas: {most}
  metrics:
    - type: Pods
      pods: {{metric: {{name: {metric}}}, target: {{type: AverageValue, averageValue: "{target}"}}}}
"""


def ledger(
    folder: Path, rows: Sequence[tuple[float, float, int]], most: int, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Return what the command says of pods, their mean use in percent, and the HPA's target."""
    with (folder / "recorded.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                *("time", "replicas", "ready", "utilization", f"target/{METRIC}"),
                *("gpusPerNode", "startupSeconds", "provisioningSeconds"),
            ]
        )
        for number, (pods, used, target) in enumerate(rows):
            facts = (8, 60, 120) if number == 0 else ("", "", "")
            writer.writerow((START_S + number * EVERY_S, pods, pods, used, target, *facts))
    manifests = MANIFESTS.format(most=most, metric=METRIC, target=rows[-1][2])
    (folder / "chat.yaml").write_text(manifests)
    return subprocess.run(
        [
            *(GPUSCALE, "money", "--ledger", f"--from-file={folder / 'recorded.csv'}"),
            *("--workload=ml/chat", f"--manifests={folder / 'chat.yaml'}", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.timeout(300)
def test_a_raised_target_that_was_advised_comes_true(tmp_path: Path) -> None:
    # A busy GPU: 5 pods at 20 % for an hour; at a target of 40 % the HPA wants 3, at 60 % 2.
    an_hour = 3600 // EVERY_S
    rows = [(5, 20, 20)] * an_hour + [(3, 100 / 3, 40)] * 72 * an_hour
    advice = {
        "workload": "ml/chat",
        "gpuHoursSavedAMonth": 2 * 730,
        "gpuHoursSavedInterval": [1.9 * 730, 2.1 * 730],
        "settings": {f"target/{METRIC}": 40},
    }
    (tmp_path / "savings.json").write_text(json.dumps({"workloads": [advice]}))
    done = ledger(
        *(tmp_path, rows, 8, "--gpu-price=*=2", f"--advice={tmp_path / 'savings.json'}"),
        *("-o", "json"),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (chat,) = document["workloads"]
    assert document["currency"] == "USD"
    first, second = chat["days"][:2]
    assert first["gpuHours"] == pytest.approx(5 + 23 * 3)
    assert second["gpuHours"] == pytest.approx(24 * 3)
    assert second["money"] == pytest.approx(24 * 3 * 2)
    assert second["gpuHoursAtMaximum"] == pytest.approx(24 * 8)
    assert second["gpuHoursDefaultHpa"] == pytest.approx(24 * 2)
    assert second["gpuHoursBefore"] == pytest.approx(24 * 5)
    assert chat["twinErrorShare"] == pytest.approx(0, abs=0.005)
    assert chat["changed"] == "2026-01-01T01:00:00Z"
    assert chat["advice"]["verdict"] == "kept"
    assert chat["advice"]["gpuHoursSaved"] == pytest.approx(2 * 72, rel=0.01)


@pytest.mark.timeout(300)
def test_the_twin_is_near_a_public_traces_day_under_an_hpa(tmp_path: Path) -> None:
    if not (TRACES / "alibaba-gentd26").exists():
        pytest.skip("needs the trace alibaba-gentd26 in ../shared/data/traces")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from policy_traces import STEP_S, traces

    demand = next(each for each in traces(TRACES) if each.name == "gentd26").demand
    per_row = round(EVERY_S / STEP_S)
    means = demand[: len(demand) // per_row * per_row].reshape(-1, per_row).mean(axis=1) / 4
    # The HPA's own arithmetic every five minutes, which is as long as it waits before it scales in.
    rows, pods, before = [], 8, 8
    for busy in means.tolist():
        rows.append((pods, min(100.0, 100 * busy / pods), 60))
        wanted = max(1, math.ceil(busy / 0.6))
        wanted = wanted if abs(busy / pods / 0.6 - 1) > 0.1 else pods
        pods, before = max(wanted, min(pods, before)), wanted
    done = ledger(tmp_path, rows, 12, "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["workloads"]
    took = sum(each["gpuHours"] for each in found["days"])
    assert took == pytest.approx(sum(pods for pods, _, _ in rows) * EVERY_S / 3600)
    assert abs(found["twinErrorShare"]) < 0.05
    # Its own settings are the defaults, but for the first minimum.
    default = sum(each["gpuHoursDefaultHpa"] for each in found["days"])
    assert default == pytest.approx(took * (1 + found["twinErrorShare"]), rel=0.001)
    assert sum(each["gpuHoursAtMaximum"] for each in found["days"]) == pytest.approx(
        12 * len(rows) * EVERY_S / 3600
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ledger"], "--ledger: expected --prometheus-url, or --from-file FILE"),
        (["--ledger", "--history=kept"], "--ledger: found --history, expected --prometheus-url"),
        (["--advice=savings.json"], "--advice: expected --ledger beside it"),
        (["--from-file=x.csv"], "--ledger: expected --prometheus-url, or --from-file FILE"),
        (["--ledger", "--savings"], "found --savings and --ledger, expected one of them"),
        (["--ledger", "--prometheus-url=http://127.0.0.1:1", "--since=1d"], "3 to 60 days"),
        (
            ["--ledger", "--prometheus-url=http://127.0.0.1:1", "--advice=broken.json"],
            "broken.json:1: workloads[0].gpuHoursSavedAMonth",
        ),
    ],
)
def test_what_it_refuses(arguments: list[str], told: str, tmp_path: Path) -> None:
    broken = {
        "workload": "a/b",
        "gpuHoursSavedAMonth": "x",
        "gpuHoursSavedInterval": None,
        "settings": {},
    }
    (tmp_path / "broken.json").write_text(json.dumps({"workloads": [broken]}))
    done = subprocess.run(
        [GPUSCALE, "money", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told in done.stderr
    assert done.returncode == 2
