"""The GPUs of simulated nodes, as device plugins hand them out, and as claims have got them.

A plugin that shares GPUs offers each of them several times, or splits it in parts; then several pods are on
one GPU.

Source: NVIDIA k8s-device-plugin 0.20 internal/rm/allocate.go (distributedAlloc): the GPU with the fewest pods
is handed out first.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gpuscale.base.errors import BugError
from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.gpu_resources import WHOLE_GPUS
from gpuscale.base.objects.pods import PodSpec
from gpuscale.hpa.cluster.scheduling import CLAIMED, device_requests

WHOLE: Mapping[str, int] = dict.fromkeys(WHOLE_GPUS, 1)
"""What one GPU offers that nobody shares."""


@dataclass(slots=True, eq=False)
class _Gpus:
    """The GPUs of one node."""

    offers: Mapping[str, int]
    """How many units of a resource one of them offers."""
    holders: list[tuple[str, ...]]
    """The keys of the pods on each of them."""
    used: list[Counter[str]]
    """Units of each that are handed out."""
    of_devices: Mapping[tuple[str, str], tuple[int, ...]]
    """Driver and name of a device for claims, to the GPUs that it is, or is a part of."""
    lost: set[int] = field(default_factory=set)
    """Those that the plugin hands out no more."""

    def left(self, resource: str) -> list[tuple[int, int]]:
        """Return units that are handed out and index of each GPU that has some left."""
        offered = self.offers.get(resource, 0)
        return [
            (used[resource], index)
            for index, used in enumerate(self.used)
            if used[resource] < offered and index not in self.lost
        ]


@dataclass(slots=True, eq=False)
class Devices:
    """The pods on the GPUs of all nodes."""

    _nodes: dict[str, _Gpus] = field(default_factory=dict)
    _held: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)
    """Pod key to node, GPU and resource of each unit."""

    def join(
        self,
        node: str,
        gpus: int,
        offers: Mapping[str, int],
        of_devices: Mapping[tuple[str, str], tuple[int, ...]],
    ) -> None:
        """Add a node's GPUs."""
        counts = [Counter[str]() for _ in range(gpus)]
        self._nodes[node] = _Gpus(offers, [()] * gpus, counts, of_devices)

    def leave(self, node: str) -> None:
        """Remove a node's GPUs."""
        del self._nodes[node]

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def holders(self, node: str) -> list[tuple[str, ...]]:
        """Return the keys of the pods on each of a node's GPUs."""
        return self._nodes[node].holders

    def set_lost(self, node: str, index: int, *, is_lost: bool) -> None:
        """Hand a GPU out no more, or again; who has it keeps it."""
        lost = self._nodes[node].lost
        (lost.add if is_lost else lost.discard)(index)

    def works(self, key: str) -> bool:
        """Return whether a pod has no lost GPU."""
        return not any(
            index in self._nodes[node].lost
            for node, index, _ in self._held.get(key, ())
            if node in self._nodes
        )

    def gpus_of(self, node: str, spec: PodSpec) -> float:
        """Return how many GPUs a pod has on a node, shares and parts as fractions."""
        offers = self._nodes[node].offers if node in self._nodes else {}
        return sum(count / offers.get(name, 1) for name, count in device_requests(spec).items())

    def has_room(self, node: str, spec: PodSpec) -> bool:
        """Return whether a node has what a pod asks for."""
        gpus = self._nodes.get(node)
        return gpus is not None and all(
            sum(gpus.offers[name] - used for used, _ in gpus.left(name)) >= count
            for name, count in device_requests(spec).items()
            if name != CLAIMED
        )

    def take(self, key: str, node: str, spec: PodSpec, claimed: Collection[DeviceKey] = ()) -> int:
        """Give a pod what it asks for: of the least shared GPUs, the first; and what its claims have got.

        Returns how many GPUs, or parts of some, the claims have.

        Raises:
            BugError: there is less.
        """
        if not self.has_room(node, spec):
            raise BugError(f"{node} has too few free GPUs for pod {key}")
        gpus = self._nodes[node]
        of_claims = [
            index
            for driver, _, device in sorted(claimed)
            for index in gpus.of_devices.get((driver, device), ())
        ]
        for index in of_claims:
            self._give(key, node, index, CLAIMED)
        for name, count in device_requests(spec).items():
            for _ in range(count if name != CLAIMED else 0):
                _, index = min(gpus.left(name))
                self._give(key, node, index, name)
        return len(of_claims)

    def _give(self, key: str, node: str, index: int, resource: str) -> None:
        gpus = self._nodes[node]
        gpus.used[index][resource] += 1
        if key not in gpus.holders[index]:
            gpus.holders[index] = (*gpus.holders[index], key)
        self._held.setdefault(key, []).append((node, index, resource))

    def release(self, key: str) -> None:
        """Take back what a pod has."""
        for node, index, name in self._held.pop(key, ()):
            gpus = self._nodes.get(node)
            if gpus is not None:
                gpus.used[index][name] -= 1
                gpus.holders[index] = tuple(each for each in gpus.holders[index] if each != key)
