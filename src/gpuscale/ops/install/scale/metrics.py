"""The metrics of a scale: signals of gpuscale, PromQL for KEDA, and what an HPA takes, as an HPA has it."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from gpuscale.base.documents.models import Model, PositiveDuration
from gpuscale.base.documents.validation import REFUSED
from gpuscale.base.errors import QueryError
from gpuscale.base.objects.fields import QUANTITY
from gpuscale.base.quantity import parse_quantity
from gpuscale.base.words import closest
from gpuscale.ops.install.fields import Target
from gpuscale.ops.install.scale.azure_monitor import AzureMonitorMetric
from gpuscale.series.promql import parse_query
from gpuscale.server.rules import MAX_PARTS
from gpuscale.signals import SIGNALS, Signal, filled_in
from gpuscale.triggers import DEFAULT_DRAIN_S


def _quantity(value: str | float) -> str | int | float:
    try:
        parse_quantity(value)
    except ValueError:
        raise ValueError(f"found {value!r}, expected {QUANTITY}") from None
    return value


def promql(text: str) -> str:
    """Check that a text is PromQL, and return it."""
    try:
        parse_query(text)
    except QueryError as error:
        raise ValueError(f"found a query that is no PromQL, expected another: {error}") from None
    return text


def _signal(name: str) -> str:
    if name in SIGNALS:
        return name
    meant = closest(name, SIGNALS)
    hint = f", such as {meant}" if meant else ""
    every = "gpuscale init --signal list shows them"
    raise ValueError(f"found {name!r}, expected a signal{hint}; {every}")


SignalName = Annotated[str, AfterValidator(_signal), Field(json_schema_extra={"enum": [*SIGNALS]})]
SignalObject = Annotated[str, Field(min_length=1, max_length=253)]
Query = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(promql)]
Quantity = Annotated[str | int | float, AfterValidator(_quantity)]
"""As Kubernetes takes it, such as 600m, 12Gi or 80; it stays as it is written."""


class SignalMetric(Model):
    """A signal of gpuscale, by its name."""

    signal: SignalName = "gpu-utilization"
    """What is measured: of the GPUs of each pod, of its model server, or of what is in front of it."""
    target: Target
    """Per pod, in the signal's unit: percent, MiB, a ratio from 0 to 1, requests, messages or seconds."""
    of: SignalObject | None = None
    """Of signals of gateways, proxies and queues: name of the InferencePool, the Ingress, the queue."""
    metric: Literal["pods", "object"] = "pods"
    """With `hpa`, of GPUs. `pods`: the mean of the pods; `object`: the recorded mean of the workload's
    GPUs."""

    @property
    def source(self) -> Signal:
        return SIGNALS[self.signal]

    def query_in(self, namespace: str) -> str:
        """Return PromQL of the whole load; empty for a signal that is read from pods."""
        return filled_in(self.source.query, self.of or "", namespace)


class CombinedPart(Model):
    """One limit of a combined metric."""

    signal: SignalName
    """What is measured: one that is read from the pods."""
    threshold: Target
    """Of one pod, in the signal's unit: the value at which it is full."""

    @property
    def source(self) -> Signal:
        return SIGNALS[self.signal]

    @model_validator(mode="after")
    def _is_of_pods(self) -> "CombinedPart":
        if self.source.kind != "pods" or self.source.is_alibabas:
            text = f"found signal {self.signal} in a combined metric"
            raise ValueError(f"{text}, expected one that is read from the pods, with their labels")
        return self


class CombinedMetric(Model):
    """Several limits as one metric: how full the fullest of them is, where 1 is full."""

    combined: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=63)]
    """What the metrics API calls the metric, such as vllm_fullness."""
    parts: tuple[CombinedPart, ...] = Field(min_length=1, max_length=MAX_PARTS)
    """The limits; a pod without a value of one of them has none of the whole."""
    target: Target = 1
    """Per pod: 1 is full."""


class PolicyUse(Model):
    """A policy that says how many replicas the load of a query needs."""

    name: str = Field(min_length=1, max_length=253)
    """Such as trend or guarded."""
    settings: dict[str, float] = Field(default={}, max_length=64)
    """Its own; what is left out has its defaults."""
    start_time: str
    """How long a pod takes to become ready, such as 3m."""
    lag: str | None = None
    """How old a load is when the policy sees it."""
    learn: str | None = None
    """Of whole days before today, how much it learns from."""


class StartingCredit(Model):
    """What it takes to count pods that are starting with the load that they will take."""

    waiting: Query
    """PromQL with one number as its answer: the part of the query's load that waits."""
    throughput: Query
    """PromQL with one number: what the ready pods finish a second, by a `rate` of a minute."""
    start_time: PositiveDuration | None = None
    """How long a pod takes to become ready; absent: learned from the workload's pods."""
    drain: PositiveDuration = round(DEFAULT_DRAIN_S * 1000)
    """Within how long a backlog that no start-up explains is to be gone."""


