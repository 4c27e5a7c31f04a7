"""The kubelet's device allocations as plain data."""

from dataclasses import dataclass

from gpuscale.base.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class KubeletDevice:
    """One device as the kubelet names it."""

    resource: str
    """Such as `nvidia.com/gpu`."""
    id: str
    """In the device plugin's own form; see `device_ids`."""
    count: int = 1
    """Of how many alike; ids that count a GPU's memory are gathered under its UUID."""


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """One device of a resource claim (DRA)."""

    driver: str
    """Such as `gpu.nvidia.com`."""
    pool: str
    device: str
    cdi_names: tuple[str, ...] = ()
    """What the container runtime injects."""
    claim: str = ""
    """Name of the claim; empty where the kubelet does not say."""
    namespace: str = ""
    """Of the claim."""
    is_named_gpu: bool = True
    """Whether its names say that it is a GPU; only its ResourceSlice can say so of another."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key that identifies the device in a cluster."""
        return self.driver, self.pool, self.device


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """One container's GPUs; containers without any are left out."""

    namespace: str
    pod: str
    container: str
    devices: tuple[KubeletDevice, ...] = ()
    claims: tuple[ClaimDevice, ...] = ()
    parts: tuple[KubeletDevice, ...] = ()
    """Parts of GPUs, under the UUID that their ids name."""
    unknown: tuple[KubeletDevice, ...] = ()
    """Of resources that share GPUs in a way that is not known here; one for each resource."""


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """One answer of the kubelet about a node."""

    containers: tuple[ContainerDevices, ...] = ()
    allocatable: tuple[KubeletDevice, ...] | None = None
    """Every GPU that the node may hand out; None where the kubelet does not report it."""
    units: tuple[KubeletDevice, ...] = ()
    """How many units of memory each GPU is handed out in, under its UUID, where it is."""


class KubeletError(UnavailableError):
    """The kubelet can't be asked, or its answer is unusable.

    Args:
        reason: one of the words of `reasons`.
        message: what was found and what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)
