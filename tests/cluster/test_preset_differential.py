# mypy: disable-error-code="misc"
"""The preset as a rule file of prometheus-adapter: it takes it, and answers what gpuscale answers."""

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpuscale.server.rules.config import preset_text
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import missing, wait_until
from gpuscale_testing.metrics_apis import gpuscale_metrics_api, prometheus_adapter

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

NAMESPACE = "preset"
PODS = ("bert-7d9f8b6c5d-x2f4z", "bert-7d9f8b6c5d-q8r7k")
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_AVG",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_TEMP",
    "gpu_utilization",
    "vllm_num_requests_waiting",
)
STEP_S, BEFORE_S, AFTER_S = 15, 120, 540
OBJECTS = (
    *(f"namespaces/{NAMESPACE}/pods/{name}" for name in (*PODS, "%2A")),
    f"namespaces/{NAMESPACE}/deployments.apps/bert",
    f"namespaces/{NAMESPACE}/services/bert",
    f"namespaces/{NAMESPACE}/metrics",
    "nodes/n1",
)


def series():
    """Return three GPUs of two pods, one of them split by MIG, and two queues."""
    owners = ((PODS[0], "0", 80.0), (PODS[0], "1", 40.0), (PODS[1], "2", 30.0))
    for pod, gpu, value in owners:
        labels = {
            "exported_pod": pod,
            "exported_namespace": NAMESPACE,
            "exported_container": "main",
            "pod": "exporter-1",
            "namespace": "monitoring",
            "service": "exporter",
            "gpu": gpu,
            "UUID": gpu,
            "Hostname": "n1",
        }
        for name in METRICS[0], METRICS[2], METRICS[3]:
            yield {"__name__": name, **labels}, value
        mig = {"GPU_I_ID": "1"} if gpu == "2" else {}
        yield {"__name__": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", **labels, **mig}, value / 200
        queue = {"namespace": NAMESPACE, "pod": pod, "service": "bert", "node": "n1"}
        yield {"__name__": "vllm:num_requests_waiting", **queue, "engine": gpu}, value


def samples():
    now_s = int(time.time())
    for at_s in range(now_s - BEFORE_S, now_s + AFTER_S, STEP_S):
        for labels, value in series():
            yield labels, at_s * 1000, value


def pod(name):
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
    metadata = {"name": name, "namespace": NAMESPACE}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture
def servers(plane, tmp_path: Path):
    if reason := missing(["prometheus-adapter"]):
        pytest.skip(reason)
    rules = tmp_path / "rules.yaml"
    rules.write_text(preset_text())
    (tmp_path / "prometheus").mkdir()
    plane.kubectl("create", "namespace", NAMESPACE)
    plane.apply("\n".join(map(pod, PODS)))
    with ExitStack() as stack:
        prometheus = stack.enter_context(
            prometheus_process.serve(samples(), tmp_path / "prometheus")
        )
        given = (plane, prometheus.url, rules, tmp_path)
        yield [
            stack.enter_context(run(*given, more=["--metrics-relist-interval=1h"]))
            for run in (prometheus_adapter, gpuscale_metrics_api)
        ]
    plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def ask(api, user, path):
    """Return the status, and the objects with their values."""
    with closing(api.connect(user)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        body = json.loads(response.read())
    items = body.get("items", body.get("resources", []))
    return response.status, sorted(
        each.get("name") or f"{each['describedObject']['name']} {each['value']}" for each in items
    )


def test_both_answer_the_same(plane, servers) -> None:
    admin = plane.client_certificate("admin", ["system:masters"])
    for server in servers:
        wait_until(lambda each=server: ask(each, admin, CUSTOM)[1], "discovery", 60)
    paths = [CUSTOM, *(f"{CUSTOM}/{place}/{metric}" for place in OBJECTS for metric in METRICS)]
    theirs, ours = ({path: ask(each, admin, path) for path in paths} for each in servers)
    assert ours == theirs
    deployment = f"{CUSTOM}/namespaces/{NAMESPACE}/deployments.apps/bert"
    # The mean of 80, 40 and 30; of two GPUs and an instance it counts 100 × 30 / 200 too: 165 / 4.
    assert ours[f"{deployment}/DCGM_FI_DEV_GPU_UTIL"] == (200, ["bert 50"])
    assert ours[f"{deployment}/gpu_utilization"] == (200, ["bert 41250m"])
    assert ours[f"{deployment}/vllm_num_requests_waiting"] == (200, ["bert 150"])
