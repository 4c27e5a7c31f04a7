"""Node pools: they grow for unschedulable pods, and shrink when nodes stay empty."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.nodes.autoscale import PoolNode
    from gpuscale.hpa.cluster.nodes.policy import (
        ClusterAutoscaler,
        NodePolicy,
        NodePolicyFactory,
        NodeRequest,
    )
    from gpuscale.hpa.cluster.nodes.pools import (
        Action,
        AutoscalerSettings,
        NodePool,
        ScaleDown,
        ScaleUp,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "Action",
    "AutoscalerSettings",
    "ClusterAutoscaler",
    "NodePolicy",
    "NodePolicyFactory",
    "NodePool",
    "NodeRequest",
    "PoolNode",
    "ScaleDown",
    "ScaleUp",
]
