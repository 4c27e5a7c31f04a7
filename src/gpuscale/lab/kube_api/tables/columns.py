"""The table columns of each kind.

Columns of priority 1 are those of `-o wide`. The API server's descriptions of columns, which kubectl does not
show, are left out.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go; KEDA v2.21 for ScaledObjects and lws v0.9
    for LeaderWorkerSets (additionalPrinterColumns of their CRDs).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.lab.kube_api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    EVENT,
    HPA,
    JOB,
    LEADER_WORKER_SET,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SCALED_OBJECT,
    SERVICE,
    STATEFUL_SET,
    ApiResource,
)
from gpuscale.lab.kube_api.tables.rows import ROWS, Cell, Object


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The table columns of one kind."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, int], Sequence[Cell]]
    """Returns one object's cells, given the time in milliseconds since the epoch."""


_NAME = Column("Name", format="name")
_AGE = Column("Age")


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


def _integer(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "integer") for name in names)


def _texts(*names: str) -> tuple[Column, ...]:
    return tuple(map(Column, names))


_OF_TEMPLATE = _wide("Containers", "Images", "Selector")
_COLUMNS: Mapping[ApiResource, tuple[Column, ...]] = {
    NAMESPACE: (_NAME, Column("Status"), _AGE),
    NODE: (
        _NAME,
        *_texts("Status", "Roles", "Age", "Version"),
        *_wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
    POD: (
        _NAME,
        *_texts("Ready", "Status", "Restarts", "Age"),
        *_wide("IP", "Node", "Nominated Node", "Readiness Gates"),
    ),
    SERVICE: (
        _NAME,
        *_texts("Type", "Cluster-IP", "External-IP", "Port(s)", "Age"),
        *_wide("Selector"),
    ),
    ENDPOINT_SLICE: (_NAME, *_texts("AddressType", "Ports", "Endpoints", "Age")),
    LEASE: (_NAME, *_texts("Holder", "Age")),
    EVENT: (
        *_texts("Last Seen", "Type", "Reason", "Object"),
        *_wide("Subobject", "Source"),
        Column("Message"),
        *_wide("First Seen", "Count"),
        Column("Name", format="name", priority=1),
    ),
    DEPLOYMENT: (_NAME, *_texts("Ready", "Up-to-date", "Available", "Age"), *_OF_TEMPLATE),
    REPLICA_SET: (_NAME, *_integer("Desired", "Current", "Ready"), _AGE, *_OF_TEMPLATE),
    DAEMON_SET: (
        _NAME,
        *_integer("Desired", "Current", "Ready", "Up-to-date", "Available"),
        *_texts("Node Selector", "Age"),
        *_OF_TEMPLATE,
    ),
    JOB: (_NAME, *_texts("Status", "Completions", "Duration", "Age"), *_OF_TEMPLATE),
    HPA: (_NAME, *_texts("Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age")),
    STATEFUL_SET: (_NAME, *_texts("Ready", "Age"), *_wide("Containers", "Images")),
    LEADER_WORKER_SET: (_NAME, *_integer("Ready", "Desired", "Up-to-date"), Column("Age", "date")),
    SCALED_OBJECT: (
        _NAME,
        *_texts("ScaleTargetKind", "ScaleTargetName"),
        *_integer("Min", "Max"),
        *_texts("Ready", "Active", "Fallback", "Paused", "Triggers", "Authentications"),
        Column("Age", "date"),
    ),
}
LAYOUTS = {kind: Layout(columns, ROWS[kind]) for kind, columns in _COLUMNS.items()}
