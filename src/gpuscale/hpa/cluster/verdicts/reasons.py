"""Reasons why a pool makes no node for a pod."""

from dataclasses import dataclass
from enum import Enum, auto


class Why(Enum):
    """What stands between a pod and a new node."""

    AT_MAX = auto()
    """The node group has as many nodes as it may have."""
    LIMIT = auto()
    """A limit of the NodePool leaves no room for a node."""
    CLUSTER_LIMIT = auto()
    """A limit of the autoscaler on the cluster as a whole."""
    BACKOFF = auto()
    """The pool waits after a node that it did not get."""
    NOT_READY = auto()
    """The pool or its node class is not Ready."""
    TOO_LARGE = auto()
    """No instance type of the pool has all that the pod asks for."""
    UNKNOWN_RESOURCE = auto()
    """The pod asks for a resource that is known once a node runs, and not before."""
    MAX_PODS = auto()
    """A node of the pool takes fewer pods than its DaemonSets and the pod are."""
    NO_OFFERING = auto()
    """Types that fit are sold out, or not offered in the zones and capacity types that are allowed."""
    TAINT = auto()
    """The pool gives its nodes a taint that the pod does not tolerate."""
    LABEL = auto()
    """The pool's nodes don't have the labels that the pod chooses."""
    UNKNOWN_LABEL = auto()
    """The pod chooses by a label that is known once a node runs, and not before."""
    ZONE = auto()
    """The pod is bound to a zone that the pool does not have, such as by its volume."""
    CLAIMS = auto()
    """The autoscaler makes no node for resource claims."""
    NO_CLASS = auto()
    """A claim names a DeviceClass that is not there."""
    NO_DEVICE = auto()
    """No device of the cluster, and none of the class, is one that a claim selects."""
    NO_CARD = auto()
    """What is left is spread over GPUs, none of which has as much as the pod asks of one."""
    PRIORITY = auto()
    """The pod's priority is below what the autoscaler makes nodes for."""
    OTHER = auto()


LASTING = frozenset(Why) - {Why.BACKOFF, Why.NO_OFFERING, Why.NO_CARD, Why.OTHER}
"""Reasons that hold until somebody changes something; the others may end by themselves."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one pool makes no node for a pod."""

    why: Why
    pool: str = ""
    """Empty where it is not known which pool, or where it is about all of them."""
    text: str = ""
    """The autoscaler's own words, or the fact that shows it."""
    key: str = ""
    """Of the taint, label or limit; of the class or claim."""
    wanted: tuple[str, ...] = ()
    """What the pod asks for: values of the label, the taint, amounts, an expression that no device meets."""
    has: tuple[str, ...] = ()
    """What the pool has in its place."""
    asked: tuple[tuple[str, str], ...] = ()
    """Resource and amount: what the pod and the DaemonSets ask of one node, as the autoscaler adds it up."""
