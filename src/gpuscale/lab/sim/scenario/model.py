"""The scenario file: what users write to say which cluster, which load, and how long.

Every field has its unit in its text form (`90s`, `30m`) or in its name, and its default says why.
`Scenario.model_json_schema()` is published with the docs, so that editors complete the file.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from gpuscale.base.documents.changes import with_values
from gpuscale.base.documents.documents import Document
from gpuscale.base.documents.models import (
    Milliseconds,
    Model,
    PositiveDuration,
    load_one,
    parse_document,
)
from gpuscale.base.documents.validation import (
    EXPANDERS_PATTERN,
    LABEL_PATTERN,
    METRIC_PATTERN,
    RELEASE_PATTERN,
    SUBDOMAIN_PATTERN,
)
from gpuscale.base.errors import UsageError
from gpuscale.lab.sim.scenario.batching import BatchingSpec
from gpuscale.lab.sim.scenario.pool_model import NodePoolSpec
from gpuscale.lab.sim.scenario.times import DurationOrTimes, PositiveSeconds, TimesSpec
from gpuscale.ops.providers import ProviderField

ScorePlugin = Literal[
    "TaintToleration",
    "NodeAffinity",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
]


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
    """The release whose HPA controller is simulated.

    From 1.37 on it takes workloads to zero and back, and syncs a new HPA at once, not after one period.
    """
    hpa_scale_to_zero: bool | None = None
    """The feature gate HPAScaleToZero; absent: as the release has it."""
    style: Literal["dcgm", "ack"] = "dcgm"
    """`dcgm`: dcgm-exporter's series; `ack`: those and the `DCGM_CUSTOM_*` series of Alibaba's exporter."""
    honor_labels: bool = False
    """Prometheus' `honor_labels`: off, the workload's pod arrives as `exported_pod`."""
    agent_service: str = Field(default="dcgm-exporter", min_length=1)
    """Name of the Service (and of its pods) that the node agents are scraped through."""
    agent_namespace: str = Field(default="default", min_length=1)


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Limits = tuple[
    Annotated[int, Field(ge=0, le=10**9)],
    Annotated[int, Field(ge=0, le=10**9)],
]


class NodeAutoscaler(Model):
    """The Cluster Autoscaler's flags, with its defaults.

    `unneededTime` and `delayAfterAdd` are `scale-down-unneeded-time` and `scale-down-delay-after-add`; all
    others have the flag's name. What is absent is as the profile has it.
    """

    policy: str = "cluster-autoscaler"
    """What decides which pools grow and which nodes go: `cluster-autoscaler`, `karpenter`, or a
    plug-in's."""
    profile: ProviderField | None = None
    """The managed service whose autoscaler it is; absent: flags as the program has them."""
    scan_interval: PositiveDuration = 10_000
    unneeded_time: Milliseconds = 600_000
    delay_after_add: Milliseconds = 600_000
    expander: Annotated[str, Field(pattern=EXPANDERS_PATTERN)] | None = None
    """`least-waste`, `most-pods`, `least-nodes`, `price`, `priority`, `random`, or several, with commas."""
    expander_priorities: dict[int, tuple[str, ...]] | None = None
    """Priority to expressions that pools' names match; the highest wins."""
    frequent_loops_enabled: bool | None = None
    """Loop also when a pod has become unschedulable, and after a loop that changed something; absent: from
    `pipeline.kubernetesVersion` 1.35 on, as upstream."""
    new_pod_scale_up_delay: Milliseconds | None = None
    expendable_pods_priority_cutoff: int | None = None
    max_nodes_total: Count | None = None
    cores_total: Limits | None = None
    """Fewest and most."""
    memory_total: Limits | None = None
    """Fewest and most, GiB."""
    max_nodes_per_scaleup: Count | None = None
    scale_up_from_zero: bool | None = None
    enforce_node_group_min_size: bool | None = None
    balance_similar_node_groups: bool | None = None
    balancing_ignore_label: tuple[str, ...] | None = None
    balancing_label: tuple[str, ...] | None = None
    max_node_provision_time: PositiveDuration | None = None
    max_node_startup_time: PositiveDuration | None = None
    initial_node_group_backoff_duration: PositiveDuration | None = None
    max_node_group_backoff_duration: PositiveDuration | None = None
    node_group_backoff_reset_timeout: PositiveDuration | None = None
    force_delete_unregistered_nodes: bool | None = None
    ok_total_unready_count: Count | None = None
    max_total_unready_percentage: Annotated[float, Field(ge=0, le=100)] | None = None
    scale_down_enabled: bool | None = None
    scale_down_unready_enabled: bool | None = None
    scale_down_unready_time: Milliseconds | None = None
    scale_down_delay_after_delete: Milliseconds | None = None
    scale_down_delay_after_failure: Milliseconds | None = None
    scale_down_utilization_threshold: Share | None = None
    scale_down_gpu_utilization_threshold: Share | None = None
    ignore_daemonsets_utilization: bool | None = None
    ignore_mirror_pods_utilization: bool | None = None
    unremovable_node_recheck_timeout: Milliseconds | None = None
    max_scale_down_parallelism: Count | None = None
    max_drain_parallelism: Count | None = None
    skip_nodes_with_system_pods: bool | None = None
    skip_nodes_with_local_storage: bool | None = None
    skip_nodes_with_custom_controller_pods: bool | None = None
    blocking_system_pod_distruption_timeout: Milliseconds | None = None
    node_delete_delay_after_taint: Milliseconds | None = None
    max_graceful_termination_sec: Count | None = None
    max_pod_eviction_time: Milliseconds | None = None


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


