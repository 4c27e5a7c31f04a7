"""Workloads that may have no pod, on a real API server: the HPA with and without its gate, KEDA's webhook."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.ops.install.cluster.plan import server_side_apply
from gpuscale.ops.install.cluster.preflight import zero_fault
from gpuscale.ops.install.values import Values
from gpuscale_testing import ControlPlane, Settings

sys.path.insert(0, str(Path(__file__).parent))
from keda_objects import apply, deployment

from rendered_parts import autoscaling_objects

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

WAKE = {"query": "sum(queue)", "replicas": 2}
JOBS: dict[str, Any] = {
    "name": "train",
    "job": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "train",
                        "image": "none",
                        "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    }
                ],
                "restartPolicy": "Never",
            }
        },
    },
    "metrics": [{"query": "sum(train_jobs_waiting)", "target": 2}],
    "wake": {"sources": ["rabbitmq"], "name": "prompts"},
    "minReplicas": 1,
    "maxReplicas": 4,
    "scalingStrategy": {"strategy": "accurate"},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "keda-tls"},
    "stringData": {"ca.crt": "none"},
}


def values(**spec) -> Values:
    scale = {"workload": {"name": "web"}, "target": 60, "maxReplicas": 8, **spec.pop("scale", {})}
    return Values.model_validate({"spec": {"scale": [scale], **spec}})


def by_hpa() -> Values:
    return values(scale={"minReplicas": 0, "wake": WAKE}, metricsApi={"external": True})


def by_keda(**more) -> Values:
    return values(scale={"minReplicas": 0, "wake": WAKE, "autoscaler": "keda"}, **more)


def ask(plane, question):
    async def answer():
        async with KubeClient(KubeSettings(plane.admin)) as client:
            return await question(client)

    return asyncio.run(answer())


def put(plane, found: Values) -> None:
    """Apply what scales, as `install` does."""

    async def all_applied(client):
        for each in autoscaling_objects(found):
            await server_side_apply(client, each, forces=False)

    ask(plane, all_applied)


def spec_of(plane, kind, name) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(plane.kubectl("get", kind, name, "-o", "json"))["spec"]
    return spec


def test_without_the_gate_an_hpa_from_zero_is_refused_before_anything_is_changed() -> None:
    with ControlPlane(Settings(feature_gates={"HPAScaleToZero": False})) as plane:
        objects = autoscaling_objects(by_hpa())
        fault = ask(plane, lambda client: zero_fault(client, objects))
        assert plane.kubectl("get", "hpa", "-o", "name").strip() == ""
    assert fault is not None
    assert fault.startswith("HorizontalPodAutoscaler default/web-gpu: found minReplicas 0")
    assert "the feature gate HPAScaleToZero is off (Kubernetes 1.37)" in fault
    assert "--feature-gates=HPAScaleToZero=true" in fault


def test_with_the_gate_which_is_on_from_1_37_it_is_taken() -> None:
    with ControlPlane() as plane:
        objects = autoscaling_objects(by_hpa())
        assert ask(plane, lambda client: zero_fault(client, objects)) is None
        apply(plane, deployment("web"), *objects)
        assert spec_of(plane, "hpa", "web-gpu")["minReplicas"] == 0


class TestKeda:
    @pytest.fixture(autouse=True)
    def _workload(self, plane, keda):
        apply(plane, deployment("web"), SECRET)
        yield
        plane.kubectl("delete", "scaledobject", "--all")
        plane.kubectl("delete", "deployment/web", "secret/keda-tls")

    def test_its_schema_and_its_webhook_take_what_is_rendered(self, plane) -> None:
        tls = {"keda": {"tlsSecret": "keda-tls"}, "scaler": {"tlsSecret": "own"}}
        objects = autoscaling_objects(by_keda(**tls))
        assert [each["kind"] for each in objects] == ["TriggerAuthentication", "ScaledObject"]
        for each in objects:
            plane.kubectl(
                *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
                stdin=json.dumps(each),
            )

    def test_the_form_on_prometheus_becomes_the_one_on_the_scaler(self, plane) -> None:
        before = values(
            scale={"autoscaler": "keda"},
            keda={"trigger": "prometheus"},
            prometheus={"kind": "plain", "url": "http://prometheus"},
        )
        put(plane, before)
        assert spec_of(plane, "scaledobject", "web-gpu")["triggers"][0]["type"] == "prometheus"
        put(plane, by_keda())
        spec = spec_of(plane, "scaledobject", "web-gpu")
        (trigger,) = spec["triggers"]
        assert trigger["type"] == "external-push"
        assert spec["fallback"]["replicas"] == 2

    def test_a_scaled_job_is_taken_and_a_job_of_its_template_too(self, plane) -> None:
        found = Values.model_validate({"spec": {"jobs": [JOBS]}})
        for each in autoscaling_objects(found):
            plane.kubectl(
                *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
                stdin=json.dumps(each),
            )
        try:
            put(plane, found)
            spec = spec_of(plane, "scaledjob", "train")
            assert spec["jobTargetRef"]["template"]["spec"] == JOBS["job"]["template"]["spec"]
            assert spec["rollout"] == {"strategy": "gradual"}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train-1"}}
            made = json.dumps({**job, "spec": spec["jobTargetRef"]})
            plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=made)
        finally:
            plane.kubectl("delete", "scaledjob", "--all")
