"""Metadata of Kubernetes objects: name, namespace, labels, times, owner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.base.objects.fields import (
        Fields,  # it loads YAML, which a node agent does not need
    )


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The controller that made an object."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """Name and bookkeeping of an object."""

    name: str
    namespace: str = "default"
    """Empty for objects without one, such as nodes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    creation_ms: int = 0
    """Milliseconds since the epoch."""
    deletion_ms: int | None = None
    """When deletion was asked for; None while it was not."""
    owner: OwnerReference | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name alone where there is no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def read_meta(fields: "Fields", *, namespaced: bool = True) -> ObjectMeta:
    """Return the metadata of the manifest whose top-level fields are given."""
    meta = fields.child("metadata", required=True)
    return ObjectMeta(
        name=meta.text("name", meta.text("generateName"), required="generateName" not in meta),
        namespace=meta.text("namespace", "default") if namespaced else "",
        labels=meta.labels("labels"),
        annotations=meta.labels("annotations"),
        creation_ms=meta.time_ms("creationTimestamp") or 0,
        deletion_ms=meta.time_ms("deletionTimestamp"),
    )
