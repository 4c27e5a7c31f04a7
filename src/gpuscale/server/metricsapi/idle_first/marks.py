"""Deletion costs on pods: whose they are, and the patches that change ours.

A cost that another field manager wrote is left alone, a template's too. A patch holds for the pod as it was
read: if anyone changed it meanwhile, it is refused, and the next look decides anew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.hpa.cluster.victims import DELETION_COST, deletion_cost
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject

MANAGER = "gpuscale-idle-first"
_PATH = "/metadata/annotations"
_COST_PATH = f"{_PATH}/{DELETION_COST.replace('/', '~1')}"
_FIELD = f"f:{DELETION_COST}"


@dataclass(frozen=True, slots=True)
class MarkedPod:
    """A pod, as far as marks go."""

    name: str
    version: str
    has_annotations: bool
    cost: int | None
    """None without one."""
    is_others: bool
    """Whether another manager wrote the cost."""

    def patch(self, cost: int | None) -> list[JsonObject]:
        """Return the operations that give it a cost, or take it away."""
        test: JsonObject = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": self.version,
        }
        if cost is None:
            return [test, {"op": "remove", "path": _COST_PATH}]
        if not self.has_annotations:
            return [test, {"op": "add", "path": _PATH, "value": {DELETION_COST: str(cost)}}]
        return [test, {"op": "add", "path": _COST_PATH, "value": str(cost)}]


def read_pods(answer: JsonObject) -> Iterator[MarkedPod]:
    """Yield the pods of a list of metadata that are not being deleted."""
    items = answer.get("items")
    for item in map(mapping_of, items if isinstance(items, list) else ()):
        meta = mapping_of(item.get("metadata"))
        if "deletionTimestamp" in meta:
            continue
        annotations = {
            key: text_of(value) for key, value in mapping_of(meta.get("annotations")).items()
        }
        has_cost = DELETION_COST in annotations
        yield MarkedPod(
            text_of(meta.get("name")),
            text_of(meta.get("resourceVersion")),
            bool(annotations),
            deletion_cost(annotations) if has_cost else None,
            has_cost and set(_managers(meta)) != {MANAGER},
        )


def _managers(meta: Mapping[str, object]) -> Iterator[str]:
    """Yield who wrote the cost."""
    entries = meta.get("managedFields")
    for entry in map(mapping_of, entries if isinstance(entries, list) else ()):
        fields = mapping_of(mapping_of(entry.get("fieldsV1")).get("f:metadata"))
        if _FIELD in mapping_of(fields.get("f:annotations")):
            yield text_of(entry.get("manager"))
