"""Rows of GPUs from their series, whoever serves them: node agents, dcgm-exporter, a Prometheus."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.base.exposition.families import Family
from gpuscale.ops.top.picture import GpuRow
from gpuscale.signals import NEW_NAMES, impossible

USE = "DCGM_FI_DEV_GPU_UTIL"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
USED, FREE, RESERVED, TOTAL = (
    f"DCGM_FI_DEV_FB_{each}" for each in ("USED", "FREE", "RESERVED", "TOTAL")
)
POWER, _TEMPERATURE = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
_XID = "DCGM_FI_DEV_XID_ERRORS"
_PROBLEM = "gpuscale_gpu_health_problem"
_FIELDS = (USE, ENGINE, USED, FREE, RESERVED, TOTAL, POWER, _TEMPERATURE, _XID)
_OLDER = {NEW_NAMES[name].name: name for name in _FIELDS if name in NEW_NAMES}
"""Names from dcgm-exporter 4.9 on to the ones before."""
_ACK_OWNERS = ("DCGM_CUSTOM_PROCESS_SM_UTIL", "DCGM_CUSTOM_CONTAINER_CP_ALLOCATED")
"""Series of ACK's exporter that say who has a GPU, where the others don't."""
SERIES = (*_FIELDS, *_OLDER, _PROBLEM, *_ACK_OWNERS)
"""All that is read of a GPU."""

Labels = Mapping[str, str]
_NODE = ("Hostname", "hostname", "node", "kubernetes_node", "instance")
"""Labels that name the node, the surest first."""
_OWNER_LABELS = (
    # Prometheus' name for labels that its targets have too
    ("exported_namespace", "exported_pod", "exported_container"),
    ("NamespaceName", "PodName", "ContainerName"),  # ACK
    ("namespace", "pod", "container"),
    ("pod_namespace", "pod_name", "container_name"),  # dcgm-exporter before 2.0
)


@dataclass(slots=True)
class _Seen:
    labels: Labels
    values: dict[str, float] = field(default_factory=dict)
    owners: dict[str, None] = field(default_factory=dict)
    faults: dict[str, None] = field(default_factory=dict)


def samples_of(families: Mapping[str, Family]) -> Iterator[tuple[str, Labels, float]]:
    """Yield name, labels and value of what is read of a metrics page."""
    for name in SERIES:
        if (family := families.get(name)) is not None:
            for sample in family.samples:
                yield name, dict(sample.labels), sample.value


def gpu_rows(
    samples: Iterable[tuple[str, Labels, float]],
    *,
    node: str = "",
    not_owners: frozenset[str] = frozenset(),
) -> tuple[GpuRow, ...]:
    """Return a row for each GPU and each MIG instance; a GPU that is split has no row of its own.

    Args:
        samples: name, labels and value.
        node: that all of them are of; empty where labels say it.
        not_owners: pods, as `namespace/name`, that a label names because they serve the series.
    """
    found: dict[tuple[str, str, str], _Seen] = {}
    for name, labels, value in samples:
        key = gpu_key(labels, node)
        if not key[1]:
            continue
        seen = found.setdefault(key, _Seen(labels))
        if len(labels) > len(seen.labels):
            seen.labels = labels
        owner = "/".join(filter(None, owner_of(labels)[:2]))
        if owner and owner not in not_owners:
            seen.owners[owner] = None
        if name == _PROBLEM:
            if value and (reason := labels.get("reason")):
                seen.faults[reason] = None
            continue
        older, factor = field_of(name)
        amount = value * factor
        if older in _FIELDS and not impossible(older, amount):
            seen.values[older] = amount
    split = {(place, gpu) for place, gpu, instance in found if instance}
    rows = (
        gpu_row(place, seen.labels, seen.values, tuple(sorted(seen.owners)), tuple(seen.faults))
        for (place, gpu, instance), seen in found.items()
        if (instance or (place, gpu) not in split) and seen.values
    )
    return tuple(sorted(rows, key=lambda row: (row.node, _numbers(row.index))))


def gpu_key(labels: Labels, node: str = "") -> tuple[str, str, str]:
    """Return what tells GPUs and MIG instances apart: node, GPU and instance; the GPU may be empty."""
    place = node or next((labels[each] for each in _NODE if labels.get(each)), "")
    gpu = labels.get("UUID") or labels.get("uuid") or labels.get("gpu", "")
    return place, gpu, labels.get("GPU_I_ID", "")


def field_of(name: str) -> tuple[str, float]:
    """Return the name of a series until dcgm-exporter 4.8, and what turns its values into that one's unit."""
    older = _OLDER.get(name, name)
    unit = NEW_NAMES[older] if older != name else None
    return older, 1 if unit is None else unit.divide / unit.multiply


def gpu_row(
    node: str,
    labels: Labels,
    values: Mapping[str, float],
    owners: tuple[str, ...],
    faults: tuple[str, ...] = (),
) -> GpuRow:
    """Return the row of a GPU from its labels and values, which have DCGM's names and units."""
    instance = labels.get("GPU_I_ID", "")
    index = labels.get("gpu", "")
    engine = values.get(ENGINE)
    by_engine = None if engine is None else 100 * engine
    parts = [values[each] for each in (USED, FREE, RESERVED) if each in values]
    total = values.get(TOTAL, sum(parts) if USED in values and FREE in values else None)
    xid = values.get(_XID)
    if xid and not faults:
        faults = (f"Xid {xid:g}",)
    return GpuRow(
        node=node,
        index=f"{index}/{instance}" if instance else index,
        uuid=labels.get("UUID") or labels.get("uuid", ""),
        model=" ".join(
            each for each in (labels.get("modelName", ""), labels.get("GPU_I_PROFILE", "")) if each
        ),
        use_percent=by_engine if instance else values.get(USE, by_engine),
        memory_used_mib=values.get(USED),
        memory_total_mib=total,
        power_watts=None if instance else values.get(POWER),
        temperature_celsius=None if instance else values.get(_TEMPERATURE),
        owners=owners,
        faults=faults,
    )


def owner_of(labels: Labels) -> tuple[str, str, str]:
    """Return namespace, pod and container that have the GPU; each is empty where no label says it."""
    for namespace, pod, container in _OWNER_LABELS:
        if labels.get(pod):
            return labels.get(namespace, ""), labels[pod], labels.get(container, "")
    return "", "", ""


def _numbers(index: str) -> tuple[int | str, ...]:
    return tuple(int(each) if each.isdigit() else each for each in index.split("/"))
