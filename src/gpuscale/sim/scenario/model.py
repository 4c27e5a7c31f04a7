"""The scenario file: what users write to say which cluster, which load, and how long.

Every field has its unit in its text form (`90s`, `30m`) or in its name, and its default says why.
`Scenario.model_json_schema()` is published with the docs, so that editors complete the file.
"""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from gpuscale.core.documents.documents import Document
from gpuscale.core.documents.models import Milliseconds, Model, PositiveDuration, parse_file
from gpuscale.core.documents.validation import LABEL_PATTERN, RELEASE_PATTERN, SUBDOMAIN_PATTERN
from gpuscale.providers.field import ProviderField, default_provider


class Metadata(Model):
    """The scenario's name."""

    name: str = Field(pattern=SUBDOMAIN_PATTERN, max_length=63)


class FileRef(Model):
    """A file beside the scenario, or its text."""

    file: str | None = None
    """Path, relative to the scenario file; `shipped:ack-bert/hpa.yaml` is a file of a shipped one."""
    inline: str | None = None

    @model_validator(mode="after")
    def _one_of(self) -> "FileRef":
        if (self.file is None) == (self.inline is None):
            raise ValueError("found both or neither, expected exactly one of file and inline")
        return self


class Pipeline(Model):
    """How readings get to the autoscaler, and how often each hop looks."""

    collect_interval: PositiveDuration = 1_000
    """How often a node agent reads its GPUs; also the window that utilisation is averaged over."""
    scrape_interval: PositiveDuration = 15_000
    """How often the node agents are scraped; kube-prometheus' usual 15 s."""
    rule_interval: PositiveDuration = 15_000
    """How often Prometheus rules are evaluated; groups with an interval of their own wait for that."""
    relist_interval: PositiveDuration = 60_000
    """How often the metrics API looks for new series; the adapter chart's `metricsRelistInterval`."""
    hpa_sync_period: PositiveDuration = 15_000
    """kube-controller-manager's `--horizontal-pod-autoscaler-sync-period`."""
    downscale_stabilization: Milliseconds = 300_000
    """kube-controller-manager's `--horizontal-pod-autoscaler-downscale-stabilization`."""
    tolerance: float = Field(default=0.1, ge=0, le=1)
    """kube-controller-manager's `--horizontal-pod-autoscaler-tolerance`."""
    kubernetes_version: str = Field(default="1.36", pattern=RELEASE_PATTERN)
    """The release whose HPA controller is simulated; from 1.37 on it takes workloads to zero and back."""
    hpa_scale_to_zero: bool | None = None
    """The feature gate HPAScaleToZero; absent: as the release has it."""
    style: Literal["dcgm", "ack"] = "dcgm"
    """`dcgm`: dcgm-exporter's series; `ack`: those and the `DCGM_CUSTOM_*` series of Alibaba's exporter."""
    honor_labels: bool = False
    """Prometheus' `honor_labels`: off, the workload's pod arrives as `exported_pod`."""
    agent_service: str = Field(default="dcgm-exporter", min_length=1)
    """Name of the Service (and of its pods) that the node agents are scraped through."""
    agent_namespace: str = Field(default="default", min_length=1)


class TaintSpec(Model):
    """A taint of a pool's nodes."""

    key: str = Field(min_length=1)
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeAutoscaler(Model):
    """The Cluster Autoscaler's flags, with its defaults."""

    policy: str = "cluster-autoscaler"
    """What decides which pools grow and which nodes go: `cluster-autoscaler`, or a plug-in's."""
    scan_interval: PositiveDuration = 10_000
    unneeded_time: Milliseconds = 600_000
    delay_after_add: Milliseconds = 600_000


