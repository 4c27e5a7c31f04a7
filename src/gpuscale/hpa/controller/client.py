"""The source of an HPA's metrics, and the conversion of answers to observations.

The simulator answers from its store, the live loop asks a metrics API over HTTP. Either is a `MetricsClient`;
`observe` turns its answers into what `decide` takes.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/interfaces.go (MetricsClient).
Known differences: each value carries its own time, and usage is returned for every container of a pod.
"""

from collections.abc import Sequence
from typing import Protocol

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.hpa import (
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    selector_fault,
)
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.hpa.types import (
    ContainerUsages,
    ExternalValues,
    FetchError,
    ObjectValue,
    Observation,
    PodUsage,
    PodValues,
)


class MetricsClient(Protocol):
    """Answers an HPA controller's metric requests.

    Every method raises a GpuscaleError with the bare reason where there is no answer.
    """

    async def pod_values(
        self, namespace: str, selector: str, metric: str, metric_selector: Selector | None
    ) -> Sequence[MetricValue]:
        """Return a metric of the pods that the selector text selects; a pod without one is left out."""

    async def object_value(
        self,
        namespace: str,
        described: CrossVersionObjectReference,
        metric: str,
        metric_selector: Selector | None,
    ) -> MetricValue: ...

    async def external_values(
        self, namespace: str, metric: str, selector: Selector | None
    ) -> Sequence[ExternalValue]:
        """Return every value of an external metric; an HPA adds them up."""

    async def resource_usages(
        self, namespace: str, selector: str, resource: str
    ) -> Sequence[PodUsage]:
        """Return what the containers of the selected pods use of a resource."""


async def observe(
    client: MetricsClient, hpa: HorizontalPodAutoscaler, selector: str
) -> tuple[Observation, ...]:
    """Return one observation for each metric of an HPA; a `FetchError` where the client gives none.

    Args:
        client: who answers.
        hpa: whose metrics are asked for, in their order.
        selector: of the target's pods, as its scale has it.
    """
    namespace = hpa.metadata.namespace
    return tuple([await _observation(client, spec, namespace, selector) for spec in hpa.metrics])


async def _observation(
    client: MetricsClient, spec: MetricSpec, namespace: str, selector: str
) -> Observation:
    if fault := selector_fault(spec):
        return FetchError(fault)
    try:
        match spec:
            case PodsMetric():
                pods = await client.pod_values(namespace, selector, spec.name, spec.selector)
                return PodValues(tuple(pods))
            case ObjectMetric():
                value = await client.object_value(
                    namespace, spec.described_object, spec.name, spec.selector
                )
                return ObjectValue(value.value_milli, value.measured_ms)
            case ExternalMetric():
                rows = await client.external_values(namespace, spec.name, spec.selector)
                measured_ms = min((row.measured_ms for row in rows), default=0)
                return ExternalValues(tuple(row.value_milli for row in rows), measured_ms)
            case _:
                usages = await client.resource_usages(namespace, selector, spec.name)
                return ContainerUsages(tuple(usages))
    except GpuscaleError as error:
        return FetchError(str(error))
