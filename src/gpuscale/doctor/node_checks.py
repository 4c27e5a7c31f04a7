"""GPU nodes: labels, the device plugin, what can be allocated, and whom taints keep away."""

import json
from collections.abc import Iterator, Sequence

from gpuscale.doctor import facts
from gpuscale.doctor.facts import found
from gpuscale.doctor.findings import Change, Finding, Fix
from gpuscale.doctor.snapshot import Snapshot
from gpuscale.install.providers import OWN_LABEL
from gpuscale.objects.fields import Fields
from gpuscale.objects.nodes import Taint
from gpuscale.objects.pods import PodSpec
from gpuscale.scheduling.taints import untolerated

_EKS_LABEL = "k8s.amazonaws.com/accelerator"
_EKS_GROUP = "eks.amazonaws.com/nodegroup"
_AKS_LABEL = "kubernetes.azure.com/accelerator"
_AKS_POOL = "kubernetes.azure.com/agentpool"


def node_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Return what is wrong with GPU nodes, and with who may use them."""
    nodes = facts.gpu_nodes(snapshot)
    yield from _no_nodes(snapshot, nodes)
    for node in nodes:
        yield from _readiness(node)
        yield from _labels(snapshot, node)
        yield from _allocatable(snapshot, node)
    yield from _taints(snapshot, nodes)


def adds_nodes(snapshot: Snapshot) -> bool:
    """Return whether Cluster Autoscaler or Karpenter is there."""
    return bool(snapshot.all("autoscaler-status") or snapshot.all("nodepools"))


def toleration_patch(taint: Taint, present: Sequence[object], *, below: str) -> str:
    """Return the JSON merge patch that adds a toleration to those that are there.

    Args:
        taint: to be tolerated.
        present: tolerations so far; a merge patch replaces lists.
        below: `template` for a workload.
    """
    wanted = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    inner = {"spec": {"tolerations": [*present, wanted]}}
    return json.dumps({"spec": {below: inner}})


def tolerate(kind: str, body: Fields, taint: Taint) -> Fix:
    """Return the fix that lets a workload's pods onto nodes with a taint."""
    present = body.child("spec").child("template").child("spec").items("tolerations")
    patch = toleration_patch(taint, [each.data for each in present], below="template")
    place = ("-n", facts.namespace(body))
    command = facts.quoted(
        *("kubectl", "patch", kind, facts.name(body), *place, "--type=merge", "-p", patch)
    )
    return Fix(f"Give its pods a toleration for {taint}.", command)


def _no_nodes(snapshot: Snapshot, nodes: Sequence[Fields]) -> Iterator[Finding]:
    waiting = facts.waiting_pods(snapshot)
    if nodes or not waiting or adds_nodes(snapshot) or snapshot.hides("nodes"):
        return
    yield found(
        "no-gpu-nodes",
        "nodes",
        f"No node has a GPU, and {facts.counted(waiting, 'pod')} can't start for want of one.",
        f"{facts.full_name(waiting[0])}: {facts.why_waiting(waiting[0])}",
        Fix(
            "Add a pool of GPU nodes; gpuscale writes the provider's command from `nodePool`.",
            "gpuscale render values.yaml",
        ),
    )


def _readiness(node: Fields) -> Iterator[Finding]:
    if facts.is_ready(node):
        return
    name = facts.name(node)
    reasons = (
        f"{one.text('reason')}: {one.text('message')}"
        for one in node.child("status").items("conditions")
        if one.text("type") == "Ready"
    )
    yield found(
        "gpu-node-not-ready",
        f"node/{name}",
        "The node is not Ready, so its GPUs are of no use.",
        next(reasons, "it has no condition Ready"),
        Fix("Look at its kubelet, or let the pool replace it.", f"kubectl describe node {name}"),
    )


