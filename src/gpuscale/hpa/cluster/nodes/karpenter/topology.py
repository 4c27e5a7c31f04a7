"""Spread over domains, nearness to other pods and distance from them: where a solve lets a pod go.

A group counts the pods that a selector means by the value of a label of their nodes, its domain. Pods with
the same rule share a group. What a claim may still become decides whether a pod on it counts at all.

Source: Karpenter 1.15 pkg/controllers/provisioning/scheduling (topology.go, topologygroup.go,
topologynodefilter.go, topologydomaingroup.go).
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from gpuscale.base.objects.pods import Pod, PodAffinityTerm, SpreadConstraint
from gpuscale.base.objects.selectors import Operator, Requirement, Selector
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.hpa.cluster.nodes.karpenter.asking import Ask, untolerated
from gpuscale.hpa.cluster.nodes.karpenter.requirements import (
    HOSTNAME,
    Requirements,
    Values,
    agree,
    all_of,
    exactly,
)

_MOST_SAID = 25
"""Domains that a message counts."""
_NAME = "kubernetes.io/metadata.name"
_Domains = Mapping[str, Mapping[str, list[tuple[Taint, ...]]]]


class Kind(Enum):
    """What a group is for, in the words of messages."""

    SPREAD = "topology spread"
    NEAR = "pod affinity"
    APART = "pod anti-affinity"


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes a spread constraint looks at; without policies, all."""

    terms: tuple[tuple[Values, ...], ...] = ()
    """Alternatives: what the pod asks of a node's labels."""
    tolerations: tuple[Toleration, ...] = ()
    honors_affinity: bool = False
    honors_taints: bool = False

    @property
    def takes_all(self) -> bool:
        return not self.honors_taints and (not self.honors_affinity or () in self.terms)

    def matches(self, taints: tuple[Taint, ...], own: Callable[[], Requirements]) -> bool:
        """Return whether what is promised by a node, or a claim, makes it count."""
        if self.takes_all:
            return True
        if self.honors_taints and untolerated(taints, self.tolerations):
            return False
        return not self.honors_affinity or any(_meets(own(), term) for term in self.terms)

    @property
    def key(self) -> Hashable:
        """Return by what Karpenter tells filters apart: of requirements only the labels' names."""
        names = frozenset(frozenset(each.key for each in term) for term in self.terms)
        return names, frozenset(self.tolerations), self.honors_affinity, self.honors_taints


