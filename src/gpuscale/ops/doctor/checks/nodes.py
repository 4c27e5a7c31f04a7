"""GPU nodes: labels, device plugin, allocatable GPUs, taints."""

import json
from collections.abc import Iterator, Mapping, Sequence

from gpuscale.base.findings import Checks, Fix, FixRequest, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.label_index import LabelIndex
from gpuscale.base.objects.pods import PodSpec
from gpuscale.base.objects.taints import Taint, Toleration, untolerated
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.node_state import NODE_STATE_CHECKS, node_state_findings
from gpuscale.ops.doctor.choices import NodeChoice, by_first_taint, chosen, past_first
from gpuscale.ops.doctor.judges import NODES, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.node_pools import adds_nodes, may_come
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.ops.providers import OWN_LABEL, every

_CHECKS = Checks(NODES, including=(NODE_STATE_CHECKS,))
NO_GPU_NODES = _CHECKS.add(
    "no-gpu-nodes",
    Severity.ERROR,
    "Pods want GPUs, no node has one, and nothing adds nodes.",
    "Add a pool of GPU nodes; gpuscale writes the provider's command from `nodePool`.",
)
GPU_NODE_NOT_READY = _CHECKS.add(
    "gpu-node-not-ready",
    Severity.WARNING,
    "A node with GPUs that is not Ready.",
    "Look at its kubelet, or let the pool replace it.",
)
GPU_NODE_UNLABELLED = _CHECKS.add(
    "gpu-node-unlabelled",
    Severity.WARNING,
    "A node with GPUs and no label that says so.",
    "Label the node, and its pool for the nodes to come.",
)
ACCELERATOR_LABEL_MISSING = _CHECKS.add(
    "accelerator-label-missing",
    Severity.WARNING,
    "No label by which Cluster Autoscaler knows that GPUs are still to come, so it buys twice.",
    "Label the pool, so that its nodes are born with the label.",
)
NO_DEVICE_PLUGIN = _CHECKS.add(
    "no-device-plugin",
    Severity.ERROR,
    "A GPU node without a device plugin, and so without GPUs.",
    "Set devicePlugin.enabled in the values and install again, or use the provider's.",
)
DEVICE_PLUGIN_TAINT = _CHECKS.add(
    "device-plugin-taint",
    Severity.ERROR,
    "A taint that keeps the device plugin off a GPU node.",
    "Give its pods a toleration for the taint.",
)
DEVICE_PLUGIN_NOT_READY = _CHECKS.add(
    "device-plugin-not-ready",
    Severity.ERROR,
    "A device plugin that does not run on its node.",
    "See what the plugin says.",
)
NO_ALLOCATABLE_GPU = _CHECKS.add(
    "no-allocatable-gpu",
    Severity.ERROR,
    "A device plugin that finds no GPU: the driver is missing.",
    "See what the plugin says.",
)
GPUS_UNHEALTHY = _CHECKS.add(
    "gpus-unhealthy",
    Severity.WARNING,
    "Fewer GPUs to allocate than the node has.",
    "See which GPU is ill and why.",
)
TAINT_NOT_TOLERATED = _CHECKS.add(
    "taint-not-tolerated",
    Severity.ERROR,
    "A workload that no GPU node takes, for their taints.",
    "Give its pods a toleration for the taint.",
)


_PLUGIN_SWITCHES = ("nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.operands")
"""By which the GPU Operator (controllers/state_manager.go) chooses nodes."""


def node_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults of GPU nodes, and of pods' access to them."""
    nodes = facts.gpu_nodes(snapshot)
    yield from _no_nodes(snapshot, nodes)
    for node in nodes:
        yield from _readiness(node)
        yield from _labels(snapshot, node)
        if not facts.momentary(snapshot, node):  # What a new node lacks is still to come.
            yield from _allocatable(snapshot, node)
    yield from node_state_findings(snapshot)
    yield from _taints(snapshot, nodes)


def toleration_patch(taint: Taint, present: Sequence[object], *, below: str) -> str:
    """Return the JSON merge patch that adds a toleration to a workload's existing ones.

    Args:
        taint: to be tolerated.
        present: tolerations so far; a merge patch replaces lists.
        below: `template` for a workload.
    """
    wanted = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    inner = {"spec": {"tolerations": [*present, wanted]}}
    return json.dumps({"spec": {below: inner}})


def tolerate(kind: str, body: Fields, taint: Taint) -> Fix:
    """Return the fix that adds a toleration for a taint to a workload."""
    present = body.child("spec").child("template").child("spec").items("tolerations")
    patch = toleration_patch(taint, [each.data for each in present], below="template")
    place = ("-n", facts.namespace(body))
    command = facts.quoted(
        *("kubectl", "patch", kind, facts.name(body), *place, "--type=merge", "-p", patch)
    )
    return Fix(f"Give its pods a toleration for {taint}.", command)


