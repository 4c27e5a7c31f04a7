"""Scales with several metrics and all of `behavior`: what is rendered, and what is refused at which line."""

import pytest
from install_values import one, rendered

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.hpa import (
    Behavior,
    ContainerResourceMetric,
    ExternalMetric,
    ObjectMetric,
    PodsMetric,
    PolicyType,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from gpuscale.base.objects.manifests import load_manifests, read_stored_hpa
from gpuscale.base.quantity import parse_quantity
from gpuscale.ops.install.linted import lint_rendered
from gpuscale.ops.install.rendering import render
from gpuscale.ops.install.values import parse_values

INFERENCE = """\
spec:
  metricsApi: {certificates: cert-manager}
  scale:
  - workload: {name: bert}
    minReplicas: 2
    maxReplicas: 20
    metrics:
    - {signal: gpu-utilization, target: 70}
    - type: Pods
      pods:
        metric: {name: queue_length, selector: {matchLabels: {model: bert}}}
        target: {type: AverageValue, averageValue: 1500m}
    - type: External
      external:
        metric: {name: jobs}
        target: {type: AverageValue, averageValue: 30}
    - type: Object
      object:
        metric: {name: requests}
        describedObject: {apiVersion: v1, kind: Service, name: bert}
        target: {type: Value, value: 2k}
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
    - type: ContainerResource
      containerResource: {name: memory, container: m, target: {type: AverageValue, averageValue: 2Gi}}
    behavior:
      scaleUp:
        selectPolicy: Min
        policies:
        - {type: Pods, value: 4, periodSeconds: 30}
        tolerance: 50m
      scaleDown: {stabilizationWindowSeconds: 0, selectPolicy: Disabled}
"""


def hpa_of(text):
    values = parse_values(text, "v.yaml")
    return one(rendered(values), "HorizontalPodAutoscaler")


def test_the_hpa_has_every_metric_and_the_whole_behavior() -> None:
    hpa = read_stored_hpa(hpa_of(INFERENCE), "rendered")
    of_pods = [PodsMetric, PodsMetric]
    others = [ExternalMetric, ObjectMetric, ResourceMetric, ContainerResourceMetric]
    assert [*map(type, hpa.metrics)] == [*of_pods, *others]
    use, queue, jobs, requests, cpu, memory = hpa.metrics
    assert (use.name, use.target.average_value) == ("DCGM_FI_DEV_GPU_UTIL", parse_quantity("70"))
    assert (queue.name, queue.target.average_value) == ("queue_length", parse_quantity("1500m"))
    assert str(queue.selector) == "model=bert"
    assert jobs.target.average_value == parse_quantity(30)
    assert (requests.described_object.kind, requests.target.value) == (
        "Service",
        parse_quantity("2k"),
    )
    assert cpu.target.average_utilization == 80
    assert (memory.container, memory.target.average_value) == ("m", parse_quantity("2Gi"))
    assert hpa.behavior == Behavior(
        scale_up=ScalingRules(
            policies=(ScalingPolicy(PolicyType.PODS, 4, 30),),
            select_policy=SelectPolicy.MIN,
            stabilization_window_s=0,
            tolerance=parse_quantity("50m"),
        ),
        scale_down=ScalingRules(
            policies=(ScalingPolicy(PolicyType.PERCENT, 100, 15),),
            select_policy=SelectPolicy.DISABLED,
            stabilization_window_s=0,
        ),
    )


def test_one_signal_in_short_is_the_same_hpa() -> None:
    short = (
        "spec: {scale: [{workload: {name: a}, signal: gpu-memory, target: 9000, maxReplicas: 3}]}"
    )
    long = (
        "spec: {scale: [{workload: {name: a}, maxReplicas: 3, "
        "metrics: [{signal: gpu-memory, target: 9000}]}]}"
    )
    assert hpa_of(short) == hpa_of(long)


@pytest.mark.parametrize("version", ["v2", "v2beta2", "v2beta1"])
def test_every_version_says_the_same_metrics(version: str) -> None:
    text = INFERENCE[: INFERENCE.index("    behavior:")]
    newest = read_stored_hpa(hpa_of(text), "rendered")
    other = hpa_of(f"{text}    hpaVersion: autoscaling/{version}\n")
    assert other["apiVersion"] == f"autoscaling/{version}"
    (read,) = load_manifests(dump_documents([other]), "rendered")
    assert read.metrics == newest.metrics


def faults(text):
    with pytest.raises(ConfigError) as raised:
        parse_values(text, "v.yaml")
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("before", "after", "line", "field", "message"),
    [
        (
            "averageValue: 1500m",
            "averageValue: -1",
            12,
            "metrics[1].pods.target.averageValue",
            'Invalid value: "-1": must be positive',
        ),
        (
            "averageValue: 1500m",
            "averageValue: many",
            12,
            "metrics[1].pods.target.averageValue",
            "found 'many', expected a quantity such as 20, 500m or 1Gi",
        ),
        (
            "averageValue: 1500m",
            "value: 1500m",
            12,
            "metrics[1].pods.target",
            "Required value: must specify a positive target averageValue",
        ),
        (
            "averageValue: 30",
            "averageValue: 30, value: 5",
            16,
            "metrics[2].external.target.value",
            "Forbidden: may not set both a target value for metric and a per-pod target",
        ),
        (
            "kind: Service, name: bert",
            "kind: Service, name: a/b",
            20,
            "metrics[3].object.describedObject.name",
            "Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            "averageUtilization: 80",
            "averageUtilization: 0",
            23,
            "metrics[4].resource.target.averageUtilization",
            "Invalid value: 0: must be greater than 0",
        ),
        (
            "periodSeconds: 30",
            "periodSeconds: 1801",
            30,
            "behavior.scaleUp.policies[0].periodSeconds",
            "Invalid value: 1801: must be less than or equal to 1800",
        ),
        (
            "tolerance: 50m",
            "tolerance: -50m",
            31,
            "behavior.scaleUp.tolerance",
            'Invalid value: "-50m": must be greater than or equal to 0',
        ),
        (
            "stabilizationWindowSeconds: 0",
            "stabilizationWindowSeconds: 3601",
            32,
            "behavior.scaleDown.stabilizationWindowSeconds",
            "Invalid value: 3601: must be less than or equal to 3600",
        ),
        (
            "selectPolicy: Min",
            "selectPolicy: Least",
            28,
            "behavior.scaleUp.selectPolicy",
            "found 'Least', expected one of Max, Min, Disabled",
        ),
        (
            "- type: External",
            "- type: Externals",
            13,
            "metrics[2]",
            "found another type, expected one of Pods, Object, External, Resource, ContainerResource, "
            "AzureMonitor",
        ),
        (
            "metric: {name: jobs}",
            "metrics: {name: jobs}",
            15,
            "metrics[2].external.metrics",
            "no such field here; did you mean metric?",
        ),
        (
            "target: 70}",
            "target: 0.7}",
            8,
            "metrics[0].target",
            "The target 700m is 0.7 %: gpu-utilization is a percentage, 0 to 100. "
            "Write 70, if 70 % is meant.",
        ),
        (
            "maxReplicas: 20",
            "maxReplicas: 20\n    signal: gpu-memory",
            7,
            "signal",
            "found signal beside metrics, expected it inside of metrics",
        ),
        (
            "maxReplicas: 20",
            "maxReplicas: 20\n    scaleDownStabilizationSeconds: 9",
            7,
            "scaleDownStabilizationSeconds",
            "found scaleDownStabilizationSeconds beside behavior.scaleDown.stabilizationWindowSeconds, "
            "expected one of them",
        ),
        (
            "maxReplicas: 20",
            "maxReplicas: 20\n    hpaVersion: autoscaling/v2beta2",
            32,
            "behavior.scaleUp.tolerance",
            "found tolerance with hpaVersion autoscaling/v2beta2, expected autoscaling/v2, or none",
        ),
        (
            "maxReplicas: 20",
            "maxReplicas: 20\n    autoscaler: keda",
            10,
            "metrics[1].type",
            "found a metric of type Pods with autoscaler keda, expected a query, a signal or "
            "autoscaler: hpa",
        ),
        (
            "- {signal: gpu-utilization, target: 70}",
            "- {query: sum(jobs), target: 70, targetType: Value}",
            8,
            "metrics[0].targetType",
            "found targetType Value with autoscaler hpa, expected AverageValue: a query is of the whole "
            "workload",
        ),
    ],
)
def test_what_kubernetes_refuses_is_refused_at_its_line(
    before: str, after: str, line: int, field: str, message: str
) -> None:
    assert INFERENCE.count(before) == 1
    expected = f"v.yaml:{line}: spec.scale[0].{field}: {message}"
    assert expected in faults(INFERENCE.replace(before, after))


