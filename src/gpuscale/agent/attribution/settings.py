"""How the owners of GPUs are looked for."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuscale.kube.client.settings import KubeSettings


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """How to ask the kubelet."""

    socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Distributions with a root folder of their own, such as k3s, have it elsewhere."""
    timeout_s: float = 5.0
    """For one call."""
    max_message_bytes: int = 64 * 1024 * 1024
    """A larger answer is refused. The library's own 4 MiB is too little for big nodes."""
    resource_names: tuple[str, ...] = ()
    """Resources that are GPUs, beside those that say so in their names."""
    dra_drivers: tuple[str, ...] = ("gpu.nvidia.com", "gpu.amd.com")
    """Drivers whose claimed devices are GPUs."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How to ask the API server about this node, and what of its pods is wanted."""

    name: str
    """Only this node's pods are asked for."""
    server: KubeSettings = field(default_factory=KubeSettings)
    pod_labels: tuple[str, ...] = ()
    """RE2 expressions that a label's key has to match somewhere to be kept; none are kept when empty."""


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """How the owners of a node's GPUs are looked for."""

    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    refresh_interval_s: float = 5.0
    """From one question to the kubelet to the next; a new pod's GPUs have no owner for so long."""
    keep_s: float = 300.0
    """How long a last answer holds while the kubelet or the API server is silent. Nothing is handed out
    meanwhile, so it grows wrong only by pods that end."""
    proc_root: Path = Path("/proc")
    """Where the host's processes are seen; `/host/proc` when that is mounted."""
    own_proc_root: Path = Path("/proc")
    """Where our own processes are seen; it shows whether the driver reports us those of the host."""
    kubernetes: NodeSettings | None = None
    """How to ask the API server for UIDs, labels and owners; None does without."""
