"""What pods ask for and nodes have, as exact integers.

Amounts are in billionths of the resource's unit (`Quantity.nano`), so that sums never round.

Source: k8s.io/component-helpers/resource (helpers.go: PodRequests).
"""

from collections.abc import Iterable, Mapping

from gpuscale.core.quantity import Quantity
from gpuscale.objects.gpu_resources import WHOLE_GPUS
from gpuscale.objects.pods import Container, PodSpec

NANO = 1_000_000_000
Amounts = Mapping[str, int]
"""Resource name to nano-units."""


def amounts_of(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the same amounts as integers."""
    return {name: quantity.nano for name, quantity in quantities.items()}


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return what a pod needs on its node, one pod slot included.

    Sidecars (init containers that restart) count beside the containers; each ordinary init container
    runs alone with the sidecars started before it, so the larger of the two phases counts.
    """
    running = _sum(spec.containers)
    sidecars: dict[str, int] = {}
    start_up: dict[str, int] = {}
    for container in spec.init_containers:
        requests = amounts_of(container.requests)
        if container.restart_policy == "Always":
            sidecars = _plus(sidecars, requests)
            start_up = _larger(start_up, sidecars)
        else:
            start_up = _larger(start_up, _plus(sidecars, requests))
    return {**_larger(_plus(running, sidecars), start_up), "pods": NANO}


def gpu_count(spec: PodSpec) -> int:
    """Return how many whole GPUs a pod asks for."""
    requests = pod_requests(spec)
    return sum(requests.get(name, 0) for name in WHOLE_GPUS) // NANO


def _sum(containers: Iterable[Container]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in containers:
        total = _plus(total, amounts_of(container.requests))
    return total


def _plus(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _larger(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