def test_what_an_older_version_has_no_field_for_is_refused() -> None:
    text = INFERENCE.replace(
        "target: {type: Value, value: 2k}", "target: {type: AverageValue, averageValue: 2k}"
    )
    assert not faults_or_none(text)
    old = text[: text.index("    behavior:")] + "    hpaVersion: autoscaling/v2beta1\n"
    (fault,) = faults(old)
    # v2beta1's Object metric has to have a targetValue.
    assert fault.startswith("v.yaml:18: spec.scale[0].metrics[3].object: ")
    assert fault.endswith("must be positive (targetValue of autoscaling/v2beta1)")
    assert "found behavior with hpaVersion autoscaling/v2beta1" in "\n".join(
        faults(f"{text}    hpaVersion: autoscaling/v2beta1\n")
    )


def faults_or_none(text):
    try:
        parse_values(text, "v.yaml")
    except ConfigError as error:
        return str(error)
    return ""


def test_several_faults_are_reported_together() -> None:
    text = INFERENCE.replace("1500m", "-1").replace(
        "averageUtilization: 80", "averageUtilization: 0"
    )
    assert len(faults(text)) == 2


def test_no_replicas_take_a_metric_that_is_there_without_pods() -> None:
    waking = INFERENCE.replace("minReplicas: 2", "minReplicas: 0")
    assert hpa_of(waking)["spec"]["minReplicas"] == 0
    short = "spec: {scale: [{workload: {name: a}, target: 60, minReplicas: 0, maxReplicas: 3}]}"
    (fault,) = faults(short)
    assert "spec.scale[0].minReplicas: found 0, expected at least 1" in fault


