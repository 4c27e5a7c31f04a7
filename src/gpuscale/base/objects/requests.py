"""What a pod asks for: its containers and init containers, its own requests, and its runtime's overhead.

Amounts are in billionths of the resource's unit (`Quantity.nano`), so that sums never round.

Source: k8s.io/component-helpers v0.37 resource/helpers.go (PodRequests), the same in v0.36.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from gpuscale.base.quantity import Quantity

Amounts = Mapping[str, int]
"""Resource name to nano-units."""


class Asking(Protocol):
    """A container, as far as it asks for something."""

    @property
    def requests(self) -> Mapping[str, Quantity]:
        """What it asks for."""

    @property
    def sidecar(self) -> bool:
        """Whether it is an init container that keeps running."""


def total_requests(
    containers: Iterable[Asking],
    init_containers: Iterable[Asking],
    own: Mapping[str, Quantity],
    overhead: Mapping[str, Quantity],
) -> dict[str, int]:
    """Return what a pod needs of each resource.

    Args:
        containers: those that run side by side.
        init_containers: in their order, sidecars among them.
        own: of the pod as a whole; they replace those of its containers.
        overhead: of its runtime class, beside all others.
    """
    total = container_requests(containers, init_containers)
    total.update({name: own[name].nano for name in own if is_pod_level(name)})
    return plus(total, amounts_of(overhead))


def container_requests(
    containers: Iterable[Asking], init_containers: Iterable[Asking]
) -> dict[str, int]:
    """Return what containers need together.

    Sidecars count beside the containers; each other init container runs alone with the sidecars started
    before it, so the larger of the two phases counts.
    """
    running: dict[str, int] = {}
    for container in containers:
        running = plus(running, amounts_of(container.requests))
    sidecars: dict[str, int] = {}
    start_up: dict[str, int] = {}
    for container in init_containers:
        with_it = plus(sidecars, amounts_of(container.requests))
        start_up = _larger(start_up, with_it)
        if container.sidecar:
            sidecars = with_it
    return _larger(plus(running, sidecars), start_up)


def is_pod_level(resource: str) -> bool:
    """Return whether a pod as a whole may ask for a resource."""
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def amounts_of(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the same amounts as integers."""
    return {name: quantity.nano for name, quantity in quantities.items()}


def plus(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return the sums of each resource."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _larger(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
