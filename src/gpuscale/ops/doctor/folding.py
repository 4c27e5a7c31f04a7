"""Folding of findings: consequences under their cause, and equal findings of many objects into one."""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gpuscale.base.findings import Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import MetricSpec, PodsMetric
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.metrics_api import group_of
from gpuscale.ops.doctor.checks.node_agent import POD_LABELS
from gpuscale.ops.doctor.checks.prometheus import MAX_SERIES_AGE_S
from gpuscale.ops.doctor.checks.workload_subjects import about, key_of, subjects
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import ClusterFinding
from gpuscale.ops.doctor.node_pools import pools_for
from gpuscale.ops.doctor.scalers import keda_deployments, triggers_by_object
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot
from gpuscale.ops.lint.checks import CHECKS as LINT_CHECKS
from gpuscale.server.metricsapi.why import WRONG_SELECTOR
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, RESOURCE_GROUP
from gpuscale.signals import is_of_gpu

T = TypeVar("T")
_VALUES = ("no-value", "pods-without-value", "old-value", "not-scaling")
_KEDA = ("scaled-not-ready", "keda-hpa-blind", "fallback-active", *_VALUES)
"""What follows where KEDA or a scaler is away."""
_SERIES = ("no-scrape-target", "no-series", "old-series", "target-down", "node-not-scraped")
_AGENTS = (
    *("agent-not-ready", "agent-silent", "agent-unreachable", "node-without-agent"),
    *("attribution-lost", "no-pod-labels", "old-reading", "no-gpu-util", "agent-clock"),
)
_OF_GPUS = frozenset({"no-node-agent", "pod-is-exported-pod", *_SERIES, *_AGENTS})
"""What can be behind values of GPUs alone."""
_NODES = (
    *("no-allocatable-gpu", "no-device-plugin", "device-plugin-not-ready", "gpus-unhealthy"),
    *("gpu-node-unlabelled", "clock-skew", "node-not-initialized"),
)
_ROOM = ("no-node-autoscaler", "pods-wait-long", "no-gpu-nodes")
_NO_NODE_COMES = (
    *("node-pool-limit", "node-pool-not-ready", "node-pool-refuses", "node-claim-failed"),
    *("template-without-gpu", "node-group-at-max", "autoscaler-limit", "node-not-registered"),
    *("pool-taint-not-tolerated", "priority-too-low", "node-group-refuses"),
)
_UNPLACED = (
    *("resource-not-offered", "larger-than-any-node", "no-matching-node", "nodes-cordoned"),
    *("mig-not-applied", "group-in-parts"),
    *(
        "no-node-yet",
        "unschedulable",
        "rollout-without-room",
        "volume-not-bound",
        "claim-not-allocated",
        "pod-gated",
        "workload-queued",
        "no-scheduler",
    ),
)
_SERVED = ("api-unavailable", "api-without-metrics")
_NOT_RUNNING = ("pod-not-ready", "pod-starts-slowly", "container-ends")

