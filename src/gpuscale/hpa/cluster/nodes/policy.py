"""The interface of node autoscalers, and the Cluster Autoscaler's policy.

The caller of a policy gathers a `NodeRequest`, asks `scan` and applies the actions, as
`lab.sim.control.cloud`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.autoscale import AutoscalerState, PoolNode, autoscale
from gpuscale.hpa.cluster.nodes.pools import Action, AutoscalerSettings, NodePool


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """The facts for one scan."""

    pools: tuple[NodePool, ...]
    """In order of preference."""
    nodes: tuple[PoolNode, ...]
    """Of all pools, those on their way included."""
    unschedulable: tuple[Pod, ...]
    """The pods that the scheduler found no node for, oldest first."""
    now_ms: int
    """Milliseconds since the epoch."""
    settings: AutoscalerSettings


class NodePolicy(Protocol):
    """Decides the nodes of a cluster. It may keep state between scans."""

    def scan(self, request: NodeRequest) -> Sequence[Action]:
        """Return actions: pools to grow within their bounds, and empty nodes to remove."""


NodePolicyFactory = Callable[[], NodePolicy]
"""Makes the policy of one cluster; a class is one."""


class ClusterAutoscaler:
    """The loop of the Cluster Autoscaler."""

    def __init__(self) -> None:
        self._state = AutoscalerState()

    def scan(self, request: NodeRequest) -> Sequence[Action]:
        """Return at most one pool to grow, otherwise the empty nodes whose time has come."""
        outcome = autoscale(
            request.pools,
            request.nodes,
            request.unschedulable,
            self._state,
            request.now_ms,
            request.settings,
        )
        self._state = outcome.state
        return outcome.actions
