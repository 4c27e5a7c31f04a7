"""The whole loop of real parts, with node agents whose GPUs are busy while somebody works."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import real_loop
from loaded_agent import LASTS_S

from gpuscale.testing.podresources import PodResources
from gpuscale_testing import wait_until

AGENT = Path(__file__).parent / "loaded_agent.py"
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"
LIMIT_S = 90.0
NAME = "by-pods"


def agent_pod(node):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"agent-{node}",
            "namespace": "default",
            "labels": {
                "app.kubernetes.io/name": "gpuscale",
                "app.kubernetes.io/component": "node-agent",
            },
        },
        "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "none"}]},
    }


class LoadedLoop(real_loop.RealLoop):
    """The loop, whose GPUs are at the HPA's target, 40 %, and one of them busier under load."""

    def _start_agent(self, stack, node, port) -> None:
        gpus = [f"GPU-{node}-{number}" for number in range(real_loop.GPUS)]
        socket = self.folder / f"{node}.sock"
        self.kubelets[node] = stack.enter_context(PodResources(socket, gpus)), gpus
        self.busy = self.folder / "busy"
        self.agents = {**getattr(self, "agents", {}), node: f"http://127.0.0.1:{port}"}
        self._run(
            stack,
            f"agent {node}",
            *("env", f"NODE_NAME={node}", sys.executable, AGENT, self.busy, ",".join(gpus)),
            *("exporter", "--gpu=nvml", "--kubernetes"),
            *(f"--pod-resources-kubelet-socket={socket}", "--collect-interval=500ms"),
            f"--address=127.0.0.1:{port}",
        )
        self.plane.apply(json.dumps(agent_pod(node)))

    def work(self) -> None:
        """Keep the GPU of one pod busy for the next two seconds."""
        kubelet, _ = self.kubelets["gpu-a"]
        (gpu, *_) = next(gpus for key, gpus in sorted(kubelet.allocated.items()) if key[0] == NAME)
        if self.busy.exists() and self.busy.read_text() == gpu:
            os.utime(self.busy)
        else:
            self.busy.write_text(gpu)

    def settle(self) -> None:
        """Return once every pod has a GPU at 40 %, and the HPA wants no more.

        New pods get their GPUs after the load has gone: with all values there, the HPA would scale again.
        """
        wait_until(self._is_quiet, "the load to be gone", LIMIT_S)

        def is_whole():
            self.place()
            seen = self.watch.seen[-1]
            return self._is_quiet() and len(seen.values) == seen.replicas[NAME][0]

        wait_until(is_whole, "all GPUs to be quiet", LIMIT_S)
        wanted = f"jsonpath={{.status.desiredReplicas}}={self.watch.seen[-1].replicas[NAME][0]}"
        self.plane.wait(f"hpa/{NAME}", wanted, f"-n={NAME}", timeout_s=LIMIT_S)

    def _is_quiet(self):
        with suppress(FileNotFoundError):
            if time.time() - self.busy.stat().st_mtime < 2 * LASTS_S:
                return False
        values = self.watch.seen[-1].values
        return isinstance(values, dict) and set(values.values()) == {"40"}

    def command(self, *arguments):
        agents = [f"--agent={node}={url}" for node, url in self.agents.items()]
        return [
            *(sys.executable, "-m", "gpuscale.cli.main", "doctor", "--pulse"),
            *(f"--kubeconfig={self.plane.kubeconfig('reader')}", *agents, *arguments),
        ]

    def run(self, *arguments):
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=200, check=False
        )
