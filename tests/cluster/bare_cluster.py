"""A cluster with two GPU nodes and a workload, on which the installation's own programs run."""

import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from gpuscale.base.objects.taints import Taint
from gpuscale_testing import (
    ControlPlane,
    Settings,
    SimulatedNode,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
import own_network
from running_kubelet import GPUSCALE, Node, RunningKubelet, images

_log = logging.getLogger(__name__)
LIMIT_S = 180.0
RESULTS = os.environ.get("GPUSCALE_INSTALL_RESULTS")
"""A file for the times; HPAs are then looked at as often as Kubernetes does by default."""
DEFAULT_SYNC_S, QUICK_SYNC_S = 15.0, 2.0
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"
IMAGE = "registry.example/gpuscale"
GPUS = {"gpu-1": 4, "gpu-2": 4}
TAINT = Taint("nvidia.com/gpu", "present")
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: vision-api}
spec:
  selector: {matchLabels: {app: vision-api}}
  template:
    metadata: {labels: {app: vision-api}}
    spec:
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


class Cluster:
    """A cluster with two GPU nodes and a workload, and nothing of ours."""

    def __init__(self, folder):
        self.folder = folder
        self.nodes = {
            name: Node(name, gpus, folder / "nodes") for name, gpus in {**GPUS, "cpu-1": 0}.items()
        }
        self._working = threading.Lock()
        self.times = {}
        """Seconds of each step."""
        self.hops = {}
        """Of the pulse: seconds from the first request."""

    def __enter__(self):
        own_network.set_up()
        settings = Settings(
            hpa_sync_period_s=DEFAULT_SYNC_S if RESULTS else QUICK_SYNC_S,
            # It looks for a way out of the network, of which there is none.
            extra_flags={"kube-apiserver": [f"--advertise-address={own_network.GATEWAY}"]},
        )
        with ExitStack() as stack:
            self.plane = stack.enter_context(ControlPlane(settings))
            stack.enter_context(self._running_nodes())
            self.plane.apply(WORKLOAD)
            self.wait_replicas(1)
            self.plane.apply(ROLE.read_text())
            self.plane.kubectl(
                *("create", "clusterrolebinding", "gpuscale-doctor"),
                *("--clusterrole=gpuscale-doctor", "--user=reader"),
            )
            self.admin = f"--kubeconfig={self.plane.admin}"
            self.reader = f"--kubeconfig={self.plane.kubeconfig('reader')}"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            wide = ("get", "pods", "--all-namespaces", "--output=wide")
            logs = (self.plane.kubectl(*wide), self.kubelet.logs(), self.plane.logs())
            _log.warning("%s", "\n".join(logs))
        self._stack.close()

    def _running_nodes(self):
        labels = {"nvidia.com/gpu.present": "true"}
        nodes = [
            SimulatedNode(name, gpus=gpus, labels=labels, taints=(TAINT,))
            for name, gpus in GPUS.items()
        ]

        def kubelet(client, times):
            self.kubelet = RunningKubelet(
                client, times, self.plane, self.nodes, self.folder, images(IMAGE)
            )
            return self.kubelet

        return simulated_nodes(self.plane, *nodes, SimulatedNode("cpu-1", gpus=0), kubelet=kubelet)

    def run(self, *arguments, codes=(0,)):
        """Return the lines that a command of ours prints, and its seconds; it ends with one of `codes`."""
        started = time.monotonic()
        command = [GPUSCALE, *map(str, arguments)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                self.wait(lambda: process.poll() is not None, f"gpuscale {arguments[0]} to end")
            finally:
                process.terminate()
                out, err = process.communicate()
                _log.warning("gpuscale %s\n%s%s", arguments[0], out, err)
        assert process.returncode in codes
        return out.splitlines(), time.monotonic() - started

    def wait(self, look, what):
        """Return what is found once there is something; a container that fails is an error."""

        def look_while_all_run():
            assert not self.kubelet.faults, "\n".join(self.kubelet.faults)
            return look()

        return wait_until(look_while_all_run, what, LIMIT_S)

    def wait_replicas(self, count):
        ready = f"jsonpath={{.status.readyReplicas}}={count}"
        self.plane.wait("deployment/vision-api", ready, timeout_s=LIMIT_S)

    def pods(self):
        return self.plane.get("pods", "-l", "app=vision-api")["items"]

    def arguments(self, part):
        """Return the arguments of each pod of a part."""
        selector = f"app.kubernetes.io/component={part}"
        pods = self.plane.get("pods", "-n=gpuscale", "-l", selector)["items"]
        return [pod["spec"]["containers"][0]["args"] for pod in pods]

    def work(self):
        """Keep the GPUs of all pods of the workload busy for the next two seconds."""
        with self._working:
            for node in self.nodes.values():
                node.work(node.used)

    def work_a_little(self):
        """Keep one GPU busy for the next two seconds."""
        node = next(node for node in self.nodes.values() if node.used)
        node.work(node.used[:1])
