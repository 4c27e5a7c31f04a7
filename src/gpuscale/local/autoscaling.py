"""The HPA controller of the live loop: it asks the metrics API over HTTP, as in a cluster."""

from gpuscale.core.errors import GpuscaleError
from gpuscale.hpa.types import (
    ExternalValues,
    FetchError,
    ObjectValue,
    Observation,
    PodValue,
    PodValues,
)
from gpuscale.local.present import Present
from gpuscale.objects.hpa import (
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
)
from gpuscale.sim.autoscaler import HpaController
from gpuscale.sources.metrics_client import MetricsClient
from gpuscale.sources.resources import ResourceMapper


class LiveHpas:
    """Fetches what each HPA looks at, then lets the controller decide."""

    def __init__(
        self,
        present: Present,
        controller: HpaController,
        client: MetricsClient,
        mapper: ResourceMapper,
    ) -> None:
        self._present = present
        self._controller = controller
        self._client = client
        self._mapper = mapper

    async def sync_all(self) -> None:
        """Sync every HPA once, one after the other."""
        self._present.catch_up()
        for key, hpa in self._present.world.cluster.hpas.items():
            observations = [await self._observe(hpa, spec) for spec in hpa.metrics]
            self._controller.sync(key, observations, self._present.catch_up())

    async def _observe(self, hpa: HorizontalPodAutoscaler, spec: MetricSpec) -> Observation:
        try:
            return await self._fetch(hpa, spec)
        except GpuscaleError as error:
            return FetchError(str(error))

    async def _fetch(self, hpa: HorizontalPodAutoscaler, spec: MetricSpec) -> Observation:
        namespace = hpa.metadata.namespace
        match spec:
            case PodsMetric():
                selector = self._controller.target(hpa).scale.selector
                found = await self._client.pod_values(namespace, selector, spec.name, spec.selector)
                return PodValues(
                    tuple(
                        PodValue(p.pod, p.value_milli, p.timestamp_ms, p.window_seconds)
                        for p in found
                    )
                )
            case ObjectMetric():
                return await self._object(namespace, spec)
            case ExternalMetric():
                rows = await self._client.external_values(namespace, spec.name, spec.selector)
                measured = min((row.timestamp_ms for row in rows), default=0)
                return ExternalValues(tuple(row.value_milli for row in rows), measured)
            case _:
                return FetchError("no metrics returned from resource metrics API")

    async def _object(self, namespace: str, spec: ObjectMetric) -> Observation:
        described = spec.described_object
        resource = self._mapper.find_kind(described.kind, described.api_version)
        found = await self._client.object_value(
            namespace, resource.name, described.name, spec.name, spec.selector
        )
        return ObjectValue(found.value_milli, found.timestamp_ms)
