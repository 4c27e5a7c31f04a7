"""One scheduling attempt: which node a pod goes to, or the message that says why none.

Source: kube-scheduler plugin NodeResourcesFit with LeastAllocated (score), FitError (message).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.cluster.scheduling.fit import NodeState, misfits
from gpuscale.objects.pods import PodSpec

_SCORED = ("cpu", "memory")
"""What the default score looks at. It does not look at GPUs, which is why it spreads GPU pods."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of one attempt."""

    node: str | None
    message: str
    """Why no node was found; empty where one was."""


def place(spec: PodSpec, nodes: Sequence[NodeState]) -> Placement:
    """Return the node that fits and has the most CPU and memory left; ties go by name.

    Kubernetes breaks ties at random; by name, the same cluster always gives the same answer.
    """
    fitting: list[NodeState] = []
    reasons: Counter[str] = Counter()
    for state in nodes:
        found = misfits(spec, state)
        reasons.update(found)
        if not found:
            fitting.append(state)
    if fitting:
        return Placement(min(fitting, key=lambda state: (-_score(state), state.name)).name, "")
    return Placement(None, _message(len(nodes), reasons))


def _score(state: NodeState) -> float:
    shares = []
    for name in _SCORED:
        capacity = state.node.allocatable.get(name)
        if capacity and capacity.nano:
            shares.append(state.free(name) / capacity.nano)
    return sum(shares) / len(shares) if shares else 0.0


def _message(count: int, reasons: Counter[str]) -> str:
    if not count:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{times} {reason}" for reason, times in reasons.items()))
    return f"0/{count} nodes are available: {listed}."
