"""The scheduler of Kueue: cycles in which the first of each ClusterQueue may be admitted.

Source: kueue v0.17.0 pkg/scheduler/scheduler.go (a cycle), pkg/scheduler/flavorassigner (flavors, messages),
pkg/cache/queue/cluster_queue.go (StrictFIFO and BestEffortFIFO). Without preemption, fair sharing, admission
checks, topologies and cohorts below cohorts. Workloads that ask alike are tried once, as with the feature
gate SchedulingEquivalenceHashing.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuscale.base.objects.kueue import ClusterQueue, ResourceFlavor, ResourceGroup
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import PodSpec
from gpuscale.base.objects.requests import Amounts
from gpuscale.base.objects.taints import untolerated
from gpuscale.base.quantity import Format, Quantity
from gpuscale.hpa.cluster.queues.quotas import Quotas, Share
from gpuscale.hpa.cluster.scheduling.fit import matches_affinity
from gpuscale.hpa.cluster.scheduling.resources import NANO

_NO_FIT, _WAIT, _FIT = range(3)
"""Too large for the quota; it fits once others are done; it fits."""
_IDLE_CYCLES = 8
"""So many without a change end a run: two pod sets may take turns at flavors for ever, as in Kueue."""
_BINARY = ("memory", "ephemeral-storage", "hugepages-")


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of a workload."""

    name: str
    count: int
    spec: PodSpec
    requests: Amounts
    """Of one of them."""


@dataclass(frozen=True, slots=True)
class QueuedWorkload:
    """What is admitted as a whole, such as a Job."""

    key: str
    """`namespace/name`."""
    queue: str
    """The name of its ClusterQueue."""
    pod_sets: tuple[PodSet, ...]
    priority: int
    created_ms: int

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Admission:
    """A workload that was admitted."""

    workload: QueuedWorkload
    flavors: tuple[Mapping[str, str], ...]
    """Of each pod set, by resource."""


@dataclass(slots=True, eq=False)
class _Entry:
    """A workload in a cycle."""

    workload: QueuedWorkload
    flavors: list[Mapping[str, str]] = field(default_factory=list)
    next_flavors: list[dict[str, int]] = field(default_factory=list)
    """Of each pod set, by resource: the place of the flavor to begin with next time."""
    used: dict[Share, int] = field(default_factory=dict)
    mode: int = _FIT
    borrows: bool = False
    message: str = ""


@dataclass(slots=True, eq=False)
class _Line:
    """The workloads that wait in a ClusterQueue."""

    queue: ClusterQueue
    by_shape: dict[int, list[tuple[int, int, int, QueuedWorkload]]] = field(default_factory=dict)
    """Workloads that ask alike, in their order."""
    refused: set[int] = field(default_factory=set)
    """Those that are passed over until something is given back."""
    said: dict[int, str] = field(default_factory=dict)
    """Why they wait, as was found last."""
    next_flavors: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    """Workload key to where it goes on; nothing once a workload of the queue has ended."""

    def first(self) -> QueuedWorkload | None:
        """Return whose turn it is."""
        heads = [
            waiting[0] for shape, waiting in self.by_shape.items() if shape not in self.refused
        ]
        return min(heads)[3] if heads and not self.queue.is_stopped else None


