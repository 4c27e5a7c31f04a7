"""`gpuscale load jobs` on a real control plane: real Jobs, a real scheduler, nodes and kubelets simulated."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuscale_testing import Lifecycle, SimulatedNode, simulated_nodes, wait_until

sys.path.insert(0, str(Path(__file__).parent))
from terminal import wait_for_text

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]
OURS = "app.kubernetes.io/managed-by=gpuscale-load"
QUICK = Lifecycle(image_pull_ms=300, startup_ms=0, run_ms=1_500, stop_ms=100)
ENDLESS = Lifecycle(stop_ms=100)
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "labels": {"team": "vision"}},
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "train",
                        "image": "none",
                        "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    }
                ],
            }
        },
    },
}


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    return path


def command(plane, *arguments, kubeconfig=None):
    start = [sys.executable, "-m", "gpuscale.cli.main", "load", "jobs"]
    return [*start, f"--kubeconfig={kubeconfig or plane.admin}", *map(str, arguments)]


def load(plane, *arguments, kubeconfig=None):
    """Return the exit code, the document and what was said."""
    found = subprocess.run(
        command(plane, *arguments, "--output=json", kubeconfig=kubeconfig),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return found.returncode, json.loads(found.stdout) if found.stdout else None, found.stderr


def ours(plane):
    """Return the names of what carries our label, anywhere."""
    found = plane.get("jobs,pods", "--all-namespaces", "-l", OURS)["items"]
    return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in found)


def test_jobs_wait_for_a_node_run_on_it_and_are_gone_in_the_end(plane, manifest, tmp_path) -> None:
    files = {name: tmp_path / f"jobs.{name}" for name in ("html", "junit")}
    plane.apply(json.dumps({**JOB, "metadata": {"name": "of-somebody-else"}}))
    plane.kubectl("patch", "job", "of-somebody-else", "-p", '{"spec":{"suspend":true}}')
    options = [f"--{name}={path}" for name, path in files.items()]
    with simulated_nodes(plane, SimulatedNode("first", gpus=1), lifecycle=QUICK) as kubelet:
        with subprocess.Popen(
            command(plane, 5, f"--job={manifest}", "--output=json", "--every=100ms", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            waiting = "jobs,pods", "-l", OURS
            wait_until(
                lambda: len(plane.get(*waiting)["items"]) == 10 or process.poll() is not None,
                "five Jobs with their pods",
            )
            kubelet.add(SimulatedNode("second", gpus=2))
            out, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    document = json.loads(out)
    assert document["jobs"] == {
        "wanted": 5, "made": 5, "done": 5, "failed": 0, "timedOut": 0, "removedByOthers": 0,
        "refused": 0, "unfinished": 0,
    }  # fmt: skip
    items = document["items"]
    assert {item["state"] for item in items} == {"done"}
    assert {item["node"] for item in items} == {"first", "second"}
    # The second to run on the first node waited for its GPU, and the scheduler's words say so.
    reasons = [reason for item in items for reason in item.get("waitedFor", ())]
    assert any("Insufficient nvidia.com/gpu" in reason for reason in reasons)
    assert all(item["madeMs"] <= item["runningMs"] <= item["endedMs"] for item in items)
    # Each ran for 1.5 s, at times that are looked at every 0.2 s, and are written by a kubelet that may lag.
    assert document["runMilliseconds"]["p50"] >= 1_200
    assert document["nodes"] == {"most": 2, "atEnd": 2, "added": 1, "removed": 0}
    marks = document["timeline"]["marks"]
    assert ("NodeAdded", "Node/second") in [(mark["kind"], mark["object"]) for mark in marks]
    spans = document["timeline"]["spans"]
    assert {"unschedulable", "running"} <= {span["state"] for span in spans}
    assert {span["lane"] for span in spans} == {item["job"] for item in items}
    assert document["removed"] == 5
    suite = ElementTree.parse(files["junit"]).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == [
        "5", "0", "0", "0",
    ]  # fmt: skip
    assert [case.get("name") for case in suite] == [item["job"] for item in items]
    assert "unschedulable" in files["html"].read_text()
    assert ours(plane) == []
    assert plane.get("job", "of-somebody-else")["spec"]["suspend"] is True
    plane.kubectl("delete", "job", "of-somebody-else")


def test_what_is_made_is_the_manifest_with_labels_and_names_of_its_own(plane, manifest) -> None:
    code, document, said = load(plane, 2, f"--job={manifest}", "--keep", "--for=2s")
    assert code == 1, said  # there is no node
    assert document["jobs"]["unfinished"] == 2
    assert document["items"][0]["state"] == "unschedulable"
    jobs = plane.get("jobs", "-l", OURS)["items"]
    run = document["run"]
    assert [job["metadata"]["name"] for job in jobs] == [f"train-{run}-1", f"train-{run}-2"]
    for job in jobs:
        labels = job["metadata"]["labels"]
        assert (labels["team"], labels["gpuscale.dev/load-run"]) == ("vision", run)
        assert job["spec"]["template"]["metadata"]["labels"]["gpuscale.dev/load-run"] == run
        assert job["spec"]["backoffLimit"] == 0
    assert f"remove them with: gpuscale load jobs --kubeconfig {plane.admin}" in said
    # A later run names what is there, and leaves it alone.
    _, _, later = load(plane, 1, f"--job={manifest}", "--for=1s")
    assert f"found 2 Jobs of run {run} in namespace default" in later
    assert len(plane.get("jobs", "-l", OURS)["items"]) == 2
    cleaned = subprocess.run(
        command(plane, "--clean", f"--run={run}"), capture_output=True, text=True, check=True
    )
    assert cleaned.stdout.splitlines() == [
        f"removed Job default/train-{run}-1",
        f"removed Job default/train-{run}-2",
    ]
    assert ours(plane) == []


def test_jobs_that_fail_are_told_apart_from_those_that_take_too_long(
    plane, manifest, tmp_path
) -> None:
    """The first is stopped by its own deadline, which the Job controller keeps, the others by --timeout."""
    short = tmp_path / "short.json"
    spec = json.loads(json.dumps(JOB["spec"])) | {"activeDeadlineSeconds": 1}
    short.write_text(json.dumps({**JOB, "spec": spec}))
    report = tmp_path / "junit.xml"
    with simulated_nodes(plane, SimulatedNode("only", gpus=2), lifecycle=ENDLESS):
        code, document, said = load(plane, 1, f"--job={short}", f"--junit={report}")
        assert code == 1, said
        assert document["jobs"]["failed"] == 1
        assert document["items"][0]["reason"].startswith("DeadlineExceeded")
        (case,) = ElementTree.parse(report).getroot()
        assert case.find("failure").get("message").startswith("failed: DeadlineExceeded")
        code, document, said = load(plane, 3, f"--job={manifest}", "--timeout=4s")
    assert code == 1, said
    assert document["jobs"]["timedOut"] == 3
    reasons = sorted(item["reason"].partition(": ")[2] for item in document["items"])
    # Two ran on the two GPUs, the third waited for one of them.
    assert reasons[1:] == ["running", "running"]
    assert "Insufficient nvidia.com/gpu" in reasons[0]
    assert ours(plane) == []


def started(plane, manifest, *arguments):
    process = subprocess.Popen(
        command(plane, 3, f"--job={manifest}", *arguments), stderr=subprocess.PIPE, text=True
    )
    lines = []
    reader = threading.Thread(
        target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True
    )
    reader.start()
    wait_for_text(process, lambda: "".join(tuple(lines)), "Ctrl-C ends it", 1, 60.0)
    wait_until(lambda: len(plane.get("pods", "-l", OURS)["items"]) == 3, "three pods")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_removes_its_jobs_and_reports(plane, manifest, tmp_path, number) -> None:
    report = tmp_path / "junit.xml"
    with simulated_nodes(plane, SimulatedNode("only", gpus=1), lifecycle=ENDLESS):
        with started(plane, manifest, f"--junit={report}") as process:
            process.send_signal(number)
            assert process.wait(120) == 1
        assert ours(plane) == []
    suite = ElementTree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("skipped")) == ("3", "3")


def test_what_a_killed_run_leaves_is_removed_by_its_label(plane, manifest) -> None:
    plane.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}))
    with simulated_nodes(plane, SimulatedNode("only", gpus=1), lifecycle=ENDLESS):
        with started(plane, manifest) as process:
            process.kill()
            process.wait(30)
        _, document, _ = load(plane, 1, f"--job={manifest}", "-n", "ml", "--keep", "--for=1s")
        assert len(document["items"]) == 1
        left = [name for name in ours(plane) if name.startswith("Job/")]
        assert len(left) == 4
        code, removed, said = load(plane, "--clean")
        assert (code, len(removed["removed"])) == (0, 4), said
        assert ours(plane) == []
        assert load(plane, "--clean")[1] == {"removed": []}


def test_missing_rights_are_named_before_anything_is_made(plane, manifest) -> None:
    code, document, said = load(
        plane, 2, f"--job={manifest}", kubeconfig=plane.kubeconfig("a-stranger")
    )
    assert (code, document) == (2, None)
    assert "this account lacks 8 rights that the run needs; nothing was changed" in said
    assert "create, delete, deletecollection, list, watch jobs.batch in namespace default" in said
    assert ours(plane) == []


def test_an_account_of_one_namespace_runs_jobs_without_seeing_nodes(plane, manifest) -> None:
    role = "create,delete,deletecollection,list,watch,get"
    plane.kubectl("create", "namespace", "team")
    plane.kubectl("create", "role", "jobs", f"--verb={role}", "--resource=jobs,pods", "-n", "team")
    plane.kubectl("create", "rolebinding", "jobs", "--role=jobs", "--user=member", "-n", "team")
    kubeconfig = plane.kubeconfig("member")
    with simulated_nodes(plane, SimulatedNode("only", gpus=1), lifecycle=QUICK):
        code, document, said = load(
            plane, 1, f"--job={manifest}", "-n", "team", kubeconfig=kubeconfig
        )
    assert (code, document["jobs"]["done"]) == (0, 1), said
    assert document["unseen"] == ["nodes", "events"]
    assert "nodes" not in document
    assert "may not watch nodes" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {"template": {"spec": {"containers": []}}}}, "found no spec.containers"),
        ({"kind": "CronJob"}, "found CronJob of batch/v1, expected a Job of batch/v1"),
        (
            {"spec": {"template": {"spec": {"containers": [{"name": "Bad_Name", "image": "i"}]}}}},
            "the API server does not take the Job",
        ),
    ],
)
def test_a_manifest_that_is_wrong_is_refused_before_anything_is_made(
    plane, tmp_path, change, said
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**JOB, **change}))
    code, document, found = load(plane, 1, f"--job={path}")
    assert (code, document) == (2, None)
    assert said in found
    assert ours(plane) == []


def test_what_a_quota_refuses_is_reported_with_its_reason(plane, manifest) -> None:
    plane.kubectl("create", "namespace", "small")
    plane.kubectl("create", "quota", "two", "--hard=count/jobs.batch=2", "-n", "small")
    wait_until(
        lambda: plane.get("quota", "two", "-n", "small").get("status", {}).get("hard"),
        "a quota that is in force",
    )
    with simulated_nodes(plane, SimulatedNode("only", gpus=4), lifecycle=QUICK):
        code, document, said = load(plane, 3, f"--job={manifest}", "-n", "small", "--at-once")
    assert code == 1, said
    assert (document["jobs"]["done"], document["jobs"]["refused"]) == (2, 1)
    assert "exceeded quota: two" in document["refused"][0]["reason"]


def test_a_run_survives_an_api_server_that_is_away_for_a_while(plane, manifest) -> None:
    slow = Lifecycle(image_pull_ms=300, run_ms=8_000, stop_ms=100)
    with (
        simulated_nodes(plane, SimulatedNode("only", gpus=3), lifecycle=slow),
        subprocess.Popen(
            command(plane, 3, f"--job={manifest}", "--output=json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        running = "pods", "-l", OURS, "--field-selector=status.phase=Running"
        wait_until(
            lambda: len(plane.get(*running)["items"]) == 3 or process.poll() is not None,
            "three pods that run",
        )
        plane.kill("kube-apiserver")
        time.sleep(3)
        plane.restart("kube-apiserver")
        out, said = process.communicate(timeout=150)
    assert process.returncode == 0, said
    document = json.loads(out)
    assert (document["jobs"]["done"], document["removed"]) == (3, 3)
    # While nothing could be seen the counts are a gap, and not what they were.
    points = {track["name"]: track["points"] for track in document["timeline"]["tracks"]}
    assert None in [value for _, value in points["running"]]
    assert points["done"][-1][1] == 3
    assert ours(plane) == []


def test_a_job_without_a_pod_says_why(plane, manifest) -> None:
    plane.kubectl("create", "namespace", "full")
    plane.kubectl("create", "quota", "none", "--hard=pods=0", "-n", "full")
    wait_until(
        lambda: plane.get("quota", "none", "-n", "full").get("status", {}).get("hard"),
        "a quota that is in force",
    )
    code, document, said = load(plane, 1, f"--job={manifest}", "-n", "full", "--timeout=8s")
    assert code == 1, said
    (item,) = document["items"]
    assert "exceeded quota: none" in item["reason"]
    assert item["state"] == "timed out"