class ServersSpec(Model):
    """Requests that are served one by one, at random moments."""

    per_pod: int | None = Field(default=None, ge=1, le=100_000)
    """Requests that a pod serves at once; absent: 1 with a `time`, else what its slots make of it."""
    time: TimesSpec | None = None
    """How long each takes; absent: always what the request costs."""
    timeout: PositiveSeconds | None = None
    """How long clients wait before they give up; absent: for ever."""


class SloSpec(Model):
    """What is promised to clients."""

    latency: PositiveSeconds
    """From a request's coming to its answer."""
    percent: float = Field(default=99.0, gt=0, lt=100)
    """How many of all requests are to be answered within it."""


class ServiceSpec(Model):
    """What one request costs, and how a pod comes up."""

    gpu_seconds_per_request: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Seconds of one whole GPU; absent where `batching` says what requests cost."""
    other_seconds_per_request: float = Field(default=0.0, ge=0, le=86_400)
    """Seconds a request spends off the GPU while it holds a slot of the pod."""
    concurrency: int = Field(default=32, ge=1, le=100_000)
    """Requests that one pod works on at once."""
    memory_mib: int = Field(default=4096, ge=0)
    """GPU memory that a running pod holds on each of its GPUs."""
    queue_limit: float = Field(default=10_000, ge=0)
    """Requests that may wait; later ones are turned away."""
    servers: ServersSpec | None = None
    """Serves requests one by one; absent: they flow, and their waits below saturation are theory's."""
    batching: BatchingSpec | None = None
    """Serves them one by one in batches, by a table of what those take."""

    @model_validator(mode="after")
    def _one_cost(self) -> "ServiceSpec":
        if (self.gpu_seconds_per_request is None) == (self.batching is None):
            raise ValueError(
                "found both or neither, expected one of gpuSecondsPerRequest and batching"
            )
        if self.batching is not None and self.servers is not None:
            raise ValueError("found servers beside batching, expected one of them")
        return self


MetricName = Annotated[str, Field(pattern=METRIC_PATTERN, max_length=200)]


class MetricNames(Model):
    """What a workload calls its figures; those without a name it does not serve."""

    requests: MetricName | None = None
    """Counter of the requests that came."""
    in_flight: MetricName | None = None
    """Requests that are being served."""
    queue: MetricName | None = None
    """Requests that wait."""
    kv_cache: MetricName | None = None
    """Used part of the KV cache, 0 to 1."""
    latency: MetricName | None = None
    """Histogram of seconds, without its endings."""


