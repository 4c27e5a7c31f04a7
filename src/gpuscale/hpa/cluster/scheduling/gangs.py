"""Gangs: pods of which enough get nodes at once, or none does.

Source: kubernetes v1.37 pkg/scheduler/schedule_one_podgroup.go (podGroupSchedulingDefaultAlgorithm,
submitPodGroupAlgorithmResult), framework/plugins/gangscheduling (PlacementFeasible). Known difference: a gang
preempts nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.scheduling.placing import Placer

TOO_FEW_PODS = "waiting for minCount pods from a gang to appear in scheduling queue"
"""Why pods of a gang are not tried before enough of them are made."""


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """The outcome of one attempt."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Pod key to its node; empty where the gang waits."""
    devices: dict[str, frozenset[DeviceKey]] = field(default_factory=dict)
    """Pod key to what its claims get there."""
    messages: dict[str, str] = field(default_factory=dict)
    """Pod key to why it has no node."""
    fitting: int = 0
    """How many pods would have had one when the attempt ended."""
    message: str = ""
    """Why the gang waits; empty where it doesn't."""


def place_gang(placer: Placer, pods: Sequence[Pod], least: int, there: int) -> GangPlacement:
    """Place the pods of a gang one after the other, and keep their room if enough of them fit.

    Args:
        placer: the nodes.
        pods: those that wait, in the order of the queue.
        least: the gang's minCount.
        there: how many of its pods are on nodes.
    """
    before = dict(placer.states)
    nodes, refused = dict[str, str](), dict[str, str]()
    devices: dict[str, frozenset[DeviceKey]] = {}
    left, scheduled = len(pods), there
    for pod in pods:
        if left + scheduled < least:
            break
        placement = placer.place(pod)
        left -= 1
        if placement.node is None:
            refused[pod.metadata.key] = placement.message
        else:
            nodes[pod.metadata.key] = placement.node
            devices[pod.metadata.key] = placement.devices
            scheduled += 1
    if scheduled >= least:
        return GangPlacement(nodes, devices, refused, len(nodes))
    placer.update(before)
    message = f"minCount ({least}) cannot be satisfied: {scheduled} scheduled, {left} remaining"
    messages = {
        pod.metadata.key: f"pod group is unschedulable, {message}"
        if pod.metadata.key in nodes
        else refused.get(pod.metadata.key, message)
        for pod in pods
    }
    return GangPlacement({}, {}, messages, len(nodes), message)