def _labels(snapshot: Snapshot, node: Fields) -> Iterator[Finding]:
    name, given = facts.name(node), facts.labels(node)
    if not facts.has_gpu_label(node):
        body = {"metadata": {"labels": {OWN_LABEL: "true"}}}
        yield found(
            "gpu-node-unlabelled",
            f"node/{name}",
            "The node has GPUs and no label that tells so, and the node agent passes it over.",
            f"{facts.capacity(node)} GPUs; labels: {', '.join(sorted(given)) or 'none'}",
            Fix(
                "Label the node, and its pool for the nodes to come.",
                f"kubectl label node {name} {OWN_LABEL}=true",
                (Change(f"/api/v1/nodes/{name}", body),),
            ),
        )
    if not snapshot.all("autoscaler-status"):
        return
    for group, label in ((_EKS_GROUP, _EKS_LABEL), (_AKS_POOL, _AKS_LABEL)):
        if group in given and label not in given:
            yield found(
                "accelerator-label-missing",
                f"node/{name}",
                "Cluster Autoscaler takes the node for ready before its GPUs are, and buys again.",
                f"{group}={given[group]}, and no label {label}",
                Fix(
                    f"Label the pool {given[group]}, so that its nodes are born with {label}.",
                    f"kubectl label node {name} {label}=nvidia",
                ),
            )


def _allocatable(snapshot: Snapshot, node: Fields) -> Iterator[Finding]:
    name = facts.name(node)
    has, gives = facts.capacity(node), facts.allocatable(node)
    if gives > 0:
        if gives < has:
            yield found(
                "gpus-unhealthy",
                f"node/{name}",
                f"{has - gives} of {has} GPUs can't be allocated.",
                f"capacity {has}, allocatable {gives}",
                Fix("See which GPU is ill and why.", f"kubectl describe node {name}"),
            )
        return
    yield _why_none(snapshot, node, f"capacity {has}, allocatable {gives}")


def _why_none(snapshot: Snapshot, node: Fields, amounts: str) -> Finding:
    name = facts.name(node)
    about = f"node/{name}"
    here = [pod for pod in facts.plugin_pods(snapshot) if facts.spec_of(pod).node_name == name]
    if here and facts.is_ready(here[0]):
        return found(
            "no-allocatable-gpu",
            about,
            "The device plugin runs and reports no GPU: driver or container runtime is missing.",
            amounts,
            Fix("See what the plugin says.", _logs(here[0])),
        )
    if here:
        return found(
            "device-plugin-not-ready",
            about,
            "The device plugin is not ready on the node.",
            f"{facts.full_name(here[0])} is {here[0].child('status').text('phase')}; {amounts}",
            Fix("See what the plugin says.", _logs(here[0])),
        )
    for body in facts.plugin_sets(snapshot):
        taint = untolerated(facts.taints(node), facts.template_of(body).tolerations)
        if taint is not None:
            return found(
                "device-plugin-taint",
                about,
                f"The device plugin does not tolerate the node's taint {taint}.",
                f"DaemonSet {facts.full_name(body)}; {amounts}",
                tolerate("daemonset", body, taint),
            )
    return found(
        "no-device-plugin",
        about,
        "No device plugin runs on the node, so Kubernetes knows of none of its GPUs.",
        amounts,
        Fix(
            "Set devicePlugin.enabled in the values and install again, or use the provider's.",
            "gpuscale install values.yaml",
        ),
    )


def _logs(pod: Fields) -> str:
    return f"kubectl logs -n {facts.namespace(pod)} {facts.name(pod)}"


def _taints(snapshot: Snapshot, nodes: Sequence[Fields]) -> Iterator[Finding]:
    if not nodes:
        return
    for kind, plural in (("deployment", "deployments"), ("statefulset", "statefulsets")):
        for body in snapshot.all(plural):
            taint = kept_off_by(facts.template_of(body), nodes)
            if taint is not None:
                yield found(
                    "taint-not-tolerated",
                    f"{kind}/{facts.full_name(body)}",
                    f"It wants GPUs, and no GPU node takes its pods, for the taint {taint}.",
                    f"{facts.counted(nodes, 'GPU node')}, all with taints that it does not tolerate",
                    tolerate(kind, body, taint),
                )
    for pod in facts.waiting_pods(snapshot):
        kind, name = facts.owner_kind(pod)
        taint = kept_off_by(facts.spec_of(pod), nodes)
        if taint is not None and kind in ("Pod", "Job"):
            yield found(
                "taint-not-tolerated",
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


def kept_off_by(spec: PodSpec, nodes: Sequence[Fields]) -> Taint | None:
    """Return a taint of the last node where all nodes have one that keeps a pod off."""
    if facts.wanted_gpus(spec) == 0:
        return None
    barred = [untolerated(facts.taints(node), spec.tolerations) for node in nodes]
    return barred[-1] if all(barred) else None
