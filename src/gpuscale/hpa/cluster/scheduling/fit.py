"""Which node a pod gets, and why it does not fit on others, in the scheduler's words.

Source: kube-scheduler plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit
(pkg/scheduler/framework/plugins, v1.36; before it, the taint itself was named) and FitError
(message); k8s.io/component-helpers/scheduling/corev1 (helpers.go) for tolerations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import NodeSelectorTerm, Pod, PodSpec
from gpuscale.base.objects.requests import Amounts, amounts_of, plus
from gpuscale.base.objects.taints import Taint, untolerated
from gpuscale.hpa.cluster.scheduling.claims import devices_for, is_served
from gpuscale.hpa.cluster.scheduling.resources import pod_requests, unasked

_CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""A pod that tolerates it may go to a cordoned node."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with the requests of its bound pods."""

    node: Node
    used: Amounts = field(default_factory=dict)
    unasked: Amounts = field(default_factory=dict)
    """What the score counts beside it, for containers that ask for no CPU or memory."""
    pods: tuple[Pod, ...] = ()
    """The bound pods, as far as rules about other pods look at them."""
    held: frozenset[DeviceKey] = frozenset()
    """The devices that claims have."""

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def free(self, resource: str) -> int:
        """Return what is left of a resource, nano-units."""
        quantity = self.node.allocatable.get(resource)
        return (quantity.nano if quantity else 0) - self.used.get(resource, 0)

    def with_pod(self, spec: PodSpec, pod: Pod | None = None) -> "NodeState":
        """Return the state once a pod of this spec is bound here as well.

        Args:
            spec: what takes its room.
            pod: the pod itself, for rules about other pods.
        """
        pods = self.pods if pod is None else (*self.pods, pod)
        more = unasked(spec)
        got = pod.devices if pod else frozenset()
        if not got and (spec.claims or self.node.devices):
            got = devices_for(spec, self.node, self.held).keys
        return NodeState(
            self.node,
            plus(self.used, pod_requests(spec)),
            plus(self.unasked, more) if more else self.unasked,
            pods,
            self.held | got if got else self.held,
        )


def node_state(node: Node, bound: Iterable[PodSpec | Pod]) -> NodeState:
    """Return a node's state given the pods bound to it that have not finished."""
    state = NodeState(node)
    for each in bound:
        state = state.with_pod(each.spec, each) if isinstance(each, Pod) else state.with_pod(each)
    return state


def misfits(spec: PodSpec, state: NodeState) -> tuple[str, ...]:
    """Return why a pod can't go to a node; empty means it can.

    As in the scheduler, the first plugin that refuses ends the list; only resources name every shortage.
    """
    found = misfits_but_devices(spec, state)
    if not found:
        refused = devices_for(spec, state.node, state.held).refused
        found = (refused,) if refused else ()
    return found


def misfits_but_devices(spec: PodSpec, state: NodeState) -> tuple[str, ...]:
    """Return why a pod can't go to a node, whatever it claims."""
    refused = refusal_of(spec, state.node)
    return (refused,) if refused else shortages(pod_requests(spec), state)


def refusal_of(spec: PodSpec, node: Node) -> str:
    """Return what keeps a pod off a node whatever is free there; empty where nothing does."""
    if node.unschedulable and untolerated((_CORDONED,), spec.tolerations) is not None:
        return "node(s) were unschedulable"
    if untolerated(node.taints, spec.tolerations) is not None:
        return "node(s) had untolerated taint(s)"
    if not matches_affinity(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def matches_affinity(spec: PodSpec, node: Node) -> bool:
    """Return whether a pod's node selector and required node affinity allow a node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    terms = spec.required_node_terms
    return terms is None or any(term_matches(term, node) for term in terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether a node fulfils all conditions of a term; a term without any matches none."""
    if not term.labels and not term.names:
        return False
    name = {"metadata.name": node.metadata.name}
    return all(r.matches(node.metadata.labels) for r in term.labels) and all(
        r.matches(name) for r in term.names
    )


def shortages(requests: Amounts, state: NodeState) -> tuple[str, ...]:
    """Return the resources that a node has too little of, in the scheduler's words."""
    allocatable = amounts_of(state.node.allocatable)
    short: list[str] = []
    if "pods" in allocatable and state.free("pods") < requests["pods"]:
        short.append("Too many pods")
    needed: Sequence[str] = sorted(
        name for name, amount in requests.items() if amount and name != "pods"
    )
    short.extend(
        f"Insufficient {name}"
        for name in needed
        if state.free(name) < requests[name] and not is_served(name, state.node)
    )
    return tuple(short)


def free_share(state: NodeState) -> float:
    """Return the free share of a node's CPU and memory, their mean."""
    shares = []
    for name in ("cpu", "memory"):
        capacity = state.node.allocatable.get(name)
        if capacity and capacity.nano:
            shares.append(state.free(name) / capacity.nano)
    return sum(shares) / len(shares) if shares else 0.0


def refusal(count: int, reasons: Mapping[str, int]) -> str:
    """Return the scheduler's message for a pod that fits on no node, with a count for each reason."""
    if not count:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{times} {reason}" for reason, times in reasons.items()))
    return f"0/{count} nodes are available: {listed}."