class GpuModelSpec(Model):
    """A GPU model that is not known, or is to be another than it is."""

    name: str = Field(min_length=1, max_length=64)
    """What pools call it; it becomes the label `modelName`."""
    vendor: Literal["NVIDIA", "AMD"] = "NVIDIA"
    """Gives the resource that pods ask for: `nvidia.com/gpu` or `amd.com/gpu`."""
    memory_gib: float = Field(gt=0, le=16_384)
    power_watts: float = Field(default=300.0, gt=0, le=100_000)
    """The power limit."""
    idle_watts: float | None = Field(default=None, ge=0)
    """What it draws while it does nothing; absent: a tenth of the limit."""
    sm_clock_mhz: int = Field(default=1_500, ge=1, le=100_000)
    """Top clock of the multiprocessors."""
    memory_clock_mhz: int = Field(default=1_500, ge=1, le=100_000)

    @model_validator(mode="after")
    def _idle_below_limit(self) -> "GpuModelSpec":
        if self.idle_watts is not None and self.idle_watts >= self.power_watts:
            found = f"found idleWatts {self.idle_watts:g} with powerWatts {self.power_watts:g}"
            raise ValueError(f"{found}, expected less at idle than at the limit")
        return self


class NodePoolSpec(Model):
    """A pool of equal GPU nodes."""

    name: str = Field(pattern=LABEL_PATTERN, max_length=40)
    provider: ProviderField = default_provider()
    instance_type: str = ""
    gpu_model: str
    """A known model, such as `Tesla T4` or `l40s`, or one of `gpuModels`; gives memory, clocks and power."""
    gpus: int = Field(ge=1, le=16)
    """GPUs per node."""
    min: int = Field(ge=0, le=1000)
    max: int = Field(ge=1, le=1000)
    cpu: str = "8"
    memory: str = "64Gi"
    labels: dict[str, str] = {}
    taints: tuple[TaintSpec, ...] = ()
    provisioning_time: Milliseconds = 120_000
    """From the request for a node to GPUs that can be scheduled on."""
    price_per_hour: float | None = Field(default=None, ge=0, le=1e6)
    """For one node; absent: the run has no cost, which is not a cost of 0."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Of the price: an ISO 4217 code, the same in all pools that have a price."""

    @model_validator(mode="after")
    def _ordered(self) -> "NodePoolSpec":
        if self.min > self.max:
            raise ValueError(f"found min {self.min} above max {self.max}, expected min <= max")
        return self


class ServiceSpec(Model):
    """What one request costs, and how a pod comes up."""

    gpu_seconds_per_request: float = Field(gt=0, le=86_400)
    """Seconds of one whole GPU."""
    other_seconds_per_request: float = Field(default=0.0, ge=0, le=86_400)
    """Seconds a request spends off the GPU while it holds a slot of the pod."""
    concurrency: int = Field(default=32, ge=1, le=100_000)
    """Requests that one pod works on at once."""
    memory_mib: int = Field(default=4096, ge=0)
    """GPU memory that a running pod holds on each of its GPUs."""
    queue_limit: float = Field(default=10_000, ge=0)
    """Requests that may wait; later ones are turned away."""


class StepSpec(Model):
    """From `at` on, this rate."""

    at: Milliseconds
    rate: float = Field(ge=0, le=1e9)


class ConstantSpec(Model):
    """The same rate all the time."""

    shape: Literal["constant"]
    rate: float = Field(ge=0, le=1e9)


