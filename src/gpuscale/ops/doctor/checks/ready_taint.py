"""New GPU nodes that keep the taint which the node agent takes off once their GPUs are of use."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.nodes import read_taint
from gpuscale.base.objects.taints import READY_TAINT, Taint, untolerated
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.nodes import tolerate
from gpuscale.ops.doctor.judges import NODES, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import Snapshot

_CHECKS = Checks(NODES)
READY_TAINT_STAYS = _CHECKS.add(
    "ready-taint-stays",
    Severity.ERROR,
    "A node that still has the taint of `agent.readyTaint` after ten minutes, and takes no pods.",
    "See to what the node agent waits for: the GPUs, the device plugin, or itself.",
)
_LONG_MS = 600_000
"""From the making of the Node on; a driver that is still to be installed takes some of it."""
_FLAG = "--ready-taint="


def _stays(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    keys = {READY_TAINT, *(key for body in facts.agent_sets(snapshot) for key in _keys(body))}
    for node in snapshot.all("nodes"):
        listed = map(read_taint, node.child("spec").items("taints"))
        taint = next((each for each in listed if each.key in keys), None)
        made_ms = node.child("metadata").time_ms("creationTimestamp")
        age_ms = 0 if made_ms is None else snapshot.now_ms - made_ms
        if taint is None or age_ms <= _LONG_MS or not facts.is_ready(node):
            continue
        missing, fix = _missing(snapshot, node, taint)
        yield READY_TAINT_STAYS.found(
            f"node/{facts.name(node)}",
            f"The node is {age_ms // 60_000} minutes old and takes no pods yet: {missing}.",
            f"taint {taint}",
            fix,
        )


def _keys(agent_set: Fields) -> Iterator[str]:
    containers = agent_set.child("spec").child("template").child("spec").items("containers")
    for text in (text for each in containers for text in each.texts("args")):
        if text.startswith(_FLAG):
            yield text.removeprefix(_FLAG)


def _missing(snapshot: Snapshot, node: Fields, taint: Taint) -> tuple[str, Fix]:
    """Return what the taint waits for, and what to do about it."""
    name = facts.name(node)
    here = facts.pods_by_node(snapshot).get(name, ())
    agents = [pod for pod in here if facts.is_own_agent(pod)]
    if not agents:
        command = f"kubectl get pods -A -o wide --field-selector=spec.nodeName={name}"
        return "no node agent runs there to take the taint off", Fix(
            "Install with agent.readyTaint, or see what keeps the agent off the node.", command
        )
    see = f"kubectl logs -n {facts.namespace(agents[0])} {facts.name(agents[0])}"
    if not facts.is_ready(agents[0]):
        return "its GPUs don't answer, so the node agent is not ready", Fix(
            "See what the agent says of the driver.", see
        )
    if not facts.offers_gpus(node) and name not in facts.claimed_nodes(snapshot):
        missing = "the device plugin has registered no GPU"
        for body in facts.plugin_sets(snapshot):
            if untolerated((taint,), facts.template_of(body).tolerations) is not None:
                return f"{missing}, and does not tolerate the taint", tolerate(
                    "daemonset", body, taint
                )
        return missing, Fix(
            "See why the device plugin does not run on the node, or finds no GPU there.",
            f"kubectl get pods -A -o wide --field-selector=spec.nodeName={name}",
        )
    return "the node agent is ready, GPUs are registered, and the taint was not taken off", Fix(
        f"See what the agent says of the taint; it needs {_FLAG}{taint.key}, and rights for its node.",
        see,
    )


JUDGE = ClusterJudge("ready-taint", _CHECKS, _stays)
