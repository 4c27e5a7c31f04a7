"""A real Karpenter on a real control plane: what it buys, what it takes away, and when."""

import json
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuscale.base.objects.pods import Lifecycle
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.nodes import InstanceType, Offering
from gpuscale.kube.simulated import SimulatedKubelet
from gpuscale_testing import ControlPlane, Settings, simulated_nodes
from gpuscale_testing.karpenter import NODE_LABEL, Karpenter, node_class


def shape(
    name: str, on_demand: float, spot: float, gpus: int, cpu: int, memory: str
) -> InstanceType:
    """Return an instance type that can be had in two ways."""
    amounts: dict[str, str | int] = {
        "nvidia.com/gpu": gpus,
        "cpu": cpu,
        "memory": memory,
        "pods": 110,
    }
    offerings = (
        Offering(capacity_type="on-demand", price_per_hour=on_demand),
        Offering(capacity_type="spot", price_per_hour=spot),
    )
    offered = {key: parse_quantity(amount) for key, amount in amounts.items()}
    return InstanceType(name, offered, offerings=offerings)


SMALL = shape("s", 0.5, 0.2, 1, 4, "16Gi")
MEDIUM = shape("m", 1.8, 0.7, 4, 16, "64Gi")
LARGE = shape("l", 7.0, 3.0, 8, 96, "384Gi")
LOOK_S = 0.25
DISRUPTED = "karpenter.sh/disrupted"
TYPE = "node.kubernetes.io/instance-type"


@dataclass
class Life:
    """What was seen of one node; times are seconds of the case."""

    name: str
    kind: str
    capacity_type: str
    seen_s: float
    ready_s: float | None = None
    """When Karpenter held it for initialized."""
    tainted_s: float | None = None
    gone_s: float | None = None


@dataclass
class Cluster:
    """A control plane with Karpenter, and the lives of its nodes."""

    plane: ControlPlane
    karpenter: Karpenter
    lives: dict[str, Life] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    _end: threading.Event = field(default_factory=threading.Event)

    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def watch(self) -> None:
        """Look at the nodes until `end`."""
        while not self._end.wait(LOOK_S):
            nodes = self.plane.get("nodes", "-l", NODE_LABEL)["items"]
            now_s = self.now_s()
            for node in nodes:
                self._see(node, now_s)
            there = {node["metadata"]["name"] for node in nodes}
            for life in self.lives.values():
                if life.name not in there and life.gone_s is None:
                    life.gone_s = now_s

    def end(self) -> None:
        self._end.set()

    def _see(self, node: dict[str, Any], now_s: float) -> None:
        labels = node["metadata"]["labels"]
        name = node["metadata"]["name"]
        capacity_type = labels["karpenter.sh/capacity-type"]
        life = self.lives.setdefault(name, Life(name, labels[TYPE], capacity_type, now_s))
        if life.ready_s is None and labels.get("karpenter.sh/initialized") == "true":
            life.ready_s = now_s
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        if life.tainted_s is None and DISRUPTED in taints:
            life.tainted_s = now_s

    def types(self) -> list[str]:
        """Return the instance types of the nodes that are there and stay, sorted."""
        lives = tuple(self.lives.values())
        return sorted(each.kind for each in lives if each.gone_s is None and each.tainted_s is None)

    def bought(self) -> list[str]:
        """Return the instance types of all nodes that there ever were, in order."""
        return [life.kind for life in sorted(self.lives.values(), key=lambda each: each.seen_s)]

    def apply(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.plane.apply(json.dumps(each))

    def scale(self, name: str, replicas: int) -> None:
        self.plane.kubectl("scale", f"deployment/{name}", f"--replicas={replicas}")

    def wait_for(self, look: Any, what: str, within_s: float) -> float:
        """Return the time at which something was seen to be so."""
        until_s = self.now_s() + within_s
        while self.now_s() < until_s:
            if look():
                return self.now_s()
            time.sleep(LOOK_S)
        lives = "\n".join(map(str, tuple(self.lives.values())))
        raise AssertionError(f"no {what} within {within_s:g} s:\n{lives}\n{self.karpenter.log()}")

    def running(self, name: str) -> int:
        """Return how many pods of a Deployment run."""
        pods = self.plane.get("pods", "-l", f"app={name}")["items"]
        return sum(1 for pod in pods if pod["status"].get("phase") == "Running")

    def events(self, kind: str) -> list[str]:
        """Return the messages of Karpenter's events of a kind."""
        items = self.plane.get("events", "-A")["items"]
        return [each["message"] for each in items if each["reason"] == kind]


def workload(name: str, replicas: int, gpus: int = 1, cpu: str = "1", **pod: Any) -> dict[str, Any]:
    """Return a Deployment of pods that ask for GPUs."""
    annotations = pod.pop("annotations", {})
    container = {
        "name": "c",
        "image": "pause",
        "resources": {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": str(gpus)}},
    }
    container["resources"] = pod.pop("resources", container["resources"])
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **pod,
                },
            },
        },
    }


def cluster(
    stack: ExitStack,
    folder: Path,
    *,
    types: Any = (SMALL, MEDIUM, LARGE),
    gpu_lag_s: float = 0.0,
    environment: dict[str, str] | None = None,
) -> Cluster:
    """Start a control plane, Karpenter and the kubelets of its nodes."""
    plane = stack.enter_context(ControlPlane(Settings(), folder / "plane"))

    def kubelet(client: Any, times: Any) -> SimulatedKubelet:
        return SimulatedKubelet(client, times, adopts=NODE_LABEL, gpu_lag_s=gpu_lag_s)

    stack.enter_context(simulated_nodes(plane, lifecycle=Lifecycle(), kubelet=kubelet))
    karpenter = stack.enter_context(Karpenter(plane, folder, types, environment))
    found = Cluster(plane, karpenter)
    found.apply(node_class())
    watch = threading.Thread(target=found.watch, daemon=True)
    watch.start()
    stack.callback(watch.join, 30)
    stack.callback(found.end)
    return found
