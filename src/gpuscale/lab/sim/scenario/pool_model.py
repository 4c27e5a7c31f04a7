"""Node pools in the scenario file: their machines, what a cloud refuses, and what Karpenter may take away."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from gpuscale.base.documents.models import Milliseconds, Model
from gpuscale.base.documents.validation import LABEL_PATTERN, LABEL_VALUE_PATTERN, MIG_PATTERN
from gpuscale.lab.sim.scenario.times import DurationOrTimes
from gpuscale.ops.providers import ProviderField, default_provider

CapacityType = Literal["on-demand", "spot", "reserved"]


class TaintSpec(Model):
    """A taint on every node of a pool."""

    key: str = Field(min_length=1)
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class OfferingSpec(Model):
    """Where and how an instance type is sold, and for how much."""

    zone: str = ""
    capacity_type: CapacityType = "on-demand"
    price_per_hour: float = Field(ge=0, le=1e6)
    count: int | None = Field(default=None, ge=1, le=100_000)
    """Of a reservation: how many nodes it holds."""
    start: Milliseconds = 0
    """Of a reservation, such as a capacity block: when it begins."""
    end: Milliseconds | None = None
    """When its nodes are taken back, two minutes or the `notice` of interruptions before; absent: never."""

    @model_validator(mode="after")
    def _reserved(self) -> "OfferingSpec":
        if (self.capacity_type == "reserved") != (self.count is not None):
            raise ValueError(
                "found one of capacityType reserved and count, expected both or neither"
            )
        if self.count is None and (self.start or self.end is not None):
            raise ValueError("found start or end without a reservation, expected a count too")
        if self.end is not None and self.end <= self.start:
            raise ValueError("found an end that is not after the start")
        return self


class InstanceTypeSpec(Model):
    """One of several shapes of a pool's nodes; a known one needs no more than its name."""

    name: str = Field(pattern=LABEL_VALUE_PATTERN, max_length=63)
    gpu_model: str = ""
    gpus: int | None = Field(default=None, ge=1, le=72)
    cpu: str = "8"
    memory: str = "64Gi"
    pods: int = Field(default=110, ge=1, le=10_000)
    """Most pods that a node takes; the kubelet's `maxPods`."""
    labels: dict[str, str] = {}
    offerings: tuple[OfferingSpec, ...] = ()
    """Absent: the list prices of a known type."""
    provisioning_time: DurationOrTimes | None = None
    """Absent: the pool's."""


class StockOutSpec(Model):
    """Times at which the cloud has no such nodes."""

    start: Milliseconds = 0
    """When the first begins, from the scenario's start."""
    length: DurationOrTimes
    every: DurationOrTimes | None = None
    """From the end of one to the next; absent: there is one alone."""
    instance_types: tuple[str, ...] = ()
    """Empty: all of the pool."""
    zones: tuple[str, ...] = ()
    """Empty: all."""
    capacity_types: tuple[CapacityType, ...] = ()
    """Empty: all."""
    code: str = Field(default="InsufficientInstanceCapacity", min_length=1, max_length=100)
    """What the cloud answers."""


class InterruptionsSpec(Model):
    """The cloud takes spot nodes back."""

    after: DurationOrTimes
    """From a node's start; each draws its own."""
    notice: Milliseconds = 120_000
    """How long before that its pods are told; two minutes on AWS, half a minute on Azure and Google Cloud."""


class DisruptionBudgetSpec(Model):
    """How many nodes of a pool may be disrupted at once, as in a Karpenter NodePool."""

    nodes: str = Field(pattern=r"^([0-9]+|[0-9]{1,2}%|100%)$")
    reasons: tuple[Literal["Underutilized", "Empty", "Drifted"], ...] = ()
    schedule: str = ""
    duration: Milliseconds = 0

    @model_validator(mode="after")
    def _both(self) -> "DisruptionBudgetSpec":
        if bool(self.schedule) != bool(self.duration):
            raise ValueError("found one of schedule and duration, expected both or neither")
        return self


class DisruptionSpec(Model):
    """What Karpenter may take away, as in `spec.disruption` of a NodePool."""

    consolidation_policy: Literal["WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced"] = (
        "WhenEmptyOrUnderutilized"
    )
    consolidate_after: Milliseconds | Literal["Never"] = 0
    budgets: tuple[DisruptionBudgetSpec, ...] = (DisruptionBudgetSpec(nodes="10%"),)


class SharingSpec(Model):
    """Several pods on each GPU, as `sharing` of NVIDIA's device plugin has it."""

    strategy: Literal["time-slicing", "mps"]
    replicas: int = Field(ge=2, le=100)
    """How often each GPU is offered."""
    renamed: bool = False
    """`renameByDefault`: offered as `nvidia.com/gpu.shared`."""


