"""What a class of equal pods asks of a node."""

from dataclasses import dataclass, field

from gpuscale.base.objects.nodes import Taint
from gpuscale.base.objects.pods import PodSpec, Toleration
from gpuscale.hpa.cluster.nodes.karpenter.requirements import (
    Requirements,
    all_of,
    exactly,
    values_of,
)
from gpuscale.hpa.cluster.scheduling.fit import tolerates
from gpuscale.hpa.cluster.scheduling.placing import ByDemands
from gpuscale.hpa.cluster.scheduling.resources import pod_requests

_PREFERRED = "PreferNoSchedule"
MATCH_FIELDS = "ignoring pod, node selector term with matchFields is not supported"


@dataclass(slots=True, eq=False)
class Ask:
    """One of the alternatives that pods of a class would be content with."""

    requests: tuple[tuple[str, int], ...]
    """Of those resources that it asks for at all, nano-units."""
    requirements: Requirements
    tolerations: tuple[Toleration, ...]
    found: list[int] = field(default_factory=list)
    """Existing nodes that had room for one before any was placed, in their order."""
    scanned: int = 0
    """How many of the existing nodes were looked at for it."""

    def untolerated(self, taints: tuple[Taint, ...]) -> list[Taint]:
        """Return the taints that keep its pods away; unlike for the scheduler, preferences do too."""
        return [taint for taint in taints if not any(tolerates(t, taint) for t in self.tolerations)]


@dataclass(slots=True, eq=False)
class PodClass:
    """Pods that ask for the same, with the same alternatives."""

    asks: tuple[Ask, ...]
    """In the order in which they are tried; empty where Karpenter ignores such pods."""
    size: tuple[int, int]
    """By which large ones come first: CPU and memory, negative."""


class PodClasses:
    """The classes of pods, each met once.

    Args:
        tolerate_preferences: a pool has a taint that only prefers pods to stay away; then each pod tolerates
            such taints in the end.
    """

    def __init__(self, *, tolerate_preferences: bool) -> None:
        self._tolerate_preferences = tolerate_preferences
        self.of = ByDemands(self._class).of
        """Returns the class of a pod's spec."""

    def _class(self, spec: PodSpec) -> PodClass:
        requests = dict(sorted(pod_requests(spec).items()))
        selected = tuple(exactly(spec.node_selector).values())
        required = list(spec.required_node_terms or ())
        if any(each.names for each in required):
            return PodClass((), (0, 0))
        preferred = [
            term for _, term in sorted(spec.preferred_node_terms, key=lambda each: -each[0])
        ]
        wanted = tuple((name, amount) for name, amount in requests.items() if amount)
        asks: list[Ask] = []
        while True:
            # The first alternative and the heaviest preference count as required; what fails does without.
            terms = (*required[:1], *preferred[:1])
            parts = [values_of(each) for term in terms for each in term.labels]
            asks.append(Ask(wanted, all_of((*selected, *parts)), spec.tolerations))
            if len(required) > 1:
                del required[0]
            elif preferred:
                del preferred[0]
            else:
                break
        content = Toleration(operator="Exists", effect=_PREFERRED)
        if self._tolerate_preferences and content not in spec.tolerations:
            last = asks[-1]
            asks.append(Ask(wanted, last.requirements, (*last.tolerations, content)))
        return PodClass(tuple(asks), (-requests.get("cpu", 0), -requests.get("memory", 0)))
