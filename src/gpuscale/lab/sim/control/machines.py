"""Node pools as a cloud has them: machines with GPUs, times, prices, and how long each was paid for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.agent.gpu import GpuModel
from gpuscale.base.objects.gpu_resources import GpuKind, gpu_kind
from gpuscale.hpa.cluster.nodes import InstanceType, NodePool, Offering
from gpuscale.lab.queueing.times import Constant, Times
from gpuscale.lab.sim.control.supply import Supply
from gpuscale.lab.sim.devices import WHOLE


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node of an instance type is."""

    shape: InstanceType
    gpu_model: GpuModel
    gpus: int
    provisioning: Times
    """In seconds, from the order to its Node being Ready; each node draws its own."""
    gpu_start: Times = Constant(0.0)  # noqa: RUF009 - frozen
    """In seconds, from then until its GPUs can be scheduled on."""
    offers: Mapping[str, int] = field(default_factory=lambda: WHOLE)
    """How many units of a resource one GPU offers: more where pods share it, or parts of it."""
    gpu_of: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    """Driver and name of a device for claims, to the GPUs that it is, or is a part of."""

    @property
    def is_shared(self) -> bool:
        """Return whether pods get less than whole GPUs."""
        return self.is_split or max(self.offers.values(), default=1) > 1

    @property
    def is_split(self) -> bool:
        """Return whether MIG splits its GPUs, or claims can have parts of them."""
        return any(gpu_kind(name) is GpuKind.PARTITION for name in self.offers) or any(
            device.counters for each in self.shape.slices for device in each.devices
        )


@dataclass(frozen=True, slots=True)
class CloudPool:
    """A node pool, and the machines that it may have."""

    pool: NodePool
    machines: tuple[Machine, ...]
    """One for each of the pool's instance types, in its order."""
    provider: str = ""
    """By the name that the scenario has."""
    supply: Supply = Supply()  # noqa: RUF009 - frozen
    initial_nodes: int = 0
    """There at the start, of the first machine; the pool's smallest size where that is larger."""

    @property
    def machine(self) -> Machine:
        """Return the machine of a pool that has only one, or the first."""
        return self.machines[0]

    def named(self, instance_type: str) -> Machine:
        """Return the machine of an instance type of this pool."""
        return next(each for each in self.machines if each.shape.name == instance_type)

    @property
    def gpu_model(self) -> GpuModel:
        return self.machine.gpu_model

    @property
    def gpus(self) -> int:
        return self.machine.gpus

    @property
    def price_per_hour(self) -> float | None:
        """Return the price of the first machine, in the currency of the setup; None without one."""
        return self.machine.shape.offerings[0].price_per_hour

    @property
    def provisioning_ms(self) -> int:
        """Return the mean time from the order of a node to its GPUs, of the first machine."""
        return round((self.machine.provisioning.mean + self.machine.gpu_start.mean) * 1000)


@dataclass(slots=True)
class Rental:
    """One node, from its order to its removal, as it is billed."""

    pool: str
    node: str
    machine: Machine
    offering: Offering
    from_ms: int
    to_ms: int | None = None
    joined_ms: int | None = None
    """When its Node was Ready."""
    ready_ms: int | None = None
    """When its GPUs could be scheduled on."""
    leaving: bool = False
    """Pods are asked to go, and then it goes."""

    @property
    def gpus(self) -> int:
        return self.machine.gpus

    @property
    def price_per_hour(self) -> float | None:
        """Return its price in the currency of the setup; None where none was given."""
        return self.offering.price_per_hour

    def starting_hours(self, now_ms: int) -> float:
        """Return the paid hours before the node was usable."""
        ends = [time_ms for time_ms in (self.ready_ms, self.to_ms) if time_ms is not None]
        return (min(ends, default=now_ms) - self.from_ms) / 3_600_000

    def hours(self, now_ms: int) -> float:
        """Return the paid hours."""
        return ((self.to_ms if self.to_ms is not None else now_ms) - self.from_ms) / 3_600_000
