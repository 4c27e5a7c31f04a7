"""What is found in a real cluster, and what `init` and `install` make of it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.ops.install.cluster.detection import Detected, FoundPrometheus, FoundWorkload, detect
from gpuscale.ops.providers.eks import EKS

sys.path.insert(0, str(Path(__file__).parent))
from upstream_kinds import upstream_kinds

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
NAMESPACE = "stack"

IMAGE = "--image=registry.example/gpuscale:1"


def daemon_set(name, image):
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": image}], "nodeSelector": {"none": "such"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def api_service(name, service):
    version, group = name.split(".", 1)
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "version": version,
            "service": {"namespace": NAMESPACE, "name": service},
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
        },
    }


WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vision-api", "namespace": NAMESPACE},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "v"}},
        "template": {
            "metadata": {"labels": {"app": "v"}},
            "spec": {
                "containers": [
                    {"name": "c", "image": "v", "resources": {"limits": {"nvidia.com/gpu": 1}}}
                ]
            },
        },
    },
}
PROMETHEUS = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "prometheus-server",
        "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/name": "prometheus"},
    },
    "spec": {"ports": [{"port": 80}], "selector": {"app": "p"}},
}
STACK = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    daemon_set("dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2"),
    daemon_set("plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"),
    WORKLOAD,
    PROMETHEUS,
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "team",
            "namespace": NAMESPACE,
            "labels": {"gpuscale.dev/rules": "true"},
        },
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "aws-node"},
        "spec": {"providerID": "aws:///us-east-1a/i-1", "unschedulable": True},
    },
]
APIS = [
    api_service("v1beta1.custom.metrics.k8s.io", "prometheus-adapter"),
    api_service("v1beta1.metrics.k8s.io", "metrics-server"),
]


def listed(items):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.fixture(scope="module")
def stack(plane):
    with upstream_kinds(plane, "keda"):
        plane.apply(listed(STACK))
        plane.apply(listed(APIS))
        yield
        # The APIs first: one without a server would hold up the end of the namespace.
        plane.kubectl("delete", "-f", "-", stdin=listed(APIS))
        plane.kubectl("delete", "-f", "-", stdin=listed(STACK), timeout_s=120.0)


def found(plane):
    async def look():
        async with KubeClient(KubeSettings(plane.admin)) as client:
            return await detect(client)

    return asyncio.run(look())


def test_a_bare_cluster_has_nothing_but_its_hpa(plane) -> None:
    assert found(plane) == Detected(is_known=True, hpa_version="autoscaling/v2")


@pytest.fixture
def run(plane, tmp_path: Path):
    def run(*arguments, code=0):
        command = [GPUSCALE, *arguments, f"--kubeconfig={plane.admin}"]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


def test_init_proposes_streams_where_there_is_no_prometheus_and_install_takes_them(
    run, tmp_path: Path
) -> None:
    flags = ("--workload=vision-api", "--provider=eks", IMAGE)
    said = run("init", *flags).stderr
    assert "found no Prometheus" in said
    assert "source: streams" in (tmp_path / "values.yaml").read_text()
    tried = run("install", "values.yaml", "--dry-run=server").stdout
    assert "Role gpuscale/gpuscale-metrics-api-agents created" in tried


def test_all_parts_of_a_stack_are_found(plane, stack) -> None:
    assert found(plane) == Detected(
        is_known=True,
        provider=EKS,
        hpa_version="autoscaling/v2",
        prometheus=FoundPrometheus(
            is_operated=False, url=f"http://prometheus-server.{NAMESPACE}.svc:80"
        ),
        dcgm_exporter=f"{NAMESPACE}/dcgm-exporter",
        device_plugin=f"{NAMESPACE}/plugin",
        has_keda=True,
        runtime_class="nvidia",
        custom_metrics_by=f"{NAMESPACE}/prometheus-adapter",
        resource_metrics_by=f"{NAMESPACE}/metrics-server",
        has_team_rules=True,
        workloads=(FoundWorkload("Deployment", NAMESPACE, "vision-api"),),
    )


def test_init_proposes_what_fits_and_install_takes_it(stack, run, tmp_path: Path) -> None:
    said = run("init", IMAGE).stderr
    assert f"found custom metrics are served by {NAMESPACE}/prometheus-adapter" in said
    text = (tmp_path / "values.yaml").read_text()
    assert "name: vision-api" in text
    assert "provider: eks" in text
    assert "rulesConfigMaps: gpuscale.dev/rules=true" in text
    assert "source: streams" not in text
    assert "resource: true" not in text  # metrics-server stays
    refused = run("install", "values.yaml", "--dry-run=server", code=2).stderr
    assert f"served by Service {NAMESPACE}/prometheus-adapter" in refused
    tried = run("install", "values.yaml", "--dry-run=server", "--replace").stdout
    assert "APIService v1beta1.custom.metrics.k8s.io replaced" in tried
    assert "DaemonSet" not in tried  # dcgm-exporter and the device plugin stay