class StepsSpec(Model):
    """Rates that hold until the next step."""

    shape: Literal["steps"]
    steps: tuple[StepSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _rising(self) -> "StepsSpec":
        times = [step.at for step in self.steps]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise ValueError(
                "found steps out of order, expected each `at` later than the one before"
            )
        return self


class RampSpec(Model):
    """A straight line between two rates."""

    shape: Literal["ramp"]
    from_rate: float = Field(ge=0, le=1e9)
    to_rate: float = Field(ge=0, le=1e9)
    start: Milliseconds = 0
    end: PositiveDuration

    @model_validator(mode="after")
    def _forward(self) -> "RampSpec":
        if self.end <= self.start:
            raise ValueError("found an end not after the start, expected start < end")
        return self


class SineSpec(Model):
    """A wave around a mean."""

    shape: Literal["sine"]
    mean: float = Field(ge=0, le=1e9)
    amplitude: float = Field(ge=0, le=1e9)
    period: PositiveDuration = 86_400_000
    offset: Milliseconds = 0

    @model_validator(mode="after")
    def _not_negative(self) -> "SineSpec":
        if self.amplitude > self.mean:
            found = f"found amplitude {self.amplitude:g} above mean {self.mean:g}"
            raise ValueError(f"{found}, expected a rate that never falls below zero")
        return self


class SpikesSpec(Model):
    """A base with a spike now and then."""

    shape: Literal["spikes"]
    base: float = Field(ge=0, le=1e9)
    peak: float = Field(ge=0, le=1e9)
    every: PositiveDuration
    length: PositiveDuration
    first: Milliseconds = 0

    @model_validator(mode="after")
    def _apart(self) -> "SpikesSpec":
        if self.length >= self.every:
            raise ValueError("found spikes that touch, expected length < every")
        return self


class TraceSpec(Model):
    """A CSV file: one row per request, or times and rates."""

    shape: Literal["trace"]
    file: str
    """Path, relative to the scenario file; may end in `.gz`."""
    time_column: str
    rate_column: str | None = None
    """Absent: every row is one request."""
    scale: float = Field(default=1.0, gt=0, le=1e6)
    """How many requests each recorded one counts as."""


LoadSpec = Annotated[
    ConstantSpec | StepsSpec | RampSpec | SineSpec | SpikesSpec | TraceSpec,
    Field(discriminator="shape"),
]


class ServiceWorkload(Model):
    """A Deployment that serves requests."""

    deployment: str
    """`name`, or `namespace/name`."""
    image_pull: Milliseconds = 20_000
    startup: Milliseconds = 10_000
    """From the container's start to Ready: loading the model, warming up."""
    service: ServiceSpec
    load: LoadSpec


class JobRunSpec(Model):
    """How often a Job is submitted, and what one run does."""

    copies: int = Field(default=1, ge=1, le=10_000)
    at: Milliseconds = 0
    every: Milliseconds = 0
    """Time between two submissions; 0 submits all at once."""
    duration: PositiveDuration
    """How long one pod computes once its container has started."""
    utilization: float = Field(default=90.0, gt=0, le=100)
    """Percent of each GPU that it keeps busy."""
    memory_mib: int = Field(default=4096, ge=0)


class JobWorkload(Model):
    """A Job that is run a number of times."""

    job: str
    """`name`, or `namespace/name`."""
    image_pull: Milliseconds = 20_000
    run: JobRunSpec


def _workload_kind(value: object) -> str:
    is_job = isinstance(value, JobWorkload) or (isinstance(value, dict) and "job" in value)
    return "(job)" if is_job else "(service)"


Workload = Annotated[
    Annotated[ServiceWorkload, Tag("(service)")] | Annotated[JobWorkload, Tag("(job)")],
    Discriminator(_workload_kind),
]


class ScenarioSpec(Model):
    """All that a run needs."""

    description: str = ""
    duration: PositiveDuration
    seed: int = Field(default=1, ge=0)
    manifests: tuple[FileRef, ...] = Field(min_length=1)
    """Kubernetes manifests as they are: Deployment, Service, Job, HorizontalPodAutoscaler, ScaledObject."""
    rules: FileRef | None = None
    """A prometheus-adapter rule file; absent: the adapter chart's default rules."""
    recording_rules: FileRef | None = None
    """A Prometheus rule file, with recording and alerting rules."""
    counters: FileRef | None = None
    """A dcgm-exporter counters CSV; absent: the default list."""
    pipeline: Pipeline = Pipeline()
    replica_policy: str = "hpa"
    """What decides the replicas of each HPA's target: `hpa`, Kubernetes' algorithm, or a plug-in's."""
    node_autoscaler: NodeAutoscaler = NodeAutoscaler()
    gpu_models: tuple[GpuModelSpec, ...] = ()
    """Models that are described here; they go before known ones of the same name."""
    node_pools: tuple[NodePoolSpec, ...] = Field(min_length=1)
    workloads: tuple[Workload, ...] = ()


class Scenario(Model):
    """A scenario file."""

    api_version: Literal["gpuscale.dev/v1alpha1"]
    kind: Literal["Scenario"]
    metadata: Metadata
    spec: ScenarioSpec


def parse_scenario(text: str, source: str) -> tuple[Scenario, Document]:
    """Return the scenario of a file, and the document, which knows its lines.

    Raises:
        ConfigError: not one YAML document, or fields that are missing, unknown or wrong; all of them.
    """
    return parse_file(Scenario, text, source)
