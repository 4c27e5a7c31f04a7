"""What a class of equal pods asks of a node."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuscale.base.objects.pods import NodeSelectorTerm, PodAffinityTerm, PodSpec, SpreadConstraint
from gpuscale.base.objects.taints import Taint, Toleration, tolerates
from gpuscale.hpa.cluster.nodes.karpenter.requirements import (
    Requirements,
    all_of,
    exactly,
    values_of,
)
from gpuscale.hpa.cluster.scheduling.placing import ByDemands
from gpuscale.hpa.cluster.scheduling.resources import pod_requests

_CONTENT = Toleration(operator="Exists", effect="PreferNoSchedule")
_NO_TERM = NodeSelectorTerm()
_MATCH_FIELDS = "ignoring pod, node selector term with matchFields is not supported"
_CLAIMS = "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
"""What it says while IGNORE_DRA_REQUESTS is true, as by default."""


@dataclass(slots=True, eq=False)
class Ask:
    """One of the alternatives that pods of a class would be content with."""

    requests: tuple[tuple[str, int], ...]
    """Of those resources that it asks for at all, nano-units."""
    requirements: Requirements
    tolerations: tuple[Toleration, ...]
    strict: Requirements = field(default_factory=dict)
    """The requirements without preferences."""
    alternatives: tuple[Requirements, ...] = ()
    """What would do of a node's labels, also those that are tried later."""
    spread: tuple[SpreadConstraint, ...] = ()
    terms: tuple[PodAffinityTerm, ...] = ()
    found: list[int] = field(default_factory=list)
    """Existing nodes that had room for one before any was placed, in their order."""
    scanned: int = 0
    """How many of the existing nodes were looked at for it."""

    def untolerated(self, taints: tuple[Taint, ...]) -> list[Taint]:
        """Return the taints that keep its pods away; unlike for the scheduler, preferences do too."""
        return untolerated(taints, self.tolerations)


def untolerated(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> list[Taint]:
    """Return the taints that none of the tolerations is for."""
    return [taint for taint in taints if not any(tolerates(each, taint) for each in tolerations)]


@dataclass(slots=True, eq=False)
class PodClass:
    """Pods that ask for the same, with the same alternatives."""

    asks: tuple[Ask, ...]
    """In the order in which they are tried; empty where Karpenter ignores such pods."""
    size: tuple[int, int]
    """By which large ones come first: CPU and memory, negative."""
    ignored: str = ""
    """Why Karpenter ignores such pods."""


class PodClasses:
    """The classes of pods, each met once.

    Args:
        tolerate_preferences: a pool has a taint that only prefers pods to stay away; then each pod tolerates
            such taints in the end.
    """

    def __init__(self, *, tolerate_preferences: bool) -> None:
        self._tolerate_preferences = tolerate_preferences
        self.of = ByDemands(self._class, lambda spec: (spec.spread, spec.affinity)).of
        """Returns the class of a pod's spec."""

    def _class(self, spec: PodSpec) -> PodClass:
        if spec.claims:
            return PodClass((), (0, 0), _CLAIMS)
        requests = dict(sorted(pod_requests(spec).items()))
        selected = tuple(exactly(spec.node_selector).values())
        required = list(spec.required_node_terms or ())
        if any(each.names for each in required):
            return PodClass((), (0, 0), _MATCH_FIELDS)
        preferred = [
            term for _, term in sorted(spec.preferred_node_terms, key=lambda each: -each[0])
        ]
        by_weight = sorted(spec.affinity, key=lambda term: -(term.weight or 0))
        liked = [term for term in by_weight if term.weight is not None and not term.is_anti]
        liked += [term for term in by_weight if term.weight is not None and term.is_anti]
        terms = tuple(term for term in spec.affinity if term.weight is None)
        spread = list(spec.spread)
        wanted = tuple((name, amount) for name, amount in requests.items() if amount)
        tolerations = spec.tolerations
        asks: list[Ask] = []
        while True:
            # The first alternative and the heaviest preference count as required; what fails does without.
            strict, *others = (
                all_of((*selected, *map(values_of, term.labels))) for term in required or [_NO_TERM]
            )
            heaviest = [values_of(each) for term in preferred[:1] for each in term.labels]
            asks.append(
                Ask(
                    wanted,
                    all_of((*strict.values(), *heaviest)),
                    tolerations,
                    strict,
                    (strict, *others),
                    tuple(spread),
                    (*terms, *liked),
                )
            )
            soft = next((at for at, each in enumerate(spread) if not each.required), None)
            if len(required) > 1:
                del required[0]
            elif liked:
                del liked[0]
            elif preferred:
                del preferred[0]
            elif soft is not None:
                spread[soft] = spread[-1]
                del spread[-1]
            elif self._tolerate_preferences and _CONTENT not in tolerations:
                tolerations = (*tolerations, _CONTENT)
            else:
                break
        return PodClass(tuple(asks), (-requests.get("cpu", 0), -requests.get("memory", 0)))
