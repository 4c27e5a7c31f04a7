"""GPUs that HAMi shares: what each card has left, and whether cards can take a pod's share.

What is free on a node is no help where it is spread over its cards.

Source: HAMi 2.9 pkg/device/devices.go (DecodeNodeDevices, UnMarshalNodeDevices, DecodeContainerDevices),
    pkg/device/nvidia (device.go: GenerateResourceRequests; fit_checks.go).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.objects.pods import Container, PodSpec
from gpuscale.hpa.cluster.verdicts.reasons import Reason, Why

REGISTERED = "hami.io/node-nvidia-register"
"""Annotation of nodes: their cards."""
ALLOCATED = "hami.io/vgpu-devices-allocated"
"""Annotation of pods: what they have of which card."""
_GPU, _MEMORY, _PERCENT, _CORES = (
    f"nvidia.com/{each}" for each in ("gpu", "gpumem", "gpumem-percentage", "gpucores")
)
_FIELDS = ("id", "count", "devmem", "devcore", "type", "numa", "health")
"""Of a card, in the order of the older form."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of a node, with what pods have of it."""

    id: str
    slots: int
    """How many pods may share it."""
    memory_mib: int
    cores: int
    """Percent."""
    healthy: bool = True
    pods: int = 0
    used_mib: int = 0
    used_cores: int = 0

    @property
    def free_mib(self) -> int:
        return self.memory_mib - self.used_mib


@dataclass(frozen=True, slots=True)
class _Share:
    """What one container asks of each of its cards."""

    cards: int
    memory_mib: int
    percent: int
    cores: int

    def memory_of(self, card: Card) -> int:
        return self.memory_mib or card.memory_mib * self.percent // 100

    def fits(self, card: Card) -> bool:
        """Return whether a card has this left, as HAMi's scheduler checks it."""
        return (
            card.healthy
            and card.pods < card.slots
            and self.memory_of(card) <= card.free_mib
            and self.cores <= card.cores - card.used_cores
            and not (card.cores == self.cores == 100 and card.pods)
            and not (card.cores and card.used_cores == card.cores and not self.cores)
        )


def cards_of(registered: str, allocated: Iterable[str]) -> tuple[Card, ...] | None:
    """Return a node's cards; None where an annotation names none, or can't be read.

    Args:
        registered: the node's annotation.
        allocated: that of each pod there which has a share.
    """
    try:
        listed = (
            json.loads(registered)
            if registered.lstrip().startswith("[")
            else [
                dict(zip(_FIELDS, each.split(","), strict=False))
                for each in registered.split(":")
                if "," in each
            ]
        )
        cards = {
            str(each["id"]): Card(
                str(each["id"]),
                int(each["count"]),
                int(each["devmem"]),
                int(each["devcore"]),
                str(each["health"]).lower() == "true",
            )
            for each in listed
        }
        taken = [
            part.split(",")
            for text in allocated
            for part in text.replace(";", ":").split(":")
            if part
        ]
        for id_, _, memory, cores in taken:
            card = cards[id_]
            cards[id_] = replace(
                card,
                pods=card.pods + 1,
                used_mib=card.used_mib + int(memory),
                used_cores=card.used_cores + int(cores),
            )
    except (KeyError, TypeError, ValueError):
        return None
    return tuple(cards.values()) or None


def cards_lacking(spec: PodSpec, nodes: Sequence[tuple[str, Sequence[Card]]]) -> Reason | None:
    """Return why no node has the cards that a pod's container asks for; None where one may have them.

    Of containers that say no memory nothing is known: HAMi's own settings say how much these get.

    Args:
        spec: of the pod.
        nodes: names, with all cards of each node that the pod may go to.
    """
    for container in (*spec.init_containers, *spec.containers):
        share = _share(container)
        if share is None or not nodes:
            continue
        counts = {name: sum(map(share.fits, cards)) for name, cards in nodes}
        if max(counts.values()) >= share.cards:
            continue
        best, name = max((card.free_mib, name) for name, cards in nodes for card in cards)
        wanted = f"{share.memory_mib} MiB" if share.memory_mib else f"{share.percent} %"
        return Reason(
            Why.NO_CARD,
            text=f"it asks for {share.cards} of a node's GPUs with {wanted} of memory and {share.cores} % of "
            f"the cores left, and the most memory that one has left is {best} MiB, on node {name}",
            key=container.name,
            wanted=(wanted,),
            has=(f"{best} MiB",),
        )
    return None


def _share(container: Container) -> _Share | None:
    asks = {**container.requests, **container.limits}
    if _MEMORY not in asks and _PERCENT not in asks:
        return None
    amounts = {
        name: asks[name].value() if name in asks else 0 for name in (_MEMORY, _PERCENT, _CORES)
    }
    cards = asks[_GPU].value() if _GPU in asks else 1
    return _Share(cards, amounts[_MEMORY], amounts[_PERCENT], min(amounts[_CORES], 100))
