"""Nodes that a solve would buy: pools as Karpenter sees them, and what a claim may still become.

Source: Karpenter 1.15 pkg/controllers/provisioning/scheduling (nodeclaim.go, nodeclaimtemplate.go),
pkg/cloudprovider/types.go.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.requests import amounts_of, plus
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.base.quantity import Format, Quantity
from gpuscale.hpa.cluster.nodes.karpenter.asking import Ask, untolerated
from gpuscale.hpa.cluster.nodes.karpenter.requirements import (
    HOSTNAME,
    NODE_POOL,
    Requirements,
    Values,
    agree,
    all_of,
    exactly,
    incompatibility,
    suits,
    values_of,
)
from gpuscale.hpa.cluster.nodes.pools import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ZONE,
    InstanceType,
    NodePool,
    Offering,
)

CAPACITY_TYPES = ("reserved", "spot", "on-demand")
"""Where several will do, providers take the first of them."""
MAX_TYPES = 600
"""That a claim names at most; the cheapest."""
_WELL_KNOWN = (
    NODE_POOL,
    ZONE,
    "topology.kubernetes.io/region",
    INSTANCE_TYPE,
    "kubernetes.io/arch",
    "kubernetes.io/os",
    CAPACITY_TYPE,
    "node.kubernetes.io/windows-build",
)
_ENDLESS = 1 << 80


def room_of(allocatable: Mapping[str, Quantity]) -> dict[str, int]:
    """Return what a node offers, nano-units; any number of pods where none is said."""
    return {"pods": _ENDLESS, **amounts_of(allocatable)}


@dataclass(slots=True, eq=False)
class Sold:
    """One way to have an instance type."""

    offering: Offering
    requirements: Requirements
    price: float
    """0 where none is known: then nothing is saved by it."""


@dataclass(slots=True, eq=False)
class Shape:
    """An instance type as the solver needs it."""

    name: str
    room: dict[str, int]
    """What its nodes have for pods."""
    capacity: dict[str, int]
    requirements: Requirements
    sold: tuple[Sold, ...]
    """Every way, those included that can't be had now."""
    available: tuple[Sold, ...]
    overhead: dict[str, int] = field(default_factory=dict)
    """What the pods of DaemonSets take of a new node, in its pool."""

    def keep_free(self, requests: Mapping[str, int]) -> None:
        """Leave room for the pod of one more DaemonSet; where there is none, there is none for others."""
        self.overhead = plus(self.overhead, requests)
        left = {name: self.room.get(name, 0) - amount for name, amount in requests.items()}
        self.room = {**self.room, **left}
        if any(amount < 0 for amount in left.values()):
            self.room = dict.fromkeys(self.room, -1)

    def price(self, zone: str, capacity_type: str) -> float:
        """Return what a node had like this costs an hour; 0 where it is not sold so."""
        for each in self.sold:
            if (each.offering.zone, each.offering.capacity_type) == (zone, capacity_type):
                return each.price
        return 0.0

    def choices(self, requirements: Requirements) -> list[Sold]:
        """Return the ways to have it that agree with a claim."""
        return [each for each in self.available if agree(requirements, each.requirements)]

    def cheapest(self, requirements: Requirements) -> float:
        """Return the lowest price that agrees with a claim."""
        return min((each.price for each in self.choices(requirements)), default=math.inf)

    def worst_price(self, requirements: Requirements) -> float:
        """Return the highest price of the kind of capacity that would be launched."""
        for kind in CAPACITY_TYPES:
            prices = [
                each.price
                for each in self.choices(requirements)
                if (each.offering.capacity_type or "on-demand") == kind
            ]
            if prices:
                return max(prices)
        return math.inf


