"""A plain HPA with minReplicas 0 on a trigger, on Kubernetes' own controller, with its source taken away.

The source is a real Prometheus, which is killed at zero, at one and at N; the metrics API is one process
with a file of its decisions, which is killed beside it.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from gpuscale.testing.prometheus import serve
from gpuscale_testing import (
    ControlPlane,
    Settings,
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus, pytest.mark.xdist_group("cluster")]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
GATE = {"HPAScaleToZero": True}
RULES = """
rules:
- seriesQuery: gpu_util{}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
TRIGGERS = """
triggers:
- namespace: default
  metricName: NAME-load
  workload: deployment/NAME
  metric: gpu_util
  target: 60
  activationTarget: 5
  wakeQuery: sum(queue_length{queue="NAME"})
  wakeDeadline: DEADLINE
  hold: 5m
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}
  minReplicas: 0
  maxReplicas: 8
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics:
  - type: External
    external:
      metric: {name: NAME-load}
      target: {type: AverageValue, averageValue: "60"}
"""


@pytest.fixture(scope="module")
def plane():
    with ControlPlane(Settings(hpa_sync_period_s=1.0, feature_gates=GATE)) as running:
        yield running


@pytest.fixture(scope="module")
def _nodes(plane):
    with simulated_nodes(plane, SimulatedNode("h200", gpus=8)) as running:
        yield running


class Source:
    """A Prometheus that can be killed, and what is written to it every half second."""

    def __init__(self, plane, folder):
        self.plane = plane
        self.queue = {}
        self.util = {}
        self._folder = folder
        self.port = free_ports(1)[0]
        self._up = threading.Event()
        self._stop = threading.Event()
        self._thread = None

    def start(self):
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._up.wait(60)

    def kill(self):
        self._stop.set()
        self._thread.join()
        self._up.clear()

    def _run(self):
        with serve([], self._folder, self.port) as prometheus:
            while not self._stop.wait(0.3):
                now_ms = round(time.time() * 1000)
                prometheus.write(self._samples(now_ms))
                self._up.set()

    def _samples(self, now_ms):
        for name, length in dict(self.queue).items():
            yield {"__name__": "queue_length", "queue": name}, now_ms, float(length)
        for name, util in dict(self.util).items():
            found = self.plane.get("pods", "-n", "default", "-l", f"app={name}")
            for pod in found["items"]:
                if pod["status"].get("phase") == "Running":
                    labels = {"__name__": "gpu_util", "namespace": "default"}
                    yield {**labels, "pod": pod["metadata"]["name"]}, now_ms, float(util)


class Server:
    """`gpuscale metrics-api --triggers`, which can be killed and begun again."""

    def __init__(self, plane, source, folder, name, deadline):
        (folder / "rules.yaml").write_text(RULES)
        text = TRIGGERS.replace("NAME", name).replace("DEADLINE", deadline)
        (folder / "triggers.yaml").write_text(text)
        pair = plane.serving_certificate(serving_name("gpuscale"))
        self.port, self.loopback = free_ports(2)
        self._log = folder / "metrics-api.log"
        kubeconfig = plane.admin
        self._command = [
            *(str(GPUSCALE), "metrics-api", f"--config={folder / 'rules.yaml'}"),
            *(f"--triggers={folder / 'triggers.yaml'}", f"--held-file={folder / 'held.json'}"),
            *(f"--prometheus-url=http://127.0.0.1:{source.port}", "--metrics-relist-interval=2s"),
            *("--metrics-max-age=10m", "--prometheus-timeout=2s", f"--secure-port={self.port}"),
            *(f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"),
            *(f"--lister-kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}"),
            *(f"--authorization-kubeconfig={kubeconfig}", "--shutdown-delay-duration=0s"),
            f"--insecure-loopback-port={self.loopback}",
        ]
        self._process = None

    def start(self):
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._answers, "the metrics API to answer")

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def log(self):
        return self._log.read_text()

    def why(self, name):
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/{name}-load?why=json"
        with closing(urlopen(f"http://127.0.0.1:{self.loopback}{path}", timeout=5)) as answer:
            return json.load(answer)

    def _answers(self):
        """Whether it listens: it is ready a minute later where the source is away, and holds until then."""
        assert self._process.poll() is None, self.log()
        try:
            with closing(urlopen(f"http://127.0.0.1:{self.loopback}/livez", timeout=1)) as answer:
                return answer.status == 200
        except OSError:
            return False


