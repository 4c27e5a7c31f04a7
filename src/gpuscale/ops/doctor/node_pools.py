"""The node pools that may add a node for a pod, and what node autoscalers say about it.

The verdict over these facts is `hpa.cluster.verdicts`; here they are read from the objects.

Source: karpenter.sh/v1 (NodePool, NodeClaim); cluster-autoscaler core/scaleup (event NotTriggerScaleUp),
    clusterstate/api/types.go (status, YAML from 1.30) and clusterstate/utils/status.go (text before).
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.devices import (
    DeviceClaim,
    device_classes,
    read_device_claim,
    read_device_class,
    read_resource_slice,
)
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.nodes import read_taint
from gpuscale.base.objects.pods import PodSpec
from gpuscale.hpa.cluster.scheduling import demands
from gpuscale.hpa.cluster.verdicts import (
    ALLOCATED,
    REGISTERED,
    Card,
    ComingNode,
    Offered,
    Outlook,
    PoolFacts,
    PoolLabels,
    Reason,
    Verdict,
    Why,
    cards_of,
    cluster_autoscalers_reasons,
    judge,
    karpenters_reasons,
)
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.snapshot import Snapshot

MAX_WAIT_MS = 900_000
"""Cluster Autoscaler's --max-node-provision-time; an A100 node on AKS takes about 14 minutes."""
PRIORITY_FLAG = "--expendable-pods-priority-cutoff"
_DEFAULT_CUTOFF = -10
RECENT_MS = 900_000
"""How long what an autoscaler or a cloud said counts."""
_GROUP_FAILURE = re.compile(
    r"Scale-up failed for group (?P<group>[^\s:]+(?:://[^\s:]+)?): (?P<said>.*)", re.DOTALL
)
_LATE_NODES = re.compile(
    r"Nodes added to group (?P<group>\S+) (?P<said>failed to register within \S+)"
)
_SCALE_UP = re.compile(r"triggered scale-up: \[\{(?P<group>\S+) \d+->\d+")
_OLD_GROUP = re.compile(
    r"Name:\s+(?P<name>\S+)\s.*?cloudProviderTarget=(?P<target>\d+) \(minSize=\d+, maxSize=(?P<most>\d+)\)"
    r".*?ScaleUp:\s+(?P<up>\w+)",
    re.DOTALL,
)
_LAUNCH_FAILURES = (
    *("InsufficientCapacityError", "LaunchFailed", "NodeClassNotReady", "FailedLaunch"),
    *("InsufficientCapacity", "CreateError"),
)
_GPUS_OF_TYPE = re.compile(r".+/(?:instance|sku)-gpu-count")
"""Karpenter's label of a type's number of GPUs, by provider."""


def adds_nodes(snapshot: Snapshot) -> bool:
    """Return whether the cluster runs Cluster Autoscaler or Karpenter."""
    return bool(snapshot.all("autoscaler-status") or snapshot.all("nodepools"))


def pools_for(snapshot: Snapshot, spec: PodSpec) -> tuple[Fields, ...]:
    """Return Karpenter's pools that fit a pod's node selector, pools without nodes included."""
    return pools_with(snapshot, tuple(spec.node_selector.items()))


@once
def pools_with(snapshot: Snapshot, labels: tuple[tuple[str, str], ...]) -> tuple[Fields, ...]:
    """Return the pools whose nodes may have all of these labels."""
    bodies, known = snapshot.all("nodepools"), pool_facts(snapshot)
    every: Sequence[int] = range(len(bodies))
    places = min((_places(snapshot, *label) for label in labels), key=len, default=every)
    return tuple(
        bodies[place]
        for place in places
        if all(known[place].labels.may_have(*label) for label in labels)
    )


@once
def pool_facts(snapshot: Snapshot) -> Sequence[PoolFacts]:
    """Return what is known of each NodePool, in their order."""
    denied, coming = failed_claims(snapshot), _coming(snapshot)
    found = []
    for body in snapshot.all("nodepools"):
        name, template = facts.name(body), body.child("spec").child("template")
        requirements: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for each in template.child("spec").items("requirements"):
            of_key = requirements.setdefault(each.text("key"), [])
            of_key.append((each.text("operator"), each.texts("values")))
        counts = [
            values
            for key, listed in requirements.items()
            if _GPUS_OF_TYPE.fullmatch(key)
            for operator, values in listed
            if operator == "In" and all(value.isdecimal() for value in values)
        ]
        found.append(
            PoolFacts(
                name,
                PoolLabels({facts.NODE_POOL: name, **facts.labels(template)}, requirements),
                tuple(map(read_taint, template.child("spec").items("taints"))),
                body.child("spec").quantities("limits"),
                body.child("status").quantities("resources"),
                {facts.GPU: max(map(int, counts[0]))} if counts and counts[0] else {},
                next(false_conditions(body), "") if is_unready(body) else "",
                denied[name].message if name in denied else "",
                tuple(coming.get(name, ())),
            )
        )
    return found


