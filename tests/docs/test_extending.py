"""The examples of docs/extending.md: plug-ins in one file each, outside gpuscale, used by its commands."""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import pytest

from gpuscale.ops.providers import NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
BLOCKS = dict(re.findall(r"^```\w+ title=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
VALUES = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  provider: oci
  agent: {deviceAccess: host}
  nodePool: {cluster: c1, region: r1, instanceType: BM.GPU4.8, gpu: nvidia-a100}
"""


def install(folder, name, module=None) -> None:
    """Lay out a distribution as pip does: its module, and its entry points from its pyproject's table."""
    (folder / f"{name}.py").write_text(BLOCKS[f"{name}.py"] if module is None else module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = tomllib.loads(BLOCKS[f"{name}.toml"])["project"]["entry-points"]
    lines = [
        f"[{group}]\n{key} = {value}\n"
        for group, each in groups.items()
        for key, value in each.items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))


def environment(folder):
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder)}


def gpuscale(folder, *arguments):
    command = [sys.executable, "-m", "gpuscale.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True
    )


def python(folder, program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fetched(folder, arguments, url, ready_url=""):
    """Return what a server answers once it does, and is ready where `ready_url` asks that."""
    command = [sys.executable, "-m", "gpuscale.cli.main", *arguments]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stderr=log, stdout=log
        )
    try:
        while server.poll() is None:
            try:
                if ready_url:
                    urllib.request.urlopen(ready_url, timeout=5).close()
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return answer.read().decode()
            except OSError:
                time.sleep(0.1)
        raise AssertionError((folder / "log").read_text())
    finally:
        server.terminate()
        server.wait()


def test_a_cloud_is_rendered_with_its_labels_driver_and_pool(tmp_path: Path) -> None:
    install(tmp_path, "oci_gpuscale")
    (tmp_path / "values.yaml").write_text(VALUES)
    done = gpuscale(tmp_path, "render", "values.yaml", "--output-dir", "out")
    assert done.returncode == 0, done.stderr
    script = (tmp_path / "out" / "node-pool" / "node-pool.sh").read_text()
    assert "--node-shape BM.GPU4.8" in script
    (agent,) = (tmp_path / "out").glob("*daemonset*node-agent*")
    assert "oci.oraclecloud.com/gpu" in agent.read_text()
    assert "path: /opt/nvidia" in agent.read_text()


def test_init_takes_a_cloud(tmp_path: Path) -> None:
    install(tmp_path, "oci_gpuscale")
    flags = ("--workload=w", "--provider=oci", "--image=r.io/x:1", "--no-cluster", "-o", "yaml")
    done = gpuscale(tmp_path, "init", *flags)
    assert done.returncode == 0, done.stderr
    assert "provider: oci" in done.stdout


NODE = """\
from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.doctor.facts import has_gpu_label
from gpuscale.ops.install.cluster.detection import _provider
from gpuscale.base.objects.fields import Fields
text = "{metadata: {labels: {oci.oraclecloud.com/gpu: 'true'}}, spec: {providerID: 'ocid1://n1'}}"
(document,) = load_documents(text, "node.yaml")
print(_provider([document.data]).name, has_gpu_label(Fields(document, document.data)))
"""


def test_init_and_doctor_recognise_the_nodes_of_a_cloud(tmp_path: Path) -> None:
    install(tmp_path, "oci_gpuscale")
    assert python(tmp_path, NODE) == "oci True\n"


def test_a_scenario_runs_on_a_cloud(tmp_path: Path) -> None:
    install(tmp_path, "oci_gpuscale")
    shipped = ROOT / "src" / "gpuscale" / "lab" / "sim" / "scenarios" / "aks-mnist-jobs"
    shutil.copytree(shipped, tmp_path / "jobs")
    scenario = tmp_path / "jobs" / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("provider: aks", "provider: oci"))
    done = gpuscale(tmp_path, "simulate", "jobs/scenario.yaml")
    assert done.returncode == 0, done.stderr


RULES = """\
externalRules:
  - seriesQuery: queue_length
    resources: {overrides: {namespace: {resource: namespace}}}
    metricsQuery: <<.Series>>{<<.LabelMatchers>>}
"""


def test_the_metrics_api_serves_a_plugins_source(tmp_path: Path) -> None:
    install(tmp_path, "fixed_gpuscale")
    (tmp_path / "rules.yaml").write_text(RULES)
    port = free_port()
    serve = ("--secure-port=0", f"--insecure-loopback-port={port}", "--config=rules.yaml")
    arguments = ("metrics-api", *serve, "--source=fixed", "--prometheus-url=fixed://host/7")
    path = "apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length"
    answer = json.loads(fetched(tmp_path, arguments, f"http://127.0.0.1:{port}/{path}"))
    assert [each["value"] for each in answer["items"]] == ["7"]


def test_the_node_agent_reads_gpus_by_a_plugin(tmp_path: Path) -> None:
    install(tmp_path, "vpu_gpuscale")
    port = free_port()
    arguments = ("exporter", "--gpu", "vpu:2", "--address", f"127.0.0.1:{port}")
    base = f"http://127.0.0.1:{port}"
    text = fetched(tmp_path, arguments, f"{base}/metrics", f"{base}/readyz")
    values = re.findall(r'^DCGM_FI_DEV_GPU_UTIL\{.*?UUID="(VPU-\d)".*\} (\d+)', text, re.MULTILINE)
    assert values == [("VPU-0", "42"), ("VPU-1", "42")]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        pytest.param(
            "import nowhere",
            "can't be loaded: ModuleNotFoundError: No module named 'nowhere'",
            id="import",
        ),
        pytest.param(
            "VPU = {}", "found a dict, expected a gpuscale.agent.gpu.reader.ReaderKind", id="kind"
        ),
        pytest.param(
            "from gpuscale.agent.gpu.reader import ReaderKind\n"
            "VPU = ReaderKind(name='w', vendor='v', open=print)",
            "found the name 'w', expected 'vpu'",
            id="name",
        ),
    ],
)
def test_a_broken_plugin_is_named(tmp_path: Path, module: str, told: str) -> None:
    install(tmp_path, "vpu_gpuscale", module)
    done = gpuscale(tmp_path, "exporter", "--gpu", "vpu")
    who = "plug-in vpu_gpuscale 1.0, entry point gpuscale.gpu_readers: vpu = vpu_gpuscale:VPU"
    assert (done.returncode, done.stderr) == (2, f"gpuscale: --gpu: {who}: {told}\n")


def test_no_plugins_are_looked_for_where_a_name_is_built_in(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from gpuscale.agent.exporter.gpu_source import parse_gpu_source\n"
        "from gpuscale.ops.providers import named\n"
        "parse_gpu_source('nvml'), named('eks')\n"
        "print('importlib.metadata' in sys.modules)\n"
    )
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


ALLOWED = {("ack", part) for part in ("gpu", "formats", "exporter", "install", "sim")}
"""`ack` also is the style of Alibaba's exporter, which any cloud may have."""


def test_only_the_modules_of_clouds_know_their_names() -> None:
    source = ROOT / "src" / "gpuscale"
    found = set()
    for path in source.rglob("*.py"):
        house, *inner = path.relative_to(source).parts
        room = inner[0] if len(inner) > 1 else house
        if room != "providers":
            tree = ast.parse(path.read_text())
            found |= {
                (node.value, room, path.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and node.value in NAMES
            }
    assert {each for each in found if each[:2] not in ALLOWED} == set()