def _meets(own: Requirements, term: Iterable[Values]) -> bool:
    asked = {each.key: each for each in term}
    known = all(key in own or each.suits_absence for key, each in asked.items())
    return known and agree(own, asked)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a group counts, and how far."""

    kind: Kind
    key: str
    """Label of nodes: its values are the domains."""
    namespaces: frozenset[str]
    more_namespaces: Selector | None
    selector: Selector | None
    max_skew: int = 0
    min_domains: int = 0
    nodes: NodeFilter = NodeFilter()

    def selects(self, pod: Pod) -> bool:
        """Return whether it is about a pod; a rule without a selector is about none."""
        return self.selector is not None and self.lists(pod)

    def lists(self, pod: Pod) -> bool:
        """Return whether a pod that runs already is counted; without a selector all are."""
        namespace = pod.metadata.namespace
        near = namespace in self.namespaces or (
            self.more_namespaces is not None and self.more_namespaces.matches({_NAME: namespace})
        )
        return near and (self.selector is None or self.selector.matches(pod.metadata.labels))

    @property
    def group(self) -> Hashable:
        """Return what is equal for rules that share a group."""
        conditions = None if self.selector is None else frozenset(self.selector.requirements)
        spaces = self.namespaces, self.more_namespaces
        return self.kind, self.key, spaces, conditions, self.max_skew, self.nodes.key


@dataclass(slots=True, eq=False)
class Group:
    """The counts of a rule in one solve."""

    rule: Rule
    counts: dict[str, int]
    """Domain to its pods; of host names only those with pods, for a new node is always another."""
    total: int = 0

    def record(self, domains: Iterable[str]) -> None:
        """Count a pod in all these domains."""
        for domain in domains:
            self.counts[domain] = self.counts.get(domain, 0) + 1
            self.total += 1

    def most(self, *, selects: bool) -> int:
        """Return the most pods of a domain that may take one more, where another domain has none."""
        return self.rule.max_skew - selects if self.rule.kind is Kind.SPREAD else 0

    def takes(self, value: str, asked: Values, *, selects: bool) -> bool:
        """Return whether a pod may go to one domain.

        Args:
            value: the domain.
            asked: the domains that the pod itself allows.
            selects: whether the rule is about the pod itself.
        """
        count, rule = self.counts.get(value, 0), self.rule
        if rule.key != HOSTNAME and value not in self.counts:
            return False
        match rule.kind:
            case Kind.SPREAD:
                return count <= self.most(selects=selects) + self._least(asked)
            case Kind.NEAR:
                return asked.has(value) and (count > 0 or (selects and self._may_begin(asked)))
            case Kind.APART:
                return not count and (rule.key == HOSTNAME or asked.has(value))

    def choose(self, asked: Values, given: Values, *, selects: bool) -> Values:
        """Return the domains that a claim is left with; without values where it can't take the pod.

        Where several will do for a spread, or for the first of pods that want to be near each other,
        Karpenter leaves it to chance; here the first by name is taken.

        Args:
            asked: the domains that the pod itself allows.
            given: the domains that the claim may still have.
            selects: whether the rule is about the pod itself.
        """
        rule = self.rule
        # Of host names a claim has one.
        open_ = sorted(given.values if rule.key == HOSTNAME else filter(given.has, self.counts))
        found = [each for each in open_ if self.takes(each, asked, selects=selects)]
        if rule.kind is Kind.SPREAD and found:
            found = [min(found, key=lambda each: self.counts.get(each, 0))]
        elif rule.kind is Kind.NEAR and rule.key != HOSTNAME:
            with_pods = [each for each in found if self.counts[each]]
            found = with_pods or found[:1]
        return Values(rule.key, frozenset(found))

    def _least(self, asked: Values) -> int:
        """Return the smallest count of the domains that the pod allows; a new node has none."""
        if self.rule.key == HOSTNAME:
            return 0
        counts = [count for domain, count in self.counts.items() if asked.has(domain)]
        return 0 if len(counts) < self.rule.min_domains else min(counts, default=2**31 - 1)

    def _may_begin(self, asked: Values) -> bool:
        """Return whether no pod is there yet where the pod may go."""
        return not self.total or not any(
            count and asked.has(domain) for domain, count in self.counts.items()
        )

    def refusal(self, asked: Values, given: Values) -> str:
        """Return why no domain is left, in Karpenter's words."""
        said = [f"{domain}: {count}" for domain, count in sorted(self.counts.items())]
        counts = ", ".join(said[:_MOST_SAID])
        if len(said) > _MOST_SAID:
            counts += f" and {len(said) - _MOST_SAID} other(s)"
        rule = self.rule
        return (
            f"unsatisfiable topology constraint for {rule.kind.value}, key={rule.key} (counts = {counts}, "
            f"podDomains = {asked}, nodeDomains = {given}"
        )


