"""Rules about the pods that are there already: topology spread constraints and pod affinity.

Each rule counts pods by the value that their node has of one label, its topology key. A tally keeps these
sums up to date from what single nodes contribute.

Source: kubernetes v1.37 pkg/scheduler/framework/plugins/podtopologyspread and interpodaffinity (filtering.go,
scoring.go).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodAffinityTerm, SpreadConstraint
from gpuscale.base.objects.selectors import Operator, Requirement, Selector
from gpuscale.base.objects.taints import untolerated
from gpuscale.hpa.cluster.scheduling.fit import NodeState, matches_affinity

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SYSTEM_SPREAD = (
    SpreadConstraint(3, HOSTNAME, required=False),
    SpreadConstraint(5, ZONE, required=False),
)
"""What pods of Services and ReplicaSets get that say nothing themselves."""
Watch = tuple[str, str, str]
"""Pods of a namespace with a label of a value; see `watches_of`."""
SPREAD = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{SPREAD} (missing required label)"
NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
WITH_AFFINITY: Watch = ("", "affinity", "")
"""Pods that have terms themselves."""


def watches_of(pod: Pod) -> Iterator[Watch]:
    """Yield all groups that a pod is in."""
    namespace = pod.metadata.namespace
    yield "", "", ""
    yield namespace, "", ""
    for key, value in pod.metadata.labels.items():
        yield namespace, key, value
    if pod.spec.affinity:
        yield WITH_AFFINITY


def _watch(namespace: str, selector: Selector | None) -> Watch:
    """Return a small group that all pods which a selector matches are in."""
    for each in selector.requirements if selector else ():
        if each.operator in {Operator.EQUALS, Operator.IN} and len(each.values) == 1:
            return namespace, each.key, each.values[0]
    return namespace, "", ""


class Rule(Enum):
    """What a tally is for."""

    SPREAD = auto()
    """A constraint that has to hold."""
    EVEN = auto()
    """A constraint that is a preference."""
    NEAR = auto()
    """A required affinity term."""
    APART = auto()
    """A required anti-affinity term."""
    REPELLED = auto()
    """Required anti-affinity terms of the others."""
    LIKED = auto()
    """Preferences, of the pod and of the others."""


@dataclass(slots=True, eq=False)
class Tally:
    """The sums of one rule by topology value."""

    rule: Rule
    key: str
    watch: Watch
    """No other pods count."""
    count: Callable[[Pod], int]
    counts_node: Callable[[Node], bool] = lambda _node: True
    spread: SpreadConstraint | None = None
    matches_itself: bool = False
    """Whether the pod counts where it goes."""
    sums: dict[str, int] = field(default_factory=dict)
    parts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Node to its value and what it contributes."""
    domains: Counter[str] = field(default_factory=Counter)
    """Of a constraint that has to hold: how many nodes that count each value has."""
    levels: Counter[int] = field(default_factory=Counter)
    """How many values have each sum; those without pods are left out."""

    @property
    def of_node(self) -> bool:
        """Return whether each node is a domain of its own."""
        return self.key == HOSTNAME

    def domain(self, node: Node) -> str | None:
        """Return a node's value; None where the node does not count."""
        value = node.metadata.labels.get(self.key)
        if value is None and self.rule is Rule.EVEN:
            value = ""
        return None if value is None or not self.counts_node(node) else value

    def share(self, state: NodeState) -> tuple[str, int] | None:
        """Return a node's value and what it contributes; None where it does not count."""
        value = self.domain(state.node)
        return None if value is None else (value, sum(map(self.count, state.pods)))

    def put(self, name: str, share: tuple[str, int] | None) -> None:
        """Replace what a node contributes."""
        value, count = self.parts.pop(name, ("", 0))
        if count:
            self.add(value, -count)
        if share is not None and share[1]:
            self.parts[name] = share
            self.add(*share)

    def add(self, value: str, count: int) -> None:
        """Count more pods in a domain, or fewer."""
        before = self.sums.get(value, 0)
        self.sums[value] = after = before + count
        if before:
            self.levels[before] -= 1
            if not self.levels[before]:
                del self.levels[before]
        if after:
            self.levels[after] += 1

    def enter(self, node: Node) -> None:
        """Let a node's domain count, if the node does."""
        value = self.domain(node)
        if value is not None:
            self.domains[value] += 1

    def least(self) -> int:
        """Return the smallest sum of a domain that counts."""
        if self.spread is None or len(self.domains) < self.spread.min_domains:
            return 0
        # Pods are counted on nodes that count, so other domains have none.
        return 0 if sum(self.levels.values()) < len(self.domains) else min(self.levels, default=0)


