"""A picture in the form that the page takes: its state, and a point of its charts. No I/O."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from gpuscale.base.pages.words import number_text
from gpuscale.ops.dashboard.deciding import Explained
from gpuscale.ops.top.picture import EventRow, GpuRow, JobRow, Picture, WorkloadRow, mean_use

_MOST_JOBS = 200
"""That a page lists: more than anyone reads."""
_MOST_LINES = 60
"""GPUs without a cluster that have a line each in the charts."""
_NEW_SIZE = re.compile(r"New size: (\d+)")
"""Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (SuccessfulRescale)."""
RESCALED = "SuccessfulRescale"
Explain = Callable[[str, str], Explained | None]


def page_state(picture: Picture, explain: Explain) -> dict[str, object]:
    """Return what the page shows of now.

    Args:
        picture: all that was seen.
        explain: returns what the HPA with this namespace and name decides, where that is known.
    """
    return {
        "t": picture.at_ms / 1000,
        "running": True,
        "speed": None,
        "fault": "",
        "addresses": {},
        "workloads": [
            {
                "name": key_of(row),
                "rate": None,
                "ready": row.running,
                "pending": row.pending,
                "steps": [],
            }
            for row in picture.workloads
        ],
        "hpas": [_hpa(row, explain(row.namespace, row.name)) for row in picture.workloads],
        "nodes": _nodes(picture),
        "pods": [],
        "jobs": _jobs(picture.jobs),
        "figures": list(_figures(picture)),
        "unseen": list(picture.unseen),
    }


def key_of(row: WorkloadRow) -> str:
    """Return the name of a workload on the page, in its series and in addresses: that of its HPA."""
    return f"{row.namespace}/{row.name}"


def chart_row(picture: Picture) -> dict[str, float | None]:
    """Return a point of the charts, by the name of the series."""
    found: dict[str, float | None] = {"use/all GPUs": mean_use(picture.gpus)}
    for row in picture.workloads:
        key = key_of(row)
        found |= {
            f"use/{key}": row.use_percent,
            f"hpa/{key}/value": row.value,
            f"hpa/{key}/target": row.target_value,
            f"hpa/{key}/desired": row.wanted,
            f"hpa/{key}/current": row.replicas,
            f"replicas/{key}/ready": row.running,
            f"replicas/{key}/pending": row.pending,
        }
    if not picture.nodes and len(picture.gpus) <= _MOST_LINES:
        found |= {f"gpu/{gpu.node or 'GPU'}/{gpu.index}": gpu.use_percent for gpu in picture.gpus}
    pools: dict[str, list[bool]] = defaultdict(list)
    for node in picture.nodes:
        pools[node.pool or "all"].append(node.status == "Ready")
    for pool, ready in pools.items():
        found |= {f"nodes/{pool}/ready": sum(ready), f"nodes/{pool}/total": len(ready)}
    return found


def new_size(event: EventRow) -> int | None:
    """Return the replicas that an event of an HPA's controller names; None of another event."""
    said = _NEW_SIZE.match(event.message) if event.reason == RESCALED else None
    return None if said is None else int(said[1])


def _hpa(row: WorkloadRow, explained: Explained | None) -> dict[str, object]:
    metric = {
        "name": row.signal,
        "value": row.value,
        "target": row.target_value,
        "ratio": row.times_target,
        "unit": "%" if row.is_percent else "",
        "decides": True,
    }
    return {
        "name": key_of(row),
        "workload": key_of(row),
        "reference": row.target,
        "targets": row.metrics,
        "metrics": [metric] if row.signal else [],
        "min": row.least,
        "max": row.most,
        "current": row.replicas,
        "desired": row.wanted,
        "reason": row.reason,
        "valueAge": None if explained is None else explained.value_age_s,
        "next": None if explained is None else explained.desired,
        "conditions": [] if explained is None else list(explained.conditions),
        "explanation": [row.reason] if explained is None else list(explained.explanation),
    }


def _nodes(picture: Picture) -> list[dict[str, object]]:
    gpus: dict[str, list[dict[str, object]]] = defaultdict(list)
    for gpu in picture.gpus:
        gpus[gpu.node].append(_gpu(gpu))
    found: list[dict[str, object]] = [
        {
            "name": node.name,
            "pool": node.pool or node.instance_type,
            "ready": node.status == "Ready",
            "gpus": gpus.pop(node.name, []),
        }
        for node in picture.nodes
    ]
    # Metrics pages and this machine have GPUs alone.
    return found + [
        {"name": name or picture.source, "pool": "", "ready": True, "gpus": rows}
        for name, rows in gpus.items()
    ]


def _gpu(gpu: GpuRow) -> dict[str, object]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "util": gpu.use_percent,
        "memoryUsedMib": gpu.memory_used_mib,
        "memoryTotalMib": gpu.memory_total_mib,
        "temperatureC": gpu.temperature_celsius,
        "powerW": gpu.power_watts,
        "pod": ", ".join(gpu.owners) or None,
        "faults": list(gpu.faults),
    }


def _jobs(rows: Sequence[JobRow]) -> Mapping[str, object]:
    order = {"Running": 0, "Waiting": 1, "Suspended": 2}
    shown = sorted(rows, key=lambda row: (order.get(row.state, 3), row.age_s or 0))[:_MOST_JOBS]
    return {
        "total": len(rows),
        "active": sum(row.state == "Running" for row in rows),
        "completed": sum(row.state == "Complete" for row in rows),
        "workloads": [],
        "items": [
            {
                "name": row.name,
                "namespace": row.namespace,
                "completions": row.planned,
                "succeeded": row.succeeded,
                "running": row.running,
                "pending": row.pending,
                "age": row.age_s,
            }
            for row in shown
        ],
    }


def _figures(picture: Picture) -> Sequence[tuple[str, str]]:
    gpus = picture.gpus
    if not gpus:
        return ()
    held = [gpu for gpu in gpus if gpu.owners]
    idle = sum(gpu.use_percent == 0 for gpu in held)
    watts = [gpu.power_watts for gpu in gpus if gpu.power_watts is not None]
    used = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    total = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    found = [("Held GPUs", f"{len(held)} of {len(gpus)}"), ("Held but idle", str(idle))]
    if watts:
        found.append(("Power", f"{number_text(sum(watts) / 1000)} kW"))
    if used and total:
        gib = number_text(sum(used) / 1024), number_text(sum(total) / 1024)
        found.append(("Memory", f"{gib[0]} of {gib[1]} GiB"))
    faulty = sum(bool(gpu.faults) for gpu in gpus)
    return [*found, ("With a fault", str(faulty))]