@dataclass(slots=True, eq=False)
class Bearing:
    """What groups have to do with pods of one kind and with the same labels."""

    version: int
    """Number of groups when it was worked out."""
    strict: Requirements
    """What the pods ask of a node, without preferences."""
    hosts: tuple[tuple[Group, bool], ...]
    """Groups by host name that refuse a node for good once they do, and whether each is about the pods."""
    most: tuple[tuple[dict[str, int], int], ...]
    """Of these groups the counts, and the largest with which a node still takes one of the pods."""
    others: tuple[tuple[Group, bool], ...]
    counted: tuple[Group, ...]
    """The groups in which the pods count."""
    repelling: tuple[Group, ...]
    """Of the pods' own required anti-affinity: where they keep others away."""

    @property
    def is_free(self) -> bool:
        """Return whether no group has a say in where the pods go."""
        return not (self.hosts or self.others)

    def asked(self, key: str) -> Values:
        """Return the domains that the pods allow themselves."""
        return self.strict.get(key) or Values(key, others=True)

    def takes_host(self, host: str) -> bool:
        """Return whether the groups that refuse for good let the pods onto a node."""
        for counts, most in self.most:  # noqa: SIM110 - `all` takes twice as long
            if counts.get(host, 0) > most:
                return False
        return True

    def takes(self, domain_of: Callable[[str], str | None]) -> bool:
        """Return whether the other groups let the pods onto a node with these labels."""
        for group, selects in self.others:
            key = group.rule.key
            value = domain_of(key)
            if value is None or not group.takes(value, self.asked(key), selects=selects):
                return False
        return True

    def narrowed(self, base: Requirements, host: str) -> tuple[Values, ...] | None:
        """Return the domains that a claim is left with, by label; None where there are none.

        Args:
            base: what the claim promises with the pod on it.
            host: the claim's own name.
        """
        if not self.takes_host(host):
            return None
        found: list[Values] = []
        for _, _, left in self._choices(self.others, base, host) if self.others else ():
            if not left.values:
                return None
            if left.key != HOSTNAME:
                found.append(left)
        return tuple(all_of(found).values())

    def refusal(self, base: Requirements, host: str) -> str:
        """Return why a claim is left with no domain, in Karpenter's words; empty where it has some."""
        for group, given, left in self._choices((*self.hosts, *self.others), base, host):
            if not left.values:
                return group.refusal(self.asked(group.rule.key), given)
        return ""

    def _choices(
        self, groups: Iterable[tuple[Group, bool]], base: Requirements, host: str
    ) -> Iterator[tuple[Group, Values, Values]]:
        """Yield for each group the domains that a claim may have, and those that it is left with."""
        for group, selects in groups:
            key = group.rule.key
            given = base.get(key) or Values(key, others=True)
            if key == HOSTNAME:
                given = Values(key, frozenset((host,)))
            yield group, given, group.choose(self.asked(key), given, selects=selects)


@dataclass(slots=True, eq=False)
class Standing:
    """What a rule counts before a solve; solves begin with it."""

    counts: Counter[str] = field(default_factory=Counter)
    of_pod: dict[str, str] = field(default_factory=dict)
    """Key of a pod that counts to its domain."""
    nodes: Counter[str] = field(default_factory=Counter)
    """How many nodes, not leaving, have each domain."""
    of_node: dict[int, str] = field(default_factory=dict)
    """Place of such a node to its domain."""


@dataclass(slots=True, eq=False)
class Place:
    """A node as groups see it."""

    labels: Mapping[str, str]
    promised: Mapping[str, str]
    """The labels that it has once it has joined."""
    taints: tuple[Taint, ...]
    pods: Sequence[Pod]


