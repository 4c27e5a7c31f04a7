"""How many replicas: the algorithm of Kubernetes' HPA controller, v1.34 to v1.37, without its I/O."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.base.objects.metric_values import MetricValue
    from gpuscale.hpa.controller.policy import ReplicaPolicy, ReplicaRequest, resized
    from gpuscale.hpa.deciding import decide, failed, needs_metrics, scale_unreadable, succeeded
    from gpuscale.hpa.replicas.pods import pod_info
    from gpuscale.hpa.selectors import hpas_selecting
    from gpuscale.hpa.terms.names import metric_text
    from gpuscale.hpa.terms.targets import target_text, targets_cell
    from gpuscale.hpa.types import (
        Condition,
        ContainerInfo,
        ContainerUsages,
        ControllerSettings,
        Decision,
        Event,
        ExternalValues,
        FetchError,
        HpaState,
        MetricStatus,
        ObjectValue,
        Observation,
        Outcome,
        PodInfo,
        PodUsage,
        PodValues,
        ReadyCondition,
        Recommendation,
        Scale,
        ScaleEvent,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "Condition",
    "ContainerInfo",
    "ContainerUsages",
    "ControllerSettings",
    "Decision",
    "Event",
    "ExternalValues",
    "FetchError",
    "HpaState",
    "MetricStatus",
    "MetricValue",
    "ObjectValue",
    "Observation",
    "Outcome",
    "PodInfo",
    "PodUsage",
    "PodValues",
    "ReadyCondition",
    "Recommendation",
    "ReplicaPolicy",
    "ReplicaRequest",
    "Scale",
    "ScaleEvent",
    "decide",
    "failed",
    "hpas_selecting",
    "metric_text",
    "needs_metrics",
    "pod_info",
    "resized",
    "scale_unreadable",
    "succeeded",
    "target_text",
    "targets_cell",
]
