"""One node as the API server knows it, at one time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.core.errors import GpuscaleError
from gpuscale.kube.informers.records import DeviceKey, NodeRecord, PodRecord
from gpuscale.objects.meta import OwnerReference


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is known of a node at one time."""

    pods: tuple[PodRecord, ...] = ()
    owners: Mapping[str, OwnerReference] = field(default_factory=dict)
    """Pod UID to what the pod belongs to; pods on their own are missing."""
    node: NodeRecord | None = None
    claim_devices: Mapping[DeviceKey, str] = field(default_factory=dict)
    """Device of a claim to its UUID or PCI address."""
    has_pods: bool = False
    """Whether the pods were listed yet."""
    error: GpuscaleError | None = None
    """Why the pods are not followed now."""
    error_since_ms: int | None = None
    """Since when they are not; None while they are."""
    node_error: GpuscaleError | None = None
    """Why the node's resources are not followed now."""
    claims_error: GpuscaleError | None = None
    """Why devices of claims are not followed now."""