class Ground:
    """The nodes and their pods as groups see them.

    Args:
        places: the nodes, first those that stay, in the snapshot's order.
        staying: how many of them stay.
        domains: label to its values that pools could make, each with the taints of the pools that do.
    """

    def __init__(
        self,
        places: Sequence[Place],
        staying: int,
        domains: Callable[[], _Domains],
    ) -> None:
        self._places = places
        self._staying = staying
        self._make_domains = domains
        self._known_domains: _Domains | None = None
        self._standing: dict[Rule, Standing] = {}
        self.repelling = [
            (pod, place.labels)
            for place in places
            for pod in place.pods
            if any(map(repels, pod.spec.affinity))
        ]
        """Pods with required anti-affinity, and the labels of their nodes."""

    def domains(self, rule: Rule, tolerations: tuple[Toleration, ...]) -> list[str]:
        """Return the domains that new nodes could have, as far as the pod counts them."""
        if rule.key == HOSTNAME:
            return []
        if self._known_domains is None:
            self._known_domains = self._make_domains()
        ignores = rule.kind is Kind.SPREAD and not rule.nodes.honors_taints
        return [
            domain
            for domain, of_pools in self._known_domains.get(rule.key, {}).items()
            if ignores or not all(untolerated(taints, tolerations) for taints in of_pools)
        ]

    def standing(self, rule: Rule) -> Standing:
        """Return what a rule counts of the pods that are there."""
        known = self._standing.get(rule)
        if known is not None:
            return known
        found = self._standing[rule] = Standing()
        matches = self._matcher(rule.nodes)
        if rule.key != HOSTNAME:
            for at, place in enumerate(self._places[: self._staying]):
                domain = place.labels.get(rule.key)
                if domain is not None and matches(at):
                    found.nodes[domain] += 1
                    found.of_node[at] = domain
        for pod, standing in self._pods.values():
            for at, key in standing if rule.lists(pod) else ():
                domain = self._places[at].labels.get(rule.key)
                if domain is not None and matches(at):
                    found.counts[domain] += 1
                    found.of_pod[key] = domain
        return found

    @cached_property
    def _pods(self) -> dict[Hashable, tuple[Pod, list[tuple[int, str]]]]:
        """Return a pod of each namespace and set of labels, with the places and keys of all of them."""
        found: dict[Hashable, tuple[Pod, list[tuple[int, str]]]] = {}
        for at, place in enumerate(self._places):
            for pod in place.pods:
                if pod.metadata.deletion_ms is None:
                    found.setdefault(who(pod), (pod, []))[1].append((at, pod.metadata.key))
        return found

    @cached_property
    def _shapes(self) -> list[Hashable]:
        """Return for each place what is equal for those that differ in nothing but their name."""
        return [
            (place.taints, frozenset({**place.promised, HOSTNAME: ""}.items()))
            for place in self._places
        ]

    def _matcher(self, nodes: NodeFilter) -> Callable[[int], bool]:
        """Return what tells of a place whether it counts."""
        if nodes.takes_all:
            return lambda _: True
        by_name = any(each.key == HOSTNAME for term in nodes.terms for each in term)
        known: dict[Hashable, bool] = {}

        def matches(at: int) -> bool:
            place, shape = self._places[at], at if by_name else self._shapes[at]
            if shape not in known:
                known[shape] = nodes.matches(place.taints, lambda: exactly(place.promised))
            return known[shape]

        return matches


class Topology:
    """The groups of one solve.

    Args:
        ground: what is there.
        without: places of nodes that are taken away.
        pods: that are to be placed; where they are now does not count.
    """

    def __init__(self, ground: Ground, without: Collection[int], pods: Collection[str]) -> None:
        self._ground = ground
        self._without = without
        self._pods = pods
        self._groups: dict[Hashable, Group] = {}
        self._repelling: dict[Hashable, Group] = {}
        """By required anti-affinity, of those that have it: where they keep others away."""
        self._bearings: dict[tuple[Ask, Hashable], Bearing] = {}
        for pod, labels in ground.repelling:
            if pod.metadata.key not in pods:
                for rule in _repelling_rules(pod.spec.affinity, pod.metadata.namespace):
                    group = self._repelling_group(rule, pod.spec.tolerations)
                    if rule.key in labels:
                        group.record((labels[rule.key],))

    @property
    def is_empty(self) -> bool:
        """Return whether there are no groups yet."""
        return not (self._groups or self._repelling)

    def bearing(self, ask: Ask, pod: Pod, who: Hashable) -> Bearing:
        """Return what the groups have to do with a pod; its own are made where they are not there yet.

        Args:
            ask: the pod's.
            pod: the pod.
            who: as `who` returns it of the pod.
        """
        known = self._bearings.get((ask, who))
        if known is not None and known.version == len(self._groups) + len(self._repelling):
            return known
        namespace = pod.metadata.namespace
        own = [
            self._repelling_group(rule, ask.tolerations)
            for rule in _repelling_rules(ask.terms, namespace)
        ]
        owned = [self._group(rule, ask.tolerations) for rule in _rules(ask, pod)]
        over = [(group, group.rule.selects(pod)) for group in dict.fromkeys(owned)]
        over += [(group, True) for group in self._repelling.values() if group.rule.selects(pod)]
        hosts = tuple(each for each in over if _is_final(each[0].rule))
        found = self._bearings[ask, who] = Bearing(
            len(self._groups) + len(self._repelling),
            ask.strict,
            hosts,
            tuple((group.counts, group.most(selects=selects)) for group, selects in hosts),
            tuple(each for each in over if not _is_final(each[0].rule)),
            tuple(group for group in self._groups.values() if group.rule.selects(pod)),
            tuple(dict.fromkeys(own)),
        )
        return found

    def record(
        self,
        bearing: Bearing,
        taints: tuple[Taint, ...],
        requirements: Callable[[], Requirements],
        host: str,
    ) -> None:
        """Count a pod where it goes, as far as that is known already."""
        for group in bearing.counted:
            rule = group.rule
            if rule.nodes.matches(taints, requirements):
                if rule.key == HOSTNAME:
                    group.record((host,))
                    continue
                domains = requirements().get(rule.key) or Values(rule.key, others=True)
                # Anti-affinity keeps away from wherever the pod may come to be.
                if rule.kind is Kind.APART or (len(domains.values) == 1 and not domains.others):
                    group.record(domains.values)
        for group in bearing.repelling:
            key = group.rule.key
            values = requirements().get(key) if key != HOSTNAME else None
            group.record((host,) if key == HOSTNAME else values.values if values else ())

    def _group(self, rule: Rule, tolerations: tuple[Toleration, ...]) -> Group:
        key = rule.group
        if key not in self._groups:
            standing = self._ground.standing(rule)
            counts = dict.fromkeys(self._ground.domains(rule, tolerations), 0)
            if rule.key != HOSTNAME:
                nodes = standing.nodes - Counter(
                    standing.of_node[place] for place in self._without if place in standing.of_node
                )
                counts.update(dict.fromkeys(nodes, 0))
            counts.update(
                standing.counts
                - Counter(at for pod, at in standing.of_pod.items() if pod in self._pods)
            )
            self._groups[key] = Group(rule, counts, sum(counts.values()))
        return self._groups[key]

    def _repelling_group(self, rule: Rule, tolerations: tuple[Toleration, ...]) -> Group:
        key = rule.group
        if key not in self._repelling:
            counts = dict.fromkeys(self._ground.domains(rule, tolerations), 0)
            self._repelling[key] = Group(rule, counts)
        return self._repelling[key]


