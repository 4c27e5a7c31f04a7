"""Which nodes pods choose by their node selector and affinity: each choice is held against the nodes once."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import NodeSelectorTerm, PodSpec
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.hpa.cluster.scheduling import NodeState, misfits
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.label_index import LabelIndex
from gpuscale.ops.doctor.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Choice:
    """What a pod asks of the labels and the name of its node."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None

    @classmethod
    def of(cls, spec: PodSpec) -> "Choice":
        """Return that of a pod."""
        return cls(tuple(spec.node_selector.items()), spec.required_node_terms)


@once
def chosen(snapshot: Snapshot, choice: Choice) -> tuple[Fields, ...]:
    """Return the nodes that a choice lets a pod onto."""
    spec = PodSpec((), node_selector=dict(choice.selector), required_node_terms=choice.terms)
    asked = [selector_of_labels(spec.node_selector).requirements]
    if choice.terms is not None and not choice.selector:
        asked = [term.labels for term in choice.terms]
    return tuple(
        node
        for node in _nodes_by_label(snapshot).candidates(asked)
        if not misfits(spec, _bare_nodes(snapshot)[facts.name(node)])
    )


@once
def _nodes_by_label(snapshot: Snapshot) -> LabelIndex[Fields]:
    return LabelIndex((node, facts.labels(node)) for node in snapshot.all("nodes"))


@once
def _bare_nodes(snapshot: Snapshot) -> Mapping[str, NodeState]:
    """Return nodes by name, with nothing of them but their labels."""
    return {
        facts.name(node): NodeState(Node(ObjectMeta(facts.name(node), labels=facts.labels(node))))
        for node in snapshot.all("nodes")
    }
