"""Scrape targets out of pods that the operator selects, as a PodMonitor does: namespace, labels, port, path.

Such pods need no annotation. What they may say of others is as for annotated ones: a pod speaks for itself,
unless it is one of the exporters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject
from gpuscale.server.sources.feeds.annotated_pods import (
    DEFAULT_EXPORTERS,
    Exporters,
    container_ports,
    running_pod,
    scrape_targets,
)
from gpuscale.server.sources.feeds.targets import FeedTarget, port_number

MAX_CHOICES = 100
_ANY = "*"
_PLACE = re.compile(r"(?:(https?):)?([A-Za-z0-9-]+)(/.*)?")
_EXPECTED = "NAMESPACE/LABELS:PORT such as ml/app=vllm:8000 or */app=vllm:https:metrics/stats"


@dataclass(frozen=True, slots=True)
class PodChoice:
    """Which pods are scraped, and at which port and path."""

    namespace: str
    """`*` is any."""
    selector: Selector
    port: str
    """Number, or name of a port of the containers."""
    scheme: str = "http"
    path: str = "/metrics"


def pod_choice(text: str) -> PodChoice:
    """Parse `NAMESPACE/LABELS:[SCHEME:]PORT[/PATH]`; `*` matches any namespace, or any labels.

    Raises:
        UsageError: it is none.
    """
    namespace, slash, rest = text.partition("/")
    labels, colon, place = rest.partition(":")
    found = _PLACE.fullmatch(place)
    port = found[2] if found is not None else ""
    is_bad_number = port.isdigit() and not (len(port) <= 5 and port_number(int(port)))
    if not (namespace and slash and labels and colon) or found is None or is_bad_number:
        raise UsageError(f"found {text!r}, expected {_EXPECTED}")
    try:
        selector = Selector() if labels == _ANY else parse_selector(labels)
    except ValueError as error:
        raise UsageError(
            f"found {text!r}, expected labels as kubectl takes them: {error}"
        ) from None
    return PodChoice(namespace, selector, port, found[1] or "http", found[3] or "/metrics")


def selected_targets(
    body: JsonObject,
    choices: tuple[PodChoice, ...],
    trusted: tuple[Exporters, ...] = DEFAULT_EXPORTERS,
) -> tuple[FeedTarget, ...]:
    """Return a pod's targets; none if it is not chosen, has no address or is terminating.

    Args:
        body: the pod.
        choices: which pods, and where.
        trusted: pods whose series may name other pods.
    """
    pod = running_pod(body)
    if pod is None:
        return ()
    metadata = mapping_of(body.get("metadata"))
    namespace = text_of(metadata.get("namespace"))
    labels = {key: text_of(value) for key, value in mapping_of(metadata.get("labels")).items()}
    found: dict[FeedTarget, None] = {}
    for choice in choices:
        if choice.namespace in {_ANY, namespace} and choice.selector.matches(labels):
            ports = _ports(body, choice.port)
            found |= dict.fromkeys(scrape_targets(pod, choice.scheme, ports, choice.path, trusted))
    return tuple(found)


def _ports(body: JsonObject, wanted: str) -> Iterator[int]:
    if wanted.isdigit():
        yield int(wanted)
        return
    yield from (number for number, name in container_ports(body) if name == wanted)
