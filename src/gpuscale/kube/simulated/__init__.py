"""Simulated nodes and kubelets for a real API server."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.kube.simulated.kubelet import LifecycleOf, SimulatedKubelet
    from gpuscale.kube.simulated.nodes import LEASES, SimulatedNode
else:
    __getattr__ = door(__name__)

__all__ = ["LEASES", "LifecycleOf", "SimulatedKubelet", "SimulatedNode"]
