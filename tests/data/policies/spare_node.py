"""A node policy: one node more than pods that need one, and never a node less."""

from collections.abc import Sequence

from gpuscale.hpa.cluster.nodes.policy import NodeRequest
from gpuscale.hpa.cluster.nodes.pools import Action, ScaleUp


class SpareNode:
    def scan(self, request: NodeRequest) -> Sequence[Action]:
        (pool,) = request.pools
        empty = sum(1 for node in request.nodes if node.empty or not node.ready)
        size = len(request.nodes)
        if empty or size == pool.max_nodes:
            return ()
        return (ScaleUp(pool.name, size, size + 1, ()),)
