"""The metrics of a scale: signals of gpuscale, PromQL for KEDA, and what an HPA takes, as an HPA has it."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from gpuscale.core.documents.models import Model
from gpuscale.core.documents.validation import REFUSED
from gpuscale.core.errors import QueryError
from gpuscale.core.quantity import parse_quantity
from gpuscale.formats.signals import SignalName
from gpuscale.objects.fields import QUANTITY
from gpuscale.series.promql.parse import parse_query

MAX_TARGET = 999_999
"""Larger numbers are printed with an exponent by Helm."""

Target = Annotated[float, Field(gt=0, le=MAX_TARGET, multiple_of=0.001)]


def _quantity(value: str | float) -> str | int | float:
    try:
        parse_quantity(value)
    except ValueError:
        raise ValueError(f"found {value!r}, expected {QUANTITY}") from None
    return value


def promql(text: str) -> str:
    """Return a text that is PromQL."""
    try:
        parse_query(text)
    except QueryError as error:
        raise ValueError(f"found a query that is no PromQL, expected another: {error}") from None
    return text


Quantity = Annotated[str | int | float, AfterValidator(_quantity)]
"""As Kubernetes takes it, such as 600m, 12Gi or 80; it stays as it is written."""


class SignalMetric(Model):
    """A signal of gpuscale, by its name."""

    signal: SignalName = "gpu-utilization"
    """What is measured of the GPUs of each pod."""
    target: Target
    """Per pod, in the signal's unit: percent, MiB, or a ratio from 0 to 1."""
    metric: Literal["pods", "object"] = "pods"
    """With `hpa`. `pods`: the mean of the pods; `object`: the recorded mean of the workload's GPUs."""


class QueryMetric(Model):
    """With `keda`: a PromQL query of one row, such as the length of a queue."""

    query: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(promql)]
    """PromQL with one number as its answer."""
    target: Target
    """What the answer is held against."""
    target_type: Literal["AverageValue", "Value"] = "AverageValue"
    """`AverageValue`: as many pods as value / target; `Value`: as many as now, times value / target."""


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
_HPA_TYPES = ("Pods", "Object", "External", "Resource", "ContainerResource")


def _shape(entry: Any) -> str | None:  # noqa: ANN401 - whatever a file has
    """Return the tag of a metric; a tag is no name of a field, so that faults are found in the file."""
    if isinstance(entry, Model):
        return str(getattr(entry, "type", type(entry).__name__))
    if not isinstance(entry, dict):
        return "SignalMetric"
    if "query" in entry:
        return "QueryMetric"
    if "type" not in entry:
        return "SignalMetric"
    return str(entry["type"]) if entry["type"] in _HPA_TYPES else None


MetricEntry = Annotated[
    Annotated[SignalMetric, Tag("SignalMetric")]
    | Annotated[QueryMetric, Tag("QueryMetric")]
    | Annotated[PodsMetric, Tag("Pods")]
    | Annotated[ObjectMetric, Tag("Object")]
    | Annotated[ExternalMetric, Tag("External")]
    | Annotated[ResourceMetric, Tag("Resource")]
    | Annotated[ContainerResourceMetric, Tag("ContainerResource")],
    Discriminator(
        _shape,
        custom_error_type=REFUSED,
        custom_error_message=f"found another type, expected one of {', '.join(_HPA_TYPES)}",
    ),
]


def as_written(model: Model) -> dict[str, Any]:
    """Return a part of the file as Kubernetes' fields, without what is left to its defaults."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
