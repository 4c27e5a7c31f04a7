"""Room for what autoscalers may ask for: pools of nodes and quotas below their maximum.

Source: kubernetes v1.37 pkg/quota/v1/evaluator/core/pods.go (extended resources are counted by requests);
    karpenter pkg/apis/v1/nodepool.go (limits).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.gpu_resources import WHOLE_GPUS, gpu_kind
from gpuscale.base.quantity import parse_quantity
from gpuscale.ops.lint.autoscalers import Autoscaler, autoscalers
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.gpu_pods import GpuPods
from gpuscale.ops.lint.inputs import Inputs
from gpuscale.ops.lint.node_pools import NODE_POOL_LABEL, SIMULATED_POOL, Pool
from gpuscale.ops.lint.parts import Part, whole_document
from gpuscale.ops.lint.workloads import ObjectKey, key_of

ROOM_CHECKS = Checks("capacity")
POOLS_BELOW_MAX = ROOM_CHECKS.add(
    "pools-below-max",
    Severity.WARNING,
    "An autoscaler whose maximum takes more GPUs than the pools may have.",
    "Raise the limit or size of the pools, or lower maxReplicas.",
)
QUOTA_BELOW_MAX = ROOM_CHECKS.add(
    "quota-below-max",
    Severity.WARNING,
    "Autoscalers whose maximum takes more GPUs than the namespace's ResourceQuota, alone or together.",
    "Raise the quota, or lower maxReplicas.",
)
_MOST_SHOWN = 5
"""Pools and autoscalers that are listed in one finding."""
PoolsOf = Callable[[GpuPods], Sequence[Pool]]


@dataclass(frozen=True)
class _Taker:
    """An autoscaler, and what it takes at its maximum."""

    scaler: Autoscaler
    pods: Sequence[GpuPods]
    takes: Mapping[str, int]
    """By resource."""

    @property
    def title(self) -> str:
        return self.pods[0].title

    @property
    def said(self) -> str:
        return f"{self.scaler.most} replicas of {self.title}"


class Room:
    """How much the pools that pods may go to can have, with the nodes of no pool.

    Args:
        inputs: the files, or a cluster.
        pools_of: the pools that pods may go to.
        shared: resources of which nobody knows how many a GPU has.
    """

    def __init__(self, inputs: Inputs, pools_of: PoolsOf, shared: set[str]) -> None:
        nodes = inputs.nodes.beside.get("Node", ())
        self._pools_of, self._shared = pools_of, shared | _shared_by(nodes)
        self._others = _outside_pools(nodes)
        self._adds_others = inputs.cluster.adds_other_nodes
        self._found: dict[tuple[object, ...], tuple[int, str] | None] = {}

    def of(self, pods: Sequence[GpuPods], resource: str) -> tuple[int, str] | None:
        """Return the most of a resource, and where it is in words; None where nothing known bounds it."""
        each_of = [self._pools_of(each) for each in pods]
        if self._adds_others or resource in self._shared or not any(each_of):
            return None
        key = resource, *(id(pools) for pools in each_of)
        if key not in self._found:
            pools = {id(pool): pool for pools in each_of for pool in pools}.values()
            self._found[key] = _room(tuple(pools), resource, self._others.get(resource, 0))
        return self._found[key]


def room_findings(inputs: Inputs, room: Room) -> Iterator[LintFinding]:
    """Return the autoscalers that pools or quotas keep below their maximum."""
    takers = tuple(_takers(inputs))
    yield from _quotas(inputs, takers)
    for taker in takers:
        scaler = taker.scaler
        for resource, taken in taker.takes.items():
            found = room.of(taker.pods, resource)
            if found is None or taken <= found[0]:
                continue
            yield POOLS_BELOW_MAX.found(
                scaler.part.place("spec", scaler.most_key),
                f"{scaler.most_key} can't be reached: {taker.said} take {taken} {unit_of(resource)}, and the "
                f"pools that its pods may go to have {found[0]}, for {found[0] * scaler.most // taken} of "
                f"{scaler.most}.",
                found[1],
                Fix(POOLS_BELOW_MAX.fix, scaler.kubectl("edit")),
            )


def _takers(inputs: Inputs) -> Iterator[_Taker]:
    by_key: dict[ObjectKey, list[GpuPods]] = {}
    for pods in inputs.nodes.pods:
        if any(gpu_kind(name) is not None for name in pods.requests):
            by_key.setdefault((pods.namespace, pods.kind, pods.name), []).append(pods)
    seen: set[ObjectKey] = set()
    for scaler in autoscalers(inputs) if by_key else ():
        workload = scaler.workload(inputs)
        target = scaler.target
        if workload is not None:
            target = key_of(workload.template_of or workload.part)
        if target not in by_key or scaler.target in seen:
            continue
        seen.add(scaler.target)  # Two autoscalers of one target don't take twice.
        takes: dict[str, int] = {}
        for pods in by_key[target]:
            for name, amount in pods.requests.items():
                if gpu_kind(name) is not None:
                    more = amount.value() * pods.copies * scaler.most
                    takes[name] = takes.get(name, 0) + more
        yield _Taker(scaler, by_key[target], takes)


def unit_of(resource: str) -> str:
    """Return what a resource counts, in words."""
    return "GPUs" if resource in WHOLE_GPUS else resource


# Pools


def _room(pools: Sequence[Pool], resource: str, others: int) -> tuple[int, str] | None:
    """Return how much pools and other nodes may have, and each in words; None where nothing bounds it."""
    bounds = [pool.bound_of(resource) for pool in pools]
    known = [each for each in bounds if each is not None]
    # A scenario may be about too few nodes, and simulate shows what comes of it.
    if len(known) < len(bounds) or any(pool.kind == SIMULATED_POOL for pool in pools):
        return None
    unit = unit_of(resource)
    listed = [
        f"{pool.part.place()}: {pool.title}, {most} {unit}"
        for pool, most in zip(pools, known, strict=True)
    ]
    if len(listed) > _MOST_SHOWN:
        listed[_MOST_SHOWN:] = [f"and {len(listed) - _MOST_SHOWN} more pools"]
    listed += [f"nodes of no pool, {others} {unit}"] if others else []
    return sum(known) + others, "\n".join(listed)


def _outside_pools(nodes: Sequence[Part]) -> Mapping[str, int]:
    """Return what the nodes that belong to no pool have, by resource."""
    found: dict[str, int] = {}
    for node in nodes:
        if NODE_POOL_LABEL in node.fields("metadata", "labels"):
            continue
        for name in node.fields("status", "allocatable"):
            if gpu_kind(str(name)) is not None:
                amount = _amount(node.at("status", "allocatable", str(name)))
                found[str(name)] = found.get(str(name), 0) + (amount or 0)
    return found


def _shared_by(nodes: Sequence[Part]) -> frozenset[str]:
    """Return the resources of which nodes that are there offer several for one GPU."""
    texts = (node.text("metadata", "labels", "nvidia.com/gpu.replicas") for node in nodes)
    return (
        frozenset(WHOLE_GPUS) if any(each not in ("", "0", "1") for each in texts) else frozenset()
    )


def _amount(part: Part) -> int | None:
    try:
        return parse_quantity(part.text()).value()
    except ValueError:
        return None


# Quotas


def _quotas(inputs: Inputs, takers: Sequence[_Taker]) -> Iterator[LintFinding]:
    """Yield what the tightest quota of a resource keeps from its maximum."""
    tightest: dict[tuple[str, str], tuple[int, Part]] = {}
    for quota in inputs.nodes.beside.get("ResourceQuota", ()):
        for name in quota.fields("spec", "hard"):
            part = quota.at("spec", "hard", str(name))
            most = _amount(part)
            resource = str(name).removeprefix("requests.").removeprefix("limits.")  # HAMi's
            key = key_of(quota)[0], resource
            if most is not None and (key not in tightest or most < tightest[key][0]):
                tightest[key] = most, part
    wanting: dict[tuple[str, str], list[_Taker]] = {}
    for taker in takers:
        for resource in taker.takes:
            wanting.setdefault((taker.scaler.namespace, resource), []).append(taker)
    for key in sorted(tightest.keys() & wanting.keys()):
        (hard, part), (namespace, resource) = tightest[key], key
        total = sum(each.takes[resource] for each in wanting[key])
        if total <= hard:
            continue
        command = ""
        if part.document.source in inputs.live:
            name = key_of(whole_document(part.document))[2]
            command = (
                f"kubectl patch resourcequota -n {namespace} {name} --type=merge "
                f"""-p '{{"spec":{{"hard":{{"{part.path[-1]}":"{total}"}}}}}}'"""
            )
        fix = Fix(f"Raise it to {total}, or lower maxReplicas.", command)
        alone = [each for each in wanting[key] if each.takes[resource] > hard]
        for each in alone:
            yield QUOTA_BELOW_MAX.found(
                each.scaler.part.place("spec", each.scaler.most_key),
                f"{each.said} take {each.takes[resource]} {resource}, and the namespace's quota is {hard}.",
                f"{part.place()}",
                fix,
            )
        if not alone:
            listed = [
                f"{each.scaler.part.place('spec', each.scaler.most_key)}: {each.said}, "
                f"{each.takes[resource]}"
                for each in wanting[key][:_MOST_SHOWN]
            ]
            yield QUOTA_BELOW_MAX.found(
                part.place(),
                f"The quota is {hard} {resource}, and the autoscalers of the namespace take {total} at "
                "their maximum.",
                "\n".join(listed),
                fix,
            )