CAUSES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("gpu-node-not-ready",),
        (*_NODES, *_AGENTS, "target-down", *_VALUES, *_NOT_RUNNING, "rollout-stuck", *_ROOM),
    ),
    (("clock-skew",), ("agent-clock", "old-reading", "old-series", *_VALUES)),
    (
        (
            "device-plugin-taint",
            "device-plugin-not-ready",
            "no-device-plugin",
            "no-allocatable-gpu",
        ),
        ("node-without-agent", "fewer-gpus-read", *_ROOM, "rollout-stuck", "node-not-initialized"),
    ),
    (("gpu-node-unlabelled",), ("node-without-agent", *_VALUES)),
    (("gpu-node-cordoned",), ("nodes-cordoned",)),
    (
        ("ready-taint-stays",),
        ("gpu-node-out-of-use", "node-not-initialized", "no-node-yet", *_ROOM),
    ),
    (("node-not-initialized",), ("gpu-node-out-of-use",)),
    (("gpu-node-out-of-use",), ("no-node-yet",)),
    (("taint-not-tolerated",), (*_ROOM, *_VALUES, "rollout-stuck")),
    (("no-node-agent",), (*_SERIES, *_SERVED, *_VALUES)),
    (
        ("agent-not-ready", "agent-silent", "node-without-agent"),
        ("agent-unreachable", *_SERIES, "api-without-metrics", *_VALUES, "rollout-stuck"),
    ),
    (("probe-too-early",), ("agent-not-ready", *_SERIES, *_VALUES)),
    (("driver-unreadable", "gpu-unreadable"), ("no-series", "api-without-metrics", *_VALUES)),
    (
        ("attribution-lost", "no-pod-labels", "no-gpu-util", "old-reading", "agent-clock"),
        ("old-series", "no-series", "pods-without-value", "old-value", "no-value", "not-scaling"),
    ),
    (
        ("wrong-prometheus-address", "prometheus-refuses"),
        ("prometheus-unreachable", *_SERVED, *_VALUES, "unknown-metric"),
    ),
    (("no-scrape-target", "target-down"), ("no-series", "api-without-metrics", *_VALUES)),
    (("node-not-scraped",), ("pods-without-value", "no-value", "not-scaling")),
    (("no-series", "old-series", "pod-is-exported-pod"), ("api-without-metrics", *_VALUES)),
    (("server-lacks-right",), ("api-unavailable", "api-without-metrics", *_VALUES)),
    (("no-metrics-api", "certificate-expired", "api-certificate"), (*_SERVED, *_VALUES)),
    (("api-of-somebody-else", "keda-conflict"), (*_SERVED, "api-certificate", *_VALUES)),
    (("hpa-not-allowed",), _VALUES),
    (("keda-not-running",), (*_KEDA, "no-push-stream", "keda-hpa-absent")),
    (("scaler-absent", "scaler-not-ready"), _KEDA),
    (("scaled-not-ready",), ("keda-hpa-blind", "fallback-active", *_VALUES)),
    (("keda-hpa-blind",), _VALUES),
    (_SERVED, _VALUES),
    (("no-resource-metrics", "no-resource-request"), ("not-scaling",)),
    (("selectors-overlap", "target-is-owned", "two-hpas"), ("not-scaling", "pods-without-value")),
    (
        ("wrong-target-version", "no-scale-target"),
        ("not-scaling", "no-value", "scaled-not-ready", "keda-hpa-absent"),
    ),
    (
        ("described-object-absent",),
        ("not-scaling", "no-value", "metric-not-for-resource", "unknown-metric"),
    ),
    (
        ("unknown-metric", "misspelled-metric"),
        ("not-scaling", "no-value"),
    ),
    (("metric-not-for-resource",), ("not-scaling", "no-value")),
    (("rules-unreadable",), _VALUES),
    (("no-value",), ("not-scaling",)),
    (
        ("pods-refused", "deployment-paused", "node-name-gone"),
        (*_VALUES, "rollout-stuck", "at-max", "quota-below-max"),
    ),
    (_UNPLACED, (*_VALUES, "rollout-stuck", *_ROOM, *_SERVED)),
    (("container-waiting",), (*_VALUES, "rollout-stuck", *_SERVED, "pod-not-ready")),
    (
        (*_NOT_RUNNING, "pod-failed"),
        (*_VALUES, "rollout-stuck", *_SERVED),
    ),
    (_NO_NODE_COMES, _ROOM),
    (
        (*_ROOM, *_NO_NODE_COMES, "quota-full"),
        ("rollout-stuck", *_VALUES),
    ),
)
"""Causes, roots first, and what may follow from them where it is about the same part of the chain."""


