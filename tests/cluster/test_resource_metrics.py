"""`metrics.k8s.io` by `gpuscale metrics-api`: as prometheus-adapter, for kubectl top, for the HPA."""

import json
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuscale.base.quantity import parse_quantity
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    missing,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.metrics_apis import gpuscale_metrics_api, prometheus_adapter
from rendered_parts import resource_rules

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

NAMESPACE, NODE, APP = "usage", "usage-node", "burner"
STEP_S = 5
BEFORE_S, AFTER_S = 360, 540
"""Samples lie around now, so that both servers see the same rates."""
MIB = 1024 * 1024
# The queries of prometheus-adapter's deploy/manifests; the window is short, because the controller ignores
# CPU of pods that have not been ready for a whole one.
RULES = """
resourceRules:
  cpu:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        irate (container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[4m])
      )
    nodeQuery: |
      sum by (<<.GroupBy>>) (irate(node_cpu_usage_seconds_total{<<.LabelMatchers>>}[4m]))
    resources: &labels
      overrides: {namespace: {resource: namespace}, node: {resource: node}, pod: {resource: pod}}
  memory:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        container_memory_working_set_bytes{<<.LabelMatchers>>,container!="",pod!=""}
      )
    nodeQuery: sum by (<<.GroupBy>>) (node_memory_working_set_bytes{<<.LabelMatchers>>})
    resources: *labels
  window: 1s
"""
WORKLOAD = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {APP}, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: {APP}}}}}
  template:
    metadata: {{labels: {{app: {APP}}}}}
    spec:
      containers: [{{name: model, image: none}}, {{name: proxy, image: none}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: quiet, namespace: {NAMESPACE}, labels: {{app: quiet}}}}