class Queues:
    """ClusterQueues, and the workloads in them.

    Args:
        queues: all of them.
        flavors: that they have quota of, by name.

    Attributes:
        tried: keys of the workloads that had their turn in the last run and still wait.
    """

    def __init__(
        self, queues: Sequence[ClusterQueue], flavors: Mapping[str, ResourceFlavor]
    ) -> None:
        self.tried: dict[str, None] = {}
        self._lines = {each.metadata.name: _Line(each) for each in queues}
        self._quotas = Quotas({name: line.queue for name, line in self._lines.items()})
        self._flavors = flavors
        self._shapes: dict[tuple[object, ...], int] = {}
        self._places: dict[str, tuple[_Line, int]] = {}
        self._used: dict[str, tuple[Admission, Sequence[int], Mapping[Share, int]]] = {}
        """Admitted workloads, how many pods of each set they still have, and what those use."""
        self._added = 0

    def add(self, workload: QueuedWorkload) -> None:
        """Put a workload into its queue."""
        line = self._lines[workload.queue]
        shape = self._shapes.setdefault(_shape(workload), len(self._shapes))
        self._added += 1
        place = (-workload.priority, workload.created_ms, self._added, workload)
        insort(line.by_shape.setdefault(shape, []), place, key=lambda each: each[:3])
        self._places[workload.key] = line, shape

    def why(self, key: str) -> str:
        """Return why a workload waits; empty where it was not yet the turn of one that asks like it."""
        line, shape = self._places[key]
        return line.said.get(shape, "")

    def finish(self, key: str) -> None:
        """Count the quota of an admitted workload as free: it is done."""
        admission, _, used = self._used.pop(key)
        self._free(admission.workload.queue, used)

    def shrink(self, key: str, counts: Sequence[int]) -> bool:
        """Count the quota of pods that an admitted workload no longer needs as free.

        Args:
            key: of the workload.
            counts: of each pod set, how many pods there still are.

        Returns:
            Whether there are fewer than before.
        """
        admission, before, used = self._used[key]
        if list(counts) == list(before):
            return False
        workload = admission.workload
        left: dict[Share, int] = {}
        for pods, count, flavors in zip(workload.pod_sets, counts, admission.flavors, strict=True):
            for resource, flavor in flavors.items():
                amount = count * (NANO if resource == "pods" else pods.requests[resource])
                left[flavor, resource] = left.get((flavor, resource), 0) + amount
        self._free(workload.queue, used)
        self._quotas.add(workload.queue, left.items())
        self._used[key] = admission, counts, left
        return True

    def _free(self, queue: str, amounts: Mapping[Share, int]) -> None:
        self._quotas.add(queue, amounts.items(), -1)
        self._lines[queue].next_flavors.clear()
        cohort = self._quotas.cohorts[queue]
        for name, line in self._lines.items():
            if name == queue or (cohort and line.queue.cohort == cohort):
                line.refused.clear()

    def run(self) -> list[Admission]:
        """Admit what can be admitted, in its order."""
        admitted: list[Admission] = []
        self.tried.clear()
        idle = 0
        while idle < _IDLE_CYCLES:
            entries = [
                self._nominated(head)
                for line in self._lines.values()
                if (head := line.first()) is not None
            ]
            # Who needs no quota of others comes first, then by priority and age.
            entries.sort(
                key=lambda each: (
                    each.borrows,
                    -each.workload.priority,
                    each.workload.created_ms,
                )
            )
            reserved: list[tuple[str, Mapping[Share, int]]] = []
            found = [each for each in entries if self._admit(each, reserved)]
            for queue, amounts in reserved:
                self._quotas.add(queue, amounts.items(), -1)
            admitted += [Admission(each.workload, tuple(each.flavors)) for each in found]
            left = [each for each in entries if each not in found]
            passed_over = [each for each in left if self._pass_over(each)]
            if not found and not passed_over and not any(map(_goes_on, left)):
                break
            idle = 0 if found or passed_over else idle + 1
        return admitted

    def _admit(self, entry: _Entry, reserved: list[tuple[str, Mapping[Share, int]]]) -> bool:
        """Give a workload its quota, or keep it from others in this cycle where it fits once some end."""
        workload, quotas = entry.workload, self._quotas
        queue = workload.queue
        if entry.mode == _WAIT:
            kept = {share: self._reserved(entry, share) for share in entry.used}
            quotas.add(queue, kept.items())
            reserved.append((queue, kept))
        if entry.mode != _FIT:
            return False
        if any(amount > quotas.available(queue, share) for share, amount in entry.used.items()):
            entry.message = "Workload no longer fits after processing another workload"
            return False
        quotas.add(queue, entry.used.items())
        counts = [pods.count for pods in workload.pod_sets]
        self._used[workload.key] = Admission(workload, tuple(entry.flavors)), counts, entry.used
        line, shape = self._places.pop(workload.key)
        # A workload is admitted as the first of those that ask like it.
        line.by_shape[shape].pop(0)
        if not line.by_shape[shape]:
            del line.by_shape[shape]
        self.tried.pop(workload.key, None)
        line.next_flavors.pop(workload.key, None)
        return True

    def _reserved(self, entry: _Entry, share: Share) -> int:
        queue = entry.workload.queue
        quota, used = self._quotas.quota(queue, share), self._quotas.used(queue, share)
        if not entry.borrows:
            return max(0, min(entry.used[share], quota.nominal - used))
        if quota.borrowing_limit is None:
            return entry.used[share]
        return min(entry.used[share], quota.nominal + quota.borrowing_limit - used)

    def _pass_over(self, entry: _Entry) -> bool:
        """Let those behind a workload have their turn; return whether they now do."""
        key = entry.workload.key
        line, shape = self._places[key]
        line.said[shape] = entry.message
        self.tried[key] = None
        if entry.mode == _FIT:
            line.next_flavors.pop(key, None)
            return False  # it lost what is left to another in this cycle, and is tried again
        line.next_flavors[key] = entry.next_flavors
        if _goes_on(entry) or (line.queue.is_strict and self._is_of(line.queue, entry.workload)):
            return False
        line.refused.add(shape)
        return True

    def _nominated(self, workload: QueuedWorkload) -> _Entry:
        """Return a workload with the flavors that it would get."""
        entry, line = _Entry(workload), self._lines[workload.queue]
        if not self._is_of(line.queue, workload):
            entry.mode, entry.message = (
                _NO_FIT,
                "Workload namespace doesn't match ClusterQueue selector",
            )
            return entry
        covered = {name: group for group in line.queue.groups for name in group.covered}
        begin = line.next_flavors.get(workload.key, [])
        for number, pods in enumerate(workload.pod_sets):
            asked = {name: amount * pods.count for name, amount in pods.requests.items()}
            asked.pop("pods", None)
            if "pods" in covered:
                asked["pods"] = pods.count * NANO
            first = begin[number] if number < len(begin) else {}
            flavors, said, mode = self._flavors_of(entry, pods, asked, covered, first)
            entry.mode = min(entry.mode, mode)
            if said:
                before = f"{entry.message}; " if entry.message else ""
                listed = ", ".join(sorted(said))
                entry.message = f"{before}couldn't assign flavors to pod set {pods.name}: {listed}"
            if mode == _NO_FIT:
                return entry
            entry.flavors.append(flavors)
            for name, flavor in flavors.items():
                entry.used[flavor, name] = entry.used.get((flavor, name), 0) + asked[name]
        return entry

    def _flavors_of(
        self,
        entry: _Entry,
        pods: PodSet,
        asked: Amounts,
        covered: Mapping[str, ResourceGroup],
        first: Mapping[str, int],
    ) -> tuple[Mapping[str, str], list[str], int]:
        """Return the flavor of each resource that pods get, what is in the way, and whether they fit."""
        flavors: dict[str, str] = {}
        said: list[str] = []
        after: dict[str, int] = {}
        least = _FIT
        for resource, amount in asked.items():
            group = covered.get(resource)
            if resource in flavors or (group is None and not amount):
                continue
            if group is None:
                return {}, [f"resource {resource} unavailable in ClusterQueue"], _NO_FIT
            needed = {name: asked[name] for name in group.covered if name in asked}
            begin = first.get(resource, 0)
            chosen, why, mode, borrows = self._flavor_for(entry, pods, needed, group, begin)
            if mode == _NO_FIT:
                return {}, why, _NO_FIT
            entry.borrows |= borrows
            least = min(least, mode)
            flavors |= dict.fromkeys(needed, chosen)
            names = [name for name, _ in group.flavors]
            stops = self._stops(entry, mode, borrows)
            go_on = (names.index(chosen) + 1) % len(names) if stops else 0
            after |= dict.fromkeys(needed, go_on)
            said += why
        entry.next_flavors.append(after)
        return flavors, said, least

    def _flavor_for(
        self, entry: _Entry, pods: PodSet, needed: Amounts, group: ResourceGroup, begin: int
    ) -> tuple[str, list[str], int, bool]:
        """Return the flavor that is best for pods, what is in the way there and in those before it."""
        queue = entry.workload.queue
        keys = {key for name, _ in group.flavors for key in self._flavors[name].node_labels}
        said: list[str] = []
        best, chosen, borrowed = (_NO_FIT, False), "", False
        for name, _ in group.flavors[begin:]:
            if reason := _mismatch(pods.spec, self._flavors[name], keys):
                said.append(reason)
                continue
            worst, borrows = (_FIT, True), False
            for resource, amount in needed.items():
                mode, more, why = self._fits(queue, (name, resource), amount, entry.used)
                said += [why] if why else []
                worst, borrows = min(worst, (mode, not more)), borrows or more
                if mode == _NO_FIT:
                    break
            if worst > max(best, (_NO_FIT, True)):
                best, chosen, borrowed = worst, name, borrows
            if self._stops(entry, worst[0], borrows):
                best, chosen, borrowed = worst, name, borrows
                break
        return chosen, [] if best[0] == _FIT else said, best[0], borrowed

    def _stops(self, entry: _Entry, mode: int, borrows: bool) -> bool:
        """Return whether a flavor is taken without a look at those after it."""
        is_patient = self._lines[entry.workload.queue].queue.borrows_last
        return mode == _FIT and not (borrows and is_patient)

    def _fits(
        self, queue: str, share: Share, amount: int, used: Mapping[Share, int]
    ) -> tuple[int, bool, str]:
        """Return whether a queue has an amount of a resource, whether it borrows, and what is in the way."""
        quotas, (flavor, resource) = self._quotas, share
        before = used.get(share, 0)
        most, needed = quotas.most(queue, share), before + amount
        if needed > most:
            why = (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets "
                f"requests ({_text(resource, before)}) + current podset request ({_text(resource, amount)}) "
                f"> maximum capacity ({_text(resource, most)})"
            )
            return _NO_FIT, False, why
        has_cohort = bool(quotas.cohorts[queue])
        exceeds = quotas.borrows(queue, share, needed)
        borrows, available = has_cohort and exceeds, quotas.available(queue, share)
        if needed <= available:
            return _FIT, borrows, ""
        why = (
            f"insufficient unused quota for {resource} in flavor {flavor}, "
            f"{_text(resource, needed - available)} more needed"
        )
        waits = needed <= quotas.quota(queue, share).nominal or (has_cohort and not exceeds)
        return _WAIT if waits else _NO_FIT, borrows, why

    def _is_of(self, queue: ClusterQueue, workload: QueuedWorkload) -> bool:
        """Return whether a queue takes workloads of a namespace; namespaces have no labels but their name."""
        labels = {"kubernetes.io/metadata.name": workload.namespace}
        return queue.namespaces is not None and queue.namespaces.matches(labels)


