"""Which node pools may bring a pod its node, and what node autoscalers say of it.

Source: karpenter.sh/v1 (NodePool, NodeClaim) and the messages of Karpenter 1.15 pkg/controllers/provisioning;
    cluster-autoscaler core/scaleup (event NotTriggerScaleUp), clusterstate/api/types.go (status, YAML from
    1.30) and clusterstate/utils/status.go (text before).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.pods import PodSpec
from gpuscale.kube.reading import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.snapshot import Snapshot

MAX_WAIT_MS = 900_000
"""Cluster Autoscaler's --max-node-provision-time; an A100 node on AKS takes about 14 minutes."""
AT_MAX = "max node group size reached"
_WELL_KNOWN = ("kubernetes.io/", "k8s.io/", "karpenter.")
_SEGMENT = re.compile(
    r"incompatible with nodepool[ =:]+\"?(?P<pool>[\w.-]+)\"?,?\s*(?P<why>.*?)"
    r"(?=;? incompatible with nodepool|$)",
    re.DOTALL,
)
_OVERHEAD = re.compile(r"^daemonset overhead=\{[^}]*\},?\s*")
_OLD_GROUP = re.compile(
    r"Name:\s+(?P<name>\S+)\s.*?cloudProviderTarget=(?P<target>\d+) \(minSize=\d+, maxSize=(?P<most>\d+)\)"
    r".*?ScaleUp:\s+(?P<up>\w+)",
    re.DOTALL,
)


def adds_nodes(snapshot: Snapshot) -> bool:
    """Return whether Cluster Autoscaler or Karpenter is there."""
    return bool(snapshot.all("autoscaler-status") or snapshot.all("nodepools"))


def pools_for(snapshot: Snapshot, spec: PodSpec) -> tuple[Fields, ...]:
    """Return Karpenter's pools whose nodes a pod's node selector lets it onto, at zero as well."""
    return tuple(
        pool
        for pool in snapshot.all("nodepools")
        if all(_may_have(pool, key, value) for key, value in spec.node_selector.items())
    )


def _may_have(pool: Fields, key: str, value: str) -> bool:
    template = pool.child("spec").child("template")
    fixed = {facts.NODE_POOL: facts.name(pool), **facts.labels(template)}
    if key in fixed:
        return fixed[key] == value
    about = [
        each for each in template.child("spec").items("requirements") if each.text("key") == key
    ]
    for each in about:
        values = each.texts("values")
        match each.text("operator"):
            case "In" if value not in values:
                return False
            case "NotIn" if value in values:
                return False
            case "DoesNotExist":
                return False
    return bool(about) or any(word in key for word in _WELL_KNOWN)


def may_come(snapshot: Snapshot, pod: Fields) -> bool:
    """Return whether a node of another sort than those that are there may still come for a pod.

    Karpenter says itself what it makes no node for; Cluster Autoscaler's pools can't be read, so what it has
    not refused is given the time that a node takes.
    """
    if pools_for(snapshot, facts.spec_of(pod)):
        return True
    created = pod.child("metadata").time_ms("creationTimestamp") or 0
    refused = facts.full_name(pod) in refusals(snapshot)
    is_young = snapshot.now_ms - created <= MAX_WAIT_MS
    return bool(snapshot.all("autoscaler-status")) and not refused and is_young


@once
def refusals(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what Cluster Autoscaler says of the pods that it adds no node for, by `namespace/name`."""
    return dict(_by_pod(snapshot, "events"))


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """Why one of Karpenter's pools makes no node for a pod."""

    pool: str
    """Empty where Karpenter names none."""
    why: str


@once
def karpenters_words(snapshot: Snapshot) -> Mapping[str, tuple[PoolRefusal, ...]]:
    """Return what Karpenter says of the pods that it makes no node for, by `namespace/name`."""
    found = {}
    for pod, message in _by_pod(snapshot, "scheduling-events"):
        parts = tuple(
            PoolRefusal(each["pool"], _OVERHEAD.sub("", each["why"]).strip())
            for each in _SEGMENT.finditer(message)
        )
        if parts or "nodepool" in message.lower():
            found[pod] = parts or (PoolRefusal("", message),)
    return found


def _by_pod(snapshot: Snapshot, plural: str) -> Iterator[tuple[str, str]]:
    """Yield the pods that events are about, with their messages; the newest last."""
    for event in sorted(snapshot.all(plural), key=_at_ms):
        about = facts.service_fields(event.child("involvedObject"))
        yield facts.full_name(about), event.text("message")


def _at_ms(event: Fields) -> int:
    metadata = event.child("metadata")
    return event.time_ms("lastTimestamp") or metadata.time_ms("creationTimestamp") or 0


@dataclass(frozen=True, slots=True)
class NodeGroupStatus:
    """One of Cluster Autoscaler's node groups, as its status says."""

    name: str
    target: int
    most: int
    scale_up: str
    """`NoActivity`, `InProgress` or `Backoff`."""
    error: str = ""
    """Code and message of what it waits after."""
    since: str = ""

    @property
    def is_full(self) -> bool:
        return 0 < self.most <= self.target


def groups_of(status: str) -> tuple[NodeGroupStatus, ...]:
    """Return the node groups of a status, as YAML or as text; none where it has neither."""
    try:
        data = [each.data for each in load_documents(status, "status")]
    except ConfigError:
        data = []
    if data and isinstance(data[0], dict) and "nodeGroups" in data[0]:
        return tuple(map(_group, fields_of(data[0]).items("nodeGroups")))
    return tuple(
        NodeGroupStatus(each["name"], int(each["target"]), int(each["most"]), each["up"])
        for each in _OLD_GROUP.finditer(status)
    )


def _group(body: Fields) -> NodeGroupStatus:
    health, up = body.child("health"), body.child("scaleUp")
    info = up.child("backoffInfo")
    error = ": ".join(filter(None, (info.text("errorCode"), info.text("errorMessage"))))
    return NodeGroupStatus(
        body.text("name"),
        health.integer("cloudProviderTarget") or 0,
        health.integer("maxSize") or 0,
        up.text("status"),
        error,
        str(up.data.get("lastTransitionTime") or ""),
    )
