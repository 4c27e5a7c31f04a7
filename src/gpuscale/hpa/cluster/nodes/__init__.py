"""Node pools: they grow for pods that fit nowhere, and shrink when nodes are little used."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.nodes.cluster_autoscaler.autoscaler import ClusterAutoscaler
    from gpuscale.hpa.cluster.nodes.karpenter.policy import Karpenter
    from gpuscale.hpa.cluster.nodes.policy import (
        NodePolicy,
        NodePolicyFactory,
        NodeRequest,
        PoolNode,
    )
    from gpuscale.hpa.cluster.nodes.pools import (
        CAPACITY_TYPE,
        INSTANCE_TYPE,
        ZONE,
        Action,
        AutoscalerSettings,
        Disruption,
        DisruptionBudget,
        InstanceType,
        LaunchFailure,
        LeftAlone,
        LookAgain,
        NodePool,
        NotTriggered,
        Offering,
        ScaleDown,
        ScaleUp,
        Uncordon,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "CAPACITY_TYPE",
    "INSTANCE_TYPE",
    "ZONE",
    "Action",
    "AutoscalerSettings",
    "ClusterAutoscaler",
    "Disruption",
    "DisruptionBudget",
    "InstanceType",
    "Karpenter",
    "LaunchFailure",
    "LeftAlone",
    "LookAgain",
    "NodePolicy",
    "NodePolicyFactory",
    "NodePool",
    "NodeRequest",
    "NotTriggered",
    "Offering",
    "PoolNode",
    "ScaleDown",
    "ScaleUp",
    "Uncordon",
]