def _goes_on(entry: _Entry) -> bool:
    """Return whether a workload that waits tries other flavors in the next cycle."""
    return entry.mode != _FIT and any(any(each.values()) for each in entry.next_flavors)


def _shape(workload: QueuedWorkload) -> tuple[object, ...]:
    """Return what a workload asks for; those with the same get the same answer."""
    return (
        workload.queue,
        workload.namespace,
        workload.priority,
        *(
            (
                pods.name,
                pods.count,
                tuple(sorted(pods.requests.items())),
                tuple(sorted(pods.spec.node_selector.items())),
                pods.spec.required_node_terms,
                pods.spec.tolerations,
            )
            for pods in workload.pod_sets
        ),
    )


def _mismatch(spec: PodSpec, flavor: ResourceFlavor, keys: set[str]) -> str:
    """Return why pods can't have a flavor; empty where they can.

    Args:
        spec: of the pods.
        flavor: to try.
        keys: the labels of all flavors of its group; conditions on others are not the flavors' matter.
    """
    name = flavor.metadata.name
    taint = untolerated(flavor.taints, (*spec.tolerations, *flavor.tolerations))
    if taint is not None:
        return (
            f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {name}"
        )
    terms = spec.required_node_terms
    if terms is not None:
        kept = [
            replace(term, labels=tuple(each for each in term.labels if each.key in keys), names=())
            for term in terms
        ]
        terms = tuple(kept) if all(term.labels for term in kept) else None
    selected = {key: value for key, value in spec.node_selector.items() if key in keys}
    of_flavors = PodSpec(spec.containers, node_selector=selected, required_node_terms=terms)
    node = Node(ObjectMeta(name, "", flavor.node_labels), {})
    return (
        "" if matches_affinity(of_flavors, node) else f"flavor {name} doesn't match node affinity"
    )


def _text(resource: str, nano: int) -> str:
    is_binary = resource.startswith(_BINARY)
    return str(Quantity(nano, Format.BINARY_SI if is_binary else Format.DECIMAL_SI))
