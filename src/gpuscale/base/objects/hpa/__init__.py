"""HorizontalPodAutoscalers as frozen types, read from any API version, written as `autoscaling/v2`."""

from gpuscale.base.objects.hpa.behavior import BEHAVIOR_ANNOTATION
from gpuscale.base.objects.hpa.metrics import METRICS_ANNOTATION
from gpuscale.base.objects.hpa.reading import read_hpa
from gpuscale.base.objects.hpa.targets import MetricAmounts, metric_amounts, targets_text
from gpuscale.base.objects.hpa.types import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    PolicyType,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    TargetType,
    selector_fault,
)

__all__ = [
    "BEHAVIOR_ANNOTATION",
    "DEFAULT_SCALE_DOWN",
    "DEFAULT_SCALE_UP",
    "METRICS_ANNOTATION",
    "Behavior",
    "ContainerResourceMetric",
    "CrossVersionObjectReference",
    "ExternalMetric",
    "HorizontalPodAutoscaler",
    "MetricAmounts",
    "MetricSpec",
    "MetricTarget",
    "ObjectMetric",
    "PodsMetric",
    "PolicyType",
    "ResourceMetric",
    "ScalingPolicy",
    "ScalingRules",
    "SelectPolicy",
    "TargetType",
    "metric_amounts",
    "read_hpa",
    "selector_fault",
    "targets_text",
]
