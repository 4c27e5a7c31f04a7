"""Node pools: they grow for pods that fit nowhere, and shrink when nodes are little used."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.nodes.cluster_autoscaler.autoscaler import ClusterAutoscaler
    from gpuscale.hpa.cluster.nodes.karpenter.policy import Karpenter
    from gpuscale.hpa.cluster.nodes.policy import (
        CapacityBuffer,
        NodePolicy,
        NodePolicyFactory,
        NodeRequest,
        PodSet,
        PoolNode,
        ProvisioningRequest,
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
        ProvisioningCondition,
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
    "CapacityBuffer",
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
    "PodSet",
    "PoolNode",
    "ProvisioningCondition",
    "ProvisioningRequest",
    "ScaleDown",
    "ScaleUp",
    "Uncordon",
]
