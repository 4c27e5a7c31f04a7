"""Starting, ending and being a user of a control plane; nothing of it may stay behind."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale_testing import (
    ControlPlane,
    Settings,
    SimulatedNode,
    simulated_nodes,
    wait_until,
)

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

PROGRAMS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
START_AND_WAIT = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from gpuscale_testing import ControlPlane
with ControlPlane() as plane:
    print(plane.folder, flush=True)
    time.sleep(120)
"""


def processes_naming(folder: Path) -> set[str]:
    """Return the names of the programs that run with this folder on their command line."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words):
            found.add(Path(words[0]).name)
    return found


def test_the_versions_are_those_of_the_tools(plane) -> None:
    version = plane.kubectl("version")
    assert "Server Version: v1.37." in version
    plane.check()


def test_a_named_user_has_the_name_and_groups_of_the_certificate(plane) -> None:
    kubeconfig = plane.kubeconfig("ann", ["ml/platform", "viewers"])
    told = plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)
    assert '"username": "ann"' in told
    assert '"ml/platform"' in told
    assert '"viewers"' in told


def test_a_user_without_a_role_is_refused_in_the_api_servers_words(plane) -> None:
    kubeconfig = plane.kubeconfig("ann", ["viewers"])
    with pytest.raises(UpstreamError) as caught:
        plane.kubectl("get", "nodes", kubeconfig=kubeconfig)
    assert str(caught.value) == (
        'kubectl get nodes: Error from server (Forbidden): nodes is forbidden: User "ann" cannot list '
        'resource "nodes" in API group "" at the cluster scope'
    )


def test_waiting_for_what_does_not_come_ends_with_kubectls_words(plane) -> None:
    with pytest.raises(UpstreamError, match="timed out waiting for the condition"):
        plane.wait("namespace/default", "jsonpath={.status.phase}=Gone", timeout_s=0.5)


async def test_nothing_stays_behind_a_control_plane_that_ended_and_feature_gates_reach_it() -> None:
    gates = Settings(feature_gates={"HPAScaleToZero": True})
    async with ControlPlane(gates) as plane:
        folder = plane.folder
        assert processes_naming(folder) >= PROGRAMS
        manifest = """
            {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
             "metadata": {"name": "zero"},
             "spec": {"minReplicas": 0, "maxReplicas": 1,
                      "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                      "metrics": [{"type": "External", "external": {
                          "metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}}]}}
        """
        await asyncio.to_thread(plane.apply, manifest)
    assert processes_naming(folder) == set()
    assert not folder.exists()


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_a_program_that_was_killed_comes_back_with_what_it_knew(plane, program) -> None:
    plane.kubectl("create", "configmap", f"before-{program}")
    plane.kill(program)
    with pytest.raises(UnavailableError, match=f"{program} ended with exit code 137"):
        plane.check()
    plane.restart(program)
    plane.check()
    assert plane.get("configmap", f"before-{program}")["kind"] == "ConfigMap"
    # Each program has its part in a pod: kept, taken, made for a Deployment, given a node.
    name = f"after-{program}"
    with simulated_nodes(plane, SimulatedNode(name, gpus=0)):
        plane.kubectl("create", "deployment", name, "--image=none")
        plane.wait(f"deployment/{name}", "jsonpath={.status.readyReplicas}=1", timeout_s=60)
        plane.kubectl("delete", "deployment", name, "--cascade=foreground")


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGINT, id="interrupted")],
)
def test_nothing_stays_behind_a_process_that_ends_early(how) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        folder = Path(process.stdout.readline().strip())
        assert processes_naming(folder) >= PROGRAMS
        process.send_signal(how)
    wait_until(lambda: not processes_naming(folder), "all programs to have ended", 10.0)
    wait_until(lambda: not folder.exists(), "the folder to be removed", 10.0)


def test_a_program_that_does_not_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    settings = Settings(extra_flags={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(UnavailableError) as caught:
        ControlPlane(settings, tmp_path).start()
    assert str(caught.value).startswith(
        "kube-apiserver ended with exit code 1; the end of its log:"
    )
    assert "unknown flag: --no-such-flag" in str(caught.value)
    assert processes_naming(tmp_path) == set()
    assert (tmp_path / "kube-apiserver.log").is_file()
