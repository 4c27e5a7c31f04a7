"""`gpuscale load http --watch-hpa` shows what a real control plane does while a service is under load."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

NAMESPACE = "loaded"
GPUSCALE = str(Path(sys.executable).with_name("gpuscale"))
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: bert}
spec:
  selector: {matchLabels: {app: bert}}
  template:
    metadata: {labels: {app: bert}}
    spec: {containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: bert}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: bert}
  maxReplicas: 5
  metrics:
  - type: External
    external:
      metric: {name: jobs_waiting, selector: {matchLabels: {team: vision}}}
      target: {type: AverageValue, averageValue: "20"}
"""


ASKED = threading.Event()


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        ASKED.set()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_) -> None:
        """Say nothing."""


@pytest.fixture
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    ASKED.clear()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def metrics(plane):
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    bundle = {"service": "gpuscale", "ca_bundle": plane.ca}
    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=8), SimulatedNode("cpu", gpus=0)),
        MetricsServer(plane, certificate).running() as server,
        aggregated_api(plane, GROUP_VERSIONS, server.port, **bundle),
    ):
        server.put("jobs_waiting", 15.0, namespace=NAMESPACE, team="vision")
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=WORKLOAD)
        is_ready = "jsonpath={.status.readyReplicas}=1"
        plane.wait("deployment/bert", is_ready, "-n", NAMESPACE, timeout_s=90.0)
        is_decided = "jsonpath={.status.desiredReplicas}=1"
        plane.wait("hpa/bert", is_decided, "-n", NAMESPACE, timeout_s=90.0)
        yield server


def test_the_timeline_has_what_each_hop_saw(plane, metrics, url, tmp_path) -> None:
    page = tmp_path / "run.html"
    command = [
        *(GPUSCALE, "load", "http", url, "--rate=20", "--for=20s", "--arrivals=even"),
        *("--watch-hpa=bert", "-n", NAMESPACE, f"--kubeconfig={plane.admin}"),
        *(f"--html={page}", "-o", "json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_until(ASKED.is_set, "the first request", 30.0)
        # 45 waiting, 20 for each: ceil(45 / 20) = 3 replicas.
        metrics.put("jobs_waiting", 45.0, namespace=NAMESPACE, team="vision")
        result = json.loads(process.communicate(timeout=90)[0])
    assert process.returncode == 0
    assert "notes" not in result
    timeline = result["timeline"]
    lines = {
        (track["hop"], track["name"]): [value for _, value in track["points"]]
        for track in timeline["tracks"]
    }
    served = lines["metric", "jobs_waiting"]
    assert (served[0], served[-1]) == (15, 45)
    assert 20 in lines["hpa", "jobs_waiting target"]
    assert lines["hpa", "jobs_waiting"][-1] == 15  # 45 over 3 replicas, as the status has it
    for name in ("wanted", "ready"):
        assert (lines["replicas", name][0], lines["replicas", name][-1]) == (1, 3), name
    assert set(lines["nodes", "total"]) == {1}  # of those with GPUs
    rescales = [mark for mark in timeline["marks"] if mark["kind"] == "SuccessfulRescale"]
    assert rescales[0]["object"] == "HorizontalPodAutoscaler/bert"
    assert "New size: 3" in rescales[0]["text"]
    pods = {span["lane"] for span in timeline["spans"]}
    assert len(pods) == 3
    assert all(name.startswith("bert-") for name in pods)
    times = [at_ms for track in timeline["tracks"] for at_ms, _ in track["points"]]
    slack_ms = 5_000  # watching begins before the first request and ends after the last
    assert min(times) > timeline["startedMs"] - slack_ms
    assert max(times) < timeline["endedMs"] + slack_ms
    assert 'id="run"' in page.read_text()


def test_an_hpa_that_is_not_there_is_named_before_anything_is_sent(plane, url) -> None:
    command = [
        *(GPUSCALE, "load", "http", url, "--rate=20", "--for=2s"),
        *("--watch-hpa=nothing", "-n", "default", f"--kubeconfig={plane.admin}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "hpa/nothing: not found in namespace default" in done.stderr
    assert not ASKED.is_set()