def is_unready(pool: Fields) -> bool:
    """Return whether a NodePool says that it is not Ready, or that it does not know yet."""
    return facts.condition(pool, "Ready") in ("False", "Unknown")


def false_conditions(body: Fields) -> Iterator[str]:
    """Yield the messages of conditions that don't hold, Ready last as it only sums up the others."""
    listed = [
        each
        for each in body.child("status").items("conditions")
        if each.text("status") in ("False", "Unknown")
    ]
    for each in sorted(listed, key=lambda one: one.text("type") == "Ready"):
        said = (each.text("type"), each.text("reason"), each.text("message"))
        yield ": ".join(dict.fromkeys(filter(None, said)))


@dataclass(frozen=True, slots=True)
class FailedClaim:
    """A NodeClaim that the cloud gave no machine for."""

    name: str
    reason: str
    """Of the event; empty if the claim itself says it."""
    message: str
    at_ms: int


@once
def failed_claims(snapshot: Snapshot) -> Mapping[str, FailedClaim]:
    """Return the last refusal of the cloud, by NodePool, unless a machine was started since."""
    claims = {facts.name(each): each for each in snapshot.all("nodeclaims")}
    failures: dict[str, FailedClaim] = {}
    for event in sorted(snapshot.all("claim-events"), key=_at_ms):
        is_recent = snapshot.now_ms - _at_ms(event) <= RECENT_MS
        if is_recent and event.text("reason") in _LAUNCH_FAILURES:
            name = event.child("involvedObject").text("name")
            failures[name] = FailedClaim(
                name, event.text("reason"), event.text("message"), _at_ms(event)
            )
    for name, claim in claims.items():
        if facts.condition(claim, "Launched") == "False":
            said = next(false_conditions(claim), "")
            failures.setdefault(name, FailedClaim(name, "", said, snapshot.now_ms))
    found = {}
    for name, failure in failures.items():
        claimed = facts.labels(claims[name]).get(facts.NODE_POOL, "") if name in claims else ""
        # A failed NodeClaim is deleted; what remains is its name, made of its pool's and five
        # letters.
        pool = claimed or name.rpartition("-")[0]
        if all(each.since_ms < failure.at_ms for each in _coming(snapshot).get(pool, ())):
            found[pool] = failure
    return found


@once
def launched_claims(snapshot: Snapshot) -> Sequence[Fields]:
    """Return the NodeClaims with a machine whose node does not take pods yet."""
    return [
        claim
        for claim in snapshot.all("nodeclaims")
        if facts.condition(claim, "Launched") == "True"
        and facts.condition(claim, "Initialized") != "True"
    ]


def awaits_claim(snapshot: Snapshot, pod: Fields) -> bool:
    """Return whether a pool that may take a pod has a machine whose node takes no pods yet."""
    started = _starting_pools(snapshot)
    return bool(started) and any(
        facts.name(pool) in started for pool in pools_for(snapshot, facts.spec_of(pod))
    )


