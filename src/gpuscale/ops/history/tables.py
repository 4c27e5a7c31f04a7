"""What a kept history holds: its tables, one folder of Parquet files each, and the version of all of them.

Times are UTC. A minute or hour has the time at which it begins, and a value that nobody said is NULL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VERSION = 1
"""Of the tables; a history of another one is neither read nor written."""

Rows = Sequence[Sequence[object]]
Batch = Mapping[str, Rows]
"""Rows by table, with the values in the order of its columns; times are milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, whose first column is the time that decides the day of a row."""

    about: str
    columns: Mapping[str, str]
    """DuckDB's types by name."""
    order: str = "time"
    """By which the rows of a file are sorted: equal texts beside each other take next to no room."""


def _means(name: str) -> dict[str, str]:
    return {
        f"{name}_min": "FLOAT",
        f"{name}_mean": "FLOAT",
        f"{name}_max": "FLOAT",
        f"{name}_count": "UINTEGER",
    }


MEASURES = ("use", "memory", "power")
"""Of a GPU: percent, MiB and watts."""
_GPU = {
    "time": "TIMESTAMP",
    "node": "VARCHAR",
    "gpu": "VARCHAR",
    "uuid": "VARCHAR",
    "model": "VARCHAR",
    "namespace": "VARCHAR",
    "pod": "VARCHAR",
    "container": "VARCHAR",
    "owners": "UINTEGER",
}
_GPU_MEASURES = {**_means("use"), **_means("memory"), "memory_total": "FLOAT", **_means("power")}
GPU_KEYS = tuple(_GPU)
TABLES: Mapping[str, Table] = {
    "gpus": Table(
        "GPUs and MIG instances, a row for each minute and each pod that has it; `owners` counts the pods",
        {**_GPU, **_GPU_MEASURES},
        "node, gpu, time",
    ),
    "gpu_hours": Table("the same by the hour", {**_GPU, **_GPU_MEASURES}, "node, gpu, time"),
    "hpas": Table(
        "each HPA at each minute: its deciding metric with value and target, and the replicas it wants",
        {
            "time": "TIMESTAMP",
            "namespace": "VARCHAR",
            "hpa": "VARCHAR",
            "metric": "VARCHAR",
            "value": "DOUBLE",
            "target": "DOUBLE",
            "times_target": "DOUBLE",
            "wanted": "INTEGER",
            "replicas": "INTEGER",
            "running": "INTEGER",
            "pending": "INTEGER",
            "reason": "VARCHAR",
        },
        "namespace, hpa, time",
    ),
    "events": Table(
        "the cluster's events about scaling, nodes and pods that wait; of kind `Decision`: why an HPA scaled",
        {
            "time": "TIMESTAMP",
            "kind": "VARCHAR",
            "reason": "VARCHAR",
            "about": "VARCHAR",
            "message": "VARCHAR",
            "count": "INTEGER",
        },
    ),
    "nodes": Table(
        "GPU nodes at each hour, with what an hour costs, or in `price_source` why that is not known",
        {
            "time": "TIMESTAMP",
            "node": "VARCHAR",
            "instance_type": "VARCHAR",
            "pool": "VARCHAR",
            "spot": "BOOLEAN",
            "model": "VARCHAR",
            "gpus": "DOUBLE",
            "hour_price": "DOUBLE",
            "currency": "VARCHAR",
            "price_source": "VARCHAR",
        },
        "node, time",
    ),
    "answers": Table(
        "what `report` and `money` ask a Prometheus, so that they can do without it; `labels` is JSON",
        {
            "time": "TIMESTAMP",
            "question": "VARCHAR",
            "labels": "VARCHAR",
            "value": "DOUBLE",
        },
        "question, labels, time",
    ),
    "kept": Table(
        "which spans of time were kept, and from where",
        {"time": "TIMESTAMP", "until": "TIMESTAMP", "what": "VARCHAR", "source": "VARCHAR"},
    ),
}
DECISIONS = """
SELECT time, namespace, hpa, before AS "from", wanted AS "to", metric, value, target, reason
FROM (SELECT *, lag(wanted) OVER (PARTITION BY namespace, hpa ORDER BY time) AS before FROM hpas)
WHERE before <> wanted
"""
"""The view `decisions`: each change of what an HPA wants, with what it went by."""


def hours_of(rows: str) -> str:
    """Return the SELECT that makes `gpu_hours` of rows of `gpus` or of parts of hours."""
    measured = [f"max({each}) AS {each}" for each in ("memory_total",)]
    for name in MEASURES:
        measured += [
            f"min({name}_min) AS {name}_min",
            f"(sum({name}_mean::DOUBLE * {name}_count) / sum({name}_count))::FLOAT AS {name}_mean",
            f"max({name}_max) AS {name}_max",
            f"sum({name}_count)::UINTEGER AS {name}_count",
        ]
    keys = ", ".join(GPU_KEYS[1:])
    by_name = ", ".join(TABLES["gpu_hours"].columns)
    return (
        f"SELECT {by_name} FROM (SELECT time_bucket(INTERVAL 1 HOUR, time) AS time, {keys}, "
        f"{', '.join(measured)} FROM ({rows}) GROUP BY ALL)"
    )
