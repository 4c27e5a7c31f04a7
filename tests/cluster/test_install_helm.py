"""The Helm chart on a real Kubernetes: installed, upgraded, left alone by `gpuscale`, and removed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale_testing import wait_until

BIN = Path(sys.executable).parent
HELM = shutil.which("helm", path=f"{BIN}:/usr/local/bin:/usr/bin")
CHART = Path(__file__).parents[2] / "charts" / "gpuscale"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        HELM is None and not os.environ.get("CI"), reason="needs helm, of the package helm-binary"
    ),
]
SECRET = ("secret", "gpuscale-metrics-api-tls", "--namespace=gpuscale")


def values(**spec):
    scale = {"workload": {"name": "vision-api"}, "target": 60, "maxReplicas": 4}
    # A metrics API where nothing listens: no pod of the chart is asked for anything here.
    api = {"externalName": "localhost", "port": 1}
    image = {"repository": "registry.example/gpuscale"}
    return json.dumps({"spec": {"image": image, "scale": [scale], "metricsApi": api, **spec}})


@pytest.fixture
def helm(plane, tmp_path: Path):
    def run(*arguments, text=None, code=0):
        command = [HELM, f"--kubeconfig={plane.admin}", "--namespace=gpuscale", *arguments]
        if text is not None:
            (tmp_path / "values.yaml").write_text(text)
            command += [CHART, f"--values={tmp_path / 'values.yaml'}"]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    return run


def gpuscale(plane, name, *arguments):
    command = [BIN / "gpuscale", name, *arguments, f"--kubeconfig={plane.admin}", "--yes"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_the_chart_installs_upgrades_and_goes(plane, helm, tmp_path: Path) -> None:
    notes = helm("install", "gpu", "--create-namespace", text=values())
    assert "kubectl get hpa -A" in notes
    assert "names no registry" not in notes
    certificate = plane.get(*SECRET)["data"]["tls.crt"]
    service = plane.get("apiservice", "v1beta2.custom.metrics.k8s.io")
    assert service["spec"]["caBundle"] == plane.get(*SECRET)["data"]["ca.crt"]
    assert plane.get("hpa", "vision-api-gpu")["spec"]["maxReplicas"] == 4

    helm("upgrade", "gpu", text=values(networkPolicies=False))
    assert plane.get(*SECRET)["data"]["tls.crt"] == certificate
    assert plane.get("networkpolicies", "--namespace=gpuscale")["items"] == []

    (tmp_path / "mine.yaml").write_text(values())
    refused = gpuscale(plane, "install", tmp_path / "mine.yaml")
    assert refused.returncode == 2
    assert "is there already, of Helm's release gpu" in refused.stderr
    assert gpuscale(plane, "uninstall").stdout == "there is no installation gpuscale\n"

    notes = helm("upgrade", "gpu", text=values(samples={"mnistJobs": 2}, image={"tag": "1"}))
    assert "Nodes can't pull gpuscale, which names no registry" in notes
    more = values(samples={"mnistJobs": 3})
    assert "field is immutable" in helm("upgrade", "gpu", text=more, code=1)
    plane.kubectl("delete", "job", "samples-tf-mnist-demo")
    helm("upgrade", "gpu", text=more)
    assert plane.get("job", "samples-tf-mnist-demo")["spec"]["completions"] == 3

    helm("uninstall", "gpu")
    everywhere = ("--all-namespaces", "--selector=gpuscale.dev/install=gpuscale")
    kinds = "hpa,deployments,daemonsets,configmaps,secrets,services,apiservices,clusterroles,pods"
    wait_until(lambda: not plane.get(kinds, *everywhere)["items"], "everything to be gone", 60)
    plane.kubectl("delete", "namespace", "gpuscale")
