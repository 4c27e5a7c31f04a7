"""A real Kubernetes control plane on loopback, without Docker, for tests of what runs on Kubernetes.

The programs are built, and other projects' definitions fetched, once:
`python -m gpuscale_testing.tools build`.
"""

from gpuscale.base.objects.pods import Lifecycle
from gpuscale.kube.simulated import SimulatedKubelet, SimulatedNode
from gpuscale_testing.addresses import local_address, wait_until
from gpuscale_testing.aggregation import aggregated_api, serving_name
from gpuscale_testing.background import BackgroundKubelet, simulated_nodes
from gpuscale_testing.certificates import KeyPair
from gpuscale_testing.component import Component
from gpuscale_testing.flags import Settings
from gpuscale_testing.plane import ControlPlane
from gpuscale_testing.programs.definitions import find_definitions, missing_definitions
from gpuscale_testing.programs.toolset import missing

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
