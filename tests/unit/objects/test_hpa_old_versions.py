# mypy: disable-error-code="arg-type"
"""autoscaling/v1 and v2beta1, converted to v2."""

import json
import textwrap

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.hpa import (
    BEHAVIOR_ANNOTATION,
    METRICS_ANNOTATION,
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
    SelectPolicy,
    TargetType,
)
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.base.quantity import parse_quantity


def read(version: str, spec: str = "", **annotations: object) -> HorizontalPodAutoscaler:
    lines = [
        f"apiVersion: autoscaling/{version}",
        "kind: HorizontalPodAutoscaler",
        "metadata:",
        "  name: gpu-hpa",
        "  annotations:",
        *(f"    {ANNOTATIONS[key]}: {json.dumps(text(v))}" for key, v in annotations.items()),
        "spec:",
        "  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: bert}",
        "  maxReplicas: 10",
        textwrap.indent(textwrap.dedent(spec), "  "),
    ]
    (hpa,) = load_manifests("\n".join(lines), "hpa.yaml")
    assert isinstance(hpa, HorizontalPodAutoscaler)
    return hpa


ANNOTATIONS = {"metrics": METRICS_ANNOTATION, "behavior": BEHAVIOR_ANNOTATION}


def text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def old_metric(body: str):
    (metric,) = read("v2beta1", f"metrics:\n- {body}").metrics
    return metric


def utilization(percent: int) -> MetricTarget:
    return MetricTarget(TargetType.UTILIZATION, average_utilization=percent)


def average(amount: object) -> MetricTarget:
    return MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(amount))


CPU_80 = ResourceMetric("cpu", utilization(80))