class MetricsSpec(Model):
    """What the pods of a workload serve of its requests, beside the GPUs' series."""

    server: (
        Literal[
            "vllm",
            "sglang",
            "tgi",
            "triton",
            "trtllm",
            "ray",
            "dynamo",
            "llamacpp",
            "torchserve",
        ]
        | None
    ) = None
    """The model server whose names are used; `names` go before them."""
    front: (
        Literal["epp", "istio", "envoy", "nginx", "traefik", "rabbitmq", "kafka", "sqs"] | None
    ) = None
    """What is in front of the pods and exposes what it sees of their requests, also while there is no pod."""
    of: str | None = Field(default=None, min_length=1, max_length=253)
    """Name of the InferencePool, the Ingress, the queue or Dynamo's model; absent: the Deployment's."""
    names: MetricNames = MetricNames()
    interval: PositiveDuration = 15_000
    """How often the pods are scraped."""
    kv_cache_requests: float | None = Field(default=None, gt=0, le=1e6)
    """Requests in flight with which a pod's KV cache is full; absent: it has none."""
    first_token: PositiveSeconds | None = None
    """From when a pod takes a request to its first token; absent: there is no time to the first token."""
    tokens_per_request: float | None = Field(default=None, gt=0, le=1e8)
    """Tokens that a request generates; absent: no tokens are counted."""

    @model_validator(mode="after")
    def _some(self) -> "MetricsSpec":
        given = [name for name in self.names.model_dump().values() if name is not None]
        if self.server is None and self.front is None and not given:
            raise ValueError("found neither server nor names nor front, expected one of them")
        if self.of is not None and self.front is None and self.server != "dynamo":
            raise ValueError(
                "found of without front, expected what it is the name in, such as rabbitmq"
            )
        if len(set(given)) < len(given):
            raise ValueError("found a name twice, expected one for each metric")
        return self


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


class ServedWorkload(Model):
    """Pods that serve requests: how they start, what a request costs, and how many come."""

    image_pull: DurationOrTimes = 20.0
    """A duration or a distribution, drawn for each pod."""
    image_cached: DurationOrTimes | None = None
    """The same on a node that had a pod of this workload before; absent: as on any other."""
    startup: DurationOrTimes = 10.0
    """From the container's start to Ready: loading the model, warming up."""
    service: ServiceSpec
    load: LoadSpec
    arrivals: Literal["poisson", "even"] = "poisson"
    """Of requests that are served one by one: at random around the load's rate, or equally far apart."""
    slo: SloSpec | None = None
    metrics: MetricsSpec | None = None
    """Absent: the pods serve none."""


class ServiceWorkload(ServedWorkload):
    """A Deployment that serves requests."""

    deployment: str
    """`name`, or `namespace/name`."""


class GroupWorkload(ServedWorkload):
    """A LeaderWorkerSet whose groups serve requests: a request costs GPU-seconds of all pods of a group."""

    leader_worker_set: str
    """`name`, or `namespace/name`."""


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


class JobSetWorkload(Model):
    """A JobSet that is run a number of times; its pods compute once all of them run."""

    job_set: str
    """`name`, or `namespace/name`."""
    image_pull: Milliseconds = 20_000
    run: JobRunSpec


def _workload_kind(value: object) -> str:
    given = value if isinstance(value, dict) else {}
    if isinstance(value, JobWorkload) or "job" in given:
        return "(job)"
    if isinstance(value, JobSetWorkload) or {"jobSet", "job_set"} & {*given}:
        return "(jobSet)"
    is_group = isinstance(value, GroupWorkload) or {"leaderWorkerSet", "leader_worker_set"} & {
        *given
    }
    return "(group)" if is_group else "(service)"


Workload = Annotated[
    Annotated[ServiceWorkload, Tag("(service)")]
    | Annotated[GroupWorkload, Tag("(group)")]
    | Annotated[JobWorkload, Tag("(job)")]
    | Annotated[JobSetWorkload, Tag("(jobSet)")],
    Discriminator(_workload_kind),
]


class HpaChangeSpec(Model):
    """What an HPA of the manifests says from a moment on; what is absent stays as it was."""

    at: Milliseconds
    hpa: str
    """`name`, or `namespace/name`."""
    min_replicas: int | None = Field(default=None, ge=0, le=2**31 - 1)
    max_replicas: int | None = Field(default=None, ge=1, le=2**31 - 1)
    targets: dict[str, str | float] = {}
    """The target of each metric, by its name: a quantity, or percent where the target is a utilisation."""

    @model_validator(mode="after")
    def _some(self) -> "HpaChangeSpec":
        if self.min_replicas is None and self.max_replicas is None and not self.targets:
            raise ValueError("found no change, expected minReplicas, maxReplicas or targets")
        return self


class ScoredResource(Model):
    """A resource that placement looks at."""

    name: str = Field(min_length=1)
    weight: int = Field(default=1, ge=1, le=100)


class ShapePoint(Model):
    """Points for a node of which so much is used."""

    utilization: int = Field(ge=0, le=100)
    score: int = Field(ge=0, le=10)


