"""Two plain HPAs on requests in flight, one of them with credit, on Kubernetes' own controller.

Two pods of each workload are ready, and further ones stay pending, as if their models loaded for minutes.
Both have the same load: 220 requests in flight, of which 40 run and take 20 s each.
"""

import json
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
TRIGGERS = """
triggers:
- namespace: default
  metricName: plain-load
  workload: deployment/plain
  query: sum(in_flight)
  target: 16
- namespace: default
  metricName: credited-load
  workload: deployment/credited
  query: sum(in_flight)
  waiting: sum(waiting)
  throughput: sum(rate(done_total[30s]))
  startTime: 10m
  target: 16
"""


def deployment(name):
    labels = {"app": name}
    container = {"name": "model", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def autoscaler(name):
    target = {"type": "AverageValue", "averageValue": "16"}
    metric = {
        "type": "External",
        "external": {"metric": {"name": f"{name}-load"}, "target": target},
    }
    of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": of, "minReplicas": 2, "maxReplicas": 20, "metrics": [metric]}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


class Page(BaseHTTPRequestHandler):
    """A model server that finishes two requests a second, of 220 that are there."""

    began = time.monotonic()

    def do_GET(self):
        done = 2 * (time.monotonic() - self.began)
        body = f"in_flight 220\nwaiting 180\ndone_total {done}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def page():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def metrics_api(plane, folder, scraped):
    """Yield what asks it without a password, and the port of its own."""
    (folder / "triggers.yaml").write_text(TRIGGERS)
    pair = plane.serving_certificate(serving_name("gpuscale"))
    port, loopback = free_ports(2)
    kubeconfig = plane.admin
    log = (folder / "log").open("ab")
    process = subprocess.Popen(
        [
            *(str(GPUSCALE), "metrics-api", f"--triggers={folder / 'triggers.yaml'}"),
            *("--source=streams", f"--scrape=http://127.0.0.1:{scraped}/metrics"),
            *("--scrape-interval=1s", "--keep-all-series", f"--secure-port={port}"),
            *(f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"),
            *(f"--lister-kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}"),
            *(f"--authorization-kubeconfig={kubeconfig}", "--shutdown-delay-duration=0s"),
            f"--insecure-loopback-port={loopback}",
        ],
        stdout=log,
        stderr=log,
    )

    def ask(name, why=""):
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/{name}-load{why}"
        try:
            with closing(urlopen(f"http://127.0.0.1:{loopback}{path}", timeout=5)) as answer:
                return answer.read().decode()
        except OSError:
            assert process.poll() is None, (folder / "log").read_text()
            return "{}"

    try:
        yield ask, port
    finally:
        process.kill()
        process.wait(20)
        log.close()


def number(text):
    """Return the number of a quantity; 0 of none."""
    text = text or "0"
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def test_pods_that_start_are_counted_once(plane, tmp_path):
    def replicas(name):
        return plane.get(f"deployment/{name}")["spec"]["replicas"]

    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=4)),
        page() as scraped,
        metrics_api(plane, tmp_path, scraped) as (ask, port),
    ):
        for name in ("plain", "credited"):
            plane.apply(json.dumps(deployment(name)))
            plane.wait(f"deployment/{name}", "jsonpath={.status.readyReplicas}=2", timeout_s=60)

        def value(name):
            items = json.loads(ask(name)).get("items") or [{}]
            return items[0].get("value")

        # 2 arrive a second and a pod finishes 1: for these, and for the 180 that wait within 120 s, it
        # takes 2 + 1.5 pods, 56 in flight. The first half minute knows less of the rate.
        wait_until(lambda: 48 < number(value("credited")) <= 64, "the rate to be known", 90)
        assert value("plain") == "220"
        versions = ("external.metrics.k8s.io/v1beta1",)
        with aggregated_api(plane, versions, port, service="gpuscale", ca_bundle=plane.ca):
            for name in ("plain", "credited"):
                plane.apply(json.dumps(autoscaler(name)))
            wait_until(lambda: replicas("plain") == 14, "the plain HPA to order 220 / 16 pods", 90)
            wait_until(lambda: replicas("credited") >= 4, "the other to order 56 / 16 pods", 60)
            # They wait for a GPU, and nothing more is ordered for what they will take. A rate over
            # scrapes on a busy machine may ask for one more.
            wait_until(lambda: "starting pods" in ask("credited", "?why=text"), "the credit", 30)
            time.sleep(5)
            assert replicas("credited") in {4, 5}
