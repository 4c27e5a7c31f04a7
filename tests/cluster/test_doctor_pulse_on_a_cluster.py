"""`gpuscale doctor --pulse` on the whole loop of real parts: load at one end, a ready pod at the other."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpuscale.testing.podresources import PodResources
from gpuscale_testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))
import real_loop
from endpoints import endpoint
from loaded_agent import LASTS_S

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

AGENT = Path(__file__).parent / "loaded_agent.py"
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"
LIMIT_S = 90.0
NAME = "by-pods"
HOPS = ["gpu", "value", "hpa", "created", "scheduled", "ready"]


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


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory):
    with LoadedLoop(tmp_path_factory.mktemp("pulse")) as running:
        running.plane.apply(ROLE.read_text())
        running.plane.kubectl(
            *("create", "clusterrolebinding", "gpuscale-doctor"),
            *("--clusterrole=gpuscale-doctor", "--user=reader"),
        )
        most = json.dumps({"spec": {"maxReplicas": 16}})
        running.plane.kubectl("patch", f"hpa/{NAME}", f"-n={NAME}", "--type=merge", "-p", most)
        yield running


def test_several_hpas_are_named_to_choose_from(loop) -> None:
    done = loop.run("--pulse-wait")
    assert done.returncode == 2
    for name in real_loop.REPLICAS:
        assert f"{name}/{name}" in done.stderr


def test_load_that_does_not_arrive_is_stuck_at_the_gpu(loop) -> None:
    loop.settle()
    with endpoint(503, lambda: None) as url:
        done = loop.run(f"--pulse-hpa={NAME}/{NAME}", f"--pulse-url={url}", "--pulse-for=5")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stuck at: GPU at agent\n  | no request was answered well: status 503" in done.stdout
    assert "-l app=by-pods" in done.stdout


def test_load_becomes_a_ready_pod_and_every_hop_has_its_time(loop) -> None:
    loop.settle()
    before = {pod["metadata"]["uid"] for pod in loop.plane.get("pods", "-n", NAME)["items"]}
    asked = []

    def work() -> None:
        asked.append(1)
        loop.work()

    with endpoint(200, work) as url:
        done = loop.run(
            f"--pulse-hpa={NAME}/{NAME}", f"--pulse-url={url}", "--pulse-for=120", "--output=json"
        )
        count = len(asked)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["about"], found["through"], found["stuck"]) == (f"hpa/{NAME}/{NAME}", True, None)
    assert [each["hop"] for each in found["hops"]] == HOPS
    after = [each["after_s"] for each in found["hops"]]
    assert after == sorted(after)
    assert 0 < found["load"]["answered"] <= count
    pods = loop.plane.get("pods", "-n", NAME)["items"]
    assert {pod["metadata"]["uid"] for pod in pods} > before


def test_load_of_somebody_else_is_watched(loop) -> None:
    loop.settle()
    command = loop.command(f"--pulse-hpa={NAME}/{NAME}", "--pulse-wait", "--pulse-for=120")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            told = running.stderr.readline()
            assert "start the load now" in told
            wait_until(
                lambda: loop.work() or running.poll() is not None, "doctor to end", 2 * LIMIT_S
            )
            text = running.stdout.read()
        finally:
            running.kill()
    assert running.returncode == 0, text
    first, _, *rows = text.splitlines()
    assert first.startswith(f"hpa/{NAME}/{NAME}: seconds since the first change")
    assert [line.split()[-1].strip("#") for line in rows[:6]] == [""] * 6
    assert rows[6:] == ["all hops moved"]


def test_pods_that_a_quota_refuses_are_stuck_at_their_creation(loop) -> None:
    """The last one: its controller only tries again after ever longer times."""
    loop.settle()
    loop.plane.kubectl("create", "quota", "few", "--hard=pods=1", f"-n={NAME}")
    counted = "jsonpath={.status.hard.pods}=1"
    loop.plane.wait("quota/few", counted, f"-n={NAME}", timeout_s=LIMIT_S)
    with endpoint(200, loop.work) as url:
        done = loop.run(f"--pulse-hpa={NAME}/{NAME}", f"--pulse-url={url}", "--pulse-for=45")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stuck at: pod created\n  | " in done.stdout
    assert "exceeded quota: few" in done.stdout
