"""Every command of `--help` works, with real arguments, in a plain installation and an empty home.

Works means: it does what it is for, or says in its own words what is missing. It never shows a trace.
"""

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from gpuscale.cli.registry import app

pytestmark = pytest.mark.timeout(600)  # the first test waits for the installation

UNREACHABLE = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
FILES = {
    "values.yaml": """apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  provider: eks
  image: {repository: registry.example/gpuscale, tag: "1"}
  scale:
  - {workload: {name: vision-api}, signal: gpu-utilization, target: 60, maxReplicas: 4}
""",
    "hpa.yaml": """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vision}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  maxReplicas: 4
  metrics:
  - type: Pods
    pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: "60"}}
""",
    "why.yaml": """apiVersion: gpuscale.dev/v1alpha1
kind: Decision
spec:
  hpa:
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: vision}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
      maxReplicas: 4
      metrics:
      - type: Pods
        pods: {metric: {name: gpu}, target: {type: AverageValue, averageValue: "60"}}
  scale: {specReplicas: 1, statusReplicas: 1, selector: "app=vision"}
  pods: [{name: vision-1, labels: {app: vision}, ready: "True"}]
  observed:
  - pods: [{pod: vision-1, value: 120}]
""",
    "kubeconfig": json.dumps(UNREACHABLE),
}
CAN_NOT_LOOK = "the API server at http://127.0.0.1:9 can't be reached"
INIT = ("--workload=vision-api", "--provider=eks", "--image=registry.example/gpuscale:1")
SERVED_HERE = (
    "--prometheus-url=http://127.0.0.1:9",
    "--secure-port=0",
    "--insecure-loopback-port",
)
CASES = {
    "simulate": [
        (["simulate", "aks-mnist-jobs"], 0, "20 of 20"),
        (["simulate", "--from-prometheus=http://127.0.0.1:9"], 2, "found no --workload"),
        (["simulate", "--from-file=hpa.yaml", "--workload=vision"], 2, "without --manifests"),
        (
            ["simulate", "ack-bert", "--output-file=run.parquet"],
            2,
            "found no Python package pyarrow; install it with: pip install 'gpuscale[parquet]'",
        ),
    ],
    "rehearse": [
        (["rehearse", "ack-bert", "--for", "1s", "--kubeconfig", "kubeconfig"], 1, CAN_NOT_LOOK),
        (["rehearse", "ack-bert"], 2, "found no kubeconfig"),
        (
            ["rehearse", "ack-bert-quick", "--speed=7", "--kubeconfig=kubeconfig"],
            2,
            "found 40 s, expected a multiple of the speed",
        ),
    ],
    "load": [(["load", "--help"], 0, "http")],
    "load http": [
        (
            ["load", "http", "http://127.0.0.1:9", "-r", "1", "--for=1s"],
            2,
            "pip install 'gpuscale[load]'",
        ),
        (["load", "http", "http://127.0.0.1:9", "-r", "1"], 2, "found no --for"),
    ],
    "load jobs": [
        (["load", "jobs", "2", "--kubeconfig", "kubeconfig"], 1, CAN_NOT_LOOK),
        (["load", "jobs", "2"], 2, "found no kubeconfig"),
        (["load", "jobs", "300", "--kubeconfig", "kubeconfig"], 2, "or a larger --most"),
    ],
    "load read": [
        (["load", "read", "/no/such.csv"], 2, "/no/such.csv: no such file"),
        (["load", "read", "/etc/hostname"], 2, "expected a result of gpuscale load"),
    ],
    "load gpu": [
        (["load", "gpu", "--util=60", "--for=1s"], 1, "libcuda.so.1"),
        (["load", "gpu", "--util=60"], 2, "found no --for"),
    ],
    "calibrate": [
        (
            ["calibrate", "http://127.0.0.1:9", "--promise=p95=1s"],
            2,
            "pip install 'gpuscale[load]'",
        ),
        (["calibrate", "http://127.0.0.1:9", "--promise=p95"], 2, "latency=2s:95% or p95=2s"),
    ],
    "tune": [
        (["tune"], 2, "expected one of: a SCENARIO, --demand FILE.csv"),
        (["tune", "ack-bert"], 2, "pip install 'gpuscale[plan]'"),
    ],
    "lint": [(["lint", "hpa.yaml"], 0, "0 errors")],
    "decide": [(["decide", "why.yaml"], 0, "Goes from 1 to 2")],
    "doctor": [
        (["doctor", "--kubeconfig", "kubeconfig"], 2, CAN_NOT_LOOK),
        (["doctor"], 2, "found no kubeconfig"),
    ],
    "top": [
        (["top", "--gpu", "simulated:NVIDIA L4:2", "--once"], 0, "GPUs of "),
        (["top", "--kubeconfig", "kubeconfig"], 2, CAN_NOT_LOOK),
        (["top"], 2, "found no kubeconfig"),
    ],
    "dashboard": [
        (["dashboard", "--kubeconfig", "kubeconfig"], 2, CAN_NOT_LOOK),
        (["dashboard"], 2, "found no kubeconfig"),
        (["dashboard", "--url", "http://127.0.0.1:9"], 2, "does not answer"),
        (["dashboard", "--history", "x"], 2, "pip install 'gpuscale[history]'"),
    ],
    "conform": [
        (["conform", "hpa/x", "--load-wait", "--kubeconfig", "kubeconfig"], 2, CAN_NOT_LOOK),
        (["conform", "hpa/x"], 2, "--load-url, --load-wait: expected one of them"),
        (["conform", "x", "--load-wait"], 2, "expected an HPA on the cluster such as hpa/vision"),
        (["conform", "hpa/x", "--load-url", "ftp://x"], 2, "expected http://... or https://..."),
        (["conform", "hpa/x", "--load-wait", "-d", "."], 2, "expected a new or an empty folder"),
    ],
    "shadow": [
        (["shadow", "hpa/x", "--set", "max=3", "--kubeconfig", "kubeconfig"], 2, CAN_NOT_LOOK),
        (["shadow", "hpa/x"], 2, "FILE, --set: expected one of them"),
        (["shadow", "x", "--set", "max=3"], 2, "expected an HPA on the cluster such as hpa/vision"),
        (["shadow", "hpa/x", "--set", "value=3"], 2, "expected some of target, min and max"),
        (["shadow", "hpa/x", "values.yaml"], 2, "found 0 HorizontalPodAutoscalers"),
    ],
    "report": [
        (["report", "--prometheus-url", "http://127.0.0.1:9"], 2, "does not answer"),
        (["report"], 2, "--prometheus-url, --history: expected one of them"),
        (["report", "--history", "x"], 2, "pip install 'gpuscale[history]'"),
    ],
    "history": [(["history"], 2, "pip install 'gpuscale[history]'")],
    "history keep": [
        (
            ["history", "keep", "--prometheus-url", "http://127.0.0.1:9"],
            2,
            "pip install 'gpuscale[history]'",
        ),
        (["history", "keep"], 2, "found no kubeconfig"),
    ],
    "history sql": [(["history", "sql", "SELECT 1"], 2, "pip install 'gpuscale[history]'")],
    "money": [
        (["money", "--prometheus-url", "http://127.0.0.1:9"], 2, "does not answer"),
        (["money", "--prometheus-url", "http://127.0.0.1:9", "--by", "x"], 2, "--by: found 'x'"),
        (["money", "--forecast", "--prometheus-url", "http://127.0.0.1:9"], 2, "does not answer"),
        (["money", "--ledger"], 2, "expected --prometheus-url, or --from-file FILE"),
    ],
    "bundle": [
        (["bundle", "--kubeconfig=kubeconfig", "--output-file=b.zip"], 1, CAN_NOT_LOOK),
        (["bundle", "--output-file=b.rar"], 2, "expected one that ends in .tar.gz or .zip"),
        (["bundle"], 2, "found no kubeconfig"),
    ],
    "mcp": [
        (["mcp"], 2, "found no Python package mcp; install it with: pip install 'gpuscale[mcp]'"),
    ],
    "init": [(["init", *INIT, "-o", "yaml"], 0, "provider: eks")],
    "render": [(["render", "values.yaml"], 0, "kind: HorizontalPodAutoscaler")],
    "install": [
        (["install", "values.yaml", "--kubeconfig", "kubeconfig", "--yes"], 1, CAN_NOT_LOOK),
        (["install", "values.yaml", "--yes"], 2, "found no kubeconfig"),
    ],
    "uninstall": [(["uninstall", "--kubeconfig", "kubeconfig", "--yes"], 1, CAN_NOT_LOOK)],
    "schema": [(["schema", "values"], 0, '"title": "Values"')],
    "completion": [(["completion", "zsh"], 0, "#compdef gpuscale")],
    "exporter": [
        (["exporter", "--gpu", "nvml"], 1, "pip install 'gpuscale[nvidia]'"),
    ],
    "metrics-api": [(["metrics-api", "--print-preset"], 0, "rules:")],
    "metrics-api why": [
        (["metrics-api", "why", "pods/a/b", "m", "--kubeconfig", "kubeconfig"], 2, CAN_NOT_LOOK),
    ],
    "scaler": [
        (["scaler", "--prometheus-url=http://127.0.0.1:9"], 2, "pip install 'gpuscale[keda]'")
    ],
    "scaler ask": [
        (["scaler", "ask", "127.0.0.1:9", "-m", "target=1"], 2, "pip install 'gpuscale[keda]'"),
    ],
}
SERVERS = {
    "up": (["up", "ack-bert", "--port", "{port}"], "/", "<title>"),
    "exporter": (
        ["exporter", "--gpu", "simulated", "--address", "127.0.0.1:{port}"],
        "/metrics",
        "DCGM_FI_DEV_GPU_UTIL{",
    ),
    "exporter --kubernetes": (
        ["exporter", "--gpu=simulated", "--kubernetes", "--address=127.0.0.1:{port}"],
        "/metrics",
        "gpuscale_exporter_attribution_up 0",
    ),
    "metrics-api": (["metrics-api", *SERVED_HERE, "{port}"], "/livez", "ok"),
}


