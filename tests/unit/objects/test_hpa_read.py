"""HPAs of autoscaling/v2 and v2beta2 as the API server completes them."""

import textwrap

import pytest

from gpuscale.base.objects.hpa import (
    Behavior,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    PolicyType,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    TargetType,
)
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.selectors import parse_selector, selector_of_labels
from gpuscale.base.quantity import parse_quantity

HEAD = """
apiVersion: autoscaling/{version}
kind: HorizontalPodAutoscaler
metadata:
  name: gpu-hpa
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: bert}}
  maxReplicas: 10
"""


def read(spec: str = "", version: str = "v2") -> HorizontalPodAutoscaler:
    text = HEAD.format(version=version) + textwrap.indent(textwrap.dedent(spec), "  ")
    (hpa,) = load_manifests(text, "hpa.yaml")
    assert isinstance(hpa, HorizontalPodAutoscaler)
    return hpa


def read_metric(text: str, version: str = "v2"):
    (metric,) = read(f"metrics:\n- {text}", version).metrics
    return metric


def test_defaults() -> None:
    hpa = read()
    assert hpa.min_replicas == 1
    assert hpa.max_replicas == 10
    assert hpa.metadata.namespace == "default"
    assert hpa.target == CrossVersionObjectReference("Deployment", "bert", "apps/v1")
    assert hpa.behavior is None
    target = MetricTarget(TargetType.UTILIZATION, average_utilization=80)
    assert hpa.metrics == (ResourceMetric("cpu", target),)


def test_empty_list_of_metrics_takes_the_default() -> None:
    assert read("metrics: []").metrics == read().metrics


def test_type_utilization_with_average_value_on_a_pods_metric_is_accepted() -> None:
    metric = read_metric(
        "{type: Pods, pods: {metric: {name: DCGM_CUSTOM_PROCESS_SM_UTIL}, "
        "target: {type: Utilization, averageValue: 20}}}"
    )
    target = MetricTarget(TargetType.UTILIZATION, average_value=parse_quantity(20))
    assert metric == PodsMetric("DCGM_CUSTOM_PROCESS_SM_UTIL", target)


def test_pods_metric_with_selector() -> None:
    metric = read_metric(
        "{type: Pods, pods: {metric: {name: load, selector: {matchLabels: {tier: gpu}, "
        "matchExpressions: [{key: zone, operator: In, values: [b, a]}]}}, "
        "target: {type: AverageValue, averageValue: 500m}}}"
    )
    assert metric.selector == parse_selector("tier=gpu,zone in (a,b)")


def test_empty_selector_is_not_the_same_as_none() -> None:
    metric = read_metric(
        "{type: Pods, pods: {metric: {name: load, selector: {}}, "
        "target: {type: AverageValue, averageValue: 1}}}"
    )
    assert metric.selector is not None
    assert metric.selector.requirements == ()


def test_object_metric() -> None:
    metric = read_metric(
        "{type: Object, object: {metric: {name: DCGM_FI_DEV_GPU_UTIL_AVG}, "
        "describedObject: {kind: Service, name: dcgm-exporter}, target: {type: Value, value: '30'}}}"
    )
    assert metric == ObjectMetric(
        CrossVersionObjectReference("Service", "dcgm-exporter"),
        "DCGM_FI_DEV_GPU_UTIL_AVG",
        MetricTarget(TargetType.VALUE, value=parse_quantity(30)),
    )


def test_object_metric_may_set_both_targets() -> None:
    metric = read_metric(
        "{type: Object, object: {metric: {name: m}, describedObject: {kind: Service, name: s}, "
        "target: {type: Value, value: 30, averageValue: 5}}}"
    )
    assert (metric.target.value, metric.target.average_value) == (
        parse_quantity(30),
        parse_quantity(5),
    )


def test_external_metric_of_keda() -> None:
    metric = read_metric(
        "{type: External, external: {metric: {name: s0-prometheus, "
        "selector: {matchLabels: {scaledobject.keda.sh/name: web}}}, "
        "target: {type: AverageValue, averageValue: '5'}}}"
    )
    assert metric == ExternalMetric(
        "s0-prometheus",
        MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity("5")),
        selector_of_labels({"scaledobject.keda.sh/name": "web"}),
    )


def test_resource_metrics() -> None:
    target = "target: {type: Utilization, averageUtilization: 60}"
    expected = MetricTarget(TargetType.UTILIZATION, average_utilization=60)
    assert read_metric(f"{{type: Resource, resource: {{name: memory, {target}}}}}") == (
        ResourceMetric("memory", expected)
    )
    container = f"{{name: cpu, container: main, {target}}}"
    assert read_metric(f"{{type: ContainerResource, containerResource: {container}}}") == (
        ContainerResourceMetric("cpu", "main", expected)
    )


def test_behavior_fills_both_directions() -> None:
    assert read("behavior: {}").behavior == Behavior()
    behavior = read("behavior: {scaleDown: {stabilizationWindowSeconds: 60}}").behavior
    assert behavior is not None
    assert behavior.scale_up == ScalingRules(
        policies=(
            ScalingPolicy(PolicyType.PODS, 4, 15),
            ScalingPolicy(PolicyType.PERCENT, 100, 15),
        ),
        select_policy=SelectPolicy.MAX,
        stabilization_window_s=0,
    )
    assert behavior.scale_down == ScalingRules(
        policies=(ScalingPolicy(PolicyType.PERCENT, 100, 15),),
        select_policy=SelectPolicy.MAX,
        stabilization_window_s=60,
    )


def test_unset_scale_down_window_stays_unset() -> None:
    behavior = read("behavior: {scaleUp: {selectPolicy: Min}}").behavior
    assert behavior is not None
    assert behavior.scale_down.stabilization_window_s is None
    assert behavior.scale_up.select_policy is SelectPolicy.MIN


def test_given_policies_replace_the_default_list() -> None:
    behavior = read(
        """
        behavior:
          scaleUp:
            policies:
            - {type: Percent, value: 300, periodSeconds: 1800}
        """
    ).behavior
    assert behavior is not None
    assert behavior.scale_up.policies == (ScalingPolicy(PolicyType.PERCENT, 300, 1800),)


def test_null_policies_take_the_default() -> None:
    behavior = read("behavior: {scaleUp: {policies: null}}").behavior
    assert behavior == Behavior()


@pytest.mark.parametrize(("version", "tolerance"), [("v2", "50m"), ("v2beta2", "None")])
def test_tolerance_is_a_field_of_v2_alone(version: str, tolerance: str) -> None:
    behavior = read("behavior: {scaleUp: {tolerance: 0.05}}", version).behavior
    assert behavior is not None
    assert str(behavior.scale_up.tolerance) == tolerance
    assert behavior.scale_down.tolerance is None


def test_v2beta2_has_the_structure_of_v2() -> None:
    spec = """
    minReplicas: 2
    metrics:
    - type: Pods
      pods:
        metric: {name: load}
        target: {type: AverageValue, averageValue: 20}
    behavior: {scaleDown: {selectPolicy: Disabled}}
    """
    assert read(spec, "v2beta2") == read(spec, "v2")


def test_min_of_zero_needs_an_object_or_external_metric() -> None:
    external = "{type: External, external: {metric: {name: q}, target: {type: Value, value: 1}}}"
    assert read(f"minReplicas: 0\nmetrics: [{external}]").min_replicas == 0


def test_status_of_a_live_object_is_passed_over() -> None:
    text = HEAD.format(version="v2") + "status: {currentReplicas: 3, desiredReplicas: 4}\n"
    (hpa,) = load_manifests(text, "hpa.yaml")
    assert hpa == read()
