"""Node selectors and affinities of pods: each distinct one is matched against the nodes once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.label_index import LabelIndex
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import NodeSelectorTerm, PodSpec
from gpuscale.base.objects.selectors import Operator, Requirement, selector_of_labels
from gpuscale.base.objects.taints import Taint, Toleration, untolerated
from gpuscale.hpa.cluster.scheduling import NodeState, misfits
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """A pod's conditions on its node's labels and name."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None

    @classmethod
    def of(cls, spec: PodSpec) -> "NodeChoice":
        """Return the choice of a pod."""
        return cls(tuple(spec.node_selector.items()), spec.required_node_terms)


@once
def chosen(snapshot: Snapshot, choice: NodeChoice) -> tuple[Fields, ...]:
    """Return the nodes that a choice allows."""
    spec = PodSpec((), node_selector=dict(choice.selector), required_node_terms=choice.terms)
    asked = [selector_of_labels(spec.node_selector).requirements]
    if choice.terms is not None and not choice.selector:
        asked = [term.labels for term in choice.terms]
    bare = _bare_nodes(snapshot)
    return tuple(
        node
        for node in _nodes_by_label(snapshot).candidates(asked)
        if not misfits(spec, bare[facts.name(node)])
    )


def by_first_taint(kinds: Iterable[tuple[T, Sequence[Taint]]]) -> LabelIndex[T]:
    """Return kinds of nodes by the first of their taints that keeps pods off, as if it were a label."""
    firsts = ((kind, untolerated(taints, ())) for kind, taints in kinds)
    return LabelIndex(
        (kind, _UNTAINTED if first is None else {first.key: first.value}) for kind, first in firsts
    )


def past_first(tolerations: Sequence[Toleration]) -> Iterator[Sequence[Requirement]]:
    """Yield what that taint may be for a pod with these tolerations to pass it."""
    yield selector_of_labels(_UNTAINTED).requirements
    for each in tolerations:
        if not each.key:
            yield ()  # whichever it is
        elif each.operator == "Exists":
            yield (Requirement(each.key, Operator.EXISTS),)
        else:
            yield selector_of_labels({each.key: each.value}).requirements


_UNTAINTED = {"": ""}


@once
def _nodes_by_label(snapshot: Snapshot) -> LabelIndex[Fields]:
    return LabelIndex((node, facts.labels(node)) for node in snapshot.all("nodes"))


@once
def _bare_nodes(snapshot: Snapshot) -> Mapping[str, NodeState]:
    """Return the nodes by name, with their labels only."""
    return {
        facts.name(node): NodeState(Node(ObjectMeta(facts.name(node), labels=facts.labels(node))))
        for node in snapshot.all("nodes")
    }