class NodePoolSpec(Model):
    """A pool of GPU nodes: equal ones, or of several instance types for Karpenter to choose from."""

    name: str = Field(pattern=LABEL_PATTERN, max_length=40)
    provider: ProviderField = default_provider()
    instance_type: str = ""
    """One that is known, or that `instanceCatalogue` describes, gives `gpuModel`, `gpus`, `cpu`, `memory` and
    `pricePerHour` where they are absent."""
    gpu_model: str = ""
    """A known model, such as `Tesla T4` or `l40s`, or one of `gpuModels`; gives memory, clocks and power."""
    gpus: int | None = Field(default=None, ge=1, le=72)
    """GPUs per node; up to those of a rack that NVLink joins."""
    instance_types: tuple[InstanceTypeSpec, ...] = ()
    """Shapes to choose from, instead of the one that `gpuModel`, `gpus`, `cpu`, `memory` describe."""
    min: int = Field(ge=0, le=100_000)
    max: int = Field(ge=1, le=100_000)
    initial: int | None = Field(default=None, ge=0, le=100_000)
    """Nodes at the start, of the first instance type; absent: `min`."""
    cpu: str = "8"
    memory: str = "64Gi"
    labels: dict[str, str] = {}
    taints: tuple[TaintSpec, ...] = ()
    provisioning_time: DurationOrTimes = 120.0
    """From the request for a node until it is Ready; a duration, or a distribution that each node draws
    from."""
    gpu_start_time: DurationOrTimes = 0.0
    """From then until its GPUs can be scheduled on: driver and device plugin."""
    price_per_hour: float | None = Field(default=None, ge=0, le=1e6)
    """For one node; absent, and not known of the instance type: the run has no cost, which is not a cost
    of 0."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Of the prices: an ISO 4217 code, the same in all pools that have a price."""
    sharing: SharingSpec | None = None
    mig: dict[Annotated[str, Field(pattern=MIG_PATTERN)], Annotated[int, Field(ge=1, le=7)]] = {}
    """Into which instances each GPU is split, such as `1g.10gb: 7`; offered one by one as
    `nvidia.com/mig-1g.10gb`."""
    resource_slices: tuple[dict[str, Any], ...] = ()
    """What drivers publish of each node for claims, as `spec` of a ResourceSlice has it: `driver`, and
    `devices` or `sharedCounters`. The GPUs are then had by claims, and not of a device plugin."""
    stock_outs: tuple[StockOutSpec, ...] = ()
    quota_gpus: int | None = Field(default=None, ge=0, le=1_000_000)
    """GPUs that the cloud lets the pool's nodes have in all; absent: no limit."""
    interruptions: InterruptionsSpec | None = None
    weight: int = Field(default=0, ge=0, le=100)
    """Karpenter tries pools of a larger weight first."""
    limits: dict[str, str] = {}
    """Karpenter's: the most that the pool's nodes may have in all, such as `nvidia.com/gpu: 16`."""
    disruption: DisruptionSpec = DisruptionSpec()
    """Karpenter's."""
    expire_after: Milliseconds | Literal["Never"] = 720 * 3_600_000
    """Karpenter's: how old a node may become."""

    @model_validator(mode="after")
    def _ordered(self) -> "NodePoolSpec":
        if self.min > self.max:
            raise ValueError(f"found min {self.min} above max {self.max}, expected min <= max")
        if self.initial is not None and not self.min <= self.initial <= self.max:
            raise ValueError(
                f"found initial {self.initial}, expected {self.min} to {self.max}, as min and max"
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_share(self) -> "NodePoolSpec":
        if self.sharing and self.mig:
            raise ValueError("found sharing beside mig, expected one of them")
        if self.resource_slices and (self.sharing or self.mig or self.instance_types):
            raise ValueError(
                "found resourceSlices beside sharing, mig or instanceTypes, expected none of them"
            )
        return self

    @model_validator(mode="after")
    def _one_description(self) -> "NodePoolSpec":
        one = sorted(
            {"gpu_model", "gpus", "instance_type", "cpu", "memory", "price_per_hour"}
            & self.model_fields_set
        )
        if self.instance_types and one:
            raise ValueError(
                f"found instanceTypes beside {', '.join(map(to_camel, one))}, expected one description"
            )
        is_described = self.instance_type or (self.gpu_model and self.gpus is not None)
        if not self.instance_types and not is_described:
            raise ValueError(
                "found no gpuModel and gpus, expected both, an instanceType, or instanceTypes"
            )
        return self
