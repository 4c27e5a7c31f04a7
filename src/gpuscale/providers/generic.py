"""Any other cluster: kubeadm, k3s, kind, your own machines, and clouds that have no module here."""

from gpuscale.providers.ack import ACK
from gpuscale.providers.aks import ACCELERATOR, KARPENTERS
from gpuscale.providers.eks import ACCELERATOR as EKS_ACCELERATOR
from gpuscale.providers.eks import KARPENTERS as EKS_KARPENTERS
from gpuscale.providers.gke import GKE
from gpuscale.providers.provider import NodeLabel, Provider

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
