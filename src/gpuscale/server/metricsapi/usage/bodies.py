"""The answers of `metrics.k8s.io` as JSON-shaped data.

Source: k8s.io/metrics v0.30.0 pkg/apis/metrics/v1beta1 (types.go); metrics-server v0.7.1 pkg/api
(table.go).
"""

from collections.abc import Iterable, Sequence

from gpuscale.base.golang.durations import go_duration
from gpuscale.base.quantity import Format, Quantity
from gpuscale.kube.informers import ObjectRecord
from gpuscale.server.metricsapi.usage.measured import ObjectUsage
from gpuscale.server.metricsapi.wire.bodies import Body, timestamp
from gpuscale.server.metricsapi.wire.paths import RESOURCE_GROUP
from gpuscale.server.sources.usage import NodeUsage, PodContainersUsage, Usage

_NANO_PER_MILLI = 1_000_000


def single(version: str, kind: str, item: Body) -> Body:
    """Return one PodMetrics or NodeMetrics."""
    return {"kind": kind, "apiVersion": f"{RESOURCE_GROUP}/{version}", **item}


def listed(version: str, kind: str, items: list[Body]) -> Body:
    """Return a list of them."""
    api_version = f"{RESOURCE_GROUP}/{version}"
    return {"kind": f"{kind}List", "apiVersion": api_version, "metadata": {}, "items": items}


def pod_item(measured: ObjectUsage[PodContainersUsage], window_ms: int, now_ms: int) -> Body:
    """Return a PodMetrics without its kind."""
    containers = [
        {"name": name, "usage": _quantities(each)}
        for name, each in measured.usage.containers.items()
    ]
    return {**_common(measured, window_ms, now_ms), "containers": containers}


def node_item(measured: ObjectUsage[NodeUsage], window_ms: int, now_ms: int) -> Body:
    """Return a NodeMetrics without its kind."""
    usage = _quantities(measured.usage.usage)
    return {**_common(measured, window_ms, now_ms), "usage": usage}


def usage_table(
    table_version: str,
    items: Sequence[Body],
    usages: Iterable[Iterable[Usage]],
    window_ms: int,
) -> Body:
    """Return a Table, as `kubectl get podmetrics` asks for.

    Args:
        table_version: of the Table.
        items: the objects.
        usages: of each object, to be added up.
        window_ms: of the rules.
    """
    window = go_duration(window_ms)
    rows = [
        _row(item["metadata"], _sum(parts), window)
        for item, parts in zip(items, usages, strict=True)
    ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{table_version}",
        "metadata": {},
        "columnDefinitions": _COLUMNS if rows else [],
        "rows": rows,
    }


def _column(name: str, format_: str, description: str = "") -> Body:
    return {
        "name": name,
        "type": "string",
        "format": format_,
        "description": description,
        "priority": 0,
    }


_COLUMNS = [
    _column("Name", "name", "Name of the resource"),
    _column("cpu", "quantity"),
    _column("memory", "quantity"),
    _column("Window", "duration"),
]


def _row(metadata: object, usage: Usage, window: str) -> Body:
    name = metadata["name"] if isinstance(metadata, dict) else ""
    shown = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
    }
    return {"cells": [name, *_quantities(usage).values(), window], "object": shown}


def _common(
    measured: ObjectUsage[PodContainersUsage] | ObjectUsage[NodeUsage], window_ms: int, now_ms: int
) -> Body:
    return {
        "metadata": _metadata(measured.record, now_ms),
        "timestamp": timestamp(measured.usage.measured_ms),
        "window": go_duration(window_ms),
    }


def _metadata(record: ObjectRecord, now_ms: int) -> Body:
    body: Body = {"name": record.name}
    if record.namespace:
        body["namespace"] = record.namespace
    body["creationTimestamp"] = timestamp(now_ms)
    return {**body, "labels": dict(sorted(record.labels.items()))} if record.labels else body


def _quantities(usage: Usage) -> dict[str, str]:
    found: dict[str, str] = {}
    if usage.cpu_milli is not None:
        found["cpu"] = str(Quantity.from_milli(usage.cpu_milli))
    if usage.memory_milli is not None:
        nano = usage.memory_milli * _NANO_PER_MILLI
        found["memory"] = str(Quantity(nano, Format.BINARY_SI))
    return found


def _sum(parts: Iterable[Usage]) -> Usage:
    usages = tuple(parts)
    return Usage(
        sum(each.cpu_milli or 0 for each in usages), sum(each.memory_milli or 0 for each in usages)
    )
