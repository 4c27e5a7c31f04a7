"""Faults of an HPA, in the API server's words and at the user's line.

Source: kubernetes pkg/apis/autoscaling/validation/validation.go.
"""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.base.objects.manifests import load_manifests

LINES = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": "{name: web}",
    "spec": "",
    "  scaleTargetRef": "{apiVersion: apps/v1, kind: Deployment, name: web}",
    "  minReplicas": "1",
    "  maxReplicas": "10",
    "  metrics": "",
    "  behavior": "",
}
LINE_OF = {key.strip(): number for number, key in enumerate(LINES, start=1)}


def manifest(**fields: str) -> str:
    values = LINES | {f"  {key}" if f"  {key}" in LINES else key: v for key, v in fields.items()}
    return "\n".join(f"{key}: {value}" for key, value in values.items())


def faults(**fields: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_manifests(manifest(**fields), "hpa.yaml")
    return str(caught.value).split("\n")


POD_TARGET = "target: {type: AverageValue, averageValue: 1}"
DESCRIBED = "describedObject: {kind: Service, name: web}"
SUPPORTED = '"ContainerResource", "External", "Object", "Pods", "Resource"'


def test_a_good_one_passes() -> None:
    assert load_manifests(manifest(), "hpa.yaml")


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("minReplicas", "-1", "Invalid value: -1: must be greater than or equal to 0"),
        ("minReplicas", "one", "found 'one', expected a whole number"),
        (
            "minReplicas",
            "99999999999",
            "found a larger one, expected a whole number of at most 2147483647",
        ),
        ("maxReplicas", "0", "Invalid value: 0: must be greater than 0"),
        ("maxReplicas", "", "Required value"),
    ],
)
def test_bounds(field: str, value: str, fault: str) -> None:
    assert faults(**{field: value}) == [f"hpa.yaml:{LINE_OF[field]}: spec.{field}: {fault}"]


def test_max_below_min() -> None:
    assert faults(minReplicas="11") == [
        "hpa.yaml:7: spec.maxReplicas: Invalid value: 10: must be greater than or equal to `minReplicas`"
    ]


def test_min_zero_without_object_or_external_metric() -> None:
    assert faults(minReplicas="0") == [
        "hpa.yaml:8: spec.metrics: Forbidden: must specify at least one Object or External metric "
        "to support scaling to zero replicas"
    ]


def test_min_zero_on_a_cluster_without_the_gate() -> None:
    (document,) = load_documents(manifest(minReplicas="0"), "hpa.yaml")
    fields = Fields(document, document.data)
    read_hpa(fields, scale_to_zero=False)
    assert str(fields.problems[0]) == (
        "hpa.yaml:6: spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
    )


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("{apiVersion: a/v1, name: web}", "kind: Required value"),
        ("{apiVersion: a/v1, kind: Deployment}", "name: Required value"),
        (
            "{apiVersion: a/v1, kind: Deployment, name: a/b}",
            "name: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            "{apiVersion: a/v1, kind: 100%, name: b}",
            "kind: Invalid value: \"100%\": may not contain '%'",
        ),
        ("{apiVersion: a/v1, kind: ., name: b}", "kind: Invalid value: \".\": may not be '.'"),
        (
            "{apiVersion: a/v1, kind: Deployment, name: ..}",
            "name: Invalid value: \"..\": may not be '..'",
        ),
        (
            "{kind: Deployment, name: b, apiVersion: a/v1/c}",
            'apiVersion: Invalid value: "a/v1/c": unexpected GroupVersion string: a/v1/c',
        ),
        (
            "{apiVersion: a/v1, kind: Deployment, name: 5}",
            "name: found 5, expected text; put it into quotes",
        ),
        (
            "{apiVersion: a/v1, kind: true, name: b}",
            "kind: found True, expected text; put it into quotes",
        ),
    ],
)
def test_references(reference: str, fault: str) -> None:
    assert faults(scaleTargetRef=reference) == [f"hpa.yaml:5: spec.scaleTargetRef.{fault}"]
    source = f"{{metric: {{name: m}}, describedObject: {reference}, {POD_TARGET}}}"
    metric = f"[{{type: Object, object: {source}}}]"
    assert faults(metrics=metric) == [f"hpa.yaml:8: spec.metrics[0].object.describedObject.{fault}"]