def _no_nodes(snapshot: Snapshot, nodes: Sequence[Fields]) -> Iterator[ClusterFinding]:
    waiting = facts.waiting_pods(snapshot)
    if nodes or not waiting or adds_nodes(snapshot) or snapshot.hides("nodes"):
        return
    yield NO_GPU_NODES.found(
        "nodes",
        f"No node has a GPU, and {counted(len(waiting), 'pod')} can't start for want of one.",
        f"{facts.full_name(waiting[0])}: {facts.why_waiting(waiting[0])}",
        Fix(
            NO_GPU_NODES.fix,
            "gpuscale render values.yaml",
        ),
    )


def _readiness(node: Fields) -> Iterator[ClusterFinding]:
    if facts.is_ready(node):
        return
    name = facts.name(node)
    reasons = (
        f"{one.text('reason')}: {one.text('message')}"
        for one in node.child("status").items("conditions")
        if one.text("type") == "Ready"
    )
    yield GPU_NODE_NOT_READY.found(
        f"node/{name}",
        "The node is not Ready, so its GPUs are of no use.",
        next(reasons, "it has no condition Ready"),
        Fix(GPU_NODE_NOT_READY.fix, f"kubectl describe node {name}"),
    )


def _labels(snapshot: Snapshot, node: Fields) -> Iterator[ClusterFinding]:
    name, given = facts.name(node), facts.labels(node)
    if not facts.has_gpu_label(node):
        body = {"metadata": {"labels": {OWN_LABEL: "true"}}}
        yield GPU_NODE_UNLABELLED.found(
            f"node/{name}",
            "The node has GPUs and no label that tells so, and the node agent passes it over.",
            f"{facts.capacity(node)} GPUs; labels: {', '.join(sorted(given)) or 'none'}",
            Fix(
                GPU_NODE_UNLABELLED.fix,
                f"kubectl label node {name} {OWN_LABEL}=true",
                (FixRequest(f"/api/v1/nodes/{name}", body),),
            ),
        )
    if not snapshot.all("autoscaler-status"):
        return
    for accelerator in [each.accelerator for each in every() if each.accelerator]:
        group, label = accelerator.pool_key, accelerator.key
        if group in given and label not in given:
            yield ACCELERATOR_LABEL_MISSING.found(
                f"node/{name}",
                "Cluster Autoscaler takes the node for ready before its GPUs are, and buys again.",
                f"{group}={given[group]}, and no label {label}",
                Fix(
                    f"Label the pool {given[group]}, so that its nodes are born with {label}.",
                    f"kubectl label node {name} {label}=nvidia",
                ),
            )


def _allocatable(snapshot: Snapshot, node: Fields) -> Iterator[ClusterFinding]:
    name = facts.name(node)
    has, gives = facts.capacity(node), facts.allocatable(node)
    if facts.offers_gpus(node) or name in facts.claimed_nodes(snapshot):
        if 0 < gives < has:
            yield GPUS_UNHEALTHY.found(
                f"node/{name}",
                f"{has - gives} of {has} GPUs can't be allocated.",
                f"capacity {has}, allocatable {gives}",
                Fix(GPUS_UNHEALTHY.fix, f"kubectl describe node {name}"),
            )
        return
    yield _why_none(snapshot, node, f"capacity {has}, allocatable {gives}")


def _why_none(snapshot: Snapshot, node: Fields, amounts: str) -> ClusterFinding:
    name = facts.name(node)
    about = f"node/{name}"
    here = _plugins_by_node(snapshot).get(name)
    if here and facts.is_ready(here[0]):
        return NO_ALLOCATABLE_GPU.found(
            about,
            "The device plugin runs and reports no GPU: driver or container runtime is missing.",
            amounts,
            Fix(NO_ALLOCATABLE_GPU.fix, _logs(here[0])),
        )
    if here:
        return DEVICE_PLUGIN_NOT_READY.found(
            about,
            "The device plugin is not ready on the node.",
            f"{facts.full_name(here[0])} is {here[0].child('status').text('phase')}; {amounts}",
            Fix(DEVICE_PLUGIN_NOT_READY.fix, _logs(here[0])),
        )
    for body in facts.plugin_sets(snapshot):
        taint = untolerated(facts.taints(snapshot, node), facts.template_of(body).tolerations)
        if taint is not None:
            return DEVICE_PLUGIN_TAINT.found(
                about,
                f"The device plugin does not tolerate the node's taint {taint}.",
                f"DaemonSet {facts.full_name(body)}; {amounts}",
                tolerate("daemonset", body, taint),
            )
    for key in _PLUGIN_SWITCHES:
        value = facts.labels(node).get(key, "true")
        if value != "true":
            return NO_DEVICE_PLUGIN.found(
                about,
                f"The label {key}={value} keeps the GPU Operator's device plugin off the node.",
                amounts,
                _switched_off(name, key, value),
            )
    return NO_DEVICE_PLUGIN.found(
        about,
        "No device plugin runs on the node, so Kubernetes knows of none of its GPUs.",
        f"{amounts}{_stops_others(snapshot, node)}",
        Fix(
            NO_DEVICE_PLUGIN.fix,
            "gpuscale install values.yaml",
        ),
    )


