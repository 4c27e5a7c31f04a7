"""What GitOps tools see: objects applied again change nothing, also once the pods have written their part."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.common import api_service_names, metrics_api_secret
from gpuscale.ops.install.rendering import manifest, render
from gpuscale.ops.install.values import Values
from gpuscale.server.metricsapi.security.shared_certificate import SecretCertificate
from gpuscale.server.metricsapi.settings import SecretSettings

sys.path.insert(0, str(Path(__file__).parent))
from all_objects import settled

HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
CHART = Path(__file__).parents[2] / "charts" / "gpuscale"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        HELM is None and not os.environ.get("CI"), reason="needs helm, of the package helm-binary"
    ),
]
NAMESPACE = "gpuscale"
SPEC: dict[str, Any] = {
    "image": {"repository": "registry.example.com/gpuscale"},
    "scale": [{"workload": {"name": "vision-api"}, "target": 60, "maxReplicas": 8}],
    "metricsApi": {"external": True, "rulesConfigMaps": "team=ml"},
    "samples": {"visionImage": "vision:1"},
}
VALUES = Values.model_validate({"spec": SPEC})


def rendered(folder):
    return [each for each in render(VALUES) if each["kind"] != "Namespace"]


def templated(folder):
    return [each.data for each in load_documents(helm(folder, SPEC, "template"), "helm")]


def helm(folder, spec, action, *flags):
    values = folder / "values.yaml"
    values.write_text(json.dumps({"spec": spec}))
    command = [HELM, action, "gpuscale", CHART, f"--namespace={NAMESPACE}", f"--values={values}"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        [*command, *flags], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Delivery:
    """Applies objects as a GitOps tool does, and looks at what that changes."""

    def __init__(self, plane, path: Path, objects) -> None:
        self._plane = plane
        self.path = path
        self.count = len(objects)
        path.write_text(manifest(objects))

    def apply(self) -> None:
        flags = ("--server-side", "--field-manager=tool", f"--filename={self.path}")
        self._plane.kubectl("apply", *flags)

    def diff(self):
        """Return the exit status of `kubectl diff`, 1 for a difference, and the difference."""
        command = ["kubectl", f"--kubeconfig={self._plane.admin}", "diff", "--server-side"]
        flags = ["--field-manager=tool", f"--filename={self.path}"]
        done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, done.stdout

    def versions(self):
        """Return the resourceVersions by kind and name."""
        found = {
            (each["kind"], each["metadata"]["name"]): each["metadata"]["resourceVersion"]
            for each in self._plane.get(f"--filename={self.path}")["items"]
        }
        assert len(found) == self.count
        return found


@pytest.fixture(scope="module")
def namespaces(plane):
    plane.kubectl("create", "namespace", NAMESPACE)
    yield
    plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def delivery(plane, namespaces, tmp_path: Path, request):
    made = Delivery(plane, tmp_path / "objects.yaml", request.param(tmp_path))
    made.apply()
    yield made
    plane.kubectl("delete", f"--filename={made.path}")


async def written_by_a_pod(plane, folder):
    """Do what each replica of the metrics API does at its start: fill the Secret and the APIServices."""
    services = api_service_names(VALUES)
    secret = SecretSettings(NAMESPACE, metrics_api_secret(VALUES), services, 90)
    client = plane.client()
    service = ("gpuscale-metrics-api", NAMESPACE)
    certificate = SecretCertificate(client, secret, service, folder, WallClock())
    await certificate.open()
    await client.close()
    assert certificate.fault is None
    stored = plane.get("secret", secret.name, f"--namespace={NAMESPACE}")["data"]
    bundles = [plane.get("apiservice", each)["spec"]["caBundle"] for each in services]
    assert bundles == [stored["ca.crt"]] * 3
    assert base64.b64decode(stored["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
    return stored


@pytest.mark.parametrize("delivery", [rendered, templated], indirect=True)
async def test_applying_again_changes_nothing(plane, delivery: Delivery, tmp_path: Path) -> None:
    stored = await written_by_a_pod(plane, tmp_path / "certificates")
    # As an autoscaler would.
    plane.kubectl("scale", "deployment", "vision-api", "--replicas=3", "--namespace=default")

    before = settled(plane, lambda _: delivery.versions(), quiet_s=3.0)
    assert delivery.diff() == (0, "")
    delivery.apply()
    assert delivery.versions() == before
    name = metrics_api_secret(VALUES)
    assert plane.get("secret", name, f"--namespace={NAMESPACE}")["data"] == stored
    deployment = plane.get("deployment", "vision-api", "--namespace=default")
    assert deployment["spec"]["replicas"] == 3

    # What does differ is seen.
    text = delivery.path.read_text()
    delivery.path.write_text(text.replace("maxReplicas: 8", "maxReplicas: 9"))
    code, difference = delivery.diff()
    assert code == 1
    assert "+  maxReplicas: 9" in difference


async def test_an_upgrade_by_helm_keeps_the_certificate(plane, namespaces, tmp_path: Path) -> None:
    to_plane = f"--kubeconfig={plane.admin}"
    helm(tmp_path, SPEC, "install", to_plane)
    stored = await written_by_a_pod(plane, tmp_path / "certificates")
    (scaled,) = SPEC["scale"]
    helm(tmp_path, {**SPEC, "scale": [{**scaled, "maxReplicas": 9}]}, "upgrade", to_plane)
    assert plane.get("hpa", "vision-api-gpu")["spec"]["maxReplicas"] == 9
    assert await written_by_a_pod(plane, tmp_path / "certificates") == stored
    plane.kubectl("delete", "apiservice", *api_service_names(VALUES))