@once
def _starting_pools(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(
        facts.labels(claim).get(facts.NODE_POOL, "") for claim in launched_claims(snapshot)
    )


@once
def _coming(snapshot: Snapshot) -> Mapping[str, Sequence[ComingNode]]:
    found: dict[str, list[ComingNode]] = {}
    for claim in launched_claims(snapshot):
        since_ms = claim.child("metadata").time_ms("creationTimestamp") or snapshot.now_ms
        if snapshot.now_ms - since_ms <= MAX_WAIT_MS:
            pool = facts.labels(claim).get(facts.NODE_POOL, "")
            found.setdefault(pool, []).append(ComingNode(facts.name(claim), since_ms))
    return found


def verdict_of(snapshot: Snapshot, pod: Fields) -> Verdict:
    """Return whether a node comes for a pod that no node takes now."""
    spec, name = _with_claims(snapshot, pod), facts.full_name(pod)
    node = scale_ups(snapshot).get(name)
    if node is not None:
        return Verdict(Outlook.COMING, (node.name,), node)
    verdict = verdict_for(snapshot, DistinctSpec.of(spec), karpenters_words(snapshot).get(name, ()))
    if verdict.pools or not snapshot.all("autoscaler-status"):
        return verdict
    if spec.priority < priority_cutoff(snapshot) and not facts.is_gated(pod):
        return judge(spec, (), (Reason(Why.PRIORITY),))
    refused = judge(spec, (), refusals(snapshot).get(name, ()), offered=_offered(snapshot))
    return refused if refused.reasons else Verdict(Outlook.EXPECTED)


def _with_claims(snapshot: Snapshot, pod: Fields) -> PodSpec:
    """Return a pod's spec, in which claims without devices say what they ask for."""
    spec, namespace = facts.spec_of(pod), facts.namespace(pod)
    if not spec.claims:
        return spec
    return replace(
        spec,
        claims=tuple(
            replace(each, asks=_asked(snapshot, "claimtemplates", f"{namespace}/{each.template}"))
            if each.template
            else replace(each, asks=_asked(snapshot, "resourceclaims", f"{namespace}/{each.claim}"))
            for each in spec.claims
        ),
    )


@once
def _asked(snapshot: Snapshot, plural: str, name: str) -> DeviceClaim | None:
    """Return what a claim or template asks for; None where it is not there, or has its devices."""
    body = facts.by_full_name(snapshot, plural).get(name)
    if body is None or body.child("status").data.get("allocation"):
        return None
    spec = body.child("spec")
    return read_device_claim(_alone(spec.child("spec") if plural == "claimtemplates" else spec))


@once
def _offered(snapshot: Snapshot) -> Offered:
    """Return the cluster's devices for claims, as far as they can be read."""
    classes = snapshot.all("deviceclasses")
    slices = (_alone(each.child("spec")) for each in snapshot.all("resourceslices"))
    return Offered(
        device_classes(read_device_class(_alone(each)) for each in classes)
        if snapshot.serves("deviceclasses")
        else None,
        [device for each in slices for device in read_resource_slice(each, "").devices]
        if snapshot.serves("resourceslices")
        else None,
    )


def _alone(fields: Fields) -> Fields:
    """Return the same fields with faults of their own, such as what only simulations refuse."""
    return Fields(fields.document, fields.data)


@once
def priority_cutoff(snapshot: Snapshot) -> int:
    """Return the priority below which Cluster Autoscaler adds no nodes; of a managed one, the default."""
    for body in snapshot.all("deployments"):
        text = facts.flags_of(body).get(PRIORITY_FLAG, "")
        if text.lstrip("-").isdecimal():
            return int(text)
    return _DEFAULT_CUTOFF


@dataclass(frozen=True, slots=True)
class DistinctSpec:
    """A pod's spec, equal for pods that ask the same of a pool."""

    key: Hashable
    spec: PodSpec = field(compare=False)

    @classmethod
    def of(cls, spec: PodSpec) -> "DistinctSpec":
        return cls(demands(spec), spec)


@once
def verdict_for(snapshot: Snapshot, of: DistinctSpec, said: tuple[Reason, ...]) -> Verdict:
    """Return whether a NodePool makes a node for pods that ask the same."""
    labels = tuple(of.spec.node_selector.items())
    return judge(
        of.spec,
        _facts_with(snapshot, labels),
        said,
        offered=_offered(snapshot),
        cards=shared_cards(snapshot),
    )


@once
def shared_cards(snapshot: Snapshot) -> Sequence[tuple[str, Sequence[Card]]]:
    """Return the cards of the nodes whose GPUs HAMi shares; none where those of a node are not known."""
    found = []
    for node in snapshot.all("nodes"):
        registered = node.child("metadata").labels("annotations").get(REGISTERED)
        if registered is None:
            continue
        pods = facts.pods_by_node(snapshot).get(facts.name(node), ())
        shares = [
            pod.child("metadata").labels("annotations").get(ALLOCATED)
            for pod in pods
            if facts.wanted_gpus(facts.spec_of(pod))
        ]
        cards = cards_of(registered, filter(None, shares))
        if cards is None or not all(shares):
            return ()
        found.append((facts.name(node), cards))
    return found


@once
def _facts_with(snapshot: Snapshot, labels: tuple[tuple[str, str], ...]) -> Sequence[PoolFacts]:
    by_name = facts_by_name(snapshot)
    return [by_name[facts.name(body)] for body in pools_with(snapshot, labels)]


@once
def facts_by_name(snapshot: Snapshot) -> Mapping[str, PoolFacts]:
    """Return what is known of each NodePool, by its name."""
    return {each.name: each for each in pool_facts(snapshot)}


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
    for place, pool in enumerate(pool_facts(snapshot)):
        only = pool.labels.only(key)
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
def refusals(snapshot: Snapshot) -> Mapping[str, tuple[Reason, ...]]:
    """Return Cluster Autoscaler's reasons for adding no node, by pod as `namespace/name`."""
    return {
        pod: cluster_autoscalers_reasons(said)
        for pod, (said, _) in _last_words(snapshot).items()
        if _SCALE_UP.search(said) is None
    }


@once
def scale_ups(snapshot: Snapshot) -> Mapping[str, ComingNode]:
    """Return the node groups that Cluster Autoscaler grows, by the pod that it does so for."""
    return {
        pod: ComingNode(found["group"], at_ms)
        for pod, (said, at_ms) in _last_words(snapshot).items()
        if (found := _SCALE_UP.search(said)) is not None
    }


@once
def _last_words(snapshot: Snapshot) -> Mapping[str, tuple[str, int]]:
    """Return Cluster Autoscaler's last message about each pod, and its time."""
    found: dict[str, tuple[str, int]] = {}
    for plural in ("scale-ups", "events"):
        for pod, said, at_ms in recent_by_pod(snapshot, plural):
            if pod not in found or at_ms >= found[pod][1]:
                found[pod] = (said, at_ms)
    return found


@once
def karpenters_words(snapshot: Snapshot) -> Mapping[str, tuple[Reason, ...]]:
    """Return Karpenter's reasons for adding no node, by pod as `namespace/name`."""
    asked_ms = {
        pool: max(each.since_ms for each in nodes) for pool, nodes in _coming(snapshot).items()
    }
    found: dict[str, tuple[Reason, ...]] = {}
    read: dict[str, tuple[Reason, ...]] = {}  # of pods that ask the same, it says the same
    for pod, said, at_ms in recent_by_pod(snapshot, "scheduling-events"):
        if said not in read:
            read[said] = karpenters_reasons(said)
        # What a pool could not give it may have asked for since.
        reasons = [each for each in read[said] if asked_ms.get(each.pool, at_ms) <= at_ms]
        if reasons:
            found[pod] = tuple(reasons)
    return found


def recent_by_pod(snapshot: Snapshot, plural: str) -> Iterator[tuple[str, str, int]]:
    """Yield the pod, message and time of recent events, newest last; autoscalers repeat what still holds."""
    for event in sorted(snapshot.all(plural), key=_at_ms):
        if snapshot.now_ms - _at_ms(event) <= RECENT_MS or not _at_ms(event):
            about = facts.service_fields(event.child("involvedObject"))
            yield facts.full_name(about), event.text("message"), _at_ms(event)


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
    code: str = ""
    message: str = ""
    """Of the failure that it waits after."""
    since: str = ""

    @property
    def is_full(self) -> bool:
        return 0 < self.most <= self.target


@once
def group_failures(snapshot: Snapshot) -> Mapping[str, str]:
    """Return Cluster Autoscaler's last recent failure to grow a group, by the group's name."""
    return {
        found["group"]: found["said"]
        for event in sorted(snapshot.all("scale-up-failures"), key=_at_ms)
        if snapshot.now_ms - _at_ms(event) <= RECENT_MS
        for said in (event.text("message"),)
        for found in (_GROUP_FAILURE.search(said) or _LATE_NODES.search(said),)
        if found is not None
    }


@once
def node_groups(snapshot: Snapshot) -> Sequence[NodeGroupStatus]:
    """Return Cluster Autoscaler's node groups."""
    maps = snapshot.all("autoscaler-status")
    return [each for body in maps for each in groups_of(body.child("data").text("status"))]


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
    return NodeGroupStatus(
        body.text("name"),
        health.integer("cloudProviderTarget") or 0,
        health.integer("maxSize") or 0,
        up.text("status"),
        info.text("errorCode"),
        info.text("errorMessage"),
        str(up.data.get("lastTransitionTime") or ""),
    )
