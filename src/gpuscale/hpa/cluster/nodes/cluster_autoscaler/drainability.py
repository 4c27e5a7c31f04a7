"""Which pods may be moved off a node, which stay behind, and which keep it.

Source: cluster-autoscaler/simulator/drainability/rules (rules.go and its folders), simulator/drain.go,
utils/drain/drain.go and core/scaledown/pdb/basic.go (1.35). Controllers are not looked up, so
`min-replica-count` and "controller not found" are not here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.hpa.cluster.nodes.pools import AutoscalerSettings

_PREFIX = "cluster-autoscaler.kubernetes.io"
SAFE_TO_EVICT = f"{_PREFIX}/safe-to-evict"
SAFE_VOLUMES = f"{_PREFIX}/safe-to-evict-local-volumes"
DAEMON_POD = f"{_PREFIX}/daemonset-pod"
MIRROR = "kubernetes.io/config.mirror"
_REPLICATED_KINDS = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")
_EXTRA_TERMINATION_MS = 30_000
_FINISHED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class RemainingBudgets:
    """How many pods of each budget may still be evicted in this pass."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._of: dict[str, list[list[int]]] = defaultdict(list)
        self._selectors: dict[str, list[PodDisruptionBudget]] = defaultdict(list)
        for budget in budgets:
            namespace = budget.metadata.namespace
            self._selectors[namespace].append(budget)
            self._of[namespace].append([budget.disruptions_allowed])

    def matching(self, pod: Pod) -> list[list[int]]:
        """Return what is left of each budget of a pod, in a list of one so that it can be lowered."""
        namespace = pod.metadata.namespace
        if namespace not in self._selectors:
            return []
        pairs = zip(self._selectors[namespace], self._of[namespace], strict=True)
        return [left for budget, left in pairs if budget.selector.matches(pod.metadata.labels)]

    def take(self, pods: Iterable[Pod]) -> bool:
        """Count pods as evicted, and return whether their budgets allow all of them at once."""
        lefts = [left for pod in pods for left in self.matching(pod)]
        for left in lefts:
            left[0] -= 1
        return all(left[0] >= 0 for left in lefts)


@dataclass(frozen=True, slots=True)
class PodsToMove:
    """What is to be done with the pods of a node, or what keeps it."""

    pods: tuple[Pod, ...] = ()
    """To be placed elsewhere."""
    blocked_by: str = ""
    """Why a pod can't be moved, as upstream's BlockingPodReason; empty where all can."""


def pods_to_move(
    pods: Sequence[Pod], budgets: RemainingBudgets, now_ms: int, settings: AutoscalerSettings
) -> PodsToMove:
    """Return the pods of a node that need another, or the reason of the first that can't go."""
    moving: list[Pod] = []
    for pod in pods:
        if is_mirror(pod) or is_daemon(pod) or is_long_terminating(pod, now_ms):
            continue
        reason = _blocking_reason(pod, budgets, now_ms, settings)
        if reason:
            return PodsToMove(blocked_by=reason)
        moving.append(pod)
    return PodsToMove(tuple(moving))


def _blocking_reason(
    pod: Pod, budgets: RemainingBudgets, now_ms: int, settings: AutoscalerSettings
) -> str:
    meta = pod.metadata
    safe = meta.annotations.get(SAFE_TO_EVICT)
    if safe == "true" or pod.status.phase in _FINISHED:
        return ""
    kind = meta.owner.kind if meta.owner else None
    custom = settings.skip_nodes_with_custom_controller_pods and kind not in _REPLICATED_KINDS
    if kind is None or custom:
        return "NotReplicated"
    matching = budgets.matching(pod)
    if settings.skip_nodes_with_system_pods and meta.namespace == "kube-system" and not matching:
        # Such a pod holds its node up for a while only; then it goes, whatever the rules below say.
        wait_ms = settings.blocking_system_pod_distruption_timeout_ms
        if meta.creation_ms and meta.creation_ms + wait_ms < now_ms:
            return ""
        return "UnmovableKubeSystemPod"
    if safe == "false":
        return "NotSafeToEvictAnnotation"
    unblocked = meta.annotations.get(SAFE_VOLUMES, "").split(",")
    if settings.skip_nodes_with_local_storage and any(
        name not in unblocked for name in pod.spec.local_volumes
    ):
        return "LocalStorageRequested"
    return "NotEnoughPdb" if any(left[0] < 1 for left in matching) else ""


def is_daemon(pod: Pod) -> bool:
    """Return whether a DaemonSet made a pod, or an annotation says so."""
    owner = pod.metadata.owner
    is_owned = owner is not None and owner.kind == "DaemonSet"
    return is_owned or pod.metadata.annotations.get(DAEMON_POD) == "true"


def is_mirror(pod: Pod) -> bool:
    """Return whether a pod is what the API server shows of one that the kubelet runs by itself."""
    return MIRROR in pod.metadata.annotations


def is_long_terminating(pod: Pod, now_ms: int) -> bool:
    """Return whether a pod should have been gone for a while."""
    end_ms = long_terminating_ms(pod)
    return end_ms is not None and end_ms < now_ms


def long_terminating_ms(pod: Pod) -> int | None:
    """Return after which time a pod that is ending should have been gone; None where it is not ending."""
    if pod.metadata.deletion_ms is None:
        return None
    grace_ms = pod.spec.termination_grace_period_seconds * 1000
    return pod.metadata.deletion_ms + grace_ms + _EXTRA_TERMINATION_MS