@pytest.mark.parametrize(
    ("reference", "found", "version"),
    [
        ("{kind: Deployment, name: b}", "", "apps/v1"),
        ("{apiVersion: v1, kind: StatefulSet, name: b}", "v1", "apps/v1"),
        ("{apiVersion: /v1, kind: ReplicaSet, name: b}", "/v1", "apps/v1"),
        ("{kind: Rollout, name: b}", "", "group/version"),
        ("{kind: replicationcontroller, name: b}", "", "group/version"),
    ],
)
def test_what_is_scaled_is_of_a_group(reference: str, found: str, version: str) -> None:
    assert faults(scaleTargetRef=reference) == [
        f'hpa.yaml:5: spec.scaleTargetRef.apiVersion: Invalid value: "{found}": apiVersion must '
        f"specify API group; write apiVersion: {version}"
    ]


@pytest.mark.parametrize(
    "reference",
    [
        "{kind: ReplicationController, name: b}",
        "{apiVersion: v1, kind: ReplicationController, name: b}",
        "{apiVersion: apps/, kind: Deployment, name: b}",
        "{apiVersion: apps/v1, kind: Deployment, name: 2026-01-02}",
        "{apiVersion: apps/v1, kind: Deployment, name: 12:30}",
    ],
)
def test_references_that_pass(reference: str) -> None:
    assert load_manifests(manifest(scaleTargetRef=reference), "hpa.yaml")


def test_the_object_of_a_metric_needs_no_group() -> None:
    source = f"{{metric: {{name: m}}, {DESCRIBED}, target: {{type: Value, value: 1}}}}"
    assert load_manifests(manifest(metrics=f"[{{type: Object, object: {source}}}]"), "hpa.yaml")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("gpu", "must be a standard resource for containers"),
        ("pods", "must be a standard resource for containers"),
        ("requests.nvidia.com/gpu", "doesn't follow extended resource name standard"),
        ("nvidia.com/", "name part must be non-empty"),
        ("/gpu", "prefix part must be non-empty"),
        (f"nvidia.com/{'g' * 64}", "name part must be no more than 63 bytes"),
        (f"{'a' * 254}/gpu", "prefix part must be no more than 253 characters"),
    ],
)
def test_resources_that_no_container_has(name: str, fault: str) -> None:
    source = f"{{name: {name}, container: c, target: {{type: AverageValue, averageValue: 1}}}}"
    metric = f"{{type: ContainerResource, containerResource: {source}}}"
    assert faults(metrics=f"[{metric}]") == [
        f'hpa.yaml:8: spec.metrics[0].containerResource.name: Invalid value: "{name}": {fault}'
    ]


@pytest.mark.parametrize("name", ["cpu", "hugepages-2Mi", "nvidia.com/gpu", "x.kubernetes.io/y"])
def test_resources_that_containers_have(name: str) -> None:
    source = f"{{name: {name}, container: c, target: {{type: AverageValue, averageValue: 1}}}}"
    metric = f"{{type: ContainerResource, containerResource: {source}}}"
    assert load_manifests(manifest(metrics=f"[{metric}]"), "hpa.yaml")


@pytest.mark.parametrize(
    ("selector", "fault"),
    [
        ("{matchLabels: {version: 2}}", "matchLabels.version: found 2, expected text"),
        ("{matchLabels: {gpu: true}}", "matchLabels.gpu: found True, expected text"),
        (
            "{matchExpressions: [{key: a, operator: In, values: [x, 1.5]}]}",
            "matchExpressions[0].values[1]: found 1.5, expected text",
        ),
    ],
)
def test_numbers_where_selectors_have_texts(selector: str, fault: str) -> None:
    metric = f"{{type: Pods, pods: {{metric: {{name: m, selector: {selector}}}, {POD_TARGET}}}}}"
    assert faults(metrics=f"[{metric}]") == [
        f"hpa.yaml:8: spec.metrics[0].pods.metric.selector.{fault}; put it into quotes"
    ]


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ("{name: web, labels: {version: 2}}", "labels.version: found 2, expected text"),
        (
            "{name: web, labels: {team: a b}}",
            'labels.team: Invalid value: "a b": a valid label must be an empty string or consist of',
        ),
        ("{name: web, labels: {a b: x}}", 'labels.a b: Invalid value: "a b": name part must'),
        (
            "{name: web, annotations: {a b: x}}",
            'annotations.a b: Invalid value: "a b": name part must',
        ),
    ],
)
def test_labels_and_annotations(metadata: str, fault: str) -> None:
    (found,) = faults(metadata=metadata)
    assert found.startswith(f"hpa.yaml:3: metadata.{fault}")


