"""What a new node of each pool would be, learnt from nodes that are there.

Source: cluster-autoscaler/processors/nodeinfosprovider/mixed_nodeinfos_processor.go (1.35). Labels and taints
are the pool's; what is allocatable, and what DaemonSets take of it, are those of a real node where
there was one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.drainability import is_daemon, is_mirror
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import Registry
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import NodePool
from gpuscale.hpa.cluster.scheduling import NodeState, node_state, refusal_of

SETTLED_MS = 60_000
"""How long a node must have been ready to serve as a template."""


class Templates:
    """The template of each pool, and those of nodes that are gone."""

    def __init__(self) -> None:
        self._learnt: dict[str, tuple[NodeState, NodeState]] = {}
        """The state of the node that a template was made of, and the template."""

    def update(self, request: NodeRequest, registry: Registry) -> Mapping[str, NodeState]:
        """Return the template of each pool: a settled node's, one that was, or the instance type's."""
        found: dict[str, NodeState] = {}
        for pool in request.pools:
            ready = registry.pools[pool.name].ready
            settled = next((node for node in ready if _is_good(node, request.now_ms)), None)
            learnt = self._learnt.get(pool.name)
            if settled is not None and (learnt is None or learnt[0] is not settled.state):
                pods = request.pods.get(settled.state.name, ())
                fills = registry.cloud.fills_templates
                template = _template_of(pool, settled, pods, fills=fills)
                learnt = self._learnt[pool.name] = settled.state, template
            if learnt:
                found[pool.name] = learnt[1]
                continue
            node = pool.node(f"{pool.name}-template")
            daemons = (pod.spec for pod in request.daemons if not refusal_of(pod.spec, node))
            found[pool.name] = node_state(node, daemons)
        return found


def _is_good(node: PoolNode, now_ms: int) -> bool:
    if node.leaving or node.state.node.unschedulable:
        return False
    return node.joined_ms is None or node.joined_ms + SETTLED_MS < now_ms


def _template_of(pool: NodePool, node: PoolNode, pods: Sequence[Pod], *, fills: bool) -> NodeState:
    new = pool.node(f"{pool.name}-template", instance_type=pool.template)
    own = node.state.node.allocatable
    allocatable = {**pool.template.allocatable, **own} if fills else own
    stay = [pod.spec for pod in pods if is_daemon(pod) or is_mirror(pod)]
    return node_state(replace(new, allocatable=allocatable), stay)
