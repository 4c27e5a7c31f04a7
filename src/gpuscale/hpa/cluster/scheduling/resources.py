"""What pods take of a node, as exact integers (`base.objects.requests`)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.objects.gpu_resources import WHOLE_GPUS, counts_gpus
from gpuscale.base.objects.pods import Container, PodSpec
from gpuscale.base.objects.requests import Amounts, container_requests, total_requests
from gpuscale.base.quantity import Quantity

NANO = 1_000_000_000
CLAIMED = "resourceClaims"
"""Stands for GPUs of claims, where others are counted by resource."""
_ASSUMED = {"cpu": Quantity(100_000_000), "memory": Quantity(200 * 2**20 * NANO)}
"""What the score takes a container for that asks for none; kubernetes pkg/scheduler/util/pod_resources.go."""


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return what a pod needs on its node, one pod slot included."""
    total = total_requests(spec.containers, spec.init_containers, spec.requests, spec.overhead)
    return {**total, "pods": NANO}


def unasked(spec: PodSpec) -> Amounts:
    """Return the CPU and memory that the score counts for a pod beside what it asks for."""
    if all(
        _ASSUMED.keys() <= each.requests.keys()
        for each in (*spec.containers, *spec.init_containers)
    ):
        return {}
    assumed = container_requests(
        [_Assumed.of(each) for each in spec.containers],
        [_Assumed.of(each) for each in spec.init_containers],
    )
    asked = container_requests(spec.containers, spec.init_containers)
    more = {
        name: assumed[name] - asked.get(name, 0) for name in _ASSUMED if name not in spec.requests
    }
    return {name: amount for name, amount in more.items() if amount}


@dataclass(frozen=True, slots=True)
class _Assumed:
    requests: Mapping[str, Quantity]
    sidecar: bool

    @classmethod
    def of(cls, container: Container) -> "_Assumed":
        return cls({**_ASSUMED, **container.requests}, container.sidecar)


def gpu_count(spec: PodSpec) -> int:
    """Return how many whole GPUs a pod asks for."""
    requests = pod_requests(spec)
    return sum(requests.get(name, 0) for name in WHOLE_GPUS) // NANO


def device_requests(spec: PodSpec) -> dict[str, int]:
    """Return how many GPUs, partitions or shares of them a pod asks for, by resource.

    What its claims get counts as `CLAIMED`.
    """
    requests = pod_requests(spec).items()
    found = {name: amount // NANO for name, amount in requests if amount and counts_gpus(name)}
    claimed = sum(each.gpus for each in spec.claims)
    return {**found, CLAIMED: claimed} if claimed else found
