"""Places of autoscalers' metric fields, in each API version."""

from dataclasses import dataclass

from gpuscale.base.objects.hpa import (
    METRICS_ANNOTATION,
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.ops.lint.findings import Place
from gpuscale.ops.lint.inputs import PlacedHpa

_SOURCES: dict[type[MetricSpec], str] = {
    PodsMetric: "pods",
    ObjectMetric: "object",
    ExternalMetric: "external",
    ResourceMetric: "resource",
    ContainerResourceMetric: "containerResource",
}


@dataclass(frozen=True, slots=True)
class PlacedMetric:
    """A metric of an autoscaler, with its place."""

    placed: PlacedHpa
    index: int
    spec: MetricSpec

    @property
    def name(self) -> Place:
        if isinstance(self.spec, ResourceMetric | ContainerResourceMetric):
            return self._at("name")
        return self._at("metricName") if self._is_old else self._at("metric", "name")

    @property
    def selector(self) -> Place:
        if self._is_old:
            is_external = isinstance(self.spec, ExternalMetric)
            return self._at("metricSelector" if is_external else "selector")
        return self._at("metric", "selector")

    @property
    def described(self) -> Place:
        return self._at("target" if self._is_old else "describedObject")

    @property
    def target_type(self) -> Place:
        """Return the place of the target's type."""
        return self._at("target", "type")

    def target(self, key: str) -> Place:
        """Return the place of a target's field, named as in `autoscaling/v2`."""
        if not self._is_old:
            return self._at("target", key)
        if key == "averageValue" and isinstance(self.spec, ObjectMetric):
            return self._at("averageValue")
        return self._at(f"target{key[:1].upper()}{key[1:]}")

    @property
    def _is_old(self) -> bool:
        return self.placed.version in {"v1", "v2beta1"}

    def _at(self, *path: str) -> Place:
        if self.placed.version == "v1":
            return self.placed.place("metadata", "annotations", METRICS_ANNOTATION)
        source = _SOURCES[type(self.spec)]
        return self.placed.place("spec", "metrics", self.index, source, *path)


def placed_metrics(placed: PlacedHpa) -> tuple[PlacedMetric, ...]:
    """Return the metrics of an autoscaler in the controller's order."""
    return tuple(PlacedMetric(placed, index, spec) for index, spec in enumerate(placed.hpa.metrics))
