"""Node pools: they grow for unschedulable pods, and shrink when nodes stay empty."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.nodes.autoscale import ClusterAutoscaler
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
