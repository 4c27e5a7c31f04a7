"""An API server on loopback, registered so that the control plane serves its groups as its own."""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuscale.testing.cluster.plane import ControlPlane

NAMESPACE = "default"
_PRIORITY = 100
"""Both priorities; what prometheus-adapter's manifests use."""


def serving_name(service: str) -> str:
    """Return the host name that the API server expects in the certificate of an aggregated API."""
    return f"{service}.{NAMESPACE}.svc"


def aggregation_manifests(
    group_versions: Sequence[str], port: int, service: str, ca_bundle: Path | None = None
) -> list[dict[str, Any]]:
    """Return a Service that leads to loopback, and an APIService per group and version.

    Args:
        group_versions: such as `custom.metrics.k8s.io/v1beta2`.
        port: where the server listens on localhost.
        service: the name to give the Service.
        ca_bundle: PEM file to verify the server with; None takes any certificate.
    """
    way = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    return [way, *(_api_service(each, port, service, ca_bundle) for each in group_versions)]


@contextmanager
def aggregated_api(
    plane: ControlPlane,
    group_versions: Sequence[str],
    port: int,
    *,
    service: str = "aggregated",
    ca_bundle: Path | None = None,
    timeout_s: float = 30.0,
) -> Iterator[None]:
    """Register a server on localhost, and return once the control plane finds it available.

    Args:
        plane: that is to serve the groups.
        group_versions: such as `custom.metrics.k8s.io/v1beta2`.
        port: where the server listens on localhost, with TLS.
        service: the name of the Service in between.
        ca_bundle: PEM file that the server's certificate, for `serving_name(service)`, is verified
            with; None takes any certificate.
        timeout_s: until it is an error.

    Raises:
        UpstreamError: the control plane does not find the server available.
    """
    items = aggregation_manifests(group_versions, port, service, ca_bundle)
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.apply(manifest)
    try:
        for group_version in group_versions:
            name = f"apiservice/{_name(group_version)}"
            plane.wait(name, "condition=Available", timeout_s=timeout_s)
        yield
    finally:
        plane.kubectl("delete", "--wait=false", "-f", "-", stdin=manifest)


def _api_service(
    group_version: str, port: int, service: str, ca_bundle: Path | None
) -> dict[str, Any]:
    group, version = group_version.split("/")
    trust: dict[str, Any] = {"insecureSkipTLSVerify": True}
    if ca_bundle is not None:
        trust = {"caBundle": base64.b64encode(ca_bundle.read_bytes()).decode()}
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": _name(group_version)},
        "spec": {
            "group": group,
            "version": version,
            "service": {"namespace": NAMESPACE, "name": service, "port": port},
            "groupPriorityMinimum": _PRIORITY,
            "versionPriority": _PRIORITY,
            **trust,
        },
    }


def _name(group_version: str) -> str:
    group, version = group_version.split("/")
    return f"{version}.{group}"
