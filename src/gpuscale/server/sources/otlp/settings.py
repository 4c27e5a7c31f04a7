"""The settings of pushed OTLP metrics."""

from dataclasses import dataclass

PATH = "/otlp/v1/metrics"
"""As at a Prometheus, below `/api/v1`; clients add `/v1/metrics` to their endpoint."""
CLIENT_HEADER = "X-Gpuscale-Client"
"""From the server to its collector: who pushes."""
MAX_BODY_BYTES = 4 * 1024 * 1024
"""Of a request, once it is decompressed."""
PROMOTED = (
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.deployment.name",
    "k8s.statefulset.name",
    "k8s.node.name",
)


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """How names of pushed metrics and labels are made."""

    promoted: tuple[str, ...] = PROMOTED
    """Attributes of resources that are labels of all their series."""