def names(command, context, path=""):
    """Yield the name of every command of the program, as one types it."""
    for name in command.list_commands(context):
        each = command.get_command(context, name)
        yield f"{path}{name}"
        if isinstance(each, TyperGroup):
            yield from names(each, context, f"{path}{name} ")


def test_no_command_is_left_out() -> None:
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="gpuscale")
    served = {name.partition(" --")[0] for name in SERVERS}
    assert set(names(command, context)) == CASES.keys() | served


@pytest.fixture
def stranger(plain_venv, tmp_path: Path):
    """Return how to start a command as a stranger does: a plain installation, an empty home, no settings."""
    home = tmp_path / "home"
    home.mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def start(arguments):
        return subprocess.Popen(
            [plain_venv / "bin" / "gpuscale", *arguments],
            cwd=tmp_path,
            env={"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    yield start
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [pytest.param(*case, id=" ".join(case[0])) for cases in CASES.values() for case in cases],
)
def test_commands_do_their_work_or_say_what_is_missing(stranger, arguments, code, said) -> None:
    with stranger(arguments) as process:
        out, _ = process.communicate(timeout=110)
    assert "Traceback" not in out
    assert (process.returncode, said in out) == (code, True), out


@pytest.mark.parametrize("name", SERVERS)
def test_servers_serve(stranger, name) -> None:
    arguments, path, said = SERVERS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with stranger([each.format(port=port) for each in arguments]) as process:
        try:
            assert said in answer(process, f"http://127.0.0.1:{port}{path}")
        finally:
            process.terminate()
            out, _ = process.communicate(timeout=30)
    assert "Traceback" not in out


def answer(process, url):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                return page.read().decode()
        except OSError:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer")


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["--version"], ["metrics-api", "--help-all"]]
)
def test_help_is_there(stranger, arguments) -> None:
    with stranger(arguments) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "gpuscale" in out
