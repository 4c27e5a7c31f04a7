"""Taints and tolerations.

Source: k8s.io/component-helpers/scheduling/corev1 (helpers.go), kube-scheduler plugin TaintToleration.
"""

from collections.abc import Sequence

from gpuscale.objects.nodes import Taint
from gpuscale.objects.pods import Toleration

BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether this toleration lets a pod pass this taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that keeps a pod with these tolerations away, or None."""
    for taint in taints:
        if taint.effect in BLOCKING_EFFECTS and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