class Replicas:
    """Every count that the Deployment was asked to have, as it changed."""

    def __init__(self, plane, name):
        self.plane, self.name = plane, name
        self.seen = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def now(self):
        return self.plane.get(f"deployment/{self.name}")["spec"]["replicas"]

    def _run(self):
        while not self._stop.wait(0.1):
            count = self.now()
            if not self.seen or self.seen[-1] != count:
                self.seen.append(count)


def deployment(name):
    labels = {"app": name}
    container = {"name": "model", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )


@contextmanager
def scaled(plane, tmp_path, name, deadline="auto"):
    """Yield source, server and replicas of a Deployment under an HPA."""
    source = Source(plane, tmp_path)
    source.queue[name] = 0
    source.util[name] = 1
    plane.apply(deployment(name))
    plane.wait(f"deployment/{name}", "jsonpath={.status.readyReplicas}=1")
    source.start()
    server = Server(plane, source, tmp_path, name, deadline)
    server.start()
    versions = ("custom.metrics.k8s.io/v1beta1", "external.metrics.k8s.io/v1beta1")
    try:
        with (
            aggregated_api(plane, versions, server.port, service="gpuscale", ca_bundle=plane.ca),
            Replicas(plane, name) as replicas,
        ):
            plane.apply(HPA.replace("NAME", name))
            yield source, server, replicas
    finally:
        plane.kubectl("delete", "hpa", name, "--ignore-not-found")
        plane.kubectl("delete", "deployment", name, "--ignore-not-found")
        server.kill()
        source.kill()


def settles(replicas, count, what):
    wait_until(lambda: replicas.now() == count, f"{what}: {count} replicas", 60.0)


def stays(replicas, count, seconds=8.0):
    """Hold for several syncs of the HPA; nothing must change."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert replicas.now() == count, replicas.seen
        time.sleep(0.2)


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("_nodes")
def test_up_out_in_and_down_and_no_wrong_zero_without_the_source(plane, tmp_path):
    name = "vllm"
    with scaled(plane, tmp_path, name) as (source, server, replicas):
        settles(replicas, 0, "idle with an empty queue")

        source.kill()  # at zero: it stays there, without an error becoming load
        stays(replicas, 0)
        source.start()
        source.queue[name] = 1
        settles(replicas, 1, "the first queued item")
        plane.wait(f"deployment/{name}", "jsonpath={.status.readyReplicas}=1")
        source.queue[name], source.util[name] = 0, 40
        stays(replicas, 1)

        source.kill()  # at one: neither 0 nor more
        server.kill()  # and a fresh process knows what was decided
        server.start()
        stays(replicas, 1)
        assert "held" in json.dumps(server.why(name))
        source.start()

        source.util[name] = (
            95  # 95 of 60: two pods, whose use stays so: 190 of 60 is four, and so on
        )
        settles(replicas, 8, "busy GPUs")
        plane.wait(f"deployment/{name}", "jsonpath={.status.readyReplicas}=8")
        source.kill()  # at N: no scale-in
        server.kill()
        server.start()
        stays(replicas, 8)
        source.start()

        events = plane.get("events", "--field-selector=involvedObject.name=" + name)["items"]
        ours = {each["reason"] for each in events if each["source"]["component"] == "gpuscale"}
        assert "TriggerHeld" in ours
        source.util[name] = 6  # 8 pods of 6 are 48 of 60
        settles(replicas, 1, "GPUs that are hardly used")
        source.util[name] = 1
        settles(replicas, 0, "idle")
        # Kubernetes 1.37 syncs a new HPA at once, perhaps before the first look at the count.
        assert replicas.seen[0] in {0, 1}
        ups_and_downs = replicas.seen[replicas.seen.index(0) :]
        highest = ups_and_downs.index(8)
        assert ups_and_downs[: highest + 1] == sorted(ups_and_downs[: highest + 1])
        assert ups_and_downs[highest:] == sorted(ups_and_downs[highest:], reverse=True)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_nodes")
def test_a_pod_that_waits_for_its_node_is_not_scaled_away_before_its_deadline(plane, tmp_path):
    name = "waiting"
    with scaled(plane, tmp_path, name, deadline="25s") as (source, server, replicas):
        settles(replicas, 0, "idle")
        wait_until(lambda: not plane.get("pods", "-l", f"app={name}")["items"], "no pods")
        plane.kubectl("cordon", "h200")
        try:
            source.queue[name] = 3
            settles(replicas, 1, "the queue")
            woken = time.monotonic()
            source.queue[name] = 0  # who waited has given up
            stays(replicas, 1, 15.0)
            assert "within the deadline of 25s" in json.dumps(server.why(name))
            settles(replicas, 0, "past the deadline")
            assert time.monotonic() - woken > 20.0
        finally:
            plane.kubectl("uncordon", "h200")
