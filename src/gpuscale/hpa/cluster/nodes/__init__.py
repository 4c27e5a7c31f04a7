"""Node pools: they grow for pods that fit nowhere, and shrink when nodes are little used."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.nodes.cluster_autoscaler.autoscaler import ClusterAutoscaler
    from gpuscale.hpa.cluster.nodes.policy import (
        NodePolicy,
        NodePolicyFactory,
        NodeRequest,
        PoolNode,
    )
    from gpuscale.hpa.cluster.nodes.pools import (
        AutoscalerSettings,
        Disruption,
        DisruptionBudget,
        InstanceType,
        LaunchFailure,
        LookAgain,
        NodePool,
        Offering,
        ScaleDown,
        ScaleUp,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "AutoscalerSettings",
    "ClusterAutoscaler",
    "Disruption",
    "DisruptionBudget",
    "InstanceType",
    "LaunchFailure",
    "LookAgain",
    "NodePolicy",
    "NodePolicyFactory",
    "NodePool",
    "NodeRequest",
    "Offering",
    "PoolNode",
    "ScaleDown",
    "ScaleUp",
]
