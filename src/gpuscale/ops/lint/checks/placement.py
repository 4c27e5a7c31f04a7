"""Faults between pods that ask for GPUs, the pools that would give them nodes, and HPAs.

Source: karpenter pkg/controllers/provisioning/scheduling (taints, requirements, resources); Cluster
    Autoscaler's filters are the scheduler's; kubernetes plugin/pkg/admission/extendedresourcetoleration.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.gpu_resources import WHOLE_GPUS
from gpuscale.base.objects.selectors import Requirement
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.cluster.catalogue import ListedType
from gpuscale.ops.lint.checks.room import ROOM_CHECKS, Room, room_findings, unit_of
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.gpu_pods import GpuPods, group_of
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.node_pools import (
    NODE_POOL,
    NODE_POOL_LABEL,
    Pool,
    is_known_after_boot,
    requirements_of,
)
from gpuscale.ops.lint.parts import whole_document
from gpuscale.ops.lint.workloads import ObjectKey, key_of

_CHECKS = Checks()
UNTOLERATED_POOL = _CHECKS.add(
    "untolerated-pool",
    Severity.ERROR,
    "Pods that select a pool by its name and don't tolerate its taint: no node is added for them, and none "
    "takes them; a warning where they select it by a label that other pools may have.",
    "Add the toleration to the pods.",
)
NO_TOLERATED_POOL = _CHECKS.add(
    "no-tolerated-pool",
    Severity.NOTE,
    "Pods with GPUs that tolerate the taints of none of the files' pools.",
    "Add the toleration, unless another pool is there for them.",
)
KEPT_FROM_POOL = _CHECKS.add(
    "kept-from-pool",
    Severity.WARNING,
    "A device plugin or exporter that a pool's taint keeps away from its GPUs.",
    "Add the toleration to the DaemonSet.",
)
FITS_NO_POOL = _CHECKS.add(
    "fits-no-pool",
    Severity.WARNING,
    "Pods that are larger than any node of the pools that they may go to.",
    "Allow a larger instance type, or ask for less.",
)
LABEL_UNKNOWN_AT_ZERO = _CHECKS.add(
    "label-unknown-at-zero",
    Severity.WARNING,
    "Pods that select nodes by a label which no NodePool declares, and which nodes get once they run.",
    "Declare the label in the NodePool, or select by one that Karpenter knows.",
)
LABEL_OF_RUNNING_NODES = _CHECKS.add(
    "label-of-running-nodes",
    Severity.NOTE,
    "Pods that select nodes by a label which an empty node group does not declare.",
    "Declare the label in the group, which Cluster Autoscaler knows before a node of it has run.",
)
SIZE_CHECKS = Checks("workload")
LARGER_THAN_ANY_NODE = SIZE_CHECKS.add(
    "larger-than-any-node",
    Severity.ERROR,
    "A pod that asks for more GPUs than any one node has, or a group that runs as a whole and asks for "
    "more than its pools may have.",
    "Ask for fewer GPUs a pod or a group, or add a pool of larger or more nodes.",
)


_AS_ONE = ("LeaderWorkerSet", "JobSet")
"""Kinds whose pods do nothing until all of them run."""


def placement_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults between the files' pods, pools and autoscalers."""
    pools = inputs.nodes.pools
    named = {each.name: each for each in pools if each.kind == NODE_POOL}
    of_gpus = [each for each in pools if each.is_of_gpus]
    pools_for = _Pools(named, of_gpus).of
    # Of shared GPUs the file does not say how many a node offers.
    shared = {each.resource for each in inputs.nodes.sharing}
    goes_to: dict[ObjectKey, list[GpuPods]] = {}
    for pods in inputs.nodes.pods:
        if not pods.gpus:
            if pods.is_node_part:
                yield from _node_part(pods, of_gpus)
            continue
        if not pools:
            yield from _beyond_all(pods, inputs.nodes.types.values(), shared)
        reach = pools_for(pods)
        yield from _Choice(pods, reach).findings(shared)
        key = pods.namespace, pods.kind, pods.name
        goes_to.setdefault(key, []).append(pods)
    room = Room(inputs, lambda pods: pools_for(pods).tolerated, shared)
    yield from room_findings(inputs, room)
    for (_, kind, _), group in goes_to.items():
        whole = whole_document(group[0].part.document)
        # Jobs that begin when others have ended don't run beside these.
        if kind in _AS_ONE and not any(
            each.text("status") == "Complete"
            for job in whole.items("spec", "replicatedJobs")
            for each in job.items("dependsOn")
        ):
            counts = [(pods, pods.copies) for pods in group]
            yield from _group(counts, f"A group of {group[0].title}", room)
    yield from _pod_groups(inputs, goes_to, room)


