"""Taints of nodes and devices, what tolerates them, and which are temporary.

No pod should tolerate a temporary one: it would be put on a machine that is being taken away, or on one
without its network. Taints that stay, which a pool gives all its nodes, are the others.

| taint | who sets it, and takes it off |
| --- | --- |
| `node.kubernetes.io/...` | node lifecycle controller (k8s.io/api core/v1 well_known_taints.go, 1.37) |
| `node.cloudprovider.kubernetes.io/...` | cloud controllers (k8s.io/cloud-provider/api, 1.37) |
| `...OfClusterAutoscaler`, `...cluster-autoscaler.kubernetes.io/...` | Cluster Autoscaler (utils/taints) |
| `karpenter.sh/unregistered`, `/disrupted`, before 1.0 `/disruption` | Karpenter (pkg/apis/v1 taints.go) |
| `NodeWithImpairedVolumes`, `cloud.google.com/impending-node-termination` | AWS, GKE; as above |
| `aws-node-termination-handler/...` | its pkg/node |
| `remediator....com/unschedulable` | AKS node auto-drain and auto-repair (azure-aks-docs) |
| `.../agent-not-ready`, `cni.istio.io/not-ready` | Cilium, CSI drivers, Istio |
| `readiness.k8s.io/...` | Node Readiness Controller |
| `node.cluster.x-k8s.io/...` | Cluster API |
| `medik8s.io/...`, `kubevirt.io/drain` | their remediation and maintenance operators |
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gpuscale.base.objects.names import qualified_name_fault

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods without a matching toleration off a node, or requests off a device."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


@dataclass(frozen=True, slots=True)
class Toleration:
    """What lets a pod onto a tainted node, or a request have a tainted device."""

    key: str = ""
    """Empty with operator Exists: every taint."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """Empty: every effect."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether this toleration passes this taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that these tolerations don't pass and that keeps away, or None."""
    for taint in taints:
        if taint.effect in BLOCKING_EFFECTS and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


class PassingTaint(Enum):
    """What a temporary taint means, as the end of "the node ..."."""

    GOING = "is being removed"
    NOT_YET = "is not set up yet"
    UNWELL = "is unwell"


_BY_KEY: tuple[tuple[str, PassingTaint], ...] = (
    (
        r"node\.kubernetes\.io/out-of-service|node\.cloudprovider\.kubernetes\.io/shutdown|"
        r"DeletionCandidateOfClusterAutoscaler|ToBeDeletedByClusterAutoscaler|"
        r"karpenter\.sh/(disrupted|disruption)|aws-node-termination-handler/.*|"
        r"cloud\.google\.com/impending-node-termination|"
        r"remediator\.(kubernetes\.azure|aks\.microsoft)\.com/.*|"
        r"medik8s\.io/.*|kubevirt\.io/drain",
        PassingTaint.GOING,
    ),
    (
        r"node\.kubernetes\.io/network-unavailable|node\.cloudprovider\.kubernetes\.io/.*|"
        r"(startup|ignore)-taint\.cluster-autoscaler\.kubernetes\.io/.*|"
        r"karpenter\.sh/unregistered|readiness\.k8s\.io/.*|"
        r"node\.cluster\.x-k8s\.io/.*|(?!node\.kubernetes\.io/).*/(agent-)?not-ready",
        PassingTaint.NOT_YET,
    ),
    (
        r"node\.kubernetes\.io/.*|status-taint\.cluster-autoscaler\.kubernetes\.io/.*|"
        r"NodeWithImpairedVolumes",
        PassingTaint.UNWELL,
    ),
    # Unknown tools' taints are recognised by words in the key. To withhold a toleration wrongly
    # costs the user a look; to suggest one wrongly may cost an outage.
    (r"(?i).*(terminat|shutdown|drain|disrupt|delet|evict|decommission).*", PassingTaint.GOING),
    (r"(?i).*(not-?ready|un-?initiali[sz]ed|un-?registered|startup).*", PassingTaint.NOT_YET),
    (
        r"(?i).*(unhealthy|unschedulable|maintenance|impaired|quarantine|repair).*",
        PassingTaint.UNWELL,
    ),
)


def moment_of(key: str) -> PassingTaint | None:
    """Return the meaning of a temporary taint's key; None for a lasting taint."""
    return next((moment for form, moment in _BY_KEY if re.fullmatch(form, key)), None)


_OF_OTHERS = re.compile(
    r"(node\.kubernetes\.io|node\.cloudprovider\.kubernetes\.io|karpenter\.sh)/"
)
STARTUP_PREFIX = "startup-taint.cluster-autoscaler.kubernetes.io/"
"""Cluster Autoscaler leaves such taints out of what it expects of a pool's next node."""
READY_TAINT = f"{STARTUP_PREFIX}gpuscale"
"""The usual key of the taint that the node agent takes off a node whose GPUs are of use."""


def parse_startup_key(text: str) -> str:
    """Return the key of a start-up taint of one's own.

    Taints that stay are refused: a pool gives them its nodes to keep other pods off for good.

    Raises:
        ValueError: no key of a taint, not of one of start-up, or of one that others take off.
    """
    fault = qualified_name_fault(text)
    if fault is not None:
        raise ValueError(f"found {text!r}, expected the key of a taint: {fault}")
    if moment_of(text) is not PassingTaint.NOT_YET or _OF_OTHERS.match(text):
        raise ValueError(
            f"found {text!r}, expected a key of your own that says start-up: {STARTUP_PREFIX}NAME, or one "
            "that ends with not-ready"
        )
    return text
