"""A real Kubernetes control plane on loopback, without Docker, for tests of what runs on Kubernetes.

The programs are built, and other projects' definitions fetched, once:
`python -m gpuscale.testing.cluster.tools build`.
"""

from gpuscale.kube.simulated.kubelet import SimulatedKubelet
from gpuscale.kube.simulated.nodes import SimulatedNode
from gpuscale.objects.pods import Lifecycle
from gpuscale.testing.cluster.addresses import local_address, wait_until
from gpuscale.testing.cluster.aggregation import aggregated_api, serving_name
from gpuscale.testing.cluster.background import BackgroundKubelet, simulated_nodes
from gpuscale.testing.cluster.certificates import KeyPair
from gpuscale.testing.cluster.component import Component
from gpuscale.testing.cluster.flags import Settings
from gpuscale.testing.cluster.plane import ControlPlane
from gpuscale.testing.cluster.programs.definitions import find_definitions, missing_definitions
from gpuscale.testing.cluster.programs.toolset import missing

__all__ = [
    "BackgroundKubelet",
    "Component",
    "ControlPlane",
    "KeyPair",
    "Lifecycle",
    "Settings",
    "SimulatedKubelet",
    "SimulatedNode",
    "aggregated_api",
    "find_definitions",
    "local_address",
    "missing",
    "missing_definitions",
    "serving_name",
    "simulated_nodes",
    "wait_until",
]
