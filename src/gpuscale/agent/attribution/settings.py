"""How the owners of GPUs are looked for."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuscale.agent.panels import KUBERNETES, node_name
from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import ITEMS, converted, made, part
from gpuscale.kube.client import KubeSettings

_LABELS = "kubernetes-pod-label-allowlist-regex"
_PAGE_PODS = 25
"""Of one page of a list, which is in memory whole; a node has some hundred, of ten or twenty KiB each."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The settings for asking the kubelet."""

    socket: Path = KUBERNETES.option(
        converted(lambda text: Path(text.removeprefix("unix://")), Path()),
        "pod-resources-kubelet-socket",
        "Socket of the kubelet's pod-resources API.",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        env="DCGM_POD_RESOURCES_KUBELET_SOCKET",
    )
    """Distributions with a root folder of their own, such as k3s, have it elsewhere."""
    timeout_s: float = 5.0
    """For one call."""
    max_message_bytes: int = 64 * 1024 * 1024
    """A larger answer is refused. The library's own 4 MiB is too little for big nodes."""
    resource_names: tuple[str, ...] = KUBERNETES.option(
        ITEMS,
        "nvidia-resource-names",
        "More resources that are GPUs, with commas between.",
        env="NVIDIA_RESOURCE_NAMES",
    )
    """Beside those that say so in their names."""
    dra_drivers: tuple[str, ...] = ("gpu.nvidia.com", "gpu.amd.com")
    """Drivers whose claimed devices are GPUs."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings for watching this node, and which pod metadata to keep."""

    name: str
    """Only this node's pods are asked for."""
    server: KubeSettings = field(default_factory=KubeSettings)
    pod_labels: tuple[str, ...] = ()
    """RE2 expressions that a label's key has to match somewhere to be kept; none are kept when empty."""


def _patterns(text: str) -> tuple[str, ...]:
    patterns = tuple(part.strip() for part in text.split(",") if part.strip())
    if not patterns:
        return ()
    from gpuscale.base.regex import compile_re2

    for pattern in patterns:
        try:
            compile_re2(pattern)
        except ValueError as error:
            raise ValueError(f"found {pattern!r}, {error}") from None
    return patterns


def _node(flags: FlagReader) -> NodeSettings | None:
    patterns = flags.converted(_LABELS, _patterns, tuple[str, ...]()) or (".*",)
    has_labels = flags.boolean("kubernetes-enable-pod-labels")
    if not has_labels and not flags.boolean("kubernetes-enable-pod-uid"):
        return None
    server = KubeSettings(kubeconfig=flags.path("kubeconfig"), page_size=_PAGE_PODS)
    return NodeSettings(node_name(flags), server, patterns if has_labels else ())


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """The settings for finding the owners of a node's GPUs."""

    kubelet: KubeletSettings = part(KubeletSettings)
    refresh_interval_s: float = 5.0
    """From one question to the kubelet to the next; a new pod's GPUs have no owner for so long."""
    keep_s: float = 300.0
    """How long a last answer holds while the kubelet or the API server is silent. Nothing is handed out
    meanwhile, so it grows wrong only by pods that end."""
    proc_root: Path = KUBERNETES.option(
        converted(Path, Path()),
        "proc-root",
        "Where the host's processes are seen.",
        "/proc",
        env="GPUSCALE_EXPORTER_PROC_ROOT",
        is_ours=True,
    )
    """`/host/proc` when that is mounted."""
    own_proc_root: Path = Path("/proc")
    """Where our own processes are seen; it shows whether the driver reports us those of the host."""
    kubernetes: NodeSettings | None = made(
        _node,
        KUBERNETES.flag(
            _LABELS,
            "Only pod labels that one of these matches, with commas between.",
            "list",
            env="DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
        ),
        usual=lambda: None,
    )
    """How to ask the API server for UIDs, labels and owners; None does without."""
