"""An API server on loopback, registered so that the control plane serves its groups as its own."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuscale.kube import AggregatedServer, aggregation_objects, api_service_name
from gpuscale.kube import serving_name as host_name
from gpuscale_testing.plane import ControlPlane

NAMESPACE = "default"


def serving_name(service: str) -> str:
    """Return the host name that the API server expects in the certificate of an aggregated API."""
    return host_name(service, NAMESPACE)


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
    trust = None if ca_bundle is None else ca_bundle.read_bytes()
    server = AggregatedServer(service, NAMESPACE, port, ca_bundle=trust)
    items = aggregation_objects(group_versions, server)
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.apply(manifest)
    try:
        for group_version in group_versions:
            name = f"apiservice/{api_service_name(group_version)}"
            plane.wait(name, "condition=Available", timeout_s=timeout_s)
        yield
    finally:
        plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=manifest)
