"""The objects that register one of our servers as an aggregated API."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

_PRIORITY = 100
"""Both priorities; what prometheus-adapter's manifests use."""


@dataclass(frozen=True, slots=True)
class AggregatedServer:
    """A server's address, as the API server reaches it."""

    service: str
    """Name of the Service in between."""
    namespace: str
    port: int
    """Where the server listens, with TLS."""
    address: str | None = None
    """An address of its machine; None is loopback, for an API server on the same machine."""
    ca_bundle: bytes | None = None
    """PEM to verify the server with; None takes any certificate."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of all objects."""


def serving_name(service: str, namespace: str) -> str:
    """Return the host name that the API server expects in the certificate of an aggregated API."""
    return f"{service}.{namespace}.svc"


def api_service_name(group_version: str) -> str:
    """Return the name of the APIService of a group and version such as `custom.metrics.k8s.io/v1beta2`."""
    group, version = group_version.split("/")
    return f"{version}.{group}"


def aggregation_objects(
    group_versions: Sequence[str], server: AggregatedServer
) -> list[dict[str, Any]]:
    """Return the Service or endpoints of a server, then an APIService for each group and version.

    Endpoints may not be on loopback, so there the way is a Service that is another name of localhost,
    which API servers follow that don't route to endpoints themselves.
    """
    return [*_way(server), *(_api_service(each, server) for each in group_versions)]


def _way(server: AggregatedServer) -> list[dict[str, Any]]:
    if server.address is None:
        return [_service(server, {"type": "ExternalName", "externalName": "localhost"})]
    return [
        _service(server, {"ports": _ports(server)}),
        _endpoints(server, server.address),
        _endpoint_slice(server, server.address),
    ]


def _ports(server: AggregatedServer) -> list[dict[str, Any]]:
    return [{"name": "https", "port": server.port, "protocol": "TCP"}]


def _service(server: AggregatedServer, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(server, server.service) | {"namespace": server.namespace},
        "spec": dict(spec),
    }


def _endpoints(server: AggregatedServer, address: str) -> dict[str, Any]:
    """Return the Endpoints for API servers before Kubernetes 1.33, which ignore EndpointSlices here."""
    metadata = _metadata(server, server.service) | {"namespace": server.namespace}
    metadata["labels"] |= {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": metadata,
        "subsets": [{"addresses": [{"ip": address}], "ports": _ports(server)}],
    }


def _endpoint_slice(server: AggregatedServer, address: str) -> dict[str, Any]:
    metadata = _metadata(server, server.service) | {"namespace": server.namespace}
    metadata["labels"] |= {"kubernetes.io/service-name": server.service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": f"IPv{ip_address(address).version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": _ports(server),
    }


def _api_service(group_version: str, server: AggregatedServer) -> dict[str, Any]:
    group, version = group_version.split("/")
    trust: dict[str, Any] = {"insecureSkipTLSVerify": True}
    if server.ca_bundle is not None:
        trust = {"caBundle": base64.b64encode(server.ca_bundle).decode()}
    way = {"namespace": server.namespace, "name": server.service, "port": server.port}
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": _metadata(server, api_service_name(group_version)),
        "spec": {
            "group": group,
            "version": version,
            "service": way,
            "groupPriorityMinimum": _PRIORITY,
            "versionPriority": _PRIORITY,
            **trust,
        },
    }


def _metadata(server: AggregatedServer, name: str) -> dict[str, Any]:
    return {"name": name, "labels": dict(server.labels)}