def _stops_others(snapshot: Snapshot, node: Fields) -> str:
    """Return what a node with Cluster Autoscaler's label for GPUs and without GPUs does to other pools.

    Source: cluster-autoscaler core/scaleup/orchestrator (the tracker of resource limits needs each GPU node).
    """
    known = (each.accelerator.key for each in every() if each.accelerator)
    if not snapshot.all("autoscaler-status") or not any(key in facts.labels(node) for key in known):
        return ""
    return "; until it has GPUs, Cluster Autoscaler may add no nodes to other pools either"


@facts.once
def _plugins_by_node(snapshot: Snapshot) -> Mapping[str, Sequence[Fields]]:
    found: dict[str, list[Fields]] = {}
    for pod in facts.plugin_pods(snapshot):
        found.setdefault(facts.spec_of(pod).node_name, []).append(pod)
    return found


def _switched_off(name: str, key: str, value: str) -> Fix:
    if value.startswith("paused"):
        return Fix(
            "Wait until the operator's change of drivers or MIG is through; it puts the label back.",
            f"kubectl get node {name} --show-labels",
        )
    return Fix(
        f"Set the label back if pods are to get its GPUs: {value} was set on purpose.",
        f"kubectl label node {name} {key}=true --overwrite",
    )


def _logs(pod: Fields) -> str:
    return f"kubectl logs -n {facts.namespace(pod)} {facts.name(pod)}"


def _taints(snapshot: Snapshot, nodes: Sequence[Fields]) -> Iterator[ClusterFinding]:
    if not nodes:
        return
    # If nodes may still be added, the present ones don't tell what those will offer.
    stuck = {
        f"{facts.namespace(pod)}/{facts.maker(snapshot, pod)[1]}"
        for pod in facts.waiting_pods(snapshot)
        if not may_come(snapshot, pod)
    }
    for kind, plural in (("deployment", "deployments"), ("statefulset", "statefulsets")):
        for body in snapshot.all(plural):
            taint = kept_off_by(snapshot, facts.template_of(body))
            if taint is not None and (not adds_nodes(snapshot) or facts.full_name(body) in stuck):
                yield TAINT_NOT_TOLERATED.found(
                    f"{kind}/{facts.full_name(body)}",
                    f"It wants GPUs, and no GPU node takes its pods, for the taint {taint}.",
                    f"{counted(len(nodes), 'GPU node')}, all with taints that it does not tolerate",
                    tolerate(kind, body, taint),
                )
    for pod in facts.waiting_pods(snapshot):
        kind, name = facts.owner_kind(pod)
        taint = kept_off_by(snapshot, facts.spec_of(pod))
        if taint is not None and kind in ("Pod", "Job") and not may_come(snapshot, pod):
            yield TAINT_NOT_TOLERATED.found(
                f"{kind.lower()}/{facts.namespace(pod)}/{name}",
                f"It wants GPUs, and no GPU node takes it, for the taint {taint}.",
                facts.why_waiting(pod),
                Fix(
                    f"Make it again with a toleration for {taint}: those of a {kind} can't change.",
                    json.dumps(
                        {
                            "tolerations": [
                                {"key": taint.key, "operator": "Exists", "effect": taint.effect}
                            ]
                        }
                    ),
                ),
            )


def kept_off_by(snapshot: Snapshot, spec: PodSpec) -> Taint | None:
    """Return a taint that keeps a pod off the GPU nodes it selects; None unless all of them have one."""
    return (
        keeping_off(snapshot, NodeChoice.of(spec), spec.tolerations) if facts.wanted(spec) else None
    )


@facts.once
def keeping_off(
    snapshot: Snapshot, choice: NodeChoice, tolerations: tuple[Toleration, ...]
) -> Taint | None:
    """Return the same as `kept_off_by`, for a node choice with tolerations."""
    kinds = _kinds_of_taints(snapshot, choice)
    near = _by_first_taint(snapshot, choice).candidates(past_first(tolerations))
    if not kinds or any(untolerated(taints, tolerations) is None for taints in near):
        return None
    return untolerated(kinds[-1], tolerations)


@facts.once
def _kinds_of_taints(snapshot: Snapshot, choice: NodeChoice) -> Sequence[tuple[Taint, ...]]:
    """Return the distinct sets of taints on the GPU nodes that a choice selects."""
    of_gpus = facts.gpu_node_names(snapshot)
    nodes = (node for node in chosen(snapshot, choice) if facts.name(node) in of_gpus)
    return [*dict.fromkeys(facts.taints(snapshot, node) for node in nodes)]


@facts.once
def _by_first_taint(snapshot: Snapshot, choice: NodeChoice) -> LabelIndex[tuple[Taint, ...]]:
    return by_first_taint((taints, taints) for taints in _kinds_of_taints(snapshot, choice))


JUDGE = ClusterJudge("nodes", _CHECKS, node_findings)
