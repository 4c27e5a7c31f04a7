"""Rows of a history out of pictures of a cluster, as `top` takes them: where there is no Prometheus."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gpuscale.ops.history.tables import Batch, Rows
from gpuscale.ops.history.taking import node_row
from gpuscale.ops.money.prices import NodeFacts, PriceBook
from gpuscale.ops.past.kinds import KINDS, STEPS
from gpuscale.ops.top.picture import EventRow, GpuRow, Picture, WorkloadRow

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_AT_MAXIMUM = 1.1
"""Times its target from which an HPA at its maximum is short, as in `report`'s query."""
_TOLD = frozenset(
    {
        *("scaled", "nodes", "no-metric", "at-maximum", "pods-pending", "short-of-pods"),
        *("job-failed", "node-not-ready", "gpu-unhealthy", "gpu-error", "gpus-idle"),
    }
)
"""Kinds of `report` of which a picture says whether they are so."""
_XID = "Xid "
DECISION = "Decision"
"""Kind of the events that say why an HPA has a new size."""
Row = Sequence[object]


class PictureTaker:
    """Makes a minute's rows of the pictures taken in it.

    Args:
        book: prices of nodes.
    """

    def __init__(self, book: PriceBook) -> None:
        self._book = book
        self._pictures: list[Picture] = []
        self._told_ms = 0
        """The newest event that was kept."""
        self._hour = -1
        self._decided: list[Row] = []

    def add(self, picture: Picture) -> None:
        """Take a picture into the minute that goes on."""
        self._pictures.append(picture)

    def decided(self, event: EventRow, why: Sequence[str]) -> None:
        """Take why an HPA has the new size that an event tells, in `decide`'s words."""
        self._decided.append((event.at_ms, DECISION, event.reason, event.about, " ".join(why), 1))

    def take(self, begin_ms: int) -> Batch:
        """Return the rows of the minute that begins then, and begin the next one."""
        pictures, self._pictures = self._pictures, []
        if not pictures:
            return {}
        last = pictures[-1]
        at_ms = last.at_ms
        events: list[Row] = [
            (each.at_ms, each.kind, each.reason, each.about, each.message, each.count)
            for each in reversed(last.events)
            if each.at_ms > self._told_ms
        ]
        events += self._decided
        self._decided = []
        self._told_ms = max((self._told_ms, *(each.at_ms for each in last.events)))
        batch: dict[str, Rows] = {
            "gpus": list(_gpu_rows(pictures, begin_ms)),
            "hpas": [_hpa_row(each, at_ms) for each in last.workloads],
            "events": events,
            "answers": [
                (at_ms, f"report/{kind}", json.dumps(dict(sorted(labels.items()))), value)
                for kind, labels, value in _answers(last)
            ],
            "kept": [(begin_ms, begin_ms + _MINUTE_MS, "minutes", last.source)],
        }
        if begin_ms // _HOUR_MS != self._hour:
            self._hour = begin_ms // _HOUR_MS
            batch["nodes"] = list(self._node_rows(last, self._hour * _HOUR_MS))
        return batch

    def _node_rows(self, picture: Picture, hour_ms: int) -> Iterator[Row]:
        models = {gpu.node: gpu.model for gpu in picture.gpus}
        for node in picture.nodes:
            model = models.get(node.name, "")
            facts = NodeFacts(node.instance_type, node.pool, node.is_spot, model, node.gpus)
            yield node_row(hour_ms, node.name, facts, node.gpus, self._book)


def _gpu_rows(pictures: Sequence[Picture], begin_ms: int) -> Iterator[Row]:
    seen: dict[tuple[str, str, str], list[GpuRow]] = defaultdict(list)
    for picture in pictures:
        for gpu in picture.gpus:
            seen[gpu.node, gpu.index, gpu.uuid].append(gpu)
    for gpus in seen.values():
        last, owners = gpus[-1], gpus[-1].owners
        for owner in owners or ("",):
            namespace, _, pod = owner.rpartition("/")
            yield (
                *(begin_ms, last.node, last.index, last.uuid, last.model),
                *(namespace or None, pod or None, None, len(owners)),
                *_means([gpu.use_percent for gpu in gpus]),
                *_means([gpu.memory_used_mib for gpu in gpus]),
                last.memory_total_mib,
                *_means([gpu.power_watts for gpu in gpus]),
            )


def _means(values: Sequence[float | None]) -> Row:
    known = [each for each in values if each is not None]
    if not known:
        return None, None, None, 0
    return min(known), sum(known) / len(known), max(known), len(known)


def _hpa_row(row: WorkloadRow, at_ms: int) -> Row:
    return (
        *(at_ms, row.namespace, row.name, row.signal or None),
        *(row.value, row.target_value, row.times_target),
        *(row.wanted, row.replicas, row.running, row.pending, row.reason),
    )


def _answers(picture: Picture) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield what the queries of `report` would answer: the kind, labels and a value."""
    for kind in (*KINDS, *STEPS):
        if kind.id in _TOLD:
            yield "present", {"__name__": kind.needs}, 1
    yield "nodes", {}, len(picture.nodes)
    for node in picture.nodes:
        if not node.status.startswith("Ready"):
            yield "node-not-ready", {"node": node.name}, 1
    for each in picture.workloads:
        yield from _of_workload(each)
    for job in picture.jobs:
        if job.failed:
            yield "job-failed", {"namespace": job.namespace, "job_name": job.name}, job.failed
    idle: dict[str, int] = defaultdict(int)
    for gpu in picture.gpus:
        labels = {"Hostname": gpu.node, "gpu": gpu.index, "UUID": gpu.uuid}
        for fault in gpu.faults:
            if fault.startswith(_XID):
                yield "gpu-error", labels, float(fault.removeprefix(_XID))
            else:
                yield "gpu-unhealthy", {**labels, "reason": fault}, 1
        if gpu.use_percent is not None and gpu.use_percent < 1:
            for owner in gpu.owners:
                idle[owner] += 1
    for owner, count in idle.items():
        namespace, _, pod = owner.rpartition("/")
        yield "gpus-idle", {"namespace": namespace, "pod": pod}, count


def _of_workload(row: WorkloadRow) -> Iterator[tuple[str, Mapping[str, str], float]]:
    hpa = {"namespace": row.namespace, "horizontalpodautoscaler": row.name}
    kind, _, name = row.target.partition("/")
    if row.times_target is None and not row.wanted:
        return  # its controller has not looked at it yet
    yield "scaled", hpa, row.wanted
    if row.times_target is not None:
        yield "metrics", {**hpa, "metric_name": row.signal or "its metric"}, row.times_target
        if row.wanted >= row.most and row.times_target > _AT_MAXIMUM:
            yield "at-maximum", hpa, row.wanted
    else:
        yield "no-metric", hpa, 1
    if row.pending:
        owner = {"namespace": row.namespace, "owner_kind": kind, "owner_name": name}
        yield "pods-pending", owner, row.pending
    if kind == "Deployment" and row.wanted > row.running:
        deployment = {"namespace": row.namespace, "deployment": name}
        yield "short-of-pods", deployment, row.wanted - row.running
