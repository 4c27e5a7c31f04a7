"""`gpuscale report` on a real Prometheus: incidents planted in kube-state-metrics' and exporters' series."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_samples import write_in_order
from gpuscale.series.values import STALE
from gpuscale.testing.prometheus import Sample, serve

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
START_S = 1_767_225_600
HOUR_S, STEP_S = 3600, 60
HOURS = 6
HPA = {"namespace": "prod", "horizontalpodautoscaler": "chat"}
_HPA = "kube_horizontalpodautoscaler"
GPU = {"Hostname": "gpu-a", "gpu": "0", "UUID": "GPU-1"}


def during(name: str, labels: dict[str, str], *spans: tuple[float, float, float]) -> list[Sample]:
    """Return a series with a value in each span of hours, and a marker of its end where none follows."""
    key = {"__name__": name, **labels}
    found: list[Sample] = []
    for index, (begin_h, end_h, value) in enumerate(spans):
        at_s, end_s = START_S + round(begin_h * HOUR_S), START_S + round(end_h * HOUR_S)
        while at_s < end_s:
            found.append((key, at_s * 1000, value))
            at_s += STEP_S
        follows = index + 1 < len(spans) and spans[index + 1][0] == end_h
        if end_h < HOURS and not follows:
            found.append((key, end_s * 1000, STALE))
    return found


def whole(name: str, labels: dict[str, str], value: float) -> list[Sample]:
    return during(name, labels, (0, HOURS, value))


def planted() -> list[Sample]:
    """Return the night: see EXPECTED."""
    metric = {**HPA, "metric_name": "queue", "metric_target_type": "average"}
    condition = {**HPA, "condition": "ScalingActive", "status": "false"}
    pod = {"namespace": "prod", "pod": "chat-1"}
    owner = {"owner_kind": "ReplicaSet", "owner_name": "chat-7c"}
    resource = {"resource": "nvidia_com_gpu"}
    ready = {"node": "gpu-a", "condition": "Ready", "status": "false"}
    return [
        *during(f"{_HPA}_status_desired_replicas", HPA, (0, 1, 2), (1, 2, 4), (2, HOURS, 8)),
        *whole(f"{_HPA}_spec_max_replicas", HPA, 8),
        *during(
            f"{_HPA}_status_target_metric", metric, (0, 0.9, 5), (0.9, 2.5, 20), (2.5, HOURS, 9)
        ),
        *whole(f"{_HPA}_spec_target_metric", metric, 10),
        *during(f"{_HPA}_status_condition", condition, (0, 3, 0), (3, 3.25, 1), (3.25, HOURS, 0)),
        *whole(
            f"{_HPA}_info",
            {**HPA, "scaletargetref_kind": "Deployment", "scaletargetref_name": "chat"},
            1,
        ),
        *during(
            "kube_deployment_spec_replicas",
            {"namespace": "prod", "deployment": "chat"},
            *((0, 1, 2), (1, 2, 4), (2, HOURS, 8)),
        ),
        *during(
            "kube_deployment_status_replicas_ready",
            {"namespace": "prod", "deployment": "chat"},
            *((0, 1.2, 2), (1.2, 2, 4), (2, 2.02, 7), (2.02, HOURS, 8)),
        ),
        *during("kube_pod_status_unschedulable", pod, (1, 1.15, 1)),
        *during(
            "kube_pod_container_resource_requests",
            {**pod, "container": "main", **resource},
            (1, HOURS, 1),
        ),
        *during("kube_pod_owner", {**pod, **owner}, (1, HOURS, 1)),
        *whole(
            "kube_replicaset_owner",
            {
                "namespace": "prod",
                "replicaset": "chat-7c",
                "owner_kind": "Deployment",
                "owner_name": "chat",
            },
            1,
        ),
        *during(
            "kube_pod_container_status_waiting_reason",
            {**pod, "container": "main", "reason": "CrashLoopBackOff"},
            (3.5, 3.75, 1),
        ),
        *during(
            "kube_job_status_failed", {"namespace": "train", "job_name": "nightly"}, (4, HOURS, 1)
        ),
        # A failure of the day before: it stays as a count, and is not of this night.
        *whole("kube_job_status_failed", {"namespace": "train", "job_name": "older"}, 3),
        *during("kube_node_status_condition", ready, (0, 4.25, 0), (4.25, 4.5, 1), (4.5, HOURS, 0)),
        *whole("kube_node_status_allocatable", {"node": "gpu-a", **resource}, 8),
        *during("kube_node_status_allocatable", {"node": "gpu-b", **resource}, (1.1, HOURS, 8)),
        *during(
            "gpuscale_gpu_health_problem",
            {**GPU, "reason": "row_remap_failed", "severity": "fatal"},
            (4.75, HOURS, 1),
        ),
        *whole("gpuscale_gpu_healthy", GPU, 1),
        *during("DCGM_FI_DEV_XID_ERRORS", GPU, (0, 4.7, 0), (4.7, HOURS, 63)),
        *during(
            "up", {"job": "dcgm-exporter", "node": "gpu-b"}, (0, 5, 1), (5, 5.1, 0), (5.1, HOURS, 1)
        ),
        *during(
            "DCGM_FI_DEV_GPU_UTIL",
            {**GPU, "namespace": "prod", "pod": "chat-1"},
            (0, 1.5, 80),
            (1.5, HOURS, 0),
        ),
    ]


EXPECTED = [
    # kind, about, begin and end in hours, a word of what is told
    ("short-of-pods", "deployment/prod/chat", 1, 1.2, "2 pods fewer ready"),
    ("scaled", "hpa/prod/chat", 1, 1, "from 2 to 4 replicas: queue was at 200 % of its target"),
    ("pods-pending", "deployment/prod/chat", 1, 1.15, "1 pod waited for a node"),
    ("nodes", "nodes", 1.1, 1.1, "GPU nodes: 1 to 2"),
    ("gpus-idle", "deployment/prod/chat", 1.5, HOURS, "held 1 GPU that did nothing"),
    ("scaled", "hpa/prod/chat", 2, 2, "from 4 to 8 replicas: queue was at 200 % of its target"),
    ("at-maximum", "hpa/prod/chat", 2, 2.5, "its maximum of 8 replicas"),
    ("no-metric", "hpa/prod/chat", 3, 3.25, "no metric had a value"),
    ("containers-waiting", "deployment/prod/chat", 3.5, 3.75, "CrashLoopBackOff"),
    ("job-failed", "job/train/nightly", 4, 4, "1 pod failed"),
    ("node-not-ready", "node/gpu-a", 4.25, 4.5, "was not Ready"),
    ("gpu-error", "gpu/gpu-a/0", 4.7, 4.7, "Xid 63"),
    ("gpu-unhealthy", "gpu/gpu-a/0", 4.75, HOURS, "row_remap_failed"),
    ("exporter-away", "target/dcgm-exporter/gpu-b", 5, 5.1, "could not be scraped"),
]
"""Of two minutes after 2:00 one pod was not ready, which is how things always go, and is not told."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve([], tmp_path_factory.mktemp("prometheus")) as prometheus:
        write_in_order(prometheus, planted())
        yield prometheus.url


