"""All providers: built-in ones and those of plug-ins."""

from gpuscale.base.plugins import PluginGroup
from gpuscale.ops.providers.ack import ACK
from gpuscale.ops.providers.aks import ACCELERATOR, AKS, KARPENTERS
from gpuscale.ops.providers.eks import ACCELERATOR as EKS_ACCELERATOR
from gpuscale.ops.providers.eks import EKS
from gpuscale.ops.providers.eks import KARPENTERS as EKS_KARPENTERS
from gpuscale.ops.providers.gke import GKE
from gpuscale.ops.providers.provider import NodeLabel, Provider

GENERIC = Provider(
    name="generic",
    title="any other: kubeadm, k3s, kind, your own machines",
    node_labels=(
        ACCELERATOR,
        NodeLabel("accelerator", ("nvidia", "nvidia-gpu")),
        NodeLabel(EKS_ACCELERATOR),
        EKS_KARPENTERS,
        KARPENTERS,
        *ACK.node_labels,
        *GKE.node_labels,
    ),
    has_device_plugin=False,
)


BUILT_IN: tuple[Provider, ...] = (AKS, EKS, ACK, GKE, GENERIC)
"""In the order in which they are listed. What is generated, such as schemas and the chart, has only these."""
NAMES: tuple[str, ...] = tuple(each.name for each in BUILT_IN)
DEFAULT = GENERIC
PLUGINS = PluginGroup("gpuscale.providers", Provider)


def named(name: str) -> Provider | None:
    """Return a provider by name; None if unknown. A plug-in can't replace a built-in one.

    Raises:
        PluginError: the plug-in that has the name can't be used.
    """
    built_in = next((each for each in BUILT_IN if each.name == name), None)
    return built_in or PLUGINS.find(name)


def every() -> tuple[Provider, ...]:
    """Return all providers, those of plug-ins last.

    Raises:
        PluginError: a plug-in can't be used.
    """
    return (*BUILT_IN, *(each for each in PLUGINS.every() if each.name not in NAMES))


def either(*names: str) -> str:
    """Return names as a choice in a sentence: `aks, eks or gke`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
