"""`gpuscale calibrate --workload` on a real control plane: one replica that stays one, read as its HPA is."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale_testing import SimulatedNode, aggregated_api, serving_name, simulated_nodes

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, SM_UTIL, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

NAMESPACE = "calibrated"
SERVER = Path(__file__).parents[1] / "support" / "queue_server.py"
GPUSCALE = str(Path(sys.executable).with_name("gpuscale"))
WORKLOAD = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: bert}}
spec:
  selector: {{matchExpressions: [{{key: app, operator: In, values: [bert]}}]}}
  template:
    metadata: {{labels: {{app: bert}}}}
    spec: {{containers: [{{name: model, image: none, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: other}}
spec:
  selector: {{matchLabels: {{app: other}}}}
  template:
    metadata: {{labels: {{app: other}}}}
    spec: {{containers: [{{name: model, image: none}}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: bert}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: bert}}
  maxReplicas: 5
  metrics:
  - {{type: Pods, pods: {{metric: {{name: {SM_UTIL}}}, target: {{type: AverageValue, averageValue: "60"}}}}}}
"""


@pytest.fixture(scope="module")
def metrics(plane):
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    bundle = {"service": "gpuscale", "ca_bundle": plane.ca}
    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=8)),
        MetricsServer(plane, certificate).running() as server,
        aggregated_api(plane, GROUP_VERSIONS, server.port, **bundle),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=WORKLOAD)
        is_ready = "jsonpath={.status.readyReplicas}=1"
        for name in ("deployment/bert", "deployment/other"):
            plane.wait(name, is_ready, "-n", NAMESPACE, timeout_s=90.0)
        yield server


@pytest.fixture
def url():
    command = [sys.executable, str(SERVER), "--service-ms=10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/"
        server.kill()


def calibrate(plane, url, *options):
    return subprocess.run(
        [
            *(GPUSCALE, "calibrate", url, "--promise=p95=500ms", f"--workload={NAMESPACE}/bert"),
            *(f"--kubeconfig={plane.admin}", "-o", "json", *options),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_hpa_that_may_add_replicas_is_stopped_by_the_command_and_then_its_metric_is_read(
    plane, metrics, url
) -> None:
    refused = calibrate(plane, url)
    assert refused.returncode == 2
    assert "hpa/bert: found maxReplicas 5: it would add replicas meanwhile" in refused.stderr
    before, after = re.findall(r"kubectl (patch [^\n]*?'\{.*?\}')", refused.stderr)
    plane.kubectl(*shlex.split(before))
    pod = plane.get("pods", "-n", NAMESPACE, "-l", "app=bert")["items"][0]["metadata"]["name"]
    metrics.put(SM_UTIL, 40.0, PodName=pod, NamespaceName=NAMESPACE, NodeName="h200")
    done = calibrate(plane, url, "--hold=2s", "--for=20s")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["levels"], found["end"]
    # What the metrics API serves the HPA, and what the test has put there.
    assert {level["signals"][SM_UTIL] for level in found["levels"]} == {40.0}
    plane.kubectl(*shlex.split(after))
    hpa = plane.get("hpa", "bert", "-n", NAMESPACE)
    assert hpa["spec"]["maxReplicas"] == 5


def test_two_replicas_are_refused_with_the_command_for_one(plane, metrics, url) -> None:
    plane.kubectl("scale", "-n", NAMESPACE, "deployment/bert", "--replicas=2")
    plane.wait("deployment/bert", "jsonpath={.status.readyReplicas}=2", "-n", NAMESPACE)
    refused = calibrate(plane, url)
    assert refused.returncode == 2
    assert "deployment/bert: found 2 replicas, 2 ready, expected one of one" in refused.stderr
    assert f"kubectl scale -n {NAMESPACE} deployment/bert --replicas=1" in refused.stderr
