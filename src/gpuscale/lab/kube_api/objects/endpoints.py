"""EndpointSlices: the pods behind each Service.

Source: kubernetes v1.36 staging/src/k8s.io/endpointslice (reconciler.go, utils.go).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.workloads import Service
from gpuscale.base.streams import name_suffix
from gpuscale.lab.kube_api.kinds import ENDPOINT_SLICE
from gpuscale.lab.kube_api.objects.run import Json, Run, address

_LABEL = "kubernetes.io/service-name"
_MANAGED_BY = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
_HEADLESS = {"service.kubernetes.io/headless": ""}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pod behind a Service."""

    pod: str
    number: int
    """That of the pod, for its address."""
    node: str
    is_ready: bool
    is_leaving: bool
    template: str
    """Kind and key of the manifest that its template is from, as `Kind namespace/name`."""


def slice_name(run: Run, service: Service) -> str:
    """Return the name of a Service's only slice."""
    return f"{service.metadata.name}-{name_suffix(run.seed, 'slice', service.metadata.key)}"


def slice_body(run: Run, service: Service, endpoints: Sequence[Endpoint]) -> Json:
    """Return the EndpointSlice of a Service."""
    meta = service.metadata
    spec = run.manifest("Service", meta.key).get("spec", {})
    is_headless = spec.get("clusterIP") == "None" or not spec.get("ports")
    labels = {**meta.labels, **_MANAGED_BY, _LABEL: meta.name, **(_HEADLESS if is_headless else {})}
    own = ObjectMeta(
        slice_name(run, service),
        meta.namespace,
        labels,
        creation_ms=meta.creation_ms,
        owner=OwnerReference("Service", meta.name),
    )
    named = _named_ports(run, endpoints)
    ports = [_port(each, named) for each in spec.get("ports") or ()]
    return {
        "apiVersion": ENDPOINT_SLICE.group_version,
        "kind": ENDPOINT_SLICE.kind,
        "metadata": {
            **run.metadata(ENDPOINT_SLICE.kind, own),
            "generateName": f"{meta.name}-",
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(run, meta.namespace, each) for each in endpoints],
        "ports": [each for each in ports if each is not None],
    }


def _endpoint(run: Run, namespace: str, endpoint: Endpoint) -> Json:
    name = endpoint.pod
    return {
        "addresses": [address(10, 64, endpoint.number)],
        "conditions": {
            "ready": endpoint.is_ready and not endpoint.is_leaving,
            "serving": endpoint.is_ready,
            "terminating": endpoint.is_leaving,
        },
        "nodeName": endpoint.node,
        "targetRef": {
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": run.uid("Pod", f"{namespace}/{name}"),
        },
    }


def _named_ports(run: Run, endpoints: Sequence[Endpoint]) -> dict[str, int]:
    """Return the ports of the pods' containers by name."""
    found: dict[str, int] = {}
    for template in {each.template for each in endpoints}:
        kind, _, key = template.partition(" ")
        spec = run.manifest(kind, key).get("spec", {}).get("template", {}).get("spec", {})
        for container in spec.get("containers") or ():
            for port in container.get("ports") or ():
                if "name" in port:
                    found[port["name"]] = port["containerPort"]
    return found


def _port(port: Mapping[str, Any], named: Mapping[str, int]) -> Json | None:
    """Return the port of the pods that a Service's port leads to; None if no container has that port name."""
    target = port.get("targetPort") or port.get("port")
    number = named.get(target) if isinstance(target, str) else target
    if number is None:
        return None
    return {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
