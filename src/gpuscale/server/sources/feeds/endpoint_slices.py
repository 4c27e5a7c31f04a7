"""Node agents out of EndpointSlices, the cluster's own list of who stands behind a Service.

Agents that are not ready are followed too: their stream says why there are no values, and the first value
is there the moment they have one. Agents that are ending are not.

Source: kubernetes API, discovery.k8s.io/v1 EndpointSlice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.kube import mapping_of, text_of, texts_of
from gpuscale.kube.client import JsonObject
from gpuscale.server.sources.feeds.targets import FeedTarget, agent_target, port_number

PATH = "/apis/discovery.k8s.io/v1/endpointslices"
SERVICE_LABEL = "kubernetes.io/service-name"
DEFAULT_PORT = "metrics"
ADDRESS_TYPES = frozenset({"IPv4", "IPv6", "FQDN"})
_MAX_ENDPOINTS = 1_000
"""Of one slice, as Kubernetes bounds it."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """Which EndpointSlices list agents, and which of their ports is the agent's."""

    service: str = "gpuscale-exporter"
    namespace: str = ""
    """Empty for any."""
    selector: str = ""
    """Conditions on the slices' labels, in place of the Service's name."""
    port: str = ""
    """Name of the port; empty for `metrics`, or else the first."""
    scheme: str = ""
    """http or https; empty for what the port says of itself, or else http."""
    honor_labels: bool = True

    def parameters(self) -> dict[str, str]:
        return {"labelSelector": self.selector or f"{SERVICE_LABEL}={self.service}"}

    def path(self) -> str:
        return slices_path(self.namespace)


def slices_path(namespace: str) -> str:
    """Return the URL path of a namespace's EndpointSlices; an empty namespace means all."""
    group, _, plural = PATH.rpartition("/")
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else PATH


def slice_targets(body: JsonObject, choice: AgentChoice) -> tuple[FeedTarget, ...]:
    """Return the agents in a slice; invalid entries are skipped."""
    port = slice_port(body, choice.port, DEFAULT_PORT)
    if port is None or body.get("addressType") not in ADDRESS_TYPES:
        return ()
    number, is_https = port
    scheme = choice.scheme or ("https" if is_https else "http")
    metadata = mapping_of(body.get("metadata"))
    job = text_of(mapping_of(metadata.get("labels")).get(SERVICE_LABEL))
    return tuple(_targets(body, choice, number, scheme, job))


def _targets(
    body: JsonObject, choice: AgentChoice, port: int, scheme: str, job: str
) -> Iterator[FeedTarget]:
    for endpoint in endpoints(body):
        addresses = texts_of(endpoint.get("addresses"))
        if not addresses or mapping_of(endpoint.get("conditions")).get("terminating") is True:
            continue
        pod = mapping_of(endpoint.get("targetRef"))
        yield agent_target(
            scheme,
            addresses[0],
            port,
            text_of(endpoint.get("nodeName")),
            (text_of(pod.get("namespace")), text_of(pod.get("name"))),
            job or choice.service,
            service=job,
            honor_labels=choice.honor_labels,
        )


def endpoints(body: JsonObject) -> list[Mapping[str, object]]:
    """Return the endpoints of a slice."""
    return _mappings(body.get("endpoints"))[:_MAX_ENDPOINTS]


def slice_port(body: JsonObject, name: str, preferred: str) -> tuple[int, bool] | None:
    """Return a slice's TCP port, and whether it is declared as HTTPS.

    Args:
        body: the slice.
        name: of the port; empty for the preferred one, or else the first.
        preferred: its name.
    """
    ports = {
        text_of(each.get("name")): each
        for each in _mappings(body.get("ports"))
        if port_number(each.get("port")) and each.get("protocol", "TCP") == "TCP"
    }
    found = ports.get(name or preferred)
    if found is None and not name:
        found = next(iter(ports.values()), None)
    if found is None:
        return None
    is_https = "https" in (found.get("appProtocol"), found.get("name"))
    return port_number(found.get("port")), is_https


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
