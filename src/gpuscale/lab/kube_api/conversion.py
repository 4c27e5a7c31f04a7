"""Stored objects, converted to the API version that a client requests."""

from typing import Any

from gpuscale.lab.kube_api.kinds import HPA_V1, NEW_EVENT, ApiResource
from gpuscale.lab.kube_api.objects.events import new_event_body
from gpuscale.lab.kube_api.objects.hpas import hpa_v1
from gpuscale.lab.kube_api.tables.cells import label_selector

Json = dict[str, Any]


def converted(kind: ApiResource, body: Json) -> Json:
    """Return a stored object as an object of `kind`."""
    if kind is HPA_V1:
        return hpa_v1(body)
    return new_event_body(body) if kind is NEW_EVENT else body


def scale_of(body: Json) -> Json:
    """Return the `Scale` of a Deployment, ReplicaSet, StatefulSet or LeaderWorkerSet."""
    metadata, status = body["metadata"], body["status"]
    selector = status.get("hpaPodSelector") or label_selector(body["spec"]["selector"])
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept},
        "spec": {"replicas": body["spec"]["replicas"]},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": selector,
        },
    }