def least_of(tallies: Iterable[Tally]) -> dict[int, int]:
    """Return the smallest sum of each constraint that has to hold, by the identity of its tally."""
    return {id(each): each.least() for each in tallies if each.rule is Rule.SPREAD}


def is_first(tallies: Iterable[Tally]) -> bool:
    """Return whether a pod may begin the company that it asks for itself."""
    near = [each for each in tallies if each.rule is Rule.NEAR]
    return all(each.matches_itself and not any(each.sums.values()) for each in near)


def refusal_by(
    sums: Iterable[tuple[Tally, int | None]], least: Mapping[int, int], tallies: Iterable[Tally]
) -> str:
    """Return which rule about other pods keeps a pod off a node; empty where none does.

    Args:
        sums: each tally, and its sum in the node's domain; None where the node has no such label.
        least: as `least_of` returns it.
        tallies: all of them.
    """
    near: list[int | None] = []
    apart = repelled = False
    for tally, sum_ in sums:
        match tally.rule:
            case Rule.SPREAD:
                if sum_ is None:
                    return NO_LABEL
                skew = sum_ + tally.matches_itself - least[id(tally)]
                if tally.spread and skew > tally.spread.max_skew:
                    return SPREAD
            case Rule.NEAR:
                near.append(sum_)
            case Rule.APART:
                apart |= bool(sum_)
            case Rule.REPELLED:
                repelled |= bool(sum_)
            case Rule.EVEN | Rule.LIKED:
                pass
    if None in near or (not all(near) and not is_first(tallies)):
        return NOT_NEAR
    if apart:
        return NOT_APART
    return REPELLED if repelled else ""


def is_in(term: PodAffinityTerm, home: str, pod: Pod) -> bool:
    """Return whether a term of a pod in the namespace `home` means this other pod."""
    namespace = pod.metadata.namespace
    if term.namespace_selector is None and not term.namespaces:
        near = namespace == home
    else:
        near = namespace in term.namespaces or (
            term.namespace_selector is not None
            and term.namespace_selector.matches({"kubernetes.io/metadata.name": namespace})
        )
    return near and term.selector is not None and term.selector.matches(pod.metadata.labels)


def constraints_of(pod: Pod, default: Selector | None) -> tuple[SpreadConstraint, ...]:
    """Return a pod's spread constraints.

    Args:
        pod: the pod.
        default: selects the pods of its Services and its ReplicaSet; None without system defaults.
    """
    if pod.spec.spread or not default:
        return pod.spec.spread
    return tuple(
        SpreadConstraint(each.max_skew, each.topology_key, each.required, default)
        for each in SYSTEM_SPREAD
    )


def tallies_of(pod: Pod, default: Selector | None, foreign_keys: Iterable[str]) -> list[Tally]:
    """Return the tallies that a pod's place depends on, still empty.

    Args:
        pod: the pod.
        default: as for `constraints_of`.
        foreign_keys: topology keys of terms that other pods have.
    """
    constraints = constraints_of(pod, default)
    hard_keys = [each.topology_key for each in constraints if each.required]
    soft_keys = [each.topology_key for each in constraints if not each.required]
    found = [
        _spread_tally(
            pod, each, hard_keys if each.required else soft_keys if pod.spec.spread else ()
        )
        for each in constraints
    ]
    return found + list(_affinity_tallies(pod, foreign_keys))


