"""`gpuscale money --savings` on a real Prometheus, whose workloads have a demand that never changes."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cluster_samples import write_in_order
from gpuscale.testing.prometheus import Sample, serve

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
START_S = 1_767_225_600
END_S = START_S + 3 * 86_400
EVERY_S = 240
"""A sample reaches 300 s."""
MONTH_H = 730
GPU = {"resource": "nvidia_com_gpu"}


def always(name: str, labels: Mapping[str, str], value: float) -> Iterator[Sample]:
    for at_s in range(START_S - 600, END_S + EVERY_S, EVERY_S):
        yield {"__name__": name, **labels}, at_s * 1000, value


def workload(
    name: str, pods: int, percent: float, hpa: tuple[str, str, float, int] | None
) -> list[Sample]:
    """Return what is recorded of a Deployment whose pods have a GPU each, as busy as this.

    Args:
        name: of it.
        pods: all ready.
        percent: of each GPU.
        hpa: its metric, the type of its target, the target, and minReplicas; None for none.
    """
    of = {"namespace": "ml", "deployment": name}
    owner = {"owner_kind": "Deployment", "owner_name": name}
    rows: list[tuple[str, Mapping[str, str], float]] = [
        ("kube_deployment_spec_replicas", of, pods),
        ("kube_deployment_status_replicas_ready", of, pods),
        ("kube_replicaset_owner", {"namespace": "ml", "replicaset": f"{name}-7c9d", **owner}, 1),
    ]
    for number in range(pods):
        pod = {"namespace": "ml", "pod": f"{name}-7c9d-aaa{number:02}"}
        at = {**pod, "container": "main", "node": f"node-{number // 8}", **GPU}
        made_by = {"owner_kind": "ReplicaSet", "owner_name": f"{name}-7c9d"}
        rows += [
            ("kube_pod_container_resource_limits", at, 1),
            ("kube_pod_container_resource_requests", at, 1),
            ("kube_pod_status_phase", {**pod, "phase": "Running"}, 1),
            ("kube_pod_owner", {**pod, **made_by}, 1),
            ("DCGM_FI_DEV_GPU_UTIL", {**pod, "UUID": f"{name}-{number}", "gpu": "0"}, percent),
        ]
    if hpa is not None:
        metric, kind, target, least = hpa
        own = {"namespace": "ml", "horizontalpodautoscaler": name}
        scales = {"scaletargetref_kind": "Deployment", "scaletargetref_name": name}
        of_metric = {"metric_name": metric, "metric_target_type": kind}
        spec = "kube_horizontalpodautoscaler_spec_"
        rows += [
            ("kube_horizontalpodautoscaler_info", {**own, **scales}, 1),
            (f"{spec}min_replicas", own, least),
            (f"{spec}max_replicas", own, 40),
            (f"{spec}target_metric", {**own, **of_metric}, target),
        ]
    return [sample for row in rows for sample in always(*row)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    util = "DCGM_FI_DEV_GPU_UTIL"
    recorded = [
        # 20 GPUs at 20 % are 4 that are busy.
        *workload("wide", 20, 20, (util, "average", 20, 1)),
        # 6 GPUs at 25 % are 1.5; 60 % would need 3 pods.
        *workload("kept", 6, 25, (util, "average", 60, 6)),
        *workload("cpu", 2, 50, ("cpu", "utilization", 60, 1)),
        *workload("alone", 1, 10, None),
        *always("kube_node_info", {"node": "node-0"}, 1),
    ]
    for number in range(3):
        recorded += always("kube_node_status_allocatable", {"node": f"node-{number}", **GPU}, 20)
    with serve([], tmp_path_factory.mktemp("prometheus")) as prometheus:
        write_in_order(prometheus, recorded)
        yield prometheus.url


def savings(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return money(url, "--savings", *arguments)


def money(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(GPUSCALE, "money", f"--prometheus-url={url}", "--since=3d"),
            *(f"--until={END_S}", "--gpu-price=*=2", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def found(url: str):
    done = savings(url, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_low_target_is_raised_and_its_margin_saved(found) -> None:
    wide = next(each for each in found["workloads"] if each["workload"] == "ml/wide")
    # 4 busy GPUs at 20 % are 20 pods; within the tolerance of 10 % the HPA leaves 19 to 22 alone.
    today = wide["gpuHoursAMonth"] / MONTH_H
    assert 18 <= today <= 22
    # Pods are busy for 4 of them, so that no setting does with fewer.
    left = today - wide["gpuHoursSavedAMonth"] / MONTH_H
    assert 4 <= left <= 6
    assert wide["moneySavedAMonth"] == pytest.approx(2 * wide["gpuHoursSavedAMonth"])
    assert wide["shortShareTuned"] <= 0.005
    assert wide["usedGpuHoursAMonth"] == pytest.approx(4 * MONTH_H, rel=0.01)
    assert wide["idleGpuHoursAMonth"]["margin"] == pytest.approx((today - 4) * MONTH_H, rel=0.15)
    assert "-        averageValue: '20'" in wide["diff"].replace('"', "'")
    assert "+        averageValue" in wide["diff"]


def test_idle_and_used_hours_are_what_is_paid(found) -> None:
    for each in found["workloads"]:
        parts = each["usedGpuHoursAMonth"] + sum(each["idleGpuHoursAMonth"].values())
        assert parts == pytest.approx(each["gpuHoursAMonth"])


def test_pods_that_the_minimum_keeps_are_named_and_not_promised(found) -> None:
    kept = next(each for each in found["workloads"] if each["workload"] == "ml/kept")
    assert (kept["gpuHoursSavedAMonth"], kept["diff"]) == (0, "")
    # 1.5 of 6 work, half of the second pod is left over, and 4 more are kept.
    assert kept["usedGpuHoursAMonth"] == pytest.approx(1.5 * MONTH_H, rel=0.01)
    assert kept["idleGpuHoursAMonth"]["packing"] == pytest.approx(0.5 * MONTH_H, rel=0.01)
    assert kept["idleGpuHoursAMonth"]["minimum"] == pytest.approx(4 * MONTH_H, rel=0.01)


def test_what_can_not_be_replayed_is_named(found) -> None:
    unseen = {each["workload"]: each["reason"] for each in found["notLookedAt"]}
    assert unseen["ml/alone"] == "no HPA scales it"
    assert "cpu" in unseen["ml/cpu"]
    assert unseen.keys() == {"ml/alone", "ml/cpu"}


def test_text_has_the_largest_first_and_what_to_change(url: str) -> None:
    done = savings(url, "--most=1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("ml/wide")
    assert "margin" in lines[1]
    assert any(line.startswith("  --- hpa/ml/wide now") for line in lines)
    assert "Not looked at: ml/kept: the 1 dearest are; --most takes more" in lines


def test_a_ledger_of_the_same_days_has_the_advice_that_was_not_taken(
    url: str, found, tmp_path
) -> None:
    (tmp_path / "savings.json").write_text(json.dumps(found))
    done = money(url, "--ledger", "--most=1", f"--advice={tmp_path / 'savings.json'}", "-o", "json")
    assert done.returncode == 0, done.stderr
    (wide,) = json.loads(done.stdout)["workloads"]
    of_days = {
        key: sum(each[key] for each in wide["days"])
        for key in ("gpuHours", "gpuHoursAtMaximum", "gpuHoursDefaultHpa", "money")
    }
    # 20 pods of 40 for 3 days, at 2 USD; 4 busy GPUs at 60 % are 7 pods, once 5 minutes have passed.
    assert of_days["gpuHours"] == pytest.approx(20 * 72, rel=0.01)
    assert of_days["gpuHoursAtMaximum"] == pytest.approx(40 * 72, rel=0.01)
    assert of_days["gpuHoursDefaultHpa"] == pytest.approx(7 * 72, rel=0.02)
    assert of_days["money"] == pytest.approx(2 * 20 * 72, rel=0.01)
    assert wide["twinErrorShare"] == pytest.approx(0, abs=0.1)  # the HPA leaves 19 to 22 alone
    assert wide["changed"] is None
    advised = next(each for each in found["workloads"] if each["workload"] == "ml/wide")
    assert wide["advice"]["verdict"] == "not taken"
    assert wide["advice"]["gpuHoursPromisedAMonth"] == advised["gpuHoursSavedAMonth"]
    assert advised["settings"].keys() == {"target/DCGM_FI_DEV_GPU_UTIL"}


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--since=2d"], "3 to 60 days"), (["--since=61d"], "3 to 60 days")]
)
def test_what_it_refuses(arguments: list[str], told: str) -> None:
    done = savings("http://127.0.0.1:1", *arguments)
    assert (done.returncode, told in done.stderr) == (2, True)