@dataclass(frozen=True)
class _Reach:
    """The pools that pods may go to."""

    wanted: tuple[Requirement, ...]
    """What the pods require of a node."""
    fitting: Sequence[Pool]
    """Those that fulfil all of it."""
    nearly: Sequence[Pool]
    """Those that may, but for a label that they don't declare."""
    tolerated: Sequence[Pool]
    """Of the fitting ones, those whose taints the pods tolerate."""
    is_pinned: bool
    """Whether the pods select by what a pool declares."""
    is_named: bool
    """Whether they select a NodePool by its name."""

    @cached_property
    def types(self) -> Sequence[ListedType] | None:
        """Return the instance types of the tolerated pools; None where not all are known."""
        if not all(pool.types for pool in self.tolerated):
            return None
        return [*dict.fromkeys(each for pool in self.tolerated for each in pool.types or ())]

    @cached_property
    def most_gpus(self) -> int | None:
        """Return the most GPUs that a node of the tolerated pools has; None where that is not known."""
        largest = [pool.gpus_per_node for pool in self.tolerated]
        known = [each for each in largest if each is not None]
        return max(known) if len(known) == len(largest) else None


class _Pools:
    """The pools of the files, searched once for all pods that ask alike.

    Args:
        named: NodePools by name.
        of_gpus: pools whose nodes have GPUs.
    """

    def __init__(self, named: Mapping[str, Pool], of_gpus: Sequence[Pool]) -> None:
        self._named, self._of_gpus = named, of_gpus
        self._found: dict[object, _Reach] = {}

    def of(self, pods: GpuPods) -> _Reach:
        wanted, resources = tuple(requirements_of(pods)), tuple(pods.gpus)
        key = wanted, resources, pods.spec.tolerations
        if key not in self._found:
            self._found[key] = self._search(wanted, resources, pods)
        return self._found[key]

    def _search(
        self, wanted: tuple[Requirement, ...], resources: Sequence[str], pods: GpuPods
    ) -> _Reach:
        asked = {value for each in wanted if each.key == NODE_POOL_LABEL for value in each.values}
        pools = self._of_gpus
        if asked:
            pools = [self._named[name] for name in asked if name in self._named]
        verdicts = {id(pool): [pool.contradiction(each) for each in wanted] for pool in pools}
        fitting = [pool for pool in pools if all(each is False for each in verdicts[id(pool)])]
        return _Reach(
            wanted,
            fitting,
            nearly=[
                pool
                for pool in pools
                if None in verdicts[id(pool)] and True not in verdicts[id(pool)]
            ],
            tolerated=[pool for pool in fitting if pool.lets_in(pods.spec, resources) is None],
            is_pinned=bool(asked)
            or any(each.key in pool.labels for pool in fitting for each in wanted),
            is_named=bool(asked),
        )


