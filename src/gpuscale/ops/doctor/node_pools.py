"""The node pools that may add a node for a pod, and what node autoscalers say about it.

Source: karpenter.sh/v1 (NodePool, NodeClaim) and the messages of Karpenter 1.15 pkg/controllers/provisioning;
    cluster-autoscaler core/scaleup (event NotTriggerScaleUp), clusterstate/api/types.go (status, YAML from
    1.30) and clusterstate/utils/status.go (text before).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.pods import PodSpec
from gpuscale.kube import fields_of
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
    """Return whether the cluster runs Cluster Autoscaler or Karpenter."""
    return bool(snapshot.all("autoscaler-status") or snapshot.all("nodepools"))


def pools_for(snapshot: Snapshot, spec: PodSpec) -> tuple[Fields, ...]:
    """Return Karpenter's pools that fit a pod's node selector, pools without nodes included."""
    return pools_with(snapshot, tuple(spec.node_selector.items()))


@once
def pools_with(snapshot: Snapshot, labels: tuple[tuple[str, str], ...]) -> tuple[Fields, ...]:
    """Return the pools whose nodes may have all of these labels."""
    every: Sequence[int] = range(len(_pools(snapshot)))
    places = min((_places(snapshot, *label) for label in labels), key=len, default=every)
    pools = (_pools(snapshot)[place] for place in places)
    return tuple(pool.body for pool in pools if all(pool.may_have(*label) for label in labels))


@dataclass(frozen=True, slots=True)
class PoolLabels:
    """The labels that a pool's nodes have or may have."""

    body: Fields
    fixed: Mapping[str, str]
    requirements: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]]
    """By key: operator and values."""

    def may_have(self, key: str, value: str) -> bool:
        """Return whether a node of the pool may have this label."""
        if key in self.fixed:
            return self.fixed[key] == value
        for operator, values in self.requirements.get(key, ()):
            match operator:
                case "In" if value not in values:
                    return False
                case "NotIn" if value in values:
                    return False
                case "DoesNotExist":
                    return False
        return self._knows(key)

    def only(self, key: str) -> Iterable[str] | None:
        """Return the values that the pool's nodes can have of a label; None if any value is possible."""
        if key in self.fixed:
            return (self.fixed[key],)
        if not self._knows(key):
            return ()
        listed = (values for operator, values in self.requirements.get(key, ()) if operator == "In")
        return next(map(frozenset, listed), None)

    def _knows(self, key: str) -> bool:
        return key in self.requirements or any(word in key for word in _WELL_KNOWN)


@once
def _pools(snapshot: Snapshot) -> Sequence[PoolLabels]:
    found = []
    for body in snapshot.all("nodepools"):
        template = body.child("spec").child("template")
        requirements: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for each in template.child("spec").items("requirements"):
            of_key = requirements.setdefault(each.text("key"), [])
            of_key.append((each.text("operator"), each.texts("values")))
        fixed = {facts.NODE_POOL: facts.name(body), **facts.labels(template)}
        found.append(PoolLabels(body, fixed, requirements))
    return found


@once
def _places(snapshot: Snapshot, key: str, value: str) -> Sequence[int]:
    """Return the indexes of all pools that may have a label, with some that may not."""
    by_value, others = _places_by_value(snapshot, key)
    return [*merge(by_value.get(value, ()), others)]


@once
def _places_by_value(
    snapshot: Snapshot, key: str
) -> tuple[Mapping[str, Sequence[int]], Sequence[int]]:
    """Return pool indexes by a label's value, and the indexes of pools that allow any value."""
    by_value: dict[str, list[int]] = {}
    others: list[int] = []
    for place, pool in enumerate(_pools(snapshot)):
        only = pool.only(key)
        if only is None:
            others.append(place)
        for value in only or ():
            by_value.setdefault(value, []).append(place)
    return by_value, others


def may_come(snapshot: Snapshot, pod: Fields) -> bool:
    """Return whether a node of a new kind may still be added for a pod.

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
    """Return Cluster Autoscaler's reasons for adding no node, by pod as `namespace/name`."""
    return dict(_by_pod(snapshot, "events"))


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """Karpenter's reason why a pool adds no node for a pod."""

    pool: str
    """Empty where Karpenter names none."""
    why: str


@once
def karpenters_words(snapshot: Snapshot) -> Mapping[str, tuple[PoolRefusal, ...]]:
    """Return Karpenter's reasons for adding no node, by pod as `namespace/name`."""
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
    """Yield the pod and message of events, newest last."""
    for event in sorted(snapshot.all(plural), key=_at_ms):
        about = facts.service_fields(event.child("involvedObject"))
        yield facts.full_name(about), event.text("message")


def _at_ms(event: Fields) -> int:
    metadata = event.child("metadata")
    return event.time_ms("lastTimestamp") or metadata.time_ms("creationTimestamp") or 0


@dataclass(frozen=True, slots=True)
class NodeGroupStatus:
    """A node group in Cluster Autoscaler's status."""

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
    """Return the node groups in a status, given as YAML or text; none if it has neither form."""
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
