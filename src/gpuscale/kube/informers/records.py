"""The kept fields of pods, nodes and ResourceSlices: those needed to tie GPUs to their users."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.meta import OwnerReference

DeviceKey = tuple[str, str, str]
"""(driver, pool, device)."""


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """The kept fields of an object."""

    namespace: str
    """Empty for an object that has none."""
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Controller:
    """An object's controller, with the fields for looking it up."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def owner(self) -> OwnerReference:
        return OwnerReference(self.kind, self.name)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod of the node."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """As far as they were asked for."""
    template_hash: str = ""
    """What a Deployment adds to the name of its ReplicaSet."""
    static_hash: str = ""
    """The UID that the kubelet knows a static pod by; empty for others."""
    controller: Controller | None = None
    containers: tuple[str, ...] = ()
    """Names, of init and ephemeral containers too."""
    container_ids: Mapping[str, str] = field(default_factory=dict)
    """Container id without its scheme, to the container's name."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Container name to its limits of extended resources, which are its requests too."""
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Annotations and labels by which schedulers say which part of a GPU the pod has."""
    is_ended: bool = False
    """Whether all its containers have ended for good."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node's capacity and allocatable amounts of extended resources such as `nvidia.com/gpu`."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A view of a node at one time."""

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
