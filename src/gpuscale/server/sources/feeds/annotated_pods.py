"""Scrape targets out of pods that are annotated `prometheus.io/scrape: "true"`.

`prometheus.io/port` names the port; without it each TCP port of the containers is a target. `path` and
`scheme` are taken too.

A pod speaks for itself: whatever namespace and pod it exposes, its series get its own. Otherwise any pod
could set the value that another team's HPA scales on. Exporters do speak for other pods. Which pods are
exporters is decided by namespace first, because the creator of a pod chooses its labels.

Source: prometheus-community/helm-charts, charts/prometheus 27, values.yaml (the job kubernetes-pods).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from yarl import URL

from gpuscale.base.errors import UsageError
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject
from gpuscale.server.sources.feeds.targets import (
    FeedTarget,
    instance_of,
    label_name,
    pod_target,
    port_number,
)

PATH = "/api/v1/pods"
PARAMETERS = {"fieldSelector": "status.phase=Running"}
_PREFIX = "prometheus.io/"
_OWN_LABELS = ("namespace", "pod")
_MAX_PORTS = 64
"""Of one pod."""


@dataclass(frozen=True, slots=True)
class Exporters:
    """Pods whose series may name other pods, as those of exporters do."""

    namespace: str
    label: str = ""
    """A label that they have besides; empty for all pods of the namespace."""
    value: str = ""

    def has(self, metadata: Mapping[str, object]) -> bool:
        """Return whether a pod is an exporter."""
        if text_of(metadata.get("namespace")) != self.namespace:
            return False
        labels = mapping_of(metadata.get("labels"))
        return not self.label or text_of(labels.get(self.label)) == self.value


DEFAULT_EXPORTERS = tuple(
    Exporters(namespace)
    for namespace in (
        "kube-system",
        "gpu-operator",
        "kube-amd-gpu",
        "gke-managed-system",
        "monitoring",
    )
)
"""Where exporters are usually installed, and where only administrators create pods."""


def exporters(text: str) -> Exporters:
    """Parse exporters given as `NAMESPACE` or `NAMESPACE/LABEL=VALUE`.

    Raises:
        UsageError: neither.
    """
    namespace, slash, condition = text.partition("/")
    label, equals, value = condition.partition("=")
    if not namespace or (slash and not (label and equals and value)):
        raise UsageError(f"found {text!r}, expected NAMESPACE or NAMESPACE/LABEL=VALUE")
    return Exporters(namespace, label, value)


def pod_targets(
    body: JsonObject, trusted: tuple[Exporters, ...] = DEFAULT_EXPORTERS
) -> tuple[FeedTarget, ...]:
    """Return the targets of a pod; none of one that is not annotated, has no address or is ending.

    Args:
        body: the pod.
        trusted: pods whose series may name other pods.
    """
    pod = running_pod(body)
    if pod is None:
        return ()
    annotations = mapping_of(mapping_of(body.get("metadata")).get("annotations"))
    scheme = text_of(annotations.get(f"{_PREFIX}scheme")) or "http"
    if text_of(annotations.get(f"{_PREFIX}scrape")) != "true" or scheme not in {"http", "https"}:
        return ()
    path = text_of(annotations.get(f"{_PREFIX}path")) or "/metrics"
    ports = _ports(body, text_of(annotations.get(f"{_PREFIX}port")))
    return scrape_targets(pod, scheme, ports, path, trusted)


@dataclass(frozen=True, slots=True)
class ScrapedPod:
    """The facts of a pod from which its targets are made."""

    address: str
    labels: Mapping[str, str]
    metadata: Mapping[str, object]


def running_pod(body: JsonObject) -> ScrapedPod | None:
    """Return a pod that can be scraped; None if it has no address or is terminating."""
    metadata = mapping_of(body.get("metadata"))
    address = text_of(mapping_of(body.get("status")).get("podIP"))
    if not address or metadata.get("deletionTimestamp") is not None:
        return None
    return ScrapedPod(address, _labels(body, metadata), metadata)


def scrape_targets(
    pod: ScrapedPod,
    scheme: str,
    ports: Iterable[int],
    path: str,
    trusted: tuple[Exporters, ...],
) -> tuple[FeedTarget, ...]:
    """Return targets at these ports; an untrusted pod's series get its own namespace and pod name."""
    own_labels = () if any(each.has(pod.metadata) for each in trusted) else _OWN_LABELS
    return tuple(
        pod_target(
            _url(scheme, pod.address, port, path),
            instance_of(pod.address, port),
            pod.labels,
            own_labels,
        )
        for port in dict.fromkeys(ports)
    )


def container_ports(body: JsonObject) -> Iterator[tuple[int, str]]:
    """Yield number and name of the TCP ports that a pod's containers declare."""
    declared = (
        port
        for container in _list(mapping_of(body.get("spec")).get("containers"))
        for port in _list(container.get("ports"))
    )
    for port in islice(declared, _MAX_PORTS):
        number = port_number(port.get("containerPort"))
        if number and port.get("protocol", "TCP") == "TCP":
            yield number, text_of(port.get("name"))


def _ports(body: JsonObject, annotated: str) -> Iterator[int]:
    if annotated:
        is_number = annotated.isascii() and annotated.isdigit() and len(annotated) <= 5
        if is_number and port_number(int(annotated)):
            yield int(annotated)
        return
    yield from (number for number, _ in container_ports(body))


def _labels(body: JsonObject, metadata: Mapping[str, object]) -> dict[str, str]:
    own = {
        label_name(key): text_of(value) for key, value in mapping_of(metadata.get("labels")).items()
    }
    return {
        **own,
        "namespace": text_of(metadata.get("namespace")),
        "pod": text_of(metadata.get("name")),
        "node": text_of(mapping_of(body.get("spec")).get("nodeName")),
    }


def _url(scheme: str, address: str, port: int, path: str) -> str:
    path, _, query = path.partition("?")
    url = URL.build(scheme=scheme, host=address, port=port)
    return str(url.with_path(path if path.startswith("/") else f"/{path}").with_query(query))


def _list(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