def shape_of(kind: InstanceType, is_sold_out: Callable[[str, Offering], bool]) -> Shape:
    """Return an instance type as the solver needs it.

    Args:
        kind: the type.
        is_sold_out: says of a type's name and an offering whether it can't be had now.
    """
    sold = tuple(
        Sold(each, exactly(each.labels), each.price_per_hour or 0.0) for each in kind.offerings
    )
    offered: dict[str, set[str]] = {}
    for each in kind.offerings:
        for key, value in each.labels.items():
            offered.setdefault(key, set()).add(value)
    # A type that is sold once without a zone is sold in all of them.
    everywhere = {
        key: Values(key, frozenset(values))
        for key, values in offered.items()
        if all(key in each.labels for each in kind.offerings)
    }
    labels = {key: value for key, value in kind.labels.items() if key != HOSTNAME}
    return Shape(
        kind.name,
        room_of(kind.allocatable),
        amounts_of(kind.capacity or kind.allocatable),
        {**exactly({**labels, INSTANCE_TYPE: kind.name}), **everywhere},
        sold,
        tuple(each for each in sold if not is_sold_out(kind.name, each.offering)),
    )


@dataclass(slots=True, eq=False)
class ClaimState:
    """A claim between two pods: what it promises, and which types may still become its node.

    Claims that were filled alike share a state, so a pod costs one look at what comes after it.
    """

    template: "Template"
    requirements: Requirements
    shapes: tuple[Shape, ...]
    requests: Mapping[str, int] = field(default_factory=dict)
    joined: dict[Ask, Requirements | None] = field(default_factory=dict)
    after: dict[tuple[Ask, tuple[Values, ...]], "ClaimState | None"] = field(default_factory=dict)
    _offers: tuple[tuple[str, ...], tuple[Offering, ...]] | None = None

    def with_ask(self, ask: Ask) -> Requirements | None:
        """Return what the claim would promise with a pod on it; None where that keeps the pod away."""
        if ask not in self.joined:
            template = self.template
            refused = ask.untolerated(template.pool.taints) or incompatibility(
                self.requirements, ask.requirements, template.well_known
            )
            self.joined[ask] = None if refused else self._joined(ask)
        return self.joined[ask]

    def with_pod(self, ask: Ask, domains: tuple[Values, ...] = ()) -> "ClaimState | None":
        """Return the claim with one pod more; None where it can't hold it.

        Args:
            ask: the pod's.
            domains: what other pods leave of the claim's labels.
        """
        key = ask, domains
        if key not in self.after:
            self.after[key] = self._with_pod(ask, domains)
        return self.after[key]

    def _with_pod(self, ask: Ask, domains: tuple[Values, ...]) -> "ClaimState | None":
        base = self.with_ask(ask)
        if base is None or self._unmet(base, domains):
            return None
        requirements = all_of((*base.values(), *domains)) if domains else base
        requests = plus(self.requests, dict(ask.requests))
        shapes = tuple(each for each in self.shapes if all(_judged(each, requirements, requests)))
        return ClaimState(self.template, requirements, shapes, requests) if shapes else None

    def _unmet(self, base: Requirements, domains: tuple[Values, ...]) -> str:
        asked = {each.key: each for each in domains}
        return incompatibility(base, asked, self.template.well_known) if asked else ""

    def _joined(self, ask: Ask) -> Requirements:
        return all_of((*self.requirements.values(), *ask.requirements.values()))

    def refusal(self, ask: Ask, domains: tuple[Values, ...] | str = ()) -> str:
        """Return why an empty claim can't hold a pod, in Karpenter's words.

        Args:
            ask: the pod's.
            domains: what other pods leave of the claim's labels, or why they leave nothing.
        """
        pool = self.template.pool
        if taints := ask.untolerated(pool.taints):
            return "; ".join(
                f"did not tolerate taint (taint={each.key}={each.value}:{each.effect})"
                if each.value
                else f"did not tolerate taint (taint={each.key}:{each.effect})"
                for each in taints
            )
        if why := incompatibility(self.requirements, ask.requirements, self.template.well_known):
            return f"incompatible requirements, {why}"
        if isinstance(domains, str):
            return domains
        requirements = self._joined(ask)
        if why := self._unmet(requirements, domains):
            return why
        requirements = all_of((*requirements.values(), *domains))
        judged = [_judged(each, requirements, dict(ask.requests)) for each in self.shapes]
        listed = ", ".join(
            str(requirements[key]) for key in sorted(requirements) if key != HOSTNAME
        )
        needed = _resources(dict(ask.requests), self.template.overheads)
        return f"{_reason(judged)}, requirements={listed}, resources={needed}"

    def offers(
        self, given: Collection[tuple[str, Offering]] = ()
    ) -> tuple[tuple[str, ...], tuple[Offering, ...]]:
        """Return the names of types and the offerings to ask for, the cheapest first.

        They are of the first kind of capacity that the claim allows and some type is sold as.

        Args:
            given: reserved offerings, with their types, that other claims have.
        """
        if self._offers is None or given:
            choices = [
                (each.price, shape.name, each.offering)
                for shape in self.cheapest_first()
                for each in shape.choices(self.requirements)
                if (shape.name, each.offering) not in given
            ]
            kinds = {offering.capacity_type for _, _, offering in choices}
            kind = next((each for each in CAPACITY_TYPES if each in kinds), "")
            chosen = sorted(
                (each for each in choices if each[2].capacity_type in {kind, ""}),
                key=lambda each: each[0],
            )
            found = (
                tuple(dict.fromkeys(name for _, name, _ in chosen)),
                tuple(dict.fromkeys(offering for _, _, offering in chosen)),
            )
            if given:
                # One that can be had reserved alone is asked for in vain.
                return found if chosen else self.offers()
            self._offers = found
        return self._offers

    def cheapest_first(self) -> tuple[Shape, ...]:
        """Return its types by the lowest price that agrees with it."""
        by_price = sorted(self.shapes, key=lambda each: each.cheapest(self.requirements))
        return tuple(by_price[:MAX_TYPES])


