"""What a live cluster has, for checks of files and clusters alike: its objects, and what it says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuscale.base.findings import Unseen
from gpuscale.hpa.terms import KubernetesVersion

_ADDED = ("resourceVersion", "uid", "generation", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class AbsentTarget:
    """An autoscaler's target that the cluster does not have."""

    said: str
    """By the API server."""
    elsewhere: tuple[str, ...] = ()
    """Namespaces that have one of that name."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A live cluster. A file's object stands in place of the live one of its name, as if it was applied."""

    objects: Sequence[Mapping[str, object]] = ()
    complete: frozenset[str] = frozenset()
    """Kinds of which all objects are among them, so that others are not there."""
    absent: Mapping[str, AbsentTarget] = field(default_factory=dict)
    """By `HPA namespace/name`, or `ScaledObject namespace/name`."""
    measured: frozenset[tuple[str, str]] = frozenset()
    """HPAs, as `namespace/name`, with those of their metrics that have values."""
    adds_other_nodes: bool = False
    """Whether nodes may come of pools that are not among the objects, as Cluster Autoscaler's, or it can't
    be seen."""
    kubernetes: KubernetesVersion | None = None
    """Its release."""
    unseen: tuple[Unseen, ...] = ()
    """What may not be read."""


def as_applied(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a live object as who applied it wrote it: without what the API server adds.

    Of a node it keeps what nobody writes: what it has.
    """
    given, found = (
        body.get("metadata"),
        {key: each for key, each in body.items() if key != "status"},
    )
    found["metadata"] = {
        key: each
        for key, each in (given.items() if isinstance(given, dict) else ())
        if key not in _ADDED
    }
    status = body.get("status")
    if body.get("kind") == "Node" and isinstance(status, dict):
        found["status"] = {"allocatable": status.get("allocatable")}
    return found