class CapacityRatio(Model):
    """Points by how much of a resource is used."""

    shape: tuple[ShapePoint, ...] = Field(min_length=1)


class ScoringStrategySpec(Model):
    """How free or full nodes should be, as `scoringStrategy` of NodeResourcesFit has it."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[ScoredResource, ...] = (
        ScoredResource(name="cpu"),
        ScoredResource(name="memory"),
    )
    requested_to_capacity_ratio: CapacityRatio | None = None

    @model_validator(mode="after")
    def _shaped(self) -> "ScoringStrategySpec":
        ratio = self.requested_to_capacity_ratio
        if (self.type == "RequestedToCapacityRatio") != (ratio is not None):
            raise ValueError(
                "found one of type RequestedToCapacityRatio and requestedToCapacityRatio, expected both or "
                "neither"
            )
        if ratio and any(a.utilization >= b.utilization for a, b in pairwise(ratio.shape)):
            raise ValueError(
                "found utilizations that don't rise, expected each above the one before"
            )
        return self


class SchedulerSpec(Model):
    """What a KubeSchedulerConfiguration says of the one profile that places all pods."""

    scoring_strategy: ScoringStrategySpec = ScoringStrategySpec()
    weights: dict[ScorePlugin, Annotated[int, Field(ge=0, le=100)]] = {}
    """Of plugins that score; 0 switches one off. Absent ones have the default."""
    defaulting_type: Literal["System", "List"] = "System"
    """Of PodTopologySpread: `System` spreads pods of Services and ReplicaSets, `List` only those that ask."""
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    """After how many nodes that a pod fits on the search stops, from 100 nodes on; 0 is what Kubernetes takes
    by itself. Absent: all are looked at, which no chance decides."""


class PodSetSpec(Model):
    """Equal pods of a ProvisioningRequest."""

    count: int = Field(ge=1, le=100_000)
    pod_template_ref: str = Field(min_length=1)
    """The Deployment or Job of the manifests whose pods they are like: `name`, or `namespace/name`."""


class ProvisioningRequestSpec(Model):
    """Room that is asked for before its pods exist."""

    name: str = Field(pattern=LABEL_PATTERN, max_length=63)
    at: Milliseconds = 0
    """When it is made."""
    provisioning_class_name: Literal[
        "check-capacity.autoscaling.x-k8s.io", "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    ]
    pod_sets: tuple[PodSetSpec, ...] = Field(min_length=1)


class CapacityBufferSpec(Model):
    """Room that is to stay free for pods to come; of several numbers the smallest counts."""

    name: str = Field(pattern=LABEL_PATTERN, max_length=63)
    pod_template_ref: str | None = Field(default=None, min_length=1)
    """The Deployment or Job of the manifests whose pods it is for."""
    scalable_ref: str | None = Field(default=None, min_length=1)
    """The Deployment of the manifests whose pods it is for, and of whose replicas `percentage` is."""
    replicas: Count | None = None
    percentage: Count | None = None
    """Rounded up, and at least 1."""
    limits: dict[str, str] = {}
    """Of what its pods ask for in all, such as `nvidia.com/gpu: 4`."""

    @model_validator(mode="after")
    def _one_shape(self) -> "CapacityBufferSpec":
        if (self.pod_template_ref is None) == (self.scalable_ref is None):
            raise ValueError(
                "found both or neither, expected one of podTemplateRef and scalableRef"
            )
        if self.percentage is not None and self.scalable_ref is None:
            raise ValueError("found percentage without scalableRef, expected both")
        return self


class ScenarioSpec(Model):
    """All that a run needs."""

    description: str = ""
    duration: PositiveDuration
    seed: int = Field(default=1, ge=0)
    manifests: tuple[FileRef, ...] = Field(min_length=1)
    """Kubernetes manifests as they are: Deployment, LeaderWorkerSet, Service, Job, JobSet, PodGroup,
    HorizontalPodAutoscaler, ScaledObject."""
    rules: FileRef | None = None
    """A prometheus-adapter rule file; absent: the adapter chart's default rules."""
    recording_rules: FileRef | None = None
    """A Prometheus rule file, with recording and alerting rules."""
    triggers: FileRef | None = None
    """A trigger file, whose triggers are served as external metrics."""
    counters: FileRef | None = None
    """A dcgm-exporter counters CSV; absent: the default list."""
    pipeline: Pipeline = Pipeline()
    replica_policy: str = "hpa"
    """What decides the replicas of each HPA's target: `hpa`, Kubernetes' algorithm, or a plug-in's."""
    hpa_changes: tuple[HpaChangeSpec, ...] = ()
    """What HPAs of the manifests said at which time; empty: they stay as the manifests have them."""
    node_autoscaler: NodeAutoscaler = NodeAutoscaler()
    provisioning_requests: tuple[ProvisioningRequestSpec, ...] = ()
    """Served by the policy `cluster-autoscaler`."""
    capacity_buffers: tuple[CapacityBufferSpec, ...] = ()
    """Served by the policy `cluster-autoscaler`."""
    scheduler: SchedulerSpec = SchedulerSpec()
    gpu_models: tuple[GpuModelSpec, ...] = ()
    """Models that are described here; they go before known ones of the same name."""
    instance_catalogue: FileRef | None = None
    """A CSV file of instance types and prices, which go before known ones."""
    node_pools: tuple[NodePoolSpec, ...] = Field(min_length=1)
    workloads: tuple[Workload, ...] = ()


