"""The HPA that KEDA makes for a ScaledObject.

Source: KEDA v2.21 controllers/keda/hpa.go.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpuscale.base.objects.hpa import (
    Behavior,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    SelectPolicy,
)
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.scaled_object import KIND, NAME_LABEL, ScaledObject
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.triggers.keda.kinds import known_metrics

VERSION = "2.21.0"
_EXCLUDED_LABELS = "scaledobject.keda.sh/hpa-excluded-labels"
_KINDS = {"ContainerResourceMetric": 0, "ExternalMetric": 1, "ResourceMetric": 2}
"""KEDA sorts metrics by their type's name."""


def made_hpa(scaled: ScaledObject) -> HorizontalPodAutoscaler:
    """Return the HPA of a ScaledObject with known triggers."""
    return generated_hpa(scaled, (metric for each in known_metrics(scaled) for metric in each))


def generated_hpa(
    scaled: ScaledObject, metrics: Iterable[MetricSpec], created_ms: int = 0
) -> HorizontalPodAutoscaler:
    """Return the HPA.

    Args:
        scaled: the ScaledObject.
        metrics: of its triggers, in their order.
        created_ms: when it is made, milliseconds since the epoch.
    """
    meta = scaled.metadata
    excluded = meta.annotations.get(_EXCLUDED_LABELS, "").split(",")
    labels = {
        "app.kubernetes.io/name": scaled.hpa_name[:63].rstrip("-."),
        "app.kubernetes.io/version": VERSION,
        "app.kubernetes.io/part-of": meta.name,
        "app.kubernetes.io/managed-by": "keda-operator",
        NAME_LABEL: meta.name,
        **{key: value for key, value in meta.labels.items() if key not in excluded},
    }
    owner = OwnerReference(KIND, meta.name)
    return HorizontalPodAutoscaler(
        metadata=ObjectMeta(
            scaled.hpa_name, meta.namespace, labels, meta.annotations, created_ms, None, owner
        ),
        target=CrossVersionObjectReference(
            scaled.target_kind, scaled.target_name, scaled.target_api_version
        ),
        max_replicas=scaled.most,
        metrics=tuple(
            sorted(
                (_selected(each, meta.name) for each in metrics),
                key=lambda metric: _KINDS[type(metric).__name__],
            )
        ),
        min_replicas=max(scaled.least, 1),
        behavior=_behavior(scaled),
    )


def _selected(metric: MetricSpec, name: str) -> MetricSpec:
    if isinstance(metric, ExternalMetric):
        return replace(metric, selector=selector_of_labels({NAME_LABEL: name}))
    return metric


def _behavior(scaled: ScaledObject) -> Behavior | None:
    behavior = scaled.behavior
    if scaled.pauses_scale_in:
        behavior = behavior or Behavior()
        rules = replace(behavior.scale_down, select_policy=SelectPolicy.DISABLED)
        behavior = replace(behavior, scale_down=rules)
    if scaled.pauses_scale_out:
        behavior = behavior or Behavior()
        rules = replace(behavior.scale_up, select_policy=SelectPolicy.DISABLED)
        behavior = replace(behavior, scale_up=rules)
    return behavior
