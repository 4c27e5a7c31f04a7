# mypy: disable-error-code="arg-type"
"""Scale-ins under streams: which requests Kubernetes' own controllers cut, with costs of ours and without.

Two Deployments have the same load, and HPAs of one kind. A pod of two serves a stream, and none ends while
the HPAs take half of the pods away. The metrics API has two replicas, and the rights of an installation.
"""

import json
import random
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuscale.ops.install.certificates import make_certificate
from gpuscale.ops.install.rendering import RenderInputs, render
from gpuscale.ops.install.values import Values
from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
COST = "controller.kubernetes.io/pod-deletion-cost"
PLAIN, MARKED = "plain", "marked"
MOST, ROUNDS = 20, 3
GROUPS = ("custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1")
RULES = """
rules:
- seriesQuery: in_flight{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: wanted
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""


class Streams:
    """What pods serve, and how many are wanted, as a page of metrics."""

    def __init__(self):
        self.busy, self.pods, self.wanted = set(), set(), MOST

    def text(self):
        lines = [f"wanted {self.wanted}"]
        for pod in self.pods:
            lines.append(f'in_flight{{namespace="default",pod="{pod}"}} {int(pod in self.busy)}')
        return "\n".join([*lines, ""]).encode()

    @contextmanager
    def served(self):
        streams = self

        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                body = streams.text()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def allowed(plane):
    """Apply the roles of an installation, and return the kubeconfig of its metrics API."""
    idle_first = [{"namespace": "default", "workload": MARKED, "metric": "in_flight"}]
    values = Values.model_validate({"spec": {"metricsApi": {"idleFirst": idle_first}}})
    certificate = make_certificate(values, round(time.time() * 1000))
    plane.kubectl("create", "namespace", "gpuscale")
    for body in render(values, RenderInputs(certificate)):
        is_ours = body["metadata"]["name"].startswith("gpuscale-metrics-api")
        if is_ours and "rbac" in body["apiVersion"]:
            plane.apply(json.dumps(body))
    return plane.kubeconfig("system:serviceaccount:gpuscale:gpuscale-metrics-api")


class Server:
    """A replica of the metrics API, which can be killed and started again."""

    def __init__(self, plane, folder, scraped, kubeconfig):
        (folder / "rules.yaml").write_text(RULES)
        self.port, self._log = free_ports(1)[0], folder / "log"
        pair = plane.serving_certificate(serving_name("gpuscale"))
        self._command = [
            *(str(GPUSCALE), "metrics-api", f"--config={folder / 'rules.yaml'}"),
            *("--source=streams", f"--scrape=http://127.0.0.1:{scraped}/metrics"),
            *("--scrape-interval=1s", "--keep-all-series", f"--secure-port={self.port}"),
            *("--metrics-relist-interval=5s", "--metrics-max-age=1m", "--value-max-age=10s"),
            *(f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"),
            *(f"--lister-kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}"),
            *(f"--authorization-kubeconfig={kubeconfig}", "--shutdown-delay-duration=0s"),
            f"--idle-first=default/{MARKED}=in_flight",
        ]
        self.start()

    def start(self):
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self):
        self._process.kill()
        self._process.wait(20)

    def log(self):
        return self._log.read_text()


def deployment(name):
    labels = {"app": name}
    container = {"name": "model", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": MOST, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def autoscaler(name, window_s):
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"type": "External", "external": {"metric": {"name": "wanted"}, "target": target}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": MOST,
        "metrics": [metric],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": window_s}},
    }
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def pods_of(plane, name):
    """Return the pods that are not being deleted, with their costs."""
    items = plane.get("pods", "-l", f"app={name}")["items"]
    return {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get(COST)
        for each in items
        if "deletionTimestamp" not in each["metadata"]
    }


def halved(plane, name):
    """Return the pods that are left, once half of them are."""
    found = set(pods_of(plane, name))
    return found if len(found) == MOST // 2 else None


@pytest.fixture(scope="module")
def streams():
    return Streams()


@pytest.fixture(scope="module")
def replicas(plane, streams, tmp_path_factory):
    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=2 * MOST)),
        streams.served() as scraped,
    ):
        account, folders = allowed(plane), (tmp_path_factory.mktemp("server") for _ in range(2))
        replicas = [Server(plane, folder, scraped, account) for folder in folders]
        port = replicas[0].port
        try:
            with aggregated_api(plane, GROUPS, port, service="gpuscale", ca_bundle=plane.ca):
                for name in (PLAIN, MARKED):
                    plane.apply(json.dumps(deployment(name)))
                yield replicas
        finally:
            for each in replicas:
                each.kill()


def scaled(plane, window_s):
    for name in (PLAIN, MARKED):
        plane.apply(json.dumps(autoscaler(name, window_s)))
        plane.wait(f"hpa/{name}", f"jsonpath={{.status.desiredReplicas}}={MOST}", timeout_s=60)


def filled(plane, streams, chance):
    """Scale both out, and give half of their pods a stream."""
    streams.wanted = MOST
    for name in (PLAIN, MARKED):
        ready = f"jsonpath={{.status.readyReplicas}}={MOST}"
        plane.wait(f"deployment/{name}", ready, timeout_s=90)
    pods = {name: sorted(pods_of(plane, name)) for name in (PLAIN, MARKED)}
    streams.busy = {pod for names in pods.values() for pod in chance.sample(names, MOST // 2)}
    streams.pods = {pod for names in pods.values() for pod in names}
    return {name: streams.busy & set(names) for name, names in pods.items()}


def unmarked(plane) -> None:
    """Return once no pod has a cost."""
    wait_until(lambda: set(pods_of(plane, MARKED).values()) == {None}, "no cost to stay", 90)


def test_no_stream_is_cut(plane, streams, replicas):
    chance, cut = random.Random(1), dict.fromkeys((PLAIN, MARKED), 0)
    for number in range(ROUNDS):
        busy = filled(plane, streams, chance)
        if number == 0:
            scaled(plane, 15)
        # Costs go 30 s after the HPA of the round before wanted fewer.
        unmarked(plane)
        streams.wanted = MOST // 2
        for name in (PLAIN, MARKED):
            left = wait_until(partial(halved, plane, name), "the scale-in", 90)
            cut[name] += len(busy[name] - left)
    unmarked(plane)
    assert cut[MARKED] == 0
    # By chance, each victim serves a stream at one in two: none of 30 has 1 chance in 10^9.
    assert cut[PLAIN] > 0


def test_costs_are_right_soon_after_crashes_and_those_of_others_stay(plane, streams, replicas):
    streams.wanted = MOST
    scaled(plane, 3600)
    busy = filled(plane, streams, random.Random(2))[MARKED]
    idle = sorted(set(pods_of(plane, MARKED)) - busy)
    unmarked(plane)
    plane.kubectl("annotate", "pod", idle[0], f"{COST}=5")

    def marked():
        return {pod: cost for pod, cost in pods_of(plane, MARKED).items() if cost is not None}

    streams.wanted = MOST // 2
    ours = dict.fromkeys(idle[1:], "-1000")
    # Ten may leave, and nine that are idle can be marked: one that has a stream comes next.
    wait_until(lambda: ours.items() <= marked().items() and len(marked()) == 11, "the costs", 60)
    assert marked()[idle[0]] == "5"
    plane.kill("kube-apiserver")
    for each in replicas:
        each.kill()
    streams.busy = set(idle)
    plane.restart("kube-apiserver")
    replicas[0].start()

    def wrong():
        return [pod for pod, cost in marked().items() if cost == "-1000" and pod in streams.busy]

    wait_until(lambda: not wrong() and "-1000" in marked().values(), "no wrong cost", 60)
    silent = next(pod for pod, cost in marked().items() if cost == "-1000")
    streams.pods -= {silent}
    wait_until(lambda: silent not in marked(), "no cost of what is unknown", 60)
    streams.wanted = MOST
    wait_until(lambda: marked() == {idle[0]: "5"}, "no cost of ours", 90)