class QueryMetric(Model):
    """A PromQL query of one row, such as the length of a queue; with `hpa` it is an External metric."""

    query: Query
    """PromQL with one number as its answer."""
    target: Target
    """What the answer is held against."""
    target_type: Literal["AverageValue", "Value"] = "AverageValue"
    """`AverageValue`: as many pods as value / target; `Value`: as many as now, times value / target."""
    policy: PolicyUse | None = None
    """Scales on the replicas that a policy wants for the answer; `target` is then what one busy pod takes."""
    credit: StartingCredit | None = None
    """Counts pods that are starting with the load that they will take, of a query of what runs and waits."""

    @model_validator(mode="after")
    def _can_have_credit(self) -> "QueryMetric":
        if self.credit is not None and self.policy is not None:
            raise ValueError("found credit beside a policy, expected one of them")
        if self.credit is not None and self.target_type == "Value":
            text = "found credit with targetType Value, expected AverageValue"
            raise ValueError(f"{text}: pods are counted by a total")
        return self


class MatchExpression(Model):
    """One condition on a label."""

    key: str
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How its value is compared."""
    values: tuple[str, ...] = ()
    """Of which it is one or none, with In and NotIn."""


class MetricSelector(Model):
    """Which series of a metric count."""

    match_labels: dict[str, str] = {}
    """Labels and their values."""
    match_expressions: tuple[MatchExpression, ...] = ()


class MetricIdentifier(Model):
    """A metric of the metrics API."""

    name: str
    """What the metrics API calls the metric."""
    selector: MetricSelector | None = None


class MetricTarget(Model):
    """What a metric should be."""

    type: Literal["Utilization", "Value", "AverageValue"]
    """How the value is compared."""
    value: Quantity | None = None
    """With type Value."""
    average_value: Quantity | None = None
    """For each pod, with type AverageValue."""
    average_utilization: int | None = None
    """Percent of the request."""


class DescribedObject(Model):
    """An object in the workload's namespace."""

    api_version: str | None = None
    """Group and version of the object."""
    kind: str
    """Kind of the object."""
    name: str
    """Name of the object."""


class PodsSource(Model):
    """A metric of each pod, averaged over the pods."""

    metric: MetricIdentifier
    target: MetricTarget


class ObjectSource(Model):
    """A metric of one object, such as a Service."""

    metric: MetricIdentifier
    described_object: DescribedObject
    target: MetricTarget


class ExternalSource(Model):
    """A metric of nothing in the cluster."""

    metric: MetricIdentifier
    target: MetricTarget


class ResourceSource(Model):
    """CPU or memory of each pod."""

    name: str
    """cpu or memory."""
    target: MetricTarget


class ContainerResourceSource(Model):
    """CPU or memory of one container of each pod."""

    name: str
    """cpu or memory."""
    container: str
    """Name of the container."""
    target: MetricTarget


class PodsMetric(Model):
    """A Pods metric, as an HPA has it."""

    type: Literal["Pods"]
    """Kind of the metric."""
    pods: PodsSource


class ObjectMetric(Model):
    """An Object metric, as an HPA has it."""

    type: Literal["Object"]
    """Kind of the metric."""
    object: ObjectSource


class ExternalMetric(Model):
    """An External metric, as an HPA has it."""

    type: Literal["External"]
    """Kind of the metric."""
    external: ExternalSource


class ResourceMetric(Model):
    """A Resource metric, as an HPA has it."""

    type: Literal["Resource"]
    """Kind of the metric."""
    resource: ResourceSource

    @property
    def source(self) -> ResourceSource:
        return self.resource


class ContainerResourceMetric(Model):
    """A ContainerResource metric, as an HPA has it."""

    type: Literal["ContainerResource"]
    """Kind of the metric."""
    container_resource: ContainerResourceSource

    @property
    def source(self) -> ContainerResourceSource:
        return self.container_resource


HpaMetric = PodsMetric | ObjectMetric | ExternalMetric | ResourceMetric | ContainerResourceMetric
_TYPES = ("Pods", "Object", "External", "Resource", "ContainerResource", "AzureMonitor")


def _shape(entry: Any) -> str | None:  # noqa: ANN401 - whatever a file has
    """Return a metric's union tag; it is no field name, so that faults keep their path in the file."""
    if isinstance(entry, Model):
        return str(getattr(entry, "type", type(entry).__name__))
    if not isinstance(entry, dict):
        return "SignalMetric"
    if "query" in entry:
        return "QueryMetric"
    if "combined" in entry:
        return "CombinedMetric"
    if "type" not in entry:
        return "SignalMetric"
    return str(entry["type"]) if entry["type"] in _TYPES else None


MetricEntry = Annotated[
    Annotated[SignalMetric, Tag("SignalMetric")]
    | Annotated[QueryMetric, Tag("QueryMetric")]
    | Annotated[CombinedMetric, Tag("CombinedMetric")]
    | Annotated[PodsMetric, Tag("Pods")]
    | Annotated[ObjectMetric, Tag("Object")]
    | Annotated[ExternalMetric, Tag("External")]
    | Annotated[ResourceMetric, Tag("Resource")]
    | Annotated[ContainerResourceMetric, Tag("ContainerResource")]
    | Annotated[AzureMonitorMetric, Tag("AzureMonitor")],
    Discriminator(
        _shape,
        custom_error_type=REFUSED,
        custom_error_message=f"found another type, expected one of {', '.join(_TYPES)}",
    ),
]


def as_written(model: Model) -> dict[str, Any]:
    """Return a part of the file as Kubernetes fields, without defaults."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