def _judged(
    shape: Shape, requirements: Requirements, requests: Mapping[str, int]
) -> tuple[bool, bool, bool]:
    """Return whether a type meets the requirements, has the resources, and can be had."""
    room = shape.room
    fits = all(amount <= room.get(name, 0) for name, amount in requests.items())
    can_be_had = any(agree(requirements, each.requirements) for each in shape.available)
    return agree(requirements, shape.requirements), fits and can_be_had, can_be_had


def _reason(judged: Sequence[tuple[bool, bool, bool]]) -> str:
    met, fits, had = (any(column) for column in zip(*judged, strict=True))
    missing = [
        text
        for found, text in (
            (met, "met the scheduling requirements"),
            (fits, "had enough resources"),
            (had, "had a required offering"),
        )
        if not found
    ]
    if len(missing) > 1:
        return f"no instance type {' or '.join(missing)}"
    if missing:
        return {
            "met the scheduling requirements": "no instance type met all requirements",
            "had enough resources": "no instance type has enough resources",
            "had a required offering": "no instance type has the required offering",
        }[missing[0]]
    if any(a and b and not c for a, b, c in judged):
        return (
            "no instance type which met the scheduling requirements and had enough resources, "
            "had a required offering"
        )
    if any(b and c and not a for a, b, c in judged):
        return (
            "no instance type which had enough resources and the required offering met the "
            "scheduling requirements"
        )
    if any(a and c and not b for a, b, c in judged):
        return (
            "no instance type which met the scheduling requirements and the required offering had the "
            "required resources"
        )
    return "no instance type met the requirements/resources/offering tuple"