class Scenario(Model):
    """A scenario file."""

    api_version: Literal["gpuscale.dev/v1alpha1"]
    kind: Literal["Scenario"]
    metadata: Metadata
    spec: ScenarioSpec


def parse_scenario(
    text: str, source: str, settings: Sequence[str] = ()
) -> tuple[Scenario, Document]:
    """Return a file's scenario, and the document with its line numbers.

    Args:
        text: of the file.
        source: what messages call it.
        settings: fields to set, each as `spec.duration=10m`.

    Raises:
        ConfigError: not one YAML document, or fields that are missing, unknown or wrong; all of them.
        UsageError: a setting has another form, or leads nowhere.
    """
    document = with_values(load_one(Scenario, text, source), settings, "--set")
    document = _with_peaks(document, settings)
    return parse_document(Scenario, document), document


def _with_peaks(document: Document, settings: Sequence[str]) -> Document:
    """Return a document in which `--set load.rate` has scaled multi-rate loads to that highest rate.

    Raises:
        UsageError: a load whose rates are in a file, or are all 0, or a rate that is no number.
    """
    spec = document.data.get("spec") if isinstance(document.data, dict) else None
    workloads = spec.get("workloads") if isinstance(spec, dict) else None
    if not isinstance(document.data, dict) or not isinstance(spec, dict):
        return document
    fields = {each.partition("=")[0].strip() for each in settings}
    found = list(workloads) if isinstance(workloads, list) else []
    for index, workload in enumerate(found):
        field = f"spec.workloads[{index}].load.rate"
        load = workload.get("load") if isinstance(workload, dict) else None
        if field in fields and isinstance(load, dict) and load.get("shape") != "constant":
            found[index] = {**workload, "load": _scaled(load, f"--set {field}")}
    data = {**document.data, "spec": {**spec, "workloads": found}} if found else document.data
    return Document(document.source, document.index, data, document.lines)


_RATES = {
    "ramp": ("fromRate", "toRate"),
    "sine": ("mean", "amplitude"),
    "spikes": ("base", "peak"),
}
"""The fields of a shape that are rates."""


def _scaled(load: Mapping[str, object], option: str) -> dict[str, object]:
    """Return a load without `rate`, scaled to this highest rate."""
    shape, rest = load.get("shape"), {key: load[key] for key in load if key != "rate"}
    steps = rest.get("steps")
    parts = [each for each in steps if isinstance(each, dict)] if isinstance(steps, list) else []
    rates = [rest.get(each) for each in _RATES.get(str(shape), ())] + [
        each.get("rate") for each in parts
    ]
    known = [float(each) for each in rates if isinstance(each, int | float)]
    highest = sum(known) if shape == "sine" else max(known, default=0.0)
    rate = load["rate"]
    if not isinstance(rate, int | float) or isinstance(rate, bool) or rate < 0:
        raise UsageError(f"{option}: found {rate!r}, expected requests per second")
    if highest <= 0:
        raise UsageError(
            f"{option}: found a load of shape {shape} without a highest rate, expected one to scale; set its"
            " scale or its rates, or the whole load: {shape: constant, rate: 20}"
        )

    def times(value: object) -> object:
        return value * rate / highest if isinstance(value, int | float) else value

    for each in _RATES.get(str(shape), ()):
        rest[each] = times(rest.get(each))
    if parts:
        rest["steps"] = [{**each, "rate": times(each.get("rate"))} for each in parts]
    return rest
