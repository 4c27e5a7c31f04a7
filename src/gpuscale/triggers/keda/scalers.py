"""The scalers of each kind of trigger: the HPA's metric, its value, and its activity.

Source: KEDA v2.21 pkg/scalers/scaler.go, prometheus_scaler.go, cpu_memory_scaler.go.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from gpuscale.base.errors import BugError, UpstreamError
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    MetricTarget,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.series import Matrix, Value, Vector
from gpuscale.triggers.keda.metadata import TriggerMetadata

Ask = Callable[[str, int], Awaitable[Value]]
"""Evaluates PromQL at a time in milliseconds since the epoch; raises a GpuscaleError where it can't."""


@dataclass(frozen=True, slots=True)
class ScalerReading:
    """A trigger's value and activity."""

    value_milli: int
    """Thousandths, as the HPA gets it."""
    is_active: bool


class Scaler(Protocol):
    """Answers for one trigger."""

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Return the HPA's metrics, without the selector that names the ScaledObject.

        Raises:
            GpuscaleError: the scaler can't be asked.
        """
        ...

    async def read(self, now_ms: int) -> ScalerReading:
        """Return the trigger's value and activity.

        Raises:
            GpuscaleError: there is none now.
        """
        ...


@dataclass(frozen=True, slots=True)
class PrometheusScaler:
    """A scaler of one Prometheus query."""

    metrics: tuple[MetricSpec, ...]
    query: str
    activation_threshold: float
    ignores_null: bool
    """Whether no value counts as 0, which is KEDA's default."""
    ask: Ask

    async def read(self, now_ms: int) -> ScalerReading:
        # KEDA sends times in whole seconds.
        number = self._number(await self.ask(self.query, now_ms // 1000 * 1000))
        return ScalerReading(quantity(number).milli_value(), number > self.activation_threshold)

    def _number(self, value: Value) -> float:
        if isinstance(value, Vector) and len(value.samples) == 1:
            number = value.samples[0].value
            if math.isfinite(number):
                return number
            return self._null(f"prometheus query returns {number}")
        if isinstance(value, Matrix) and len(value.series) == 1:
            return self._null(
                "prometheus metrics 'prometheus' target may be lost, the value list is empty"
            )
        if isinstance(value, Vector | Matrix):
            rows = value.samples if isinstance(value, Vector) else value.series
            if len(rows) > 1:
                raise UpstreamError(f"prometheus query {self.query} returned multiple elements")
            return self._null(
                "prometheus metrics 'prometheus' target may be lost, the result is empty"
            )
        raise UpstreamError(f"prometheus query {self.query} gives no vector, which KEDA can't read")

    def _null(self, reason: str) -> float:
        if self.ignores_null:
            return 0.0
        raise UpstreamError(reason)


@dataclass(frozen=True, slots=True)
class ResourceScaler:
    """A scaler of CPU or memory, which the HPA reads from the resource metrics API."""

    metrics: tuple[MetricSpec, ...]

    async def read(self, now_ms: int) -> ScalerReading:
        """Raise: KEDA never asks."""
        raise BugError("a resource trigger was asked for a value")


def quantity(number: float) -> Quantity:
    """Return a number in KEDA's form: three decimals; 0 if it is negative or invalid."""
    if not math.isfinite(number) or number < 0:
        return Quantity(0)
    return parse_quantity(f"{number:.3f}")


def external_metric(name: str, metric_type: str, target: Quantity) -> ExternalMetric:
    """Return the HPA's metric of a trigger; its selector comes with the ScaledObject's name."""
    if metric_type == "AverageValue":
        return ExternalMetric(name, MetricTarget(TargetType.AVERAGE_VALUE, average_value=target))
    return ExternalMetric(name, MetricTarget(TargetType.VALUE, value=target))


def prometheus_scaler(metadata: TriggerMetadata, ask: Ask) -> PrometheusScaler:
    """Return a trigger's scaler; faults are collected.

    Args:
        metadata: of the trigger.
        ask: answers its PromQL, whatever server the trigger names.
    """
    metadata.text("serverAddress")
    query, threshold = metadata.text("query"), metadata.number("threshold")
    target = quantity(threshold)
    if target.nano == 0 and metadata.values.get("threshold"):
        metadata.note(
            ("metadata", "threshold"), "more than zero", repr(metadata.values["threshold"])
        )
    metric = external_metric(
        metadata.metric_name("prometheus"), metadata.trigger.metric_type, target
    )
    return PrometheusScaler(
        metrics=(metric,),
        query=query,
        activation_threshold=metadata.number("activationThreshold", 0.0),
        ignores_null=metadata.boolean("ignoreNullValues", default=True),
        ask=ask,
    )


def resource_scaler(metadata: TriggerMetadata) -> ResourceScaler:
    """Return a trigger's scaler; faults are collected."""
    kind, container = metadata.trigger.kind, metadata.values.get("containerName", "")
    target = _resource_target(metadata)
    if container:
        return ResourceScaler((ContainerResourceMetric(kind, container, target),))
    return ResourceScaler((ResourceMetric(kind, target),))


def _resource_target(metadata: TriggerMetadata) -> MetricTarget:
    text, path = metadata.text("value"), ("metadata", "value")
    if metadata.trigger.metric_type == "Utilization":
        if not (text.isascii() and text.isdigit()) and text:
            metadata.note(path, "a whole number of percent", repr(text))
        percent = int(text) if text.isascii() and text.isdigit() else 1
        return MetricTarget(TargetType.UTILIZATION, average_utilization=percent)
    if metadata.trigger.metric_type == "Value":
        metadata.note(("metricType",), "AverageValue or Utilization", "'Value'")
    try:
        average = parse_quantity(text or "1")
    except ValueError as error:
        metadata.note(path, str(error), repr(text))
        average = Quantity(0)
    return MetricTarget(TargetType.AVERAGE_VALUE, average_value=average)