def _resources(requests: Mapping[str, int], overheads: Sequence[Mapping[str, int]]) -> str:
    """Return what a pod asks for with the pods of DaemonSets: of them, the least and the most of any type."""
    least, most = dict(overheads[0] if overheads else {}), dict[str, int]()
    for overhead in overheads:
        least = {name: min(least[name], overhead[name]) for name in least if name in overhead}
        most = {
            name: max(most.get(name, 0), overhead.get(name, 0)) for name in {**most, **overhead}
        }
    texts = [_amounts_text(plus(requests, each)) for each in (least, most)]
    return texts[0] if texts[0] == texts[1] else f"min={texts[0]}, max={texts[1]}"


def _amounts_text(requests: Mapping[str, int]) -> str:
    texts = {
        name: str(Quantity(amount, Format.BINARY_SI if name == "memory" else Format.DECIMAL_SI))
        for name, amount in sorted(requests.items())
        if amount
    }
    return json.dumps(texts, separators=(",", ":"))


_PREFERENCES = Toleration(operator="Exists", effect="PreferNoSchedule")


@dataclass(slots=True, eq=False)
class Daemon:
    """The pods of a DaemonSet, one on each node that they suit."""

    requests: dict[str, int]
    alternatives: list[Requirements]
    """Of node labels. One that a type did not meet is not tried again, for other types neither."""
    tolerations: tuple[Toleration, ...]
    """Preferences don't keep DaemonSets away, but Karpenter adds that as it looks at the first type of a
    pool: where no pool has types, nodes keep no room for a pod that a preference speaks against."""

    def runs_on_new(self, template: "Template", shape: Shape) -> bool:
        """Return whether a new node of a pool and type would get a pod."""
        if _PREFERENCES not in self.tolerations:
            self.tolerations = (*self.tolerations, _PREFERENCES)
        if untolerated(template.pool.taints, self.tolerations):
            return False
        while True:
            asked = self.alternatives[0]
            if not incompatibility(template.requirements, asked, template.well_known) and agree(
                shape.requirements, asked
            ):
                return True
            if len(self.alternatives) == 1:
                return False
            del self.alternatives[0]

    def runs_on(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Return whether a node that is there has such a pod, or gets one."""
        return not untolerated(taints, self.tolerations) and suits(self.alternatives[0], labels)


class Template:
    """What each claim of a pool begins with.

    Args:
        pool: the pool.
        shapes: its instance types.
        well_known: labels that pods may ask for without the pool naming them.
        daemons: the DaemonSets.
    """

    def __init__(
        self,
        pool: NodePool,
        shapes: Iterable[Shape],
        well_known: Iterable[str],
        daemons: Iterable[Daemon] = (),
    ) -> None:
        self.pool = pool
        self.well_known = frozenset((*_WELL_KNOWN, *well_known))
        labels = {
            **pool.labels,
            NODE_POOL: pool.name,
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
        }
        names = frozenset(kind.name for kind in pool.instance_types)
        # A pool lists the types that its requirements allow; by their names, where they have some.
        types = () if "" in names else (Values(INSTANCE_TYPE, names),)
        self.requirements: Requirements = all_of(
            (*map(values_of, pool.requirements), *exactly(labels).values(), *types)
        )
        self.shapes = tuple(each for each in shapes if all(_judged(each, self.requirements, {})))
        self.overheads: list[dict[str, int]] = []
        """What DaemonSets take of a node, of each type where they take something."""
        for shape in self.shapes:
            here = [each.requests for each in daemons if each.runs_on_new(self, shape)]
            for requests in here:
                shape.keep_free(requests)
            if here:
                self.overheads.append(shape.overhead)
        self._empty: dict[tuple[Shape, ...], ClaimState] = {}

    def empty(self, shapes: tuple[Shape, ...]) -> ClaimState:
        """Return a claim without pods that may become one of these types."""
        if shapes not in self._empty:
            self._empty[shapes] = ClaimState(self, self.requirements, shapes)
        return self._empty[shapes]


def by_weight(pools: Iterable[NodePool]) -> list[NodePool]:
    """Return pools in the order in which they are tried: by weight, then by name from the end."""
    return sorted(pools, key=lambda pool: (pool.weight, pool.name), reverse=True)