class TestV2beta1:
    def test_default_metric(self) -> None:
        assert read("v2beta1").metrics == (CPU_80,)

    def test_pods(self) -> None:
        metric = old_metric(
            "{type: Pods, pods: {metricName: DCGM_CUSTOM_PROCESS_SM_UTIL, targetAverageValue: 20}}"
        )
        assert metric == PodsMetric("DCGM_CUSTOM_PROCESS_SM_UTIL", average(20))

    def test_pods_selector(self) -> None:
        metric = old_metric(
            "{type: Pods, pods: {metricName: m, targetAverageValue: 1, "
            "selector: {matchLabels: {a: b}}}}"
        )
        assert metric.selector == selector_of_labels({"a": "b"})

    def test_resource_by_utilization(self) -> None:
        metric = old_metric("{type: Resource, resource: {name: cpu, targetAverageUtilization: 60}}")
        assert metric == ResourceMetric("cpu", utilization(60))

    def test_resource_by_value(self) -> None:
        metric = old_metric("{type: Resource, resource: {name: memory, targetAverageValue: 1Gi}}")
        assert metric == ResourceMetric("memory", average("1Gi"))

    def test_container_resource(self) -> None:
        metric = old_metric(
            "{type: ContainerResource, containerResource: "
            "{name: cpu, container: main, targetAverageUtilization: 60}}"
        )
        assert metric == ContainerResourceMetric("cpu", "main", utilization(60))

    def test_object_by_value(self) -> None:
        metric = old_metric(
            "{type: Object, object: {target: {kind: Service, name: web, apiVersion: v1}, "
            "metricName: m, targetValue: 30, selector: {matchLabels: {a: b}}}}"
        )
        assert metric == ObjectMetric(
            CrossVersionObjectReference("Service", "web", "v1"),
            "m",
            MetricTarget(TargetType.VALUE, value=parse_quantity(30)),
            selector_of_labels({"a": "b"}),
        )

    def test_object_by_average_value_keeps_the_value(self) -> None:
        metric = old_metric(
            "{type: Object, object: {target: {kind: Service, name: web}, metricName: m, "
            "targetValue: 30, averageValue: 5}}"
        )
        assert metric.target == MetricTarget(
            TargetType.AVERAGE_VALUE, parse_quantity(30), parse_quantity(5)
        )

    def test_external_by_value(self) -> None:
        metric = old_metric(
            "{type: External, external: {metricName: q, targetValue: 30, "
            "metricSelector: {matchLabels: {a: b}}}}"
        )
        target = MetricTarget(TargetType.VALUE, value=parse_quantity(30))
        assert metric == ExternalMetric("q", target, selector_of_labels({"a": "b"}))

    def test_external_by_average_value(self) -> None:
        metric = old_metric("{type: External, external: {metricName: q, targetAverageValue: 3}}")
        assert metric == ExternalMetric("q", average(3))

    def test_behavior_is_read_from_the_annotation_alone(self) -> None:
        policies = [{"Type": "Pods", "Value": 1, "PeriodSeconds": 60}]
        behavior = {"ScaleDown": {"SelectPolicy": "Disabled", "Policies": policies}}
        hpa = read("v2beta1", "behavior: {scaleUp: {selectPolicy: Min}}", behavior=behavior)
        assert hpa.behavior is not None
        assert hpa.behavior.scale_up.select_policy is SelectPolicy.MAX
        assert hpa.behavior.scale_down.select_policy is SelectPolicy.DISABLED

    @pytest.mark.parametrize(
        ("body", "fault"),
        [
            (
                "{type: Pods, pods: {metricName: m}}",
                "spec.metrics[0].pods.targetAverageValue: "
                "Required value: must specify a positive target averageValue",
            ),
            (
                "{type: Pods, pods: {targetAverageValue: 1}}",
                "spec.metrics[0].pods.metricName: Required value: must specify a metric name",
            ),
            (
                "{type: Object, object: {target: {kind: Service, name: web}, metricName: m, "
                "averageValue: 5}}",
                'spec.metrics[0].object.targetValue: Invalid value: "0": must be positive',
            ),
            (
                "{type: Object, object: {metricName: m, targetValue: 5}}",
                "spec.metrics[0].object.target.kind: Required value\n"
                "hpa.yaml:10: spec.metrics[0].object.target.name: Required value",
            ),
            (
                "{type: External, external: {metricName: m}}",
                "spec.metrics[0].external.targetAverageValue: Required value: "
                "must set either a target value for metric or a per-pod target",
            ),
            (
                "{type: External, external: {metricName: m, targetValue: 1, targetAverageValue: 1}}",
                "spec.metrics[0].external.targetValue: Forbidden: "
                "may not set both a target value for metric and a per-pod target",
            ),
            (
                "{type: Resource, resource: {name: cpu}}",
                "spec.metrics[0].resource.targetAverageUtilization: Required value: "
                "must set either a target raw value or a target utilization",
            ),
            (
                "{type: Resource, resource: {name: cpu, targetAverageUtilization: 1, "
                "targetAverageValue: 1}}",
                "spec.metrics[0].resource.targetAverageValue: Forbidden: "
                "may not set both a target raw value and a target utilization",
            ),
        ],
    )
    def test_faults_name_the_fields_of_the_version(self, body: str, fault: str) -> None:
        with pytest.raises(ConfigError) as caught:
            old_metric(body)
        assert str(caught.value) == f"hpa.yaml:10: {fault}"