spec: {{containers: [{{name: model, image: none}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: pending, namespace: {NAMESPACE}, labels: {{app: {APP}-not}}}}
spec: {{schedulerName: nobody, containers: [{{name: model, image: none}}]}}
"""
GROUP = "/apis/metrics.k8s.io"
API = f"{GROUP}/v1beta1"
PODS = f"{API}/namespaces/{NAMESPACE}/pods"


def hpa(source: str) -> str:
    return f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {APP}, namespace: {NAMESPACE}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {APP}}}
  maxReplicas: 9
  metrics: [{source}]
"""


def samples(pod: str):
    """Yield the kubelet's series: 0.9 and 0.3 cores, 512 and 64 MiB; the node 2.5 cores, 3 GiB."""
    now_s = int(time.time())
    for at_s in range(now_s - BEFORE_S, now_s + AFTER_S, STEP_S):
        passed_s = at_s - (now_s - BEFORE_S)
        for container, cores, mib in (("model", 0.9, 512), ("proxy", 0.3, 64)):
            labels = {"namespace": NAMESPACE, "pod": pod, "container": container}
            yield _sample("container_cpu_usage_seconds_total", at_s, cores * passed_s, labels)
            yield _sample("container_memory_working_set_bytes", at_s, mib * MIB, labels)
        # What has memory only has no metrics; nor has what is not there.
        half = {"namespace": NAMESPACE, "pod": "quiet", "container": "model"}
        yield _sample("container_memory_working_set_bytes", at_s, 1.0, half)
        yield _sample("node_cpu_usage_seconds_total", at_s, 2.5 * passed_s, {"node": NODE})
        yield _sample("node_memory_working_set_bytes", at_s, 3072 * MIB, {"node": NODE})
        yield from _cadvisor_only(pod, at_s, passed_s)


def _cadvisor_only(pod: str, at_s: int, passed_s: int):
    """Yield what cAdvisor has beside containers: the node as a whole, and a pod's sum."""
    node, sums = {"id": "/", "node": NODE}, {"id": "/pod", "namespace": NAMESPACE, "pod": pod}
    for labels, cores, mib in ((node, 2.5, 3072), (sums, 1.2, 576)):
        yield _sample("container_cpu_usage_seconds_total", at_s, cores * passed_s, labels)
        yield _sample("container_memory_working_set_bytes", at_s, mib * MIB, labels)


def _sample(name, at_s, value, labels):
    return {"__name__": name, **labels}, at_s * 1000, float(value)


@pytest.fixture(scope="module")
def world(plane, tmp_path_factory: pytest.TempPathFactory):
    """A workload, its series in a Prometheus, and the server behind the control plane."""
    folder = tmp_path_factory.mktemp("usage")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    (folder / "prometheus").mkdir()
    with simulated_nodes(plane, SimulatedNode(NODE)):
        plane.apply(WORKLOAD)
        wait_until(lambda: _ready(plane), "the workload to be ready", 60)
        (pod,) = _pods(plane)
        with prometheus_process.serve(samples(pod), folder / "prometheus") as prometheus:
            given = (plane, prometheus.url, rules, folder)
            with gpuscale_metrics_api(*given) as ours:
                yield SimpleNamespace(given=given, ours=ours, pod=pod)
        plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        wait_until(lambda: not _pods(plane), "the pods to be gone", 60)


@pytest.fixture(scope="module")
def registered(plane, world):
    """The server as the cluster's metrics.k8s.io."""
    with aggregated_api(
        plane, ["metrics.k8s.io/v1beta1"], world.ours.port, service="gpuscale-usage"
    ):
        yield world


def _pods(plane):
    found = plane.get("pods", "-n", NAMESPACE, "-l", f"app={APP}")["items"]
    return [each["metadata"]["name"] for each in found]


def _ready(plane):
    status = plane.get("deployment", APP, "-n", NAMESPACE)["status"]
    quiet = plane.get("pod", "quiet", "-n", NAMESPACE)["status"]
    return status.get("readyReplicas") == 1 and quiet.get("phase") == "Running"


def _replicas(plane):
    return plane.get("deployment", APP, "-n", NAMESPACE)["spec"]["replicas"]


def _ask(api, user, path):
    with closing(api.connect(user)) as connection:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        return response.status, _timeless(json.loads(response.read()))


def _timeless(body):
    """Drop times, as requests are not sent at the same one, and sort what upstream does not."""
    if isinstance(body, dict):
        kept = {
            key: _timeless(value)
            for key, value in body.items()
            if key not in ("timestamp", "creationTimestamp")
        }
        return dict(sorted(kept.items()))
    if isinstance(body, list):
        return sorted(map(_timeless, body), key=json.dumps)
    return body


REQUESTS = (
    API,
    f"{API}/nodes",
    f"{API}/nodes/{NODE}",
    f"{API}/nodes/none",
    f"{API}/nodes?labelSelector=none",
    f"{API}/nodes?fieldSelector=metadata.name%3D{NODE}",
    f"{API}/pods",
    f"{API}/pods?labelSelector=app%3D{APP}",
    f"{API}/pods?fieldSelector=metadata.namespace%3D{NAMESPACE}",
    f"{API}/pods?fieldSelector=status.phase%3DRunning",
    PODS,
    f"{PODS}?labelSelector=app%20in%20({APP},x)",
    f"{PODS}?labelSelector=app%3Dquiet",
    f"{PODS}?watch=true",
    f"{PODS}/quiet",
    f"{PODS}/pending",
    f"{PODS}/none",
    f"{API}/namespaces/none/pods",
)


def test_it_answers_what_prometheus_adapter_answers(plane, world) -> None:
    if reason := missing(["prometheus-adapter"]):
        pytest.skip(reason)
    admin = plane.client_certificate("admin", ["system:masters"])
    paths = (*REQUESTS, f"{PODS}/{world.pod}")
    with prometheus_adapter(*world.given) as theirs:
        # Its watches of pods and nodes are not part of its readiness.
        wait_until(lambda: _ask(theirs, admin, PODS)[1].get("items"), "its pods", 60)
        wait_until(lambda: _ask(theirs, admin, f"{API}/nodes")[1].get("items"), "its nodes", 60)
        expected = {path: _ask(theirs, admin, path) for path in paths}
    assert {path: _ask(world.ours, admin, path) for path in paths} == expected
    (item,) = expected[PODS][1]["items"]
    assert {each["name"]: each["usage"] for each in item["containers"]} == {
        "model": {"cpu": "900m", "memory": "512Mi"},
        "proxy": {"cpu": "300m", "memory": "64Mi"},
    }


def _usage(given):
    """Return usage in thousandths of a core, within one, and in MiB."""
    cpu, memory = parse_quantity(given["cpu"]), parse_quantity(given["memory"])
    return pytest.approx(cpu.milli_value(), abs=1), float(memory) / MIB


def test_the_rules_of_an_installation_serve_what_cadvisor_tells(
    plane, world, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(resource_rules("operator"))
    admin = plane.client_certificate("admin", ["system:masters"])
    _, url, *_ = world.given
    with gpuscale_metrics_api(plane, url, rules, tmp_path) as api:
        wait_until(lambda: _ask(api, admin, PODS)[1].get("items"), "its pods", 60)
        wait_until(lambda: _ask(api, admin, f"{API}/nodes")[1].get("items"), "its nodes", 60)
        (pod,) = _ask(api, admin, PODS)[1]["items"]
        node = _ask(api, admin, f"{API}/nodes/{NODE}")[1]
    usage = {each["name"]: _usage(each["usage"]) for each in pod["containers"]}
    assert usage == {"model": (900, 512), "proxy": (300, 64)}
    assert _usage(node["usage"]) == (2500, 3072)


def test_kubectl_top_shows_pods_containers_and_nodes(plane, registered) -> None:
    def top(*arguments):
        return plane.kubectl("top", *arguments, "--no-headers").split()

    # 900m and 300m, 512 and 64 MiB.
    assert top("pods", "-n", NAMESPACE) == [registered.pod, "1200m", "576Mi"]
    assert top("pods", "-n", NAMESPACE, "-l", f"app={APP}", "--containers") == [
        *(registered.pod, "model", "900m", "512Mi"),
        *(registered.pod, "proxy", "300m", "64Mi"),
    ]
    name, cpu, _, memory, _ = top("nodes", NODE)
    assert (name, cpu, memory) == (NODE, "2500m", "3072Mi")


def test_kubectl_get_shows_a_table(plane, registered) -> None:
    text = plane.kubectl("get", "podmetrics", "-n", NAMESPACE)
    assert [line.split() for line in text.splitlines()] == [
        ["NAME", "CPU", "MEMORY", "WINDOW"],
        [registered.pod, "1200m", "576Mi", "1s"],
    ]


def test_the_controller_scales_on_resource_and_container_resource(plane, registered) -> None:
    resource = (
        "{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 700m}}}"
    )
    plane.apply(hpa(resource))
    # One pod of 1200m: ceil(1200 / 700) = 2. The second has no metrics and changes nothing: with it at 0
    # the mean is 600m, which is below the target, so that the count stays.
    wait_until(lambda: _replicas(plane) == 2, "two replicas by CPU of the pod", 60)
    container = (
        "{type: ContainerResource, containerResource: {name: memory, container: model, "
        "target: {type: AverageValue, averageValue: 128Mi}}}"
    )
    plane.apply(hpa(container))
    # The container has 512 MiB in the one pod that is measured; the other counts as 0: 2 × 256 / 128 = 4.
    wait_until(lambda: _replicas(plane) == 4, "four replicas by memory of the container", 60)
    status = plane.get("hpa", APP, "-n", NAMESPACE)["status"]
    conditions = {each["type"]: each["reason"] for each in status["conditions"]}
    assert conditions["ScalingActive"] == "ValidMetricFound"


def test_permissions_are_those_of_the_group(plane, registered) -> None:
    stranger = plane.client_certificate("usage-stranger")
    status, body = _ask(registered.ours, stranger, PODS)
    assert (status, body["reason"]) == (403, "Forbidden")
    assert (
        'User "usage-stranger" cannot list resource "pods" in API group "metrics.k8s.io" '
        f'in the namespace "{NAMESPACE}"'
    ) in body["message"]
