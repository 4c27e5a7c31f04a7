"""A node pool of a values file, as providers make theirs from it."""

from dataclasses import dataclass

from gpuscale.objects.nodes import Taint


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool of equal GPU nodes; texts are free of blanks, quotes and what else shells read."""

    name: str
    cluster: str
    region: str
    instance_type: str
    gpu: str
    """The accelerator's name as the provider spells it."""
    taint: Taint
    """Of its nodes; with a value."""
    resource_group: str | None = None
    zone: str | None = None
    """None leaves it to the provider."""
    networks: tuple[str, ...] = ()
    gpus: int = 1
    """Per node."""
    min_nodes: int = 0
    max_nodes: int = 8
    spot: bool = False
    disk_gib: int = 200
    slices: int = 1
    """Pods that take turns on one GPU."""
    has_own_plugin: bool = False
    """Whether the installation brings the device plugin, which makes the slices."""

    def shared_gpus(self) -> int:
        """Return how many `nvidia.com/gpu` a node will have once the device plugin runs."""
        return self.gpus * (self.slices if self.has_own_plugin else 1)
