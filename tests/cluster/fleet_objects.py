"""The nodes, pods and HPAs of a fleet, made and deleted as fast as the API server takes them."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from gpuscale.kube.simulated.nodes import SimulatedNode, node_object, node_status
from gpuscale.kube.simulated.pod_status import Placed, running

sys.path.insert(0, str(Path(__file__).parent))
from fleet import (
    ALL,
    GPUS_PER_NODE,
    ODD,
    REPLICAS,
    app_name,
    metric,
    namespace,
    node_name,
    pod_name,
)

NOW = "2026-01-01T00:00:00Z"
KIND = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.gpuscale.dev}
spec:
  group: gpuscale.dev
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
        labelSelectorPath: .status.selector
"""
_GROUPS = {
    "pods": "api/v1",
    "fleets": "apis/gpuscale.dev/v1",
    "horizontalpodautoscalers": "apis/autoscaling/v2",
}
_AT_ONCE = 32


def hpa(app):
    name = app_name(app)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace(app)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "gpuscale.dev/v1", "kind": "Fleet", "name": name},
            "minReplicas": REPLICAS,
            "maxReplicas": REPLICAS,
            "metrics": [metric(app)],
        },
    }


async def make_cluster(plane, fleet) -> None:
    """Make everything but the HPAs."""
    await asyncio.to_thread(plane.apply, KIND)
    await asyncio.to_thread(plane.wait, "crd/fleets.gpuscale.dev", "condition=Established")
    namespaces = [
        ("/api/v1/namespaces", {"metadata": {"name": name}})
        for name in sorted({namespace(app) for app in fleet.apps})
    ]
    nodes = [("/api/v1/nodes", _node(node)) for node in range(fleet.nodes)]
    owners = [(_collection(app, "fleets"), _owner(app)) for app in fleet.apps]
    async with _asking(plane) as ask:
        for objects in (namespaces, nodes, owners):
            await _all(ask("POST", path, body) for path, body in objects)
    await make_pods(plane, fleet, ALL)


async def make_pods(plane, fleet, replicas) -> None:
    """Make the pods of these numbers, and let them run."""
    async with _asking(plane) as ask:

        async def make(app, replica) -> None:
            node, _ = fleet.place(app, replica)
            made = await ask("POST", _collection(app, "pods"), _pod(app, replica, node))
            address = f"10.{64 + app // 250}.{app % 250}.{replica + 1}"
            placed = Placed(address, _address(node), NOW)
            status = running(made, placed, NOW, ready=True)["status"]
            await ask("PUT", f"{_pod_path(app, replica)}/status", {**made, "status": status})

        await _all(make(app, replica) for app in fleet.apps for replica in replicas)


async def delete_odd_pods(plane, fleet) -> None:
    at_once = {"gracePeriodSeconds": 0}
    async with _asking(plane) as ask:
        await _all(
            ask("DELETE", _pod_path(app, replica), at_once) for app in fleet.apps for replica in ODD
        )


async def make_hpas(plane, fleet) -> None:
    async with _asking(plane) as ask:
        await _all(
            ask("POST", _collection(app, "horizontalpodautoscalers"), hpa(app))
            for app in fleet.apps
        )


def delete_hpas(plane) -> None:
    plane.kubectl("delete", "hpa", "--all", "--all-namespaces")


def missing_replicas(plane):
    """Return the numbers of the pods that a test before has deleted."""
    there = plane.get("pods", "-n", "team-00", "-l", "app=app-000")["items"]
    numbers = {int(pod["metadata"]["name"].rpartition("-")[2]) for pod in there}
    return [replica for replica in ALL if replica not in numbers]


@asynccontextmanager
async def _asking(plane):
    """Yield a function that asks the API server, with far less work for a request than the usual client."""
    places = asyncio.Semaphore(_AT_ONCE)
    connector = aiohttp.TCPConnector(ssl=plane.ssl_context(), limit=_AT_ONCE)
    async with aiohttp.ClientSession(plane.url, connector=connector) as session:

        async def ask(method, path, body):
            async with places, session.request(method, path, json=body) as answer:
                assert answer.ok, await answer.text()
                return await answer.json()

        yield ask


async def _all(calls) -> None:
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


def _collection(app, plural):
    return f"/{_GROUPS[plural]}/namespaces/{namespace(app)}/{plural}"


def _pod_path(app, replica):
    return f"{_collection(app, 'pods')}/{pod_name(app, replica)}"


def _address(node):
    return f"10.200.{node // 250}.{node % 250 + 1}"


def _node(node):
    simulated = SimulatedNode(node_name(node), gpus=GPUS_PER_NODE)
    return {**node_object(simulated), **node_status(simulated, _address(node), NOW)}


def _owner(app):
    return {
        "apiVersion": "gpuscale.dev/v1",
        "kind": "Fleet",
        "metadata": {"name": app_name(app)},
        "spec": {"replicas": REPLICAS},
        "status": {"replicas": REPLICAS, "selector": f"app={app_name(app)}"},
    }


def _pod(app, replica, node):
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "model", "image": "none", "resources": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(app, replica),
            "labels": {"app": app_name(app)},
        },
        "spec": {"nodeName": node_name(node), "containers": [container]},
    }
