"""A node's GPUs as Kubernetes counts them. Who only serves the counts need not load what makes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.gpu.owners import ContainerRef


@dataclass(frozen=True, slots=True)
class NodeGpuResources:
    """GPUs as Kubernetes counts them. None and missing mean unknown."""

    capacity: int | None = None
    """What the node has; only the API server knows."""
    allocatable: int | None = None
    """What pods may be given."""
    containers: Mapping[ContainerRef, int] = field(default_factory=dict)
    """GPUs that each container asked for, which is its request and its limit."""
