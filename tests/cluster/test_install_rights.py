"""The rights that installing takes: all missing ones are named at once, and the least role is enough."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.base.errors import GpuscaleError, UsageError
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.rights import check_rights
from gpuscale.ops.install.cluster.rights import needed_rights
from gpuscale.ops.install.rendering import render
from gpuscale.ops.install.values import Values

sys.path.insert(0, str(Path(__file__).parent))
from all_objects import everything, settled

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]
GPUSCALE = Path(sys.executable).with_name("gpuscale")
SPEC = {
    "provider": "eks",
    "image": {"repository": "registry.example/gpuscale"},
    "scale": [{"workload": {"name": "web"}, "target": 60, "maxReplicas": 4}],
    # A metrics API where nothing listens: no pod is asked for anything here.
    "metricsApi": {"externalName": "localhost", "port": 1, "rulesConfigMaps": "a=b"},
    "prometheus": {"kind": "own"},
}


@pytest.fixture
def values_file(tmp_path: Path):
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps({"spec": SPEC}))
    return path


def run(*arguments, code=0):
    done = subprocess.run(
        [GPUSCALE, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def test_all_missing_rights_are_named_at_once_and_nothing_is_changed(plane, values_file) -> None:
    before = settled(plane)
    kubeconfig = plane.kubeconfig("stranger")
    said = run("install", values_file, f"--kubeconfig={kubeconfig}", "--yes", code=2)
    head, *lines = [line.removeprefix("gpuscale: ") for line in said.splitlines()[1:]]
    assert head.startswith("this account lacks ")
    assert "nothing was changed" in head
    for line in (
        "  create, delete, get, patch serviceaccounts gpuscale-node-agent in namespace gpuscale",
        "  create, delete, get, patch horizontalpodautoscalers.autoscaling web-gpu in namespace default",
        "  create, delete, get, patch apiservices.apiregistration.k8s.io v1beta2.custom.metrics.k8s.io",
        "  bind clusterroles.rbac.authorization.k8s.io system:auth-delegator",
        "  list secrets in namespace gpuscale",
    ):
        assert line in lines
    assert lines[-1] == (f"The least role: gpuscale render {values_file} --installer SUBJECT")
    assert everything(plane) == before


def test_the_least_role_installs_changes_and_uninstalls(plane, values_file) -> None:
    role = run("render", values_file, "--installer", "User:deployer")
    kubeconfig = f"--kubeconfig={plane.kubeconfig('deployer')}"
    plane.apply(role)
    try:
        before = settled(plane)
        run("install", values_file, kubeconfig, "--yes", "--dry-run", "server")
        installed = run("install", values_file, kubeconfig, "--yes", "--timeout", "20s", code=1)
        # No node runs the pods of this control plane: what was made is taken back, which takes rights, too.
        assert "taken back: ServiceAccount gpuscale/gpuscale-node-agent removed" in installed
        run("uninstall", kubeconfig, "--yes")
        assert everything(plane) == before
        plane.kubectl("auth", "can-i", "list", "secrets", "--as=deployer", "-n", "gpuscale")
        for forbidden in (
            "list secrets -n kube-system",
            "create pods -n gpuscale",
            "escalate clusterroles",
        ):
            with pytest.raises(GpuscaleError):
                plane.kubectl("auth", "can-i", *forbidden.split(), "--as=deployer")
    finally:
        plane.kubectl("delete", "-f", "-", stdin=role)


async def test_a_single_missing_right_is_named_alone(plane, values_file) -> None:
    role = run("render", values_file, "--installer", "User:almost")
    plane.apply(role)
    try:
        plane.kubectl("delete", "rolebinding", "gpuscale-installer", "--namespace=default")
        client = KubeClient(KubeSettings(kubeconfig=plane.kubeconfig("almost")))
        rights = needed_rights(render(Values.model_validate({"spec": SPEC})))
        with pytest.raises(UsageError) as raised:
            await check_rights(client, rights, "it", "hint")
        await client.close()
        assert str(raised.value).splitlines()[1:] == [
            "  create, delete, get, patch horizontalpodautoscalers.autoscaling web-gpu in namespace default",
            "hint",
        ]
    finally:
        plane.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=role)
