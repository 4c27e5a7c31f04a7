"""The order in which a ReplicaSet deletes its pods when it has too many.

Source: kubernetes v1.37 pkg/controller/controller_utils.go (ActivePodsWithRanks),
pkg/controller/replicaset/replica_set.go (getPodsRankedByRelatedPodsOnSameNode), pkg/apis/core/helper
(GetDeletionCostFromPodAnnotations). Known differences: containers' restarts are not known here; where pods
are alike, UIDs decide there, which is chance, and here the place in the list.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuscale.base.objects.pods import Pod, PodPhase

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {PodPhase.PENDING: 0, PodPhase.UNKNOWN: 1, PodPhase.RUNNING: 2}
_INTEGER = re.compile(r"0|-[0-9]+|[1-9][0-9]*", re.ASCII)
_INT32 = 2**31
_NS_PER_MS = 1_000_000


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost in a pod's annotations: an int32 without plus sign or leading zeros, otherwise 0."""
    text = annotations.get(DELETION_COST, "")
    cost = int(text) if _INTEGER.fullmatch(text) and len(text) <= len(str(-_INT32)) else 0
    return cost if -_INT32 <= cost < _INT32 else 0


def victims_first(pods: Iterable[Pod], related: Sequence[Pod], now_ms: int) -> list[Pod]:
    """Return a ReplicaSet's pods in the order in which they are deleted.

    Args:
        pods: its own, none of them finished or being deleted; where they are alike, in their order.
        related: those of all ReplicaSets of its Deployment, likewise.
        now_ms: the time that ages are taken to.
    """
    on_node = Counter(pod.spec.node_name for pod in related)

    def place(pod: Pod) -> tuple[bool, int, bool, int, int, int, int]:
        status, ready = pod.status, pod.status.ready is True
        return (
            bool(pod.spec.node_name),
            _PHASES.get(status.phase, 0),
            ready,
            deletion_cost(pod.metadata.annotations),
            -on_node[pod.spec.node_name],
            _age_rank(status.ready_transition_ms, now_ms) if ready else 0,
            _age_rank(pod.metadata.creation_ms, now_ms),
        )

    return sorted(pods, key=place)


def _age_rank(since_ms: int | None, now_ms: int) -> int:
    """Return the whole power of two, in nanoseconds, that an age has reached: most ages are alike."""
    if since_ms is None:
        return -2
    age_ms = now_ms - since_ms
    return int(math.log2(age_ms * _NS_PER_MS)) if age_ms > 0 else -1