def report(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    until = START_S + HOURS * HOUR_S - STEP_S
    return subprocess.run(
        [
            *(GPUSCALE, "report", f"--prometheus-url={url}", f"--since={HOURS * 60 - 1}m"),
            *(f"--until={until}", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def document(url: str, *arguments: str):
    done = report(url, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def hours(text: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(text).timestamp() - START_S) / HOUR_S


def test_all_that_was_planted_is_told_in_order(url: str) -> None:
    found = document(url)
    assert found["unseen"] == []
    told = [(each["kind"], each["about"]) for each in found["incidents"]]
    assert sorted(told) == sorted((kind, about) for kind, about, *_ in EXPECTED)
    begins = [each["from"] for each in found["incidents"]]
    assert begins == sorted(begins)
    step_h = found["stepSeconds"] / HOUR_S
    for kind, about, begin_h, end_h, words in EXPECTED:
        (each,) = [
            each
            for each in found["incidents"]
            if (each["kind"], each["about"]) == (kind, about) and words in each["what"]
        ]
        # A moment more at each end: the range is looked at in steps, and a sample reaches for five minutes.
        assert hours(each["from"]) == pytest.approx(begin_h, abs=2 * step_h)
        last_h = HOURS - STEP_S / HOUR_S  # the end of the range
        assert hours(each["to"]) == pytest.approx(min(end_h, last_h), abs=3 * step_h)
        assert each["goesOn"] == (end_h == HOURS)


def test_a_namespace_leaves_out_the_others_and_keeps_nodes(url: str) -> None:
    kinds = {each["kind"] for each in document(url, "-n", "train")["incidents"]}
    assert "job-failed" in kinds
    assert "node-not-ready" in kinds
    assert not kinds & {"scaled", "no-metric", "pods-pending"}


def test_text_and_markdown_have_a_line_for_each(url: str) -> None:
    text = report(url).stdout.splitlines()
    assert sum("hpa/prod/chat" in line for line in text) == 4
    assert any("03:00:" in line and "(15 min" in line for line in text)
    markdown = report(url, "-o", "markdown").stdout.splitlines()
    rows = [line for line in markdown if line.startswith("| ")]
    assert len(rows) == len(EXPECTED) + 2  # the headings and the line below them
    assert all(line.count("|") == 4 for line in rows)


def test_what_has_no_series_is_said(tmp_path: Path) -> None:
    up = during("up", {"job": "dcgm-exporter", "node": "a"}, (0, HOURS, 1))
    with serve([], tmp_path) as prometheus:
        prometheus.write(up)
        found = document(prometheus.url)
    assert found["incidents"] == []
    assert (
        "scaled: there is no series kube_horizontalpodautoscaler_status_desired_replicas"
        in (found["unseen"])
    )
    assert not any(each.startswith("exporter-away") for each in found["unseen"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--since=10s"], "--since: found '10s', expected 1m to 31d"),
        (["--since=night"], "--since: found 'night', expected a duration"),
        (["--until=noon"], "--until: "),
    ],
)
def test_what_it_refuses(arguments: list[str], told: str) -> None:
    done = report("http://127.0.0.1:1", *arguments)
    assert told in done.stderr
    assert done.returncode == 2


def test_a_history_that_was_kept_tells_the_same(url: str, tmp_path: Path) -> None:
    """In moments of a minute, where Prometheus is asked for each 15 s."""
    span = (f"--since={HOURS * 60 - 1}m", f"--until={START_S + HOURS * HOUR_S - STEP_S}")
    kept = [
        str(GPUSCALE),
        "history",
        "keep",
        f"--prometheus-url={url}",
        f"--to={tmp_path / 'kept'}",
    ]
    assert subprocess.run([*kept, *span], check=False, timeout=60).returncode == 0
    done = subprocess.run(
        [GPUSCALE, "report", f"--history={tmp_path / 'kept'}", *span, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    recalled, asked = json.loads(done.stdout), document(url)
    assert recalled["unseen"] == []
    words = [sorted((e["about"], e["what"]) for e in d["incidents"]) for d in (recalled, asked)]
    assert words[0] == words[1]
    begins = {(e["about"], e["what"]): hours(e["from"]) for e in asked["incidents"]}
    for each in recalled["incidents"]:
        begin_h = begins[each["about"], each["what"]]
        assert hours(each["from"]) == pytest.approx(begin_h, abs=STEP_S / HOUR_S)
    later = f"--until={START_S + (HOURS + 1) * HOUR_S}"
    done = subprocess.run(
        [GPUSCALE, "report", f"--history={tmp_path / 'kept'}", "--since=2h", later],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (
        "Not seen: 2026-01-01 05:59 to 2026-01-01 07:00: no minutes of it are kept" in done.stdout
    )


def test_it_asks_a_prometheus_or_a_history() -> None:
    for arguments in ([], ["--prometheus-url=http://127.0.0.1:1", "--history=x"]):
        done = subprocess.run(
            [GPUSCALE, "report", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stderr == "gpuscale: --prometheus-url, --history: expected one of them\n"
        assert done.returncode == 2
