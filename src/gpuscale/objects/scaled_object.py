"""KEDA's ScaledObjects, as far as prometheus triggers go.

Source: KEDA v2.17 apis/keda/v1alpha1/scaledobject_types.go (defaults, and which limits are refused),
    pkg/scalers/prometheus_scaler.go.
"""

from dataclasses import dataclass

from gpuscale.objects.fields import Fields
from gpuscale.objects.meta import ObjectMeta, read_meta

PROMETHEUS = "prometheus"
_DEFAULT_MOST = 100


@dataclass(frozen=True, slots=True)
class Trigger:
    """One source of a ScaledObject's counts."""

    kind: str
    is_average: bool
    """Whether the count is value / threshold, as with `metricType: AverageValue`, KEDA's default."""
    query: str
    threshold: float | None
    """None where it is no number, such as a reference to an environment variable."""


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """A ScaledObject."""

    metadata: ObjectMeta
    target_kind: str
    target_name: str
    least: int
    """Replicas; 0 is KEDA's default."""
    most: int
    triggers: tuple[Trigger, ...]


def read_scaled_object(fields: Fields) -> ScaledObject:
    """Return the ScaledObject of a manifest."""
    spec = fields.child("spec", required=True)
    target = spec.child("scaleTargetRef", required=True)
    least, most = spec.integer("minReplicaCount", 0), spec.integer("maxReplicaCount", _DEFAULT_MOST)
    if least is not None and most is not None and least > most:
        spec.note(("maxReplicaCount",), f"at least minReplicaCount, {least}", found=str(most))
    if "triggers" not in spec:
        spec.note(("triggers",), "this field is required")
    return ScaledObject(
        metadata=read_meta(fields),
        target_kind=target.text("kind", "Deployment"),
        target_name=target.text("name", required=True),
        least=least or 0,
        most=most or 0,
        triggers=tuple(_trigger(each) for each in spec.items("triggers")),
    )


def _trigger(fields: Fields) -> Trigger:
    metadata = fields.child("metadata")
    kind = fields.text("type", required=True)
    is_prometheus = kind == PROMETHEUS
    return Trigger(
        kind=kind,
        is_average=fields.text("metricType", "AverageValue") == "AverageValue",
        query=metadata.text("query", required=is_prometheus),
        threshold=_number(metadata.text("threshold", required=is_prometheus)),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