def folded(snapshot: Snapshot, findings: Sequence[ClusterFinding]) -> tuple[ClusterFinding, ...]:
    """Return the findings that are root causes, each with its consequences folded under it."""
    by_check: dict[str, dict[str, int]] = {}
    for index, finding in enumerate(findings):
        if not _is_only_noted(finding):
            by_check.setdefault(finding.check.id, {}).setdefault(finding.where, index)
    under = {
        index: cause
        for index, finding in enumerate(findings)
        if (cause := _cause_of(snapshot, finding, by_check)) is not None
    }
    followers: dict[int, list[ClusterFinding]] = {}
    for index in under:
        followers.setdefault(_root(index, under), []).append(findings[index])
    roots = [index for index in range(len(findings)) if _root(index, under) == index]
    return tuple(
        replace(
            _as_one([findings[index] for index in alike]),
            consequences=tuple(
                _as_one(each)
                for each in _alike([one for index in alike for one in followers.get(index, ())])
            ),
        )
        for alike in _groups(roots, [_signature(findings[index]) for index in roots])
    )


def _is_only_noted(finding: ClusterFinding) -> bool:
    """Return whether a finding does no harm where others of its check do, so that nothing follows from it."""
    check = LINT_CHECKS.get(finding.check.id, finding.check)
    return finding.check.severity is Severity.NOTE is not check.severity


def _cause_of(
    snapshot: Snapshot, finding: ClusterFinding, by_check: Mapping[str, Mapping[str, int]]
) -> int | None:
    """Return the index of the finding that causes this one, nearest to the root; None if it is a root."""
    look = _hpas(snapshot).get(finding.where)
    metrics = _metrics_in(look, finding) if look is not None and finding.check.id in _VALUES else ()
    if finding.fix.say == WRONG_SELECTOR:
        return None  # The series exist, but the HPA's own selector matches none.
    for causes, follow in CAUSES:
        if finding.check.id not in follow or finding.check.id in causes:
            continue
        for check in causes:
            places = by_check.get(check)
            if not places or (look and metrics and not _concerns(snapshot, check, look, metrics)):
                continue
            common = upstream(snapshot, finding.where, metrics) & places.keys()
            if common:
                return min(places[where] for where in common)
    return None


def _root(index: int, under: Mapping[int, int]) -> int:
    seen = set()
    while index in under and index not in seen:
        seen.add(index)
        index = under[index]
    return min(seen) if index in seen else index


# The same of many objects


_OF_SEVERAL = ("selectors-overlap",)
"""Checks whose findings name all objects that they are about, each from its own side."""


def _signature(finding: ClusterFinding) -> tuple[str, str, str]:
    """Return a finding's text without its object's name, equal for findings that differ in the name only."""
    names = [re.escape(each) for each in finding.where.split("/")[1:] if each]
    own = re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?![\w.-])") if names else None
    what, say = finding.what, finding.fix.say
    if own is not None and finding.check.id not in _OF_SEVERAL:
        what, say = own.sub("*", what), own.sub("*", say)
    return finding.check.id, re.sub(r"[^\s,:;]*\d[^\s,:;]*", "*", what), say


