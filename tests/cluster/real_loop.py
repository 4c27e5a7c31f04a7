"""The whole loop of real parts on one machine, and one who watches it from outside.

Two node agents with simulated GPUs of a constant load, a Prometheus, `gpuscale metrics-api` and a control
plane of its own, with three Deployments in three namespaces that are scaled by a Pods, an Object and an
External metric. Scale-downs are not held back, so that a wrong one would be seen at once.
"""

import json
import shutil
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.agent.recordings.recording import ReadingRecorder, RecordingReader
from gpuscale.base.exposition.parse import parse_text
from gpuscale.testing.podresources import PodResources
from gpuscale_testing import (
    Component,
    ControlPlane,
    Settings,
    SimulatedNode,
    aggregated_api,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.metrics_apis import gpuscale_metrics_api

sys.path.insert(0, str(Path(__file__).parent))
from stacked import Stacked
from watching import Watching, ask

GROUP_VERSIONS = (
    "custom.metrics.k8s.io/v1beta1",
    "custom.metrics.k8s.io/v1beta2",
    "external.metrics.k8s.io/v1beta1",
)
VALUES = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/by-pods/pods/*/gpu_util"
START_MS = 1_790_000_000_000
LIMIT_S = 90.0
GOOD = ("True", "ValidMetricFound")
BUSY_PERCENT = {"gpu-a": 41, "gpu-b": 43}
"""Of every GPU, by node."""
GPUS = 12
REPLICAS = {"by-pods": 4, "by-object": 2, "by-external": 4}
"""By namespace, which is the name of the Deployment and of its HPA too; half of them on each node."""
METRICS = {
    "by-pods": {
        "type": "Pods",
        "pods": {
            "metric": {"name": "gpu_util"},
            "target": {"type": "AverageValue", "averageValue": "40"},
        },
    },
    "by-object": {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "by-object"},
            "metric": {"name": "gpu_util"},
            "target": {"type": "Value", "value": "40"},
        },
    },
    "by-external": {
        "type": "External",
        "external": {
            "metric": {"name": "gpus_busy"},
            "target": {"type": "AverageValue", "averageValue": "40"},
        },
    },
}
# Each GPU is its pod's alone, so the mean of a pod is its GPU's value. The sum is only given while every
# agent that is scraped has read its GPUs and knows their pods.
RULES = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{pod!=""}
  name: {as: gpu_util}
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}, service: {resource: service}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{pod!=""}
  name: {as: gpus_busy}
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: >-
    sum(<<.Series>>{<<.LabelMatchers>>}) and on ()
    (count(gpuscale_exporter_collect_up * gpuscale_exporter_attribution_up == 1) == count(up{job="gpus"}))
"""


def prometheus_configuration(agents):
    # What kubernetes_sd would know of a pod's Service is made of the pod's name here.
    service = {
        "source_labels": ["pod"],
        "regex": "(by-object)-.+",
        "target_label": "service",
        "replacement": "$1",
    }
    job = {
        "job_name": "gpus",
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in agents]}],
        "metric_relabel_configs": [service],
    }
    timing = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    return json.dumps({"global": timing, "scrape_configs": [job]})


def deployment(name, replicas):
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    container = {"name": "model", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"containers": [container], "topologySpreadConstraints": [spread]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def hpa(name):
    at_once = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}],
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [METRICS[name]],
            "behavior": {"scaleDown": at_once, "scaleUp": at_once},
        },
    }


class RealLoop(Stacked):
    """All parts, running, for as long as the `with` lasts."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.parts = {}
        """Processes of our own by name; those of the control plane belong to `plane`."""
        self.kubelets = {}
        self.available_s = None
        """From the start of the metrics API's process until its APIServices were seen to be available."""

    def kill(self, name) -> None:
        self.parts[name].kill() if name in self.parts else self.plane.kill(name)

    def restart(self, name) -> None:
        self.parts[name].restart() if name in self.parts else self.plane.restart(name)

    def logs(self):
        own = "\n".join(f"--- {name}\n{part.log_tail()}" for name, part in self.parts.items())
        return f"{own}\n{self.plane.logs()}"

    def place(self):
        """Give every bound pod a GPU of its node, as the kubelet would; return the node of each pod."""
        pods = self.plane.get("pods", "-A", "-l", "app")["items"]
        bound = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod["spec"]["nodeName"]
            for pod in pods
            if pod["spec"].get("nodeName")
        }
        for node, (kubelet, gpus) in self.kubelets.items():
            for key in kubelet.allocated.keys() - bound.keys():
                kubelet.free(*key)
            used = {gpu for given in kubelet.allocated.values() for gpu in given}
            free = [gpu for gpu in gpus if gpu not in used]
            for key in sorted(bound.keys() - kubelet.allocated.keys()):
                if bound[key] == node:
                    kubelet.allocate(*key, free.pop(0))
        return bound

    def asked_by_hpas(self):
        """Return how often the HPA controller, who alone wants the external metric, was answered well."""
        wanted = {"group": "external.metrics.k8s.io", "code": "200"}
        return self.own_metrics().get(("requests_total", tuple(sorted(wanted.items()))), 0)

    def own_metrics(self):
        """Return the metrics API's own metrics, by name without its prefix and by sorted labels."""
        with closing(self.api.connect(self._admin, timeout_s=5.0)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return {
            (family.name.removeprefix("gpuscale_metrics_api_"), tuple(sorted(sample.labels))): (
                sample.value
            )
            for family in parse_text(text)
            for sample in family.samples
        }

    def _start(self, stack) -> None:
        self.plane = stack.enter_context(ControlPlane(Settings(hpa_sync_period_s=1.0)))
        self._admin = self.plane.client_certificate("admin", ["system:masters"])
        nodes = [SimulatedNode(name, gpus=GPUS) for name in BUSY_PERCENT]
        stack.enter_context(simulated_nodes(self.plane, *nodes))
        *agent_ports, prometheus_port = free_ports(len(BUSY_PERCENT) + 1)
        for node, port in zip(BUSY_PERCENT, agent_ports, strict=True):
            self._start_agent(stack, node, port)
        self._start_prometheus(stack, agent_ports, prometheus_port)
        self.watch = stack.enter_context(Watch(self.plane))
        self._start_metrics_api(stack, f"http://127.0.0.1:{prometheus_port}")
        self._start_workloads()

    def _run(self, stack, name, *command) -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.parts[name] = Component(name, [str(word) for word in command], folder, 2.0)
        stack.callback(self.parts[name].end_stop)

    def _start_agent(self, stack, node, port) -> None:
        share = BUSY_PERCENT[node] / 100
        simulated = SimulatedReader(
            node,
            MODELS["NVIDIA H200"],
            GPUS,
            1,
            lambda gpu, *_: (GpuWork(100 + gpu, "python", share, 0.1, 8000),),
        )
        recording, socket = self.folder / f"{node}.jsonl.gz", self.folder / f"{node}.sock"
        recorder = ReadingRecorder.open(str(recording))
        for second in range(60):
            RecordingReader(simulated, recorder).read(START_MS + second * 1000)
        recorder.close()
        gpus = [gpu.uuid for gpu in simulated.gpus()]
        self.kubelets[node] = stack.enter_context(PodResources(socket, gpus)), gpus
        self._run(
            stack,
            f"agent {node}",
            *("env", f"NODE_NAME={node}"),
            *(sys.executable, "-m", "gpuscale.cli.main", "exporter", f"--gpu=replay:{recording}"),
            *("--kubernetes", f"--pod-resources-kubelet-socket={socket}"),
            *("--collect-interval=500ms", f"--address=127.0.0.1:{port}"),
        )

    def _start_prometheus(self, stack, agent_ports, port) -> None:
        configuration = self.folder / "prometheus.json"
        configuration.write_text(prometheus_configuration(agent_ports))
        self._run(
            stack,
            "prometheus",
            shutil.which("prometheus"),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder / 'prometheus' / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        )

        def is_ready():
            with (
                closing(HTTPConnection("127.0.0.1", port, timeout=5.0)) as connection,
                suppress(OSError, HTTPException),
            ):
                connection.request("GET", "/-/ready")
                return connection.getresponse().status == 200

        wait_until(is_ready, "Prometheus to be ready", LIMIT_S)

    def _start_metrics_api(self, stack, prometheus_url) -> None:
        rules = self.folder / "rules.yaml"
        rules.write_text(RULES)
        bundle = self.folder / "ca.crt"
        flags = (
            *("--metrics-relist-interval=1s", "--metrics-max-age=10m", "--hop-lag-interval=1s"),
            *("--service-name=gpuscale-metrics", "--service-namespace=default"),
            f"--ca-bundle-file={bundle}",
        )
        started = time.monotonic()
        self.api = stack.enter_context(
            gpuscale_metrics_api(self.plane, prometheus_url, rules, self.folder, more=flags)
        )
        self.parts["metrics API"] = self.api.component
        service = {"service": "gpuscale-metrics", "ca_bundle": bundle, "timeout_s": LIMIT_S}
        stack.enter_context(aggregated_api(self.plane, GROUP_VERSIONS, self.api.port, **service))
        available = wait_until(
            lambda: next((seen for seen in self.watch.since(started) if seen.is_available), None),
            "the APIServices to be seen",
            LIMIT_S,
        )
        self.available_s = available.at - started

    def _start_workloads(self) -> None:
        for name in REPLICAS:
            self.plane.kubectl("create", "namespace", name)
        for name, replicas in REPLICAS.items():
            self.plane.apply(json.dumps(deployment(name, replicas)))
        pods = sum(REPLICAS.values())
        wait_until(lambda: len(self.place()) == pods, "all pods to have nodes", LIMIT_S)
        for name, replicas in REPLICAS.items():
            ready = f"jsonpath={{.status.readyReplicas}}={replicas}"
            self.plane.wait(f"deployment/{name}", ready, f"-n={name}", timeout_s=LIMIT_S)

        def all_have_values():
            counts = Counter()
            for name in REPLICAS:
                path = VALUES.replace("by-pods", name)
                with suppress(Exception):
                    counts[name] = len(
                        json.loads(self.plane.kubectl("get", "--raw", path))["items"]
                    )
            return counts == REPLICAS

        wait_until(all_have_values, "all pods to have values", LIMIT_S)
        for name in REPLICAS:
            self.plane.apply(json.dumps(hpa(name)))


@dataclass(frozen=True)
class Seen:
    """What there was to see at one moment."""

    at: float
    fault: str = ""
    """Why the API server showed nothing; empty where it did."""
    replicas: dict = field(default_factory=dict)
    """By Deployment: those wanted, and the generation, which counts every change of them."""
    scaling: dict = field(default_factory=dict)
    """By HPA: status, reason and message of ScalingActive."""
    available: dict = field(default_factory=dict)
    """By APIService of ours: whether it is available."""
    values: dict | str = ""
    """By pod; a text where they were refused."""

    @property
    def is_available(self):
        return len(self.available) == len(GROUP_VERSIONS) and all(self.available.values())

    @property
    def is_good(self):
        reasons = [reason[:2] for reason in self.scaling.values()]
        return (
            not self.fault
            and reasons == [GOOD] * len(REPLICAS)
            and self.is_available
            and isinstance(self.values, dict)
            and len(self.values) == self.replicas["by-pods"][0]
        )


class Watch(Watching):
    """Looks at the HPAs, their Deployments and values."""

    def __init__(self, plane) -> None:
        super().__init__(plane, self._sight)

    def _sight(self, connection):
        at = time.monotonic()
        try:
            return self._seen(connection, at)
        except (OSError, HTTPException, ValueError, KeyError) as error:
            return Seen(at, fault=f"{type(error).__name__}: {error}")

    def _seen(self, connection, at):
        hpas = self._get(connection, "/apis/autoscaling/v2/horizontalpodautoscalers")
        deployments = self._get(connection, "/apis/apps/v1/deployments")
        services = self._get(connection, "/apis/apiregistration.k8s.io/v1/apiservices")
        ours = [each for each in services["items"] if "metrics.k8s.io" in each["metadata"]["name"]]
        code, answer = ask(connection, VALUES)
        return Seen(
            at,
            "",
            {
                _name(d): (d["spec"]["replicas"], d["metadata"]["generation"])
                for d in deployments["items"]
            },
            {_name(h): _condition(h, "ScalingActive") for h in hpas["items"]},
            {_name(a): _condition(a, "Available")[0] == "True" for a in ours},
            {i["describedObject"]["name"]: i["value"] for i in answer["items"]}
            if code == 200
            else f"{code} {answer.get('message', '')}",
        )

    def _get(self, connection, path):
        code, answer = ask(connection, path)
        if code != 200:
            raise ValueError(f"{code} for {path}: {answer.get('message', answer)}")
        return answer


def _name(item):
    return item["metadata"]["name"]


def _condition(item, kind):
    for each in item.get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            return each["status"], each["reason"], each.get("message", "")
    return "", "", ""