def _spread_tally(pod: Pod, constraint: SpreadConstraint, keys: Iterable[str]) -> Tally:
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    selector = constraint.selector
    own = [
        Requirement(key, Operator.EQUALS, (labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    ]
    if selector is not None and own:
        selector = Selector((*selector.requirements, *own))
    # Upstream's rule: a selector without conditions matches the pod itself, and counts no other.
    counted = selector or None

    def count(other: Pod) -> int:
        meta = other.metadata
        return int(
            counted is not None
            and meta.namespace == namespace
            and meta.deletion_ms is None
            and counted.matches(meta.labels)
        )

    def counts_node(node: Node) -> bool:
        return (
            all(key in node.metadata.labels for key in keys)
            and (not constraint.honors_affinity or matches_affinity(pod.spec, node))
            and (
                not constraint.honors_taints
                or untolerated(node.taints, pod.spec.tolerations) is None
            )
        )

    rule = Rule.SPREAD if constraint.required else Rule.EVEN
    # What is on a node itself counts for a preference whatever the policies say.
    everywhere = rule is Rule.EVEN and constraint.topology_key == HOSTNAME
    return Tally(
        rule,
        constraint.topology_key,
        _watch(namespace, selector),
        count,
        (lambda _node: True) if everywhere else counts_node,
        constraint,
        selector is not None and selector.matches(labels),
    )


def _affinity_tallies(pod: Pod, foreign_keys: Iterable[str]) -> Iterator[Tally]:
    home, terms = pod.metadata.namespace, pod.spec.affinity
    near = [each for each in terms if each.weight is None and not each.is_anti]

    def has_all(other: Pod) -> int:
        return int(all(is_in(term, home, other) for term in near))

    for term in near:
        watch = watch_of_term(term, home)
        yield Tally(Rule.NEAR, term.topology_key, watch, has_all, matches_itself=bool(has_all(pod)))
    for term in terms:
        if term.weight is None and term.is_anti:
            yield _own_tally(Rule.APART, term, home, 1)
        elif term.weight is not None:
            yield _own_tally(Rule.LIKED, term, home, -term.weight if term.is_anti else term.weight)
    for key in foreign_keys:
        yield Tally(Rule.REPELLED, key, WITH_AFFINITY, _repelling(pod, key))
        yield Tally(Rule.LIKED, key, WITH_AFFINITY, _liking(pod, key))


def watch_of_term(term: PodAffinityTerm, home: str) -> Watch:
    """Return a small group that all pods are in which a term of a pod in the namespace `home` means."""
    if term.namespace_selector is not None or len(term.namespaces) > 1:
        return "", "", ""
    return _watch(term.namespaces[0] if term.namespaces else home, term.selector)


def _own_tally(rule: Rule, term: PodAffinityTerm, home: str, weight: int) -> Tally:
    def count(other: Pod) -> int:
        return weight if is_in(term, home, other) else 0

    return Tally(rule, term.topology_key, watch_of_term(term, home), count)


def _repelling(pod: Pod, key: str) -> Callable[[Pod], int]:
    def count(other: Pod) -> int:
        return sum(
            1
            for term in other.spec.affinity
            if term.topology_key == key
            and term.is_anti
            and term.weight is None
            and is_in(term, other.metadata.namespace, pod)
        )

    return count


def _liking(pod: Pod, key: str) -> Callable[[Pod], int]:
    """Return what others' preferences weigh; an affinity that they require weighs 1."""

    def count(other: Pod) -> int:
        total = 0
        for term in other.spec.affinity:
            weight = term.weight
            if weight is None:
                weight = 0 if term.is_anti else 1
            if weight and term.topology_key == key and is_in(term, other.metadata.namespace, pod):
                total += -weight if term.is_anti else weight
        return total

    return count
