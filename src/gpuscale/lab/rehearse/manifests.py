"""The objects that a rehearsal creates: the scenario's own with a label, and the objects around them."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from gpuscale.base.objects.hpa.manifest import hpa_manifest
from gpuscale.base.objects.scaled_object import KIND as SCALED_OBJECT
from gpuscale.base.objects.scaled_object import PROMETHEUS
from gpuscale.base.objects.workloads import Service
from gpuscale.kube.client import JsonObject
from gpuscale.kube.simulated import SimulatedNode
from gpuscale.lab.rehearse.mark import LABEL, RehearsalMark
from gpuscale.lab.rehearse.speed import sped_up_hpa, sped_up_manifest, sped_up_scaled_object
from gpuscale.lab.sim.control.machines import CloudPool, Machine
from gpuscale.lab.sim.scenario.setup import JobSetup, Setup

PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Service": "/api/v1/namespaces/{}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "ScaledObject": "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "Endpoints": "/api/v1/namespaces/{}/endpoints",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Namespace": "/api/v1/namespaces",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
}
"""Kind to the collection that it is created in, with the namespace left out."""
_AGENT_PORT = 9400
_LOAD_BALANCING = (
    *("type", "externalIPs", "externalTrafficPolicy", "healthCheckNodePort", "loadBalancerClass"),
    *("loadBalancerIP", "loadBalancerSourceRanges", "allocateLoadBalancerNodePorts"),
)
"""Fields that would have a cloud make something, and bill it."""


def path_of(manifest: Mapping[str, Any]) -> str:
    """Return the collection path for creating an object."""
    return PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace", ""))


def namespace_manifest(name: str, mark: RehearsalMark) -> JsonObject:
    """Return a namespace of the rehearsal."""
    metadata = {"name": name, "labels": dict(mark.labels)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def workload_manifests(
    setup: Setup, mark: RehearsalMark, speed: float = 1.0
) -> Iterator[JsonObject]:
    """Yield the objects that exist before the start: Services, Deployments, the agents' Service.

    Args:
        setup: as placed in the rehearsal's namespaces.
        mark: the rehearsal's.
        speed: what the times of controllers are divided by.
    """
    *own, agents = setup.services
    if agents.metadata.key not in {service.metadata.key for service in own}:
        yield _agent_service(agents, mark)
    for manifest in setup.manifests:
        if manifest.get("kind") == "Service":
            yield _plain_service(_marked(manifest, mark))
        elif manifest.get("kind") == "PodDisruptionBudget":
            yield _marked(manifest, mark)
        elif manifest.get("kind") == "Deployment":
            yield sped_up_manifest(_on_own_nodes(_marked(manifest, mark), mark), speed)


def hpa_manifests(setup: Setup, mark: RehearsalMark, speed: float = 1.0) -> Iterator[JsonObject]:
    """Yield the HPAs, in the version that API servers take, with times divided by the speed."""
    for hpa in setup.hpas:
        manifest = hpa_manifest(sped_up_hpa(hpa, speed))
        _label(manifest["metadata"], mark)
        yield manifest


def scaled_object_manifests(
    setup: Setup, mark: RehearsalMark, prometheus: str, speed: float = 1.0
) -> Iterator[JsonObject]:
    """Yield the ScaledObjects, with times divided by the speed.

    Args:
        setup: as placed in the rehearsal's namespaces.
        mark: the rehearsal's.
        prometheus: where KEDA finds the rehearsal's series, instead of a Prometheus of the cluster.
        speed: what times are divided by.
    """
    manifests = [each for each in setup.manifests if each.get("kind") == SCALED_OBJECT]
    for manifest, scaled in zip(manifests, setup.scaled_objects, strict=True):
        copy = sped_up_scaled_object(_marked(manifest, mark), scaled, speed)
        for trigger in copy["spec"]["triggers"]:
            if trigger["type"] == PROMETHEUS:
                trigger["metadata"]["serverAddress"] = prometheus
        yield copy


def job_manifest(
    run: JobSetup, setup: Setup, mark: RehearsalMark, speed: float = 1.0
) -> JsonObject:
    """Return the Job of one submission, with times divided by the speed."""
    source = next(
        each for each in setup.manifests if each.get("kind") == "Job" and _key(each) == run.manifest
    )
    manifest = sped_up_manifest(_on_own_nodes(_marked(source, mark), mark), speed)
    manifest["metadata"] |= {"name": run.job.metadata.name}
    return manifest


def simulated_node(
    name: str, item: CloudPool, machine: Machine, mark: RehearsalMark
) -> SimulatedNode:
    """Return a node of a pool, still without GPUs.

    A DaemonSet that asks for an operating system does not land on it.
    """
    offered = machine.shape.allocatable
    return SimulatedNode(
        name,
        gpus=0,
        cpu=str(offered["cpu"]),
        memory=str(offered["memory"]),
        labels={**machine.shape.labels, **item.pool.labels},
        taints=item.pool.taints,
        os="",
        marks=mark.labels,
    )


def _key(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def _marked(manifest: Mapping[str, object], mark: RehearsalMark) -> JsonObject:
    copy: JsonObject = deepcopy(dict(manifest))
    metadata = copy["metadata"]
    metadata["namespace"] = mark.namespace_of(metadata.get("namespace", "default"))
    _label(metadata, mark)
    return copy


def _label(metadata: JsonObject, mark: RehearsalMark) -> None:
    metadata["labels"] = {**(metadata.get("labels") or {}), **mark.labels}


def _on_own_nodes(manifest: JsonObject, mark: RehearsalMark) -> JsonObject:
    """Restrict a workload's pods to the rehearsal's nodes."""
    template = manifest["spec"]["template"]
    _label(template.setdefault("metadata", {}), mark)
    spec = template["spec"]
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), LABEL: mark.id}
    spec["tolerations"] = [*(spec.get("tolerations") or []), dict(mark.toleration)]
    return manifest


def _plain_service(manifest: JsonObject) -> JsonObject:
    spec = manifest.get("spec") or {}
    kept = {name: value for name, value in spec.items() if name not in _LOAD_BALANCING}
    ports = [
        {name: value for name, value in port.items() if name != "nodePort"}
        for port in kept.get("ports") or []
    ]
    return {**manifest, "spec": {**kept, "ports": ports}}


def _agent_service(service: Service, mark: RehearsalMark) -> JsonObject:
    """Return a Service without pods, for Object metrics to describe."""
    metadata = {"name": service.metadata.name, "namespace": service.metadata.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "labels": {**service.metadata.labels, **mark.labels}},
        "spec": {
            "clusterIP": "None",
            "selector": dict(service.selector),
            "ports": [{"name": "metrics", "port": _AGENT_PORT}],
        },
    }
