"""Discovery of the other replicas, from the EndpointSlices of their Service.

A replica is listed from when its pod has an address until it has stopped serving. One that is not ready is
listed too: it may deliver its agents all the same, and whether it does shows on the connection to it.

Source: kubernetes API, discovery.k8s.io/v1 EndpointSlice (EndpointConditions).
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from gpuscale.base.clock import Clock
from gpuscale.kube import mapping_of, text_of, texts_of
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector
from gpuscale.server.sources.feeds.endpoint_slices import (
    ADDRESS_TYPES,
    SERVICE_LABEL,
    endpoints,
    slice_port,
    slices_path,
)
from gpuscale.server.sources.feeds.sharing_settings import MAX_PEERS, PeerService
from gpuscale.server.sources.feeds.targets import instance_of

_LOG = logging.getLogger(__name__)
_PORT = "https"

Peers = tuple[tuple[str, str], ...]
"""Of each replica the pod, where it is known, and the base address."""


def slice_peers(body: JsonObject) -> Peers:
    """Return the replicas in a slice; invalid entries are skipped."""
    port = slice_port(body, "", _PORT)
    if port is None or body.get("addressType") not in ADDRESS_TYPES:
        return ()
    number, _ = port
    found = []
    for endpoint in endpoints(body):
        addresses = texts_of(endpoint.get("addresses"))
        if not addresses or _has_ended(mapping_of(endpoint.get("conditions"))):
            continue
        pod = text_of(mapping_of(endpoint.get("targetRef")).get("name"))
        found.append((pod, f"https://{instance_of(addresses[0], number)}"))
    return tuple(found)


def _has_ended(conditions: Mapping[str, object]) -> bool:
    return conditions.get("terminating") is True and conditions.get("serving") is not True


def peer_urls(slices: Iterable[Peers]) -> tuple[str, ...]:
    """Return one address for each replica, sorted; IPv4 is preferred."""
    found: dict[str, str] = {}
    every = sorted((pair for each in slices for pair in each), key=_preference)
    for pod, url in every:
        found.setdefault(pod or url, url)
    return tuple(sorted(found.values()))


def _preference(peer: tuple[str, str]) -> tuple[bool, str]:
    return "[" in peer[1], peer[1]


class PeerWatch:
    """The current list of replicas. While the API server is away, the last list stays.

    Args:
        service: in front of the replicas.
        kube: to the API server.
        settings: waits and sizes.
        clock: of the watch.
        changed: called after each change.
    """

    def __init__(
        self,
        service: PeerService,
        kube: KubeClient,
        settings: KubeSettings,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.reflector: Reflector[Peers] = Reflector(
            kube,
            settings,
            slices_path(service.namespace),
            {"labelSelector": f"{SERVICE_LABEL}={service.name}"},
            lambda body: slice_peers(body) or None,
            clock,
            changed,
        )
        self._is_cut = False

    def urls(self) -> tuple[str, ...]:
        """Return the replicas' base URLs, this one's own included, at most `MAX_PEERS`."""
        found = peer_urls(self.reflector.items.values())
        is_cut = len(found) > MAX_PEERS
        if is_cut and not self._is_cut:
            _LOG.warning("found %s replicas, agents are shared with %s", len(found), MAX_PEERS)
        self._is_cut = is_cut
        return found[:MAX_PEERS]
