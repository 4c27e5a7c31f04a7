"""Objects as a `Table`, the form in which kubectl asks for lists.

Source: k8s.io/apimachinery v0.36 pkg/apis/meta/v1 (Table); apiserver v0.36 pkg/endpoints/handlers.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuscale.lab.kube_api.kinds import EVENT, HPA, HPA_V1, NEW_EVENT, POD, ApiResource
from gpuscale.lab.kube_api.tables.ages import age
from gpuscale.lab.kube_api.tables.columns import LAYOUTS, Column, Layout

Json = dict[str, Any]
_FINISHED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}
_SCALE = Layout(
    (Column("Name"), Column("Desired", "integer"), Column("Available", "integer"), Column("Age")),
    lambda item, now_ms: (
        item["metadata"]["name"],
        item["spec"].get("replicas", 0),
        item["status"]["replicas"],
        age(item["metadata"].get("creationTimestamp"), now_ms),
    ),
)

_STORED = {HPA_V1: HPA, NEW_EVENT: EVENT}


def table(
    kind: ApiResource,
    items: Iterable[Json],
    metadata: Json,
    now_ms: int,
    *,
    included: str = "Metadata",
    shown: Callable[[Json], Json] = lambda item: item,
    with_columns: bool = True,
) -> Json:
    """Return a Table.

    Args:
        kind: of the objects.
        items: the objects, in the version that is stored.
        metadata: of the list.
        now_ms: for ages.
        included: how much of each object goes with its row: `None`, `Metadata` or `Object`.
        shown: returns an object as the client sees it.
        with_columns: without, there are rows only, as in a watch after its first event.
    """
    layout = _layout(kind, items := list(items))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(each) for each in layout.columns]
        if with_columns
        else None,
        "rows": [_row(kind, layout, item, now_ms, included, shown) for item in items],
    }


def _layout(kind: ApiResource, items: list[Json]) -> Layout:
    if items and items[0].get("kind") == "Scale":
        return _SCALE
    return LAYOUTS[_STORED.get(kind, kind)]


def _definition(column: Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": "",
        "priority": column.priority,
    }


def _row(
    kind: ApiResource,
    layout: Layout,
    item: Json,
    now_ms: int,
    included: str,
    shown: Callable[[Json], Json],
) -> Json:
    row: Json = {"cells": list(layout.cells(item, now_ms))}
    phase = item.get("status", {}).get("phase") if kind is POD else None
    if phase in _FINISHED:
        why = {"reason": phase, "message": _FINISHED[phase]}
        row["conditions"] = [{"type": "Completed", "status": "True", **why}]
    if included == "Object":
        row["object"] = shown(item)
    elif included == "Metadata":
        row["object"] = partial(item)
    return row


def partial(item: Mapping[str, Any]) -> Json:
    """Return an object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item["metadata"],
    }
