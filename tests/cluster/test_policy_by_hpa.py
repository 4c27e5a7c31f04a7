"""A policy's replicas under plain HPAs, on Kubernetes' own controller: up, down, and without its source.

The policy is `seasonal` on its first day without headroom, so that it wants ceil(load / podLoad). Four pods
of the workload find a GPU and run, the others stay pending. It takes two minutes, as a policy decides every
15 s.
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

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
METRIC = "vllm-wanted-replicas"
TRIGGERS = """
triggers:
- namespace: default
  workload: deployment/vllm
  query: sum(in_flight)
  policy: {name: seasonal, settings: {headroom: 1, spare: 0}}
  podLoad: 10
  startTime: 1m
  lag: 0s
  maxReplicas: 20
  hold: 30s
  fallbackReplicas: 2
"""
SYNC_S = 90
"""A step of the policy and two syncs, on a busy machine."""


def deployment(name):
    labels = {"app": name}
    container = {"name": "model", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def autoscaler(name, behavior):
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"type": "External", "external": {"metric": {"name": METRIC}, "target": target}}
    of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": of, "minReplicas": 1, "maxReplicas": 20, "metrics": [metric]}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return {**kind, "metadata": {"name": name}, "spec": {**spec, "behavior": behavior}}


EXACT = {
    "scaleUp": {"tolerance": "0"},
    "scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 0},
}
TOLERANT = {"scaleDown": {"stabilizationWindowSeconds": 0}}


class Exporter:
    """Shows the load that tests set."""

    def __init__(self):
        self.load = 120


@contextmanager
def exporter():
    shows = Exporter()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            body = f"in_flight {shows.load}\n".encode()
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
    is_up = True

    def stop():
        nonlocal is_up
        if is_up:
            server.shutdown()
            server.server_close()
            thread.join()
            is_up = False

    try:
        yield shows, server.server_port, stop
    finally:
        stop()


class Server:
    """A metrics API that can be started again."""

    def __init__(self, plane, folder, scraped):
        (folder / "triggers.yaml").write_text(TRIGGERS)
        pair = plane.serving_certificate(serving_name("gpuscale"))
        self.port, self._loopback = free_ports(2)
        self._log = folder / "log"
        self._words = [
            *(str(GPUSCALE), "metrics-api", f"--triggers={folder / 'triggers.yaml'}"),
            *("--source=streams", f"--scrape=http://127.0.0.1:{scraped}/metrics"),
            *("--scrape-interval=1s", "--keep-all-series", f"--secure-port={self.port}"),
            *(f"--held-file={folder / 'held.json'}", "--shutdown-delay-duration=0s"),
            *(f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"),
            *(f"--lister-kubeconfig={plane.admin}", f"--authentication-kubeconfig={plane.admin}"),
            f"--authorization-kubeconfig={plane.admin}",
            f"--insecure-loopback-port={self._loopback}",
        ]
        self._process = None
        self.start()

    def start(self):
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)

    def kill(self):
        self._process.kill()
        self._process.wait(20)

    def ask(self, why=""):
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/{METRIC}{why}"
        try:
            with closing(urlopen(f"http://127.0.0.1:{self._loopback}{path}", timeout=5)) as answer:
                return answer.read().decode()
        except OSError:
            assert self._process.poll() is None, self._log.read_text()
            return "{}"

    def value(self):
        items = json.loads(self.ask()).get("items") or [{}]
        return items[0].get("value")


def test_hpas_follow_a_policy_exactly_and_keep_what_runs_without_it(plane, tmp_path):
    def replicas(name):
        return plane.get(f"deployment/{name}")["spec"]["replicas"]

    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=8)),
        exporter() as (shows, scraped, stop_exporter),
    ):
        server = Server(plane, tmp_path, scraped)
        try:
            for name in ("vllm", "tolerant"):
                plane.apply(json.dumps(deployment(name)))
            wait_until(lambda: server.value() == "12", "the policy to want 120 / 10", SYNC_S)
            versions = ("external.metrics.k8s.io/v1beta1",)
            with aggregated_api(
                plane, versions, server.port, service="gpuscale", ca_bundle=plane.ca
            ):
                plane.apply(json.dumps(autoscaler("vllm", EXACT)))
                plane.apply(json.dumps(autoscaler("tolerant", TOLERANT)))
                wait_until(lambda: replicas("vllm") == 12, "the one at 12", SYNC_S)
                wait_until(lambda: replicas("tolerant") == 12, "the other at 12", SYNC_S)
                # 13 for 12 is within a tenth: only the HPA with tolerance 0 goes there.
                shows.load = 125
                wait_until(lambda: replicas("vllm") == 13, "one more", SYNC_S)
                assert replicas("tolerant") == 12
                shows.load = 48
                wait_until(lambda: replicas("vllm") == 5, "scaling in", SYNC_S)
                why = server.ask("?why=text")
                assert "policy demand 48 at 10 a pod are 4.8 pods" in why
                assert "policy seasonal wants 5 replicas" in why

                # Its source goes: it holds, and then neither goes to the stated 2 nor anywhere else.
                wait_until(lambda: '"value":5.0' in held(tmp_path), "its decision to be kept", 60)
                stop_exporter()
                wait_until(lambda: "is held" in server.ask("?why=text"), "it to hold", SYNC_S)
                assert server.value() == "5"
                server.kill()
                time.sleep(1)
                assert replicas("vllm") == 5
                server.start()
                wait_until(lambda: server.value() == "5", "it to answer again", 60)
                wait_until(
                    lambda: "longer than the hold" in server.ask("?why=text"), "the hold", SYNC_S
                )
                assert server.value() == "5"
                assert replicas("vllm") == 5
        finally:
            server.kill()


def held(folder):
    file = folder / "held.json"
    return file.read_text() if file.exists() else ""
