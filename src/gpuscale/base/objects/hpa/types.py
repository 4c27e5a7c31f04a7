"""HorizontalPodAutoscalers as frozen types: `autoscaling/v2` with the API server's defaults.

Source: k8s.io/api/autoscaling/v2/types.go; kubernetes v1.36 pkg/apis/autoscaling/v2/defaults.go.
"""

from dataclasses import dataclass
from enum import Enum

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.quantity import Quantity


class TargetType(Enum):
    """What a metric target says it is; which field is set decides for most sources."""

    UTILIZATION = "Utilization"
    VALUE = "Value"
    AVERAGE_VALUE = "AverageValue"


class PolicyType(Enum):
    """What the value of a scaling policy counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(Enum):
    """Which of several policies holds: the largest change, the smallest, or no change at all."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class CrossVersionObjectReference:
    """An object in the same namespace, by kind and name."""

    kind: str
    name: str
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """What a metric should be."""

    type: TargetType
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None
    """Percent of the request."""


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """A metric of each pod, averaged over the pods."""

    name: str
    target: MetricTarget
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ObjectMetric:
    """A metric of one object, such as a Service."""

    described_object: CrossVersionObjectReference
    name: str
    target: MetricTarget
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ExternalMetric:
    """A metric of nothing in the cluster; its series are summed."""

    name: str
    target: MetricTarget
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ResourceMetric:
    """A resource that pods request, such as cpu, over all containers of each pod."""

    name: str
    target: MetricTarget


@dataclass(frozen=True, slots=True)
class ContainerResourceMetric:
    """A resource of one named container of each pod."""

    name: str
    container: str
    target: MetricTarget


MetricSpec = PodsMetric | ObjectMetric | ExternalMetric | ResourceMetric | ContainerResourceMetric


def selector_fault(metric: MetricSpec) -> str:
    """Return why the controller can't use a metric's selector, in its words; empty where it can."""
    if isinstance(metric, ResourceMetric | ContainerResourceMetric) or metric.selector is None:
        return ""
    return metric.selector.fault


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How much the count may change within a period."""

    type: PolicyType
    value: int
    period_s: int


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """How fast the count may move in one direction."""

    policies: tuple[ScalingPolicy, ...]
    select_policy: SelectPolicy = SelectPolicy.MAX
    stabilization_window_s: int | None = None
    """None, possible on scale-down only, takes the controller's own setting."""
    tolerance: Quantity | None = None
    """A ratio; None takes the controller's own setting."""


DEFAULT_SCALE_UP = ScalingRules(
    policies=(
        ScalingPolicy(PolicyType.PODS, 4, 15),
        ScalingPolicy(PolicyType.PERCENT, 100, 15),
    ),
    stabilization_window_s=0,
)
DEFAULT_SCALE_DOWN = ScalingRules(policies=(ScalingPolicy(PolicyType.PERCENT, 100, 15),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """The rules of both directions; giving one gives the other its defaults."""

    scale_up: ScalingRules = DEFAULT_SCALE_UP
    scale_down: ScalingRules = DEFAULT_SCALE_DOWN


@dataclass(frozen=True, slots=True)
class HorizontalPodAutoscaler:
    """An HPA as the controller sees it."""

    metadata: ObjectMeta
    target: CrossVersionObjectReference
    max_replicas: int
    metrics: tuple[MetricSpec, ...]
    min_replicas: int | None = 1
    """None counts as 1; the API server fills it in, so that manifests never give None."""
    behavior: Behavior | None = None
    """None takes the controller's older path: no rate memory, and at most a doubling a step."""
