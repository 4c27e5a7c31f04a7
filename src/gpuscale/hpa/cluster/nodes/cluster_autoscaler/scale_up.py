"""Which pools grow for pending pods, by how many nodes, and why others don't.

Source: cluster-autoscaler/core/scaleup/orchestrator/orchestrator.go, processors/nodegroupset/
balancing_processor.go and compare_nodegroups.go, processors/status/eventing_scale_up_processor.go (1.35);
the words for exceeded limits are those of 1.33 and 1.34.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.pods import Pod
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.company import Company
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.estimator import PodGroup, estimate
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.expanders import (
    Circumstances,
    Option,
    best_option,
    capacity_of,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import Registry
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import Snapshot
from gpuscale.hpa.cluster.nodes.pools import NodePool, NotTriggered, ScaleUp
from gpuscale.hpa.cluster.scheduling import NodeState, misfits
from gpuscale.hpa.cluster.scheduling.resources import NANO

_BACKED_OFF = "in backoff after failed scale-up"
_MAX_REACHED = "max node group size reached"
_NOT_READY = "not ready for scale-up"
_IGNORED_LABELS = frozenset(
    (
        *("kubernetes.io/hostname", "failure-domain.beta.kubernetes.io/zone"),
        *("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/zone"),
        *("topology.kubernetes.io/region", "beta.kubernetes.io/fluentd-ds-ready"),
        "kops.k8s.io/instancegroup",
    )
)
GIB = (1 << 30) * NANO


@dataclass(frozen=True, slots=True)
class Growth:
    """What a pass makes of its pending pods."""

    actions: tuple[ScaleUp, ...] = ()
    not_triggered: tuple[NotTriggered, ...] = ()


@dataclass(slots=True)
class ClusterSize:
    """The nodes of the cluster, those on the way included."""

    nodes: int
    cores: int
    memory_nano: int


@dataclass(slots=True)
class _Candidates:
    """The pools that may grow, and the groups of pods that each of them could take."""

    groups: dict[str, list[PodGroup]] = field(default_factory=dict)
    rejected: dict[PodGroup, Counter[str]] = field(default_factory=dict)
    """Groups that no pool could take so far, with what was against it."""
    skipped: Counter[str] = field(default_factory=Counter)


def scale_up(
    pools: Sequence[NodePool],
    pods: Sequence[Pod],
    templates: Mapping[str, NodeState],
    registry: Registry,
    size: ClusterSize,
    now_ms: int,
    *,
    snapshot: Snapshot,
    draw: int,
    all_or_nothing: bool = False,
) -> Growth:
    """Return the growth of one pool, or of several that are alike, and the pods that no pool could help.

    Args:
        pools: all of them.
        pods: that fit on no node that is there or on its way.
        templates: a new node of each pool.
        registry: the pools' state.
        size: of the cluster.
        now_ms: milliseconds since the epoch.
        snapshot: in which none of the pods has found a place.
        draw: the number of this decision, for what is drawn at random.
        all_or_nothing: grow for all of the pods or for none.
    """
    settings, company = registry.settings, snapshot.company
    alike: dict[object, list[Pod]] = {}
    for pod in pods:
        key = company.alike(pod) if company.repelling or company.is_bound(pod) else None
        alike.setdefault((snapshot.kinds.of(pod.spec), key), []).append(pod)
    groups = [PodGroup(snapshot.kinds.of(of[0].spec), tuple(of)) for of in alike.values()]
    candidates = _candidates(pools, groups, templates, registry, size, now_ms, company)
    valid = [pool for pool in pools if pool.name in candidates.groups]

    options: list[Option] = []
    for pool in valid:
        its_groups = candidates.groups[pool.name]
        if not its_groups:
            continue
        limit = sum(
            each.max_nodes - registry.pools[each.name].size
            for each in (pool, *_similar(pool, valid, candidates, templates, registry))
        )
        if settings.max_nodes_per_scaleup:
            limit = min(limit, settings.max_nodes_per_scaleup)
        if settings.max_nodes_total:
            limit = min(limit, settings.max_nodes_total - size.nodes)
        found = estimate(its_groups, templates[pool.name], limit, company)
        if found.nodes and (len(found.pods) == len(pods) or not all_or_nothing):
            options.append(Option(pool, templates[pool.name], found.nodes, found.pods))

    best = (
        best_option(options, Circumstances(settings, size.nodes, draw, snapshot.kinds.requests))
        if options
        else None
    )
    if best is None:
        return Growth(not_triggered=_refusals(candidates))
    new_nodes = min(best.nodes, _allowed(best.pool, registry, size)[0])
    if settings.max_nodes_total:
        new_nodes = min(new_nodes, settings.max_nodes_total - size.nodes)
    sharing = [best.pool, *_similar(best.pool, valid, candidates, templates, registry)]
    grown = balance(
        {pool.name: (registry.pools[pool.name].size, pool.max_nodes) for pool in sharing},
        new_nodes,
    )
    total = sum(grown.values())
    if not total or (all_or_nothing and total < best.nodes):
        return Growth(not_triggered=_refusals(candidates))
    actions: list[ScaleUp] = []
    pods_left = list(best.pods)
    for number, (name, added) in enumerate(grown.items(), 1):
        share = len(best.pods) * added // total if number < len(grown) else len(pods_left)
        helped = tuple(pod.metadata.key for pod in pods_left[:share])
        del pods_left[:share]
        at = registry.pools[name].size
        actions.append(ScaleUp(name, at, at + added, helped))
        registry.register_scale_up(name, added, now_ms)
    return Growth(tuple(actions))


def _candidates(
    pools: Sequence[NodePool],
    groups: Sequence[PodGroup],
    templates: Mapping[str, NodeState],
    registry: Registry,
    size: ClusterSize,
    now_ms: int,
    company: Company,
) -> _Candidates:
    found = _Candidates(rejected={group: Counter() for group in groups})
    helped: set[PodGroup] = set()
    for pool in pools:
        exceeded = _allowed(pool, registry, size)
        if not registry.is_healthy(pool.name):
            found.skipped[_NOT_READY] += 1
        elif registry.is_backed_off(pool.name, now_ms):
            found.skipped[_BACKED_OFF] += 1
        elif registry.pools[pool.name].size >= pool.max_nodes:
            found.skipped[_MAX_REACHED] += 1
        elif exceeded[0] < 1:
            found.skipped[f"max cluster {', '.join(exceeded[1])} limit reached"] += 1
        else:
            its_groups = found.groups[pool.name] = []
            for group in groups:
                reasons = misfits(group.kind.spec, templates[pool.name])
                if not reasons and company.is_bound(group.pods[0]):
                    new = company.open(templates[pool.name].node)
                    refused = company.refusals(company.alike(group.pods[0])).of_node(new)
                    reasons = (refused,) if refused else ()
                    company.shut(new)
                if reasons:
                    found.rejected[group].update(reasons)
                else:
                    its_groups.append(group)
                    helped.add(group)
    found.rejected = {
        group: reasons for group, reasons in found.rejected.items() if group not in helped
    }
    return found


def _allowed(pool: NodePool, registry: Registry, size: ClusterSize) -> tuple[int, list[str]]:
    """Return how many nodes of a pool the cluster's limits leave room for, and which limits leave none."""
    settings, capacity = registry.settings, capacity_of(pool.template)
    left = {
        "cpu": settings.cores_total[1] - size.cores,
        "memory": settings.memory_total[1] * GIB - size.memory_nano,
    }
    needs = {"cpu": cores_of(capacity), "memory": memory_of(capacity)}
    allowed = {name: left[name] // need for name, need in needs.items() if need}
    most = max(0, min(allowed.values(), default=pool.max_nodes))
    return most, [name for name, nodes in allowed.items() if nodes < 1]


def cores_of(capacity: Mapping[str, Quantity]) -> int:
    """Return whole cores, rounded up."""
    return -(-capacity["cpu"].nano // NANO) if "cpu" in capacity else 0


def memory_of(capacity: Mapping[str, Quantity]) -> int:
    """Return nano-bytes."""
    return capacity["memory"].nano if "memory" in capacity else 0


def _refusals(candidates: _Candidates) -> tuple[NotTriggered, ...]:
    """Return why no pool grows, for each pod that none could take."""
    return tuple(
        NotTriggered(pod.metadata.key, not_triggered_message(reasons, candidates.skipped))
        for group, reasons in candidates.rejected.items()
        for pod in group.pods
    )


def not_triggered_message(rejected: Mapping[str, int], skipped: Mapping[str, int]) -> str:
    """Return the message of the event NotTriggerScaleUp."""
    counts = Counter(rejected)
    counts.update(skipped)
    listed = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return f"pod didn't trigger scale-up: {listed}"


def balance(sizes: Mapping[str, tuple[int, int]], new_nodes: int) -> dict[str, int]:
    """Return how many of the new nodes each pool gets: one by one to the smallest that is not full.

    Args:
        sizes: pool to its present and its largest size.
        new_nodes: to be shared out.
    """
    present = {name: size for name, (size, most) in sizes.items() if size < most}
    grown = dict(present)
    for _ in range(new_nodes):
        open_pools = [name for name in grown if grown[name] < sizes[name][1]]
        if not open_pools:
            break
        # Of pools that are as small, the one that was smallest to begin with, then the first.
        grown[min(open_pools, key=lambda name: (grown[name], present[name]))] += 1
    order = sorted(present, key=lambda name: present[name])
    return {name: grown[name] - present[name] for name in order if grown[name] > present[name]}


def _similar(
    pool: NodePool,
    valid: Sequence[NodePool],
    candidates: _Candidates,
    templates: Mapping[str, NodeState],
    registry: Registry,
) -> list[NodePool]:
    """Return the pools that new nodes are shared with: alike, and able to take the same pods."""
    if not registry.settings.balance_similar_node_groups:
        return []
    its_groups = set(candidates.groups[pool.name])
    return [
        other
        for other in valid
        if other is not pool
        and its_groups <= set(candidates.groups[other.name])
        and are_similar(pool, other, templates, registry)
    ]


def are_similar(
    one: NodePool, other: NodePool, templates: Mapping[str, NodeState], registry: Registry
) -> bool:
    """Return whether nodes of two pools are so alike that it does not matter which pool grows."""
    settings, cloud = registry.settings, registry.cloud
    pair = templates[one.name], templates[other.name]
    labels = [dict(state.node.metadata.labels) for state in pair]
    if settings.balancing_label:
        return all(
            key in labels[0] and labels[0][key] == labels[1].get(key)
            for key in settings.balancing_label
        )
    if any(
        labels[0].get(key) and labels[0][key] == labels[1].get(key) for key in cloud.pool_labels
    ):
        return True
    capacities = [capacity_of(pool.template) for pool in (one, other)]
    if set(capacities[0]) != set(capacities[1]):
        return False
    for name in capacities[0]:
        amounts = [capacity[name].nano for capacity in capacities]
        ratio = settings.memory_difference_ratio if name == "memory" else 0.0
        if not _within(amounts, ratio):
            return False
    allocatable = [state.node.allocatable for state in pair]
    if set(allocatable[0]) != set(allocatable[1]):
        return False
    for name in allocatable[0]:
        if not _within(
            [each[name].nano for each in allocatable], settings.max_allocatable_difference_ratio
        ):
            return False
        if not _within([state.free(name) for state in pair], settings.max_free_difference_ratio):
            return False
    ignored = _IGNORED_LABELS.union(cloud.ignored_labels, settings.balancing_ignore_label)
    kept = [{key: of[key] for key in of if key not in ignored} for of in labels]
    return kept[0] == kept[1]


def _within(amounts: Sequence[int], ratio: float) -> bool:
    return max(amounts) - min(amounts) <= max(amounts) * ratio