KEDA = """\
spec:
  keda: {trigger: prometheus}
  scale:
  - workload: {name: bert}
    minReplicas: 0
    maxReplicas: 20
    autoscaler: keda
    metrics:
    - {target: 70}
    - {query: sum(vllm:num_requests_waiting), target: 2.5}
    - {query: avg(load), target: 0.8, targetType: Value}
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
    - type: ContainerResource
      containerResource: {name: memory, container: m, target: {type: AverageValue, averageValue: 2Gi}}
    behavior: {scaleUp: {stabilizationWindowSeconds: 30}}
"""


def test_a_scaled_object_has_a_trigger_for_each_metric() -> None:
    spec = one(rendered(parse_values(KEDA, "v.yaml")), "ScaledObject")["spec"]
    assert spec["minReplicaCount"] == 0
    config = spec["advanced"]["horizontalPodAutoscalerConfig"]
    assert config["behavior"] == {
        "scaleUp": {"stabilizationWindowSeconds": 30},
        "scaleDown": {"stabilizationWindowSeconds": 300},
    }
    use, waiting, load, cpu, memory = spec["triggers"]
    assert (use["metricType"], use["metadata"]["threshold"]) == ("Value", "70")
    assert 'pod=~"bert-[a-z0-9]{1,10}-[a-z0-9]{5}"' in use["metadata"]["query"]
    assert (waiting["metricType"], waiting["metadata"]["threshold"]) == ("AverageValue", "2.5")
    assert waiting["metadata"]["query"] == "sum(vllm:num_requests_waiting)"
    assert load["metricType"] == "Value"
    # Source: KEDA v2.17 pkg/scalers/cpu_memory_scaler.go (metadata: value, containerName).
    assert cpu == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "80"}}
    assert memory == {
        "type": "memory",
        "metricType": "AverageValue",
        "metadata": {"value": "2Gi", "containerName": "m"},
    }


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "sum(vllm:num_requests_waiting)",
            "sum(",
            "metrics[1].query: found a query that is no PromQL",
        ),
        ("resource: {name: cpu,", "resource: {name: disk,", "expected cpu or memory"),
        ("averageUtilization: 80", "averageValue: 1", "without its value, expected Utilization or"),
    ],
)
def test_what_keda_can_not_take_is_refused(before: str, after: str, message: str) -> None:
    assert KEDA.count(before) == 1
    assert any(message in each for each in faults(KEDA.replace(before, after)))


def found_in(text):
    report = lint_rendered(render(parse_values(text, "v.yaml")), text, "v.yaml")
    return [(each.check.id, each.where.line, each.where.field) for each in report.findings]


def test_lint_names_the_metric_of_the_values() -> None:
    text = INFERENCE.replace(
        "name: queue_length, selector: {matchLabels: {model: bert}}", "name: x"
    )
    assert ("unknown-metric", 11, "spec.scale[0].metrics[1].pods.metric.name") in found_in(text)
    memory = INFERENCE.replace("averageValue: 2Gi", "averageValue: 2")
    place = "spec.scale[0].metrics[5].containerResource.target.averageValue"
    assert ("wrong-unit", 25, place) in found_in(memory)


def test_metrics_of_others_rules_are_not_unknown() -> None:
    """External metrics are served by whom the installation is not, and teams have rules of their own."""

    def unknown(text):
        return [field for check, _, field in found_in(text) if check == "unknown-metric"]

    assert not any(".external." in each for each in unknown(INFERENCE))
    rule = "externalRules: [{seriesQuery: other_queue, metricsQuery: sum(other_queue)}]"
    own = f'metricsApi: {{certificates: cert-manager, external: true, rules: "{rule}"}}'
    served = INFERENCE.replace("metricsApi: {certificates: cert-manager}", own)
    assert any(".external." in each for each in unknown(served))
    teams = own.replace("true", "true, rulesConfigMaps: team=ml")
    assert not unknown(INFERENCE.replace("metricsApi: {certificates: cert-manager}", teams))


def test_queues_of_the_preset_are_known_where_pods_are_scraped() -> None:
    text = INFERENCE.replace("cert-manager}", "cert-manager, source: streams, scrapePods: true}")
    text = text.replace("name: queue_length", "name: vllm_num_requests_waiting")
    assert not [each for each in found_in(text) if each[0] == "unknown-metric" and each[1] == 11]