class _Choice:
    """What is wrong between pods and the pools that they may go to."""

    def __init__(self, pods: GpuPods, reach: _Reach) -> None:
        self._pods = pods
        self._resources = tuple(pods.gpus)
        self._reach = reach

    def findings(self, shared: set[str]) -> Iterator[LintFinding]:
        if not self._reach.fitting:
            yield from self._labels()
        elif not self._reach.tolerated:
            yield from self._taints()
        elif not shared.intersection(self._resources):
            yield from self._sizes()

    def _taints(self) -> Iterator[LintFinding]:
        pods = self._pods
        pool, kept = self._reach.fitting[0], len(self._reach.fitting)
        taint = pool.lets_in(pods.spec, self._resources)
        if taint is None:
            return
        check = UNTOLERATED_POOL if self._reach.is_pinned else NO_TOLERATED_POOL
        if check is UNTOLERATED_POOL and not self._reach.is_named:
            check = check.at(Severity.WARNING)
        others = f" and {kept - 1} more" if kept > 1 else ""
        yield check.found(
            pods.part.place("tolerations"),
            f"{pods.title} doesn't tolerate {taint}, which {pool.title} gives its nodes: "
            f"{_autoscaler(pool)} adds no node for it.",
            f"{_taint_place(pool, taint)}: {pool.title}{others}",
            f"Add {_toleration(taint)} to its tolerations.",
        )

    def _labels(self) -> Iterator[LintFinding]:
        for wanted in self._reach.wanted:
            if not is_known_after_boot(wanted.key):
                continue
            empty = [
                pool
                for pool in self._reach.nearly
                if pool.least == 0 and pool.contradiction(wanted) is None
            ]
            if empty and len(empty) == len(self._reach.nearly):
                pool = empty[0]
                has = self._pods.part.at("nodeSelector", wanted.key).data is not None
                where = ("nodeSelector", wanted.key) if has else ("affinity",)
                is_karpenters = all(each.kind == NODE_POOL for each in empty)
                check = LABEL_UNKNOWN_AT_ZERO if is_karpenters else LABEL_OF_RUNNING_NODES
                until = "" if is_karpenters else " until one of the group has run"
                yield check.found(
                    self._pods.part.place(*where),
                    f"A node has {wanted.key} once it runs, and {pool.title} does not declare it: "
                    f"{_autoscaler(pool)} adds no node for {self._pods.title}{until}.",
                    f"{pool.part.place()}: {pool.title}",
                )
                return

    def _sizes(self) -> Iterator[LintFinding]:
        pods, asked = self._pods, self._asked()
        if asked == 0:
            return
        types, most = self._reach.types, self._reach.most_gpus
        too_few = most is not None and most < asked
        if not too_few and (types is None or any(_fits(pods, asked, each) for each in types)):
            return
        needs = f"{asked} GPUs" if asked > 1 else "1 GPU"
        for name, unit in (("cpu", "CPUs"), ("memory", "of memory")):
            if name in pods.requests:
                needs += f", {pods.requests[name]} {unit}"
        titles = ", ".join(pool.title for pool in self._reach.tolerated)
        if types is not None:
            best = max(types, key=lambda each: (each.whole_gpus, each.cpu.nano, each.memory.nano))
            has = f"The largest, {best.name}, has {best.whole_gpus} × {best.gpu_model}, {best.cpu} CPUs and "
            has += f"{best.memory}."
        else:
            has = f"A node has {most} GPUs at most."
        yield FITS_NO_POOL.found(
            pods.part.place("containers"),
            f"{pods.title} asks for {needs}, and no node of {titles} is that large. {has}",
            "\n".join(f"{pool.part.place()}: {pool.title}" for pool in self._reach.tolerated),
        )

    def _asked(self) -> int:
        return sum(self._pods.gpus.get(name, 0) for name in WHOLE_GPUS)


def _beyond_all(
    pods: GpuPods, types: Iterable[ListedType], shared: set[str]
) -> Iterator[LintFinding]:
    """Yield a finding where no known machine has as many GPUs as one pod asks for."""
    largest = max(types, key=lambda each: each.whole_gpus)
    for name in WHOLE_GPUS:
        asked = pods.gpus.get(name, 0)
        if asked > largest.whole_gpus and name not in shared:
            yield LARGER_THAN_ANY_NODE.at(Severity.WARNING).found(
                pods.part.place("containers"),
                f"A pod of {pods.title} asks for {asked} {name}, and the largest known instance type, "
                f"{largest.name}, has {largest.whole_gpus}: unless nodes share their GPUs, none takes it.",
                "",
                f"Ask for at most {largest.whole_gpus} a pod, and for more pods.",
            )