def who(pod: Pod) -> Hashable:
    """Return what is equal for pods of the same namespace and labels."""
    return pod.metadata.namespace, tuple(pod.metadata.labels.items())


def _is_final(rule: Rule) -> bool:
    """Return whether what a rule refuses stays refused: pods on one node only become more."""
    return rule.key == HOSTNAME and rule.kind is not Kind.NEAR


def _rules(ask: Ask, pod: Pod) -> Iterator[Rule]:
    """Yield the rules that a pod brings with it; preferences that it still has count as required."""
    for each in ask.spread:
        yield _spread_rule(each, ask, pod)
    for term in ask.terms:
        kind = Kind.APART if term.is_anti else Kind.NEAR
        yield _term_rule(kind, term, pod.metadata.namespace)


def _spread_rule(constraint: SpreadConstraint, ask: Ask, pod: Pod) -> Rule:
    labels, selector = pod.metadata.labels, constraint.selector
    own = tuple(
        Requirement(key, Operator.IN, (labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    if selector is not None and own:
        selector = Selector((*selector.requirements, *own))
    return Rule(
        Kind.SPREAD,
        constraint.topology_key,
        frozenset((pod.metadata.namespace,)),
        None,
        selector,
        constraint.max_skew,
        constraint.min_domains,
        NodeFilter(
            tuple(tuple(term.values()) for term in ask.alternatives),
            ask.tolerations,
            constraint.honors_affinity,
            constraint.honors_taints,
        ),
    )


def _repelling_rules(terms: Iterable[PodAffinityTerm], namespace: str) -> Iterator[Rule]:
    for term in terms:
        if repels(term):
            yield _term_rule(Kind.APART, term, namespace)


def repels(term: PodAffinityTerm) -> bool:
    """Return whether a term keeps other pods away from those that have it."""
    return term.is_anti and term.weight is None


def _term_rule(kind: Kind, term: PodAffinityTerm, home: str) -> Rule:
    names = term.namespaces
    if not names and term.namespace_selector is None:
        names = (home,)
    return Rule(kind, term.topology_key, frozenset(names), term.namespace_selector, term.selector)