def _groups(items: Sequence[T], keys: Sequence[Hashable]) -> Iterable[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for item, key in zip(items, keys, strict=True):
        found.setdefault(key, []).append(item)
    return found.values()


def _alike(findings: Sequence[ClusterFinding]) -> Iterable[list[ClusterFinding]]:
    return _groups(findings, [_signature(each) for each in findings])


def _as_one(findings: Sequence[ClusterFinding]) -> ClusterFinding:
    return replace(findings[0], same=tuple(findings[1:]))


# What an object depends on


def _metrics_in(look: HpaLook, finding: ClusterFinding) -> tuple[MetricSpec, ...]:
    """Return the metrics of an HPA that a finding names; all of them if it names none."""
    words = set(re.findall(r"[\w:.@/-]*\w", f"{finding.what} {finding.evidence}"))
    specs = tuple(each.spec for each in look.metrics)
    return tuple(each for each in specs if each.name in words) or specs


def _is_of_gpus(spec: MetricSpec) -> bool:
    return is_of_gpu(spec.name) or re.search("gpu|dcgm", spec.name, re.IGNORECASE) is not None


def _concerns(snapshot: Snapshot, check: str, look: HpaLook, metrics: Sequence[MetricSpec]) -> bool:
    """Return whether a cause can affect these metrics: faults of GPU series affect GPU metrics only."""
    if check not in _OF_GPUS:
        return True
    if not any(map(_is_of_gpus, metrics)):
        return False
    if check != "old-series":
        return True
    names = {facts.name(pod) for pod in facts.pods_of(snapshot, look)}
    # A stale series without a pod may belong to any.
    return not names or not _owners_of_old(snapshot).isdisjoint({*names, ""})


@once
def _owners_of_old(snapshot: Snapshot) -> frozenset[str]:
    """Return the pods named in stale GPU series; an empty name stands for a series without pod."""
    series = (labels for labels, age_s in snapshot.prometheus.usage if age_s > MAX_SERIES_AGE_S)
    owners = ([labels[key] for key in POD_LABELS if labels.get(key)] or [""] for labels in series)
    return frozenset(name for named in owners for name in named)


@once
def upstream(
    snapshot: Snapshot, where: str, metrics: tuple[MetricSpec, ...] = ()
) -> frozenset[str]:
    """Return the objects whose faults may cause one of this object, itself included.

    Args:
        snapshot: of the cluster.
        where: the object.
        metrics: of an HPA, those that the trouble is about; none for all.
    """
    found: Iterable[str] = ()
    kind, _, rest = where.partition("/")
    match kind:
        case "hpa":
            look = _hpas(snapshot).get(where)
            if look is not None:
                found = _of_hpa(snapshot, look, metrics or [each.spec for each in look.metrics])
        case "pod":
            waiting = _waiting(snapshot).get(rest)
            pools = () if waiting is None else pools_for(snapshot, facts.spec_of(waiting))
            found = (*_of_pod(snapshot, rest), *(f"nodepool/{facts.name(pool)}" for pool in pools))
        case "node":
            found = _agents_on(snapshot).get(rest, ())
        case "apiservice":
            found = _chain(snapshot, rest.partition(".")[2] if rest.startswith("v") else rest)
        case "prometheus":
            found = _to_prometheus(snapshot)
        case "resourcequota":
            found = _subjects_in(snapshot, rest.partition("/")[0])
        case "deployment" | "statefulset" | "replicaset":
            found = _of_workload(snapshot, kind, rest)
        case "scaledobject" | "scaledjob":
            found = _of_scaled(snapshot, where)
    return frozenset((where, *found))


@once
def _subjects_in(snapshot: Snapshot, namespace: str) -> Sequence[str]:
    return [about(key) for key in subjects(snapshot) if key[1] == namespace]


def _of_scaled(snapshot: Snapshot, where: str) -> Iterator[str]:
    """Yield what a ScaledObject or ScaledJob depends on: KEDA, and its triggers' scalers."""
    yield where
    yield from (f"deployment/{facts.full_name(body)}" for body in keda_deployments(snapshot))
    for trigger in triggers_by_object(snapshot).get(where, ()):
        if trigger.service is not None:
            yield f"service/{'/'.join(trigger.service)}"


def _of_hpa(snapshot: Snapshot, look: HpaLook, metrics: Sequence[MetricSpec]) -> Iterator[str]:
    target = look.hpa.target
    maker = facts.controller(fields_of(dict(look.body)))
    if maker is not None and maker[0] == "ScaledObject":
        yield from _of_scaled(snapshot, f"scaledobject/{look.namespace}/{maker[1]}")
    yield from _of_workload(snapshot, target.kind.lower(), f"{look.namespace}/{target.name}")
    if any(isinstance(each, PodsMetric) or _is_of_gpus(each) for each in metrics):
        for pod in facts.pods_of(snapshot, look):
            yield from _of_pod(snapshot, facts.full_name(pod))
    for group in {group_of(each) or RESOURCE_GROUP for each in metrics}:
        yield from _chain(snapshot, group)


def _of_workload(snapshot: Snapshot, kind: str, name: str) -> Iterator[str]:
    yield f"{kind}/{name}"
    for pod in _pods_of_workloads(snapshot).get(f"{kind}/{name}", ()):
        yield f"pod/{pod}"
        node = _node_of(snapshot).get(pod, "")
        if node:
            yield f"node/{node}"


def _of_pod(snapshot: Snapshot, name: str) -> Iterator[str]:
    yield f"pod/{name}"
    node = _node_of(snapshot).get(name, "")
    if node:
        yield f"node/{node}"
        yield from _agents_on(snapshot).get(node, ())


@once
def _chain(snapshot: Snapshot, group: str) -> Sequence[str]:
    """Return the objects between a value of an API group and the GPUs: APIServices, Prometheus, agents."""
    services = [
        body for body in snapshot.all("apiservices") if body.child("spec").text("group") == group
    ]
    chain = [f"apiservice/{name}" for name in (group, *map(facts.name, services))]
    if group == RESOURCE_GROUP:
        return chain
    servers = {facts.server_of(body) for body in services}
    if "KEDA" in servers:
        chain += [f"deployment/{facts.full_name(body)}" for body in keda_deployments(snapshot)]
    places = set()
    for body, _, _ in facts.metrics_servers(snapshot):
        # Without an APIService it is unknown which server should serve the group.
        word = "gpuscale" if facts.is_own_server(body) else "prometheus-adapter"
        if word in servers or not services:
            places.add(facts.namespace(body))
            chain.append(f"deployment/{facts.full_name(body)}")
    if not places and services and group != CUSTOM_GROUP:
        return chain  # Another server, such as a cloud's, which does not use Prometheus.
    maps = map(fields_of, map(dict, snapshot.rule_maps))
    chain += [
        f"configmap/{facts.full_name(body)}" for body in maps if facts.namespace(body) in places
    ]
    accounts = (right.account for right in snapshot.rights)
    chain += [f"serviceaccount/{each}" for each in accounts if each.partition("/")[0] in places]
    return [*chain, *_to_prometheus(snapshot)]


@once
def _to_prometheus(snapshot: Snapshot) -> Sequence[str]:
    """Return Prometheus with its agents and nodes, if there is just one of these."""
    agents = [f"pod/{facts.full_name(pod)}" for pod in facts.agent_pods(snapshot)]
    nodes = [f"node/{facts.name(node)}" for node in facts.gpu_nodes(snapshot)]
    alone = [*(agents if len(agents) == 1 else ()), *(nodes if len(nodes) == 1 else ())]
    return [f"prometheus/{snapshot.prometheus.address}", "daemonsets", *alone]


@once
def _waiting(snapshot: Snapshot) -> Mapping[str, Fields]:
    return {facts.full_name(pod): pod for pod in facts.waiting_pods(snapshot)}


@once
def _hpas(snapshot: Snapshot) -> Mapping[str, HpaLook]:
    return {look.about: look for look in snapshot.hpas}


@once
def _node_of(snapshot: Snapshot) -> Mapping[str, str]:
    return {
        facts.full_name(pod): pod.child("spec").text("nodeName")
        for pod in facts.active_pods(snapshot)
    }


@once
def _agents_on(snapshot: Snapshot) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in facts.agent_pods(snapshot):
        node = pod.child("spec").text("nodeName")
        found.setdefault(node, []).append(f"pod/{facts.full_name(pod)}")
    return found


@once
def _pods_of_workloads(snapshot: Snapshot) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in facts.active_pods(snapshot):
        found.setdefault(about(key_of(snapshot, pod)), []).append(facts.full_name(pod))
    return found