def _fits(pods: GpuPods, gpus: int, listed: ListedType) -> bool:
    nothing = Quantity(0)
    return (
        listed.whole_gpus >= gpus
        and listed.cpu.nano >= pods.requests.get("cpu", nothing).nano
        and listed.memory.nano >= pods.requests.get("memory", nothing).nano
    )


def _node_part(pods: GpuPods, pools: Sequence[Pool]) -> Iterator[LintFinding]:
    wanted = tuple(requirements_of(pods))
    for pool in pools:
        if any(pool.contradiction(each) for each in wanted):
            continue
        taint = pool.lets_in(pods.spec, ())
        if taint is not None:
            yield KEPT_FROM_POOL.found(
                pods.part.place("tolerations"),
                f"{pods.title} doesn't tolerate {taint}, which {pool.title} gives its nodes: unless another "
                "one runs there, their GPUs are not offered, or not measured.",
                f"{_taint_place(pool, taint)}: {pool.title}",
                f"Add {_toleration(taint)} to its tolerations.",
            )


def _group(counts: Sequence[tuple[GpuPods, int]], who: str, room: Room) -> Iterator[LintFinding]:
    """Yield a finding where pods that have to run as a whole ask for more than their pools may have."""
    asked: Counter[str] = Counter()
    for pods, count in counts:
        asked.update({name: each * count for name, each in pods.gpus.items()})
    for name, count in asked.items():
        found = room.of([pods for pods, _ in counts], name)
        if found is not None and count > found[0]:
            yield LARGER_THAN_ANY_NODE.at(Severity.WARNING).found(
                counts[0][0].part.place("containers"),
                f"{who} asks for {count} {unit_of(name)}, and the pools that its pods may go to have "
                f"{found[0]} at most.",
                found[1],
            )


def _pod_groups(
    inputs: Inputs, goes_to: Mapping[ObjectKey, Sequence[GpuPods]], room: Room
) -> Iterator[LintFinding]:
    """Yield the PodGroups whose least number of pods asks for more than their pools may have."""
    members: dict[tuple[str, str], list[GpuPods]] = {}
    for (namespace, _, _), target in goes_to.items():
        for each in target:
            name = group_of(each)
            if name:
                members.setdefault((namespace, name), []).append(each)
    for whole in inputs.nodes.beside.get("PodGroup", ()):
        namespace, _, name = key_of(whole)
        group = members.get((namespace, name), ())
        spec = whole.at("spec")
        left = spec.whole("minMember") or spec.whole("schedulingPolicy", "gang", "minCount") or 0
        counts = []
        # Which of the pods come first is not known: it takes the smallest at least.
        for pods in sorted(group, key=lambda each: sum(each.gpus.values())):
            of_template = left if len(group) == 1 else min(left, pods.copies)
            counts.append((pods, of_template))
            left -= of_template
        if counts and not left:
            yield from _group(counts, f"PodGroup {name}", room)


def _autoscaler(pool: Pool) -> str:
    return "Karpenter" if pool.kind == NODE_POOL else "Cluster Autoscaler"


def _taint_place(pool: Pool, taint: Taint) -> Place:
    return next(part.place() for each, part in pool.taints if each == taint)


def _toleration(taint: Taint) -> str:
    value = f"value: {taint.value}, " if taint.value else ""
    operator = "" if taint.value else "operator: Exists, "
    return f"{{key: {taint.key}, {operator}{value}effect: {taint.effect}}}"


JUDGE = FileJudge(
    "placement",
    Checks(including=(_CHECKS, ROOM_CHECKS, SIZE_CHECKS)),
    placement_findings,
)