class TestV1:
    def test_default_metric(self) -> None:
        assert read("v1").metrics == (CPU_80,)

    def test_target_cpu(self) -> None:
        hpa = read("v1", "targetCPUUtilizationPercentage: 50")
        assert hpa.metrics == (ResourceMetric("cpu", utilization(50)),)

    def test_bad_target_cpu(self) -> None:
        with pytest.raises(ConfigError) as caught:
            read("v1", "targetCPUUtilizationPercentage: 0")
        assert str(caught.value) == (
            "hpa.yaml:9: spec.targetCPUUtilizationPercentage: "
            "Invalid value: 0: must be greater than 0"
        )

    def test_metrics_of_the_annotation_come_before_cpu(self) -> None:
        metrics = [
            {"type": "Pods", "pods": {"metricName": "load", "targetAverageValue": "20"}},
            {
                "type": "Object",
                "object": {
                    "target": {"kind": "Service", "name": "web"},
                    "metricName": "m",
                    "targetValue": "30",
                },
            },
        ]
        hpa = read("v1", "targetCPUUtilizationPercentage: 50", metrics=metrics)
        assert [type(m) for m in hpa.metrics] == [PodsMetric, ObjectMetric, ResourceMetric]
        assert hpa.metrics[0] == PodsMetric("load", average("20"))

    def test_metrics_of_the_annotation_alone_take_no_default(self) -> None:
        metrics = [{"type": "Pods", "pods": {"metricName": "load", "targetAverageValue": "20"}}]
        assert read("v1", metrics=metrics).metrics == (PodsMetric("load", average("20")),)

    def test_behavior_of_the_annotation_in_go_names(self) -> None:
        behavior = {
            "ScaleUp": {
                "StabilizationWindowSeconds": 30,
                "SelectPolicy": "Min",
                "Policies": [{"Type": "Pods", "Value": 2, "PeriodSeconds": 60}],
                "Tolerance": None,
            },
            "ScaleDown": None,
        }
        result = read("v1", behavior=behavior).behavior
        assert result is not None
        assert result.scale_up.policies == (ScalingPolicy(PolicyType.PODS, 2, 60),)
        assert result.scale_up.stabilization_window_s == 30
        assert result.scale_up.select_policy is SelectPolicy.MIN
        assert result.scale_down == Behavior().scale_down

    def test_behavior_of_the_annotation_in_json_names(self) -> None:
        policy = {"type": "Pods", "value": 2, "periodSeconds": 60}
        rules = {"stabilizationWindowSeconds": 0, "policies": [policy]}
        result = read("v1", behavior={"scaleDown": rules}).behavior
        assert result is not None
        assert result.scale_down.stabilization_window_s == 0

    def test_a_behavior_annotation_has_to_have_policies(self) -> None:
        with pytest.raises(ConfigError) as caught:
            read("v1", behavior={"ScaleUp": {"SelectPolicy": "Max"}})
        assert str(caught.value) == (
            f"hpa.yaml:6: metadata.annotations.{BEHAVIOR_ANNOTATION}.scaleUp.policies: "
            "Required value: must specify at least one Policy"
        )

    def test_an_object_average_as_the_api_server_writes_it(self) -> None:
        # With "targetValue":"0": its Go type can't leave the field out.
        target = {"kind": "Service", "name": "web"}
        source = {"target": target, "metricName": "m", "targetValue": "0", "averageValue": "1"}
        (metric,) = read("v1", metrics=[{"type": "Object", "object": source}]).metrics
        assert metric.target == average("1")

    def test_empty_behavior_annotation_is_none(self) -> None:
        assert read("v1", behavior={}).behavior is None

    def test_fields_of_later_versions_are_passed_over(self) -> None:
        hpa = read("v1", "behavior: {scaleUp: {selectPolicy: Min}}\nmetrics: [{type: Nonsense}]")
        assert hpa.behavior is None
        assert hpa.metrics == (CPU_80,)

    @pytest.mark.parametrize("key", ["metrics", "behavior"])
    def test_unreadable_annotation_is_reported(self, key: str) -> None:
        with pytest.raises(ConfigError) as caught:
            read("v1", **{key: "[{"})
        assert str(caught.value) == (
            f"hpa.yaml:6: metadata.annotations.{ANNOTATIONS[key]}: "
            "found text that is not JSON, expected JSON; "
            "the API server would pass over it; write it as a field of autoscaling/v2"
        )

    def test_faults_in_an_annotation_name_its_line(self) -> None:
        with pytest.raises(ConfigError) as caught:
            read("v1", metrics=[{"type": "Pods", "pods": {"metricName": "load"}}])
        assert str(caught.value) == (
            f"hpa.yaml:6: metadata.annotations.{METRICS_ANNOTATION}[0].pods.targetAverageValue: "
            "Required value: must specify a positive target averageValue"
        )