def test_missing_reference() -> None:
    found = faults(scaleTargetRef="")
    assert found[0] == "hpa.yaml:5: spec.scaleTargetRef: this field is required"


@pytest.mark.parametrize(
    ("metric", "fault"),
    [
        pytest.param("{}", "type: Required value: must specify a metric source type", id="NoType"),
        pytest.param(
            "{type: Pod}",
            f'type: Unsupported value: "Pod": supported values: {SUPPORTED}',
            id="UnknownType",
        ),
        pytest.param(
            "{type: Pods}",
            "pods: Required value: must populate information for the given metric source",
            id="NoSource",
        ),
        pytest.param(
            f"{{type: Pods, pods: {{metric: {{name: m}}, {POD_TARGET}}}, resource: {{}}}}",
            "resource: Forbidden: must populate the given metric source only",
            id="OtherSourceToo",
        ),
        pytest.param(
            f"{{type: Pods, pods: {{{POD_TARGET}}}}}",
            "pods.metric.name: Required value: must specify a metric name",
            id="NoMetricName",
        ),
        pytest.param(
            f"{{type: Pods, pods: {{metric: {{name: a/b}}, {POD_TARGET}}}}}",
            "pods.metric.name: Invalid value: \"a/b\": may not contain '/'",
            id="BadMetricName",
        ),
        pytest.param(
            "{type: Pods, pods: {metric: {name: m}, target: {averageValue: 1}}}",
            "pods.target.type: Required value: must specify a metric target type",
            id="NoTargetType",
        ),
        pytest.param(
            "{type: Pods, pods: {metric: {name: m}, target: {type: Mean, averageValue: 1}}}",
            'pods.target.type: Invalid value: "Mean": '
            "must be either Utilization, Value, or AverageValue",
            id="UnknownTargetType",
        ),
        pytest.param(
            "{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 0}}}",
            'pods.target.averageValue: Invalid value: "0": must be positive',
            id="AverageValueZero",
        ),
        pytest.param(
            "{type: Pods, pods: {metric: {name: m}, target: {type: Value, value: 1}}}",
            "pods.target.averageValue: Required value: must specify a positive target averageValue",
            id="PodsWithValue",
        ),
        pytest.param(
            "{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 5x}}}",
            "pods.target.averageValue: found '5x', expected a quantity such as 20, 500m or 1Gi",
            id="NotAQuantity",
        ),
        pytest.param(
            f"{{type: Object, object: {{metric: {{name: m}}, {DESCRIBED}, "
            "target: {type: Value, value: -1}}}",
            'object.target.value: Invalid value: "-1": must be positive',
            id="ValueNegative",
        ),
        pytest.param(
            f"{{type: Object, object: {{metric: {{name: m}}, {DESCRIBED}, target: {{type: Value}}}}}}",
            "object.target.averageValue: Required value: "
            "must set either a target value or averageValue",
            id="ObjectWithoutTarget",
        ),
        pytest.param(
            "{type: External, external: {metric: {name: m}, target: {type: Value}}}",
            "external.target.averageValue: Required value: "
            "must set either a target value for metric or a per-pod target",
            id="ExternalWithoutTarget",
        ),
        pytest.param(
            "{type: External, external: {metric: {name: m}, "
            "target: {type: Value, value: 1, averageValue: 1}}}",
            "external.target.value: Forbidden: "
            "may not set both a target value for metric and a per-pod target",
            id="ExternalWithBothTargets",
        ),
        pytest.param(
            "{type: Resource, resource: {target: {type: Utilization, averageUtilization: 1}}}",
            "resource.name: Required value: must specify a resource name",
            id="NoResourceName",
        ),
        pytest.param(
            "{type: Resource, resource: {name: cpu, target: {type: Utilization}}}",
            "resource.target.averageUtilization: Required value: "
            "must set either a target raw value or a target utilization",
            id="ResourceWithoutTarget",
        ),
        pytest.param(
            "{type: Resource, resource: {name: cpu, "
            "target: {type: Utilization, averageUtilization: 1, averageValue: 1}}}",
            "resource.target.averageValue: Forbidden: "
            "may not set both a target raw value and a target utilization",
            id="ResourceWithBothTargets",
        ),
        pytest.param(
            "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0}}}",
            "resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            id="UtilizationZero",
        ),
        pytest.param(
            "{type: ContainerResource, containerResource: {name: cpu, "
            "target: {type: Utilization, averageUtilization: 1}}}",
            "containerResource.container: Required value: must specify a container",
            id="NoContainer",
        ),
        pytest.param(
            "{type: ContainerResource, containerResource: {name: cpu, container: Main, "
            "target: {type: Utilization, averageUtilization: 1}}}",
            'containerResource.container: Invalid value: "Main": a lowercase RFC 1123 label must '
            "consist of lower case alphanumeric characters or '-', and must start and end with an "
            "alphanumeric character",
            id="ContainerNotALabel",
        ),
    ],
)
def test_metrics(metric: str, fault: str) -> None:
    text = f"hpa.yaml:8: spec.metrics[0].{fault}"
    assert faults(metrics=f"[{metric}]") == text.split("\n")


