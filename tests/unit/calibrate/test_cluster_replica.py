"""One replica on a cluster: found only where nothing adds another, and read as its HPA sees it."""

from pathlib import Path
from typing import Any

import pytest

from gpuscale.base.errors import NotFoundError, UsageError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.load.calibrate.measuring.cluster import ClusterReader, find_replica
from gpuscale.testing.api_server import FakeApiServer

DEPLOYMENT = "/apis/apps/v1/namespaces/ml/deployments/bert"
VALUES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ml/pods/bert-0/running"
POD = {
    "metadata": {"namespace": "ml", "name": "bert-0", "labels": {"app": "bert"}},
    "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 8000}]}]},
    "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
}


def hpa(most: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "ml", "name": "bert"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "bert"},
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "running"},
                        "target": {"type": "AverageValue", "averageValue": "4"},
                    },
                }
            ],
        },
    }


def prepare(server: FakeApiServer, *, replicas: int = 1, most: int = 1) -> None:
    server.others["/readyz"] = "ok"
    server.others[DEPLOYMENT] = {
        "metadata": {"namespace": "ml", "name": "bert"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "bert"}}},
        "status": {"readyReplicas": replicas},
    }
    server.others["/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"] = {
        "items": [hpa(most)]
    }
    server.others["/api/v1/namespaces/ml/pods"] = {"items": [POD]}
    server.others[VALUES] = {
        "items": [{"describedObject": {"kind": "Pod", "name": "bert-0"}, "value": "2500m"}]
    }


async def test_the_replica_its_address_and_its_metrics_are_found(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        prepare(server)
        settings = KubeSettings(server.kubeconfig(tmp_path))
        replica = await find_replica(settings, "ml", "bert")
        assert (replica.pod, replica.url) == ("bert-0", "http://10.0.0.7:8000/")
        assert replica.metrics == ("running",)
        reader = ClusterReader(settings, replica)
        assert await reader.read() == {"running": 2.5}
        server.others[VALUES] = {"items": []}
        assert await reader.read() == {}  # no value, which is not 0
        await reader.close()


async def test_all_that_would_add_replicas_is_said_with_its_command(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        prepare(server, replicas=2, most=8)
        with pytest.raises(UsageError) as refused:
            await find_replica(KubeSettings(server.kubeconfig(tmp_path)), "ml", "bert")
    first, second = str(refused.value).splitlines()
    assert "found 2 replicas, 2 ready" in first
    assert "kubectl scale -n ml deployment/bert --replicas=1" in first
    assert "found maxReplicas 8" in second
    assert '\'{"spec":{"minReplicas":1,"maxReplicas":8}}\'' in second
    assert {method for method, *_ in server.requests if method == "PATCH"} == set()


async def test_a_deployment_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        server.others["/readyz"] = "ok"
        server.refusals[DEPLOYMENT] = (404, "not found")
        with pytest.raises(NotFoundError, match="deployment/bert: not found in namespace ml"):
            await find_replica(KubeSettings(server.kubeconfig(tmp_path)), "ml", "bert")