@pytest.mark.parametrize("direction", ["scaleUp", "scaleDown"])
@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (
            "{stabilizationWindowSeconds: -1}",
            "stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
        ),
        (
            "{stabilizationWindowSeconds: 3601}",
            "stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
        ),
        (
            "{selectPolicy: Most}",
            'selectPolicy: Unsupported value: "Most": supported values: "Disabled", "Max", "Min"',
        ),
        (
            '{selectPolicy: ""}',
            'selectPolicy: Unsupported value: "": supported values: "Disabled", "Max", "Min"',
        ),
        ("{policies: []}", "policies: Required value: must specify at least one Policy"),
        (
            "{policies: [{type: Nodes, value: 1, periodSeconds: 1}]}",
            'policies[0].type: Unsupported value: "Nodes": supported values: "Percent", "Pods"',
        ),
        (
            "{policies: [{type: Pods, value: 0, periodSeconds: 1}]}",
            "policies[0].value: Invalid value: 0: must be greater than zero",
        ),
        (
            "{policies: [{type: Pods, periodSeconds: 1}]}",
            "policies[0].value: Invalid value: 0: must be greater than zero",
        ),
        (
            "{policies: [{type: Pods, value: 1, periodSeconds: 0}]}",
            "policies[0].periodSeconds: Invalid value: 0: must be greater than zero",
        ),
        (
            "{policies: [{type: Pods, value: 1, periodSeconds: 1801}]}",
            "policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
        ),
        (
            "{tolerance: -0.1}",
            'tolerance: Invalid value: "-100m": must be greater than or equal to 0',
        ),
    ],
)
def test_behavior(direction: str, rules: str, fault: str) -> None:
    assert faults(behavior=f"{{{direction}: {rules}}}") == [
        f"hpa.yaml:9: spec.behavior.{direction}.{fault}"
    ]


@pytest.mark.parametrize(
    "rules", ["{stabilizationWindowSeconds: 3600}", "{stabilizationWindowSeconds: 0, tolerance: 0}"]
)
def test_edges_of_behavior_pass(rules: str) -> None:
    assert load_manifests(manifest(behavior=f"{{scaleDown: {rules}}}"), "hpa.yaml")


@pytest.mark.parametrize("name", ["Web", "web_1", "-web", "web-", "a..b"])
def test_name_is_a_dns_subdomain(name: str) -> None:
    assert faults(metadata=f"{{name: {name}}}") == [
        f'hpa.yaml:3: metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must '
        "consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
        "alphanumeric character"
    ]


def test_name_has_a_length() -> None:
    (fault,) = faults(metadata=f"{{name: {'a' * 254}}}")
    assert fault.endswith(": must be no more than 253 characters")


def test_generated_name_may_end_with_a_dash() -> None:
    assert load_manifests(manifest(metadata="{generateName: web-}"), "hpa.yaml")


@pytest.mark.parametrize("field", ["currentReplicas", "desiredReplicas"])
def test_negative_status(field: str) -> None:
    assert faults(status=f"{{{field}: -1}}") == [
        f"hpa.yaml:10: status.{field}: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_all_faults_are_told_at_once() -> None:
    found = faults(
        maxReplicas="0",
        scaleTargetRef="{apiVersion: apps/v1, kind: Deployment}",
        metrics="[{type: Pods}]",
    )
    assert [line.split(": ")[1] for line in found] == [
        "spec.scaleTargetRef.name",
        "spec.maxReplicas",
        "spec.metrics[0].pods",
    ]


def test_a_very_long_value_is_cut() -> None:
    (fault,) = faults(scaleTargetRef=f"{{apiVersion: a/b, kind: {'a/' * 5000}, name: web}}")
    assert len(fault) < 500
