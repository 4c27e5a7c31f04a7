# mypy: disable-error-code="truthy-bool"
"""No manifest makes the reader do anything but read it or name its faults."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.documents.documents import Document
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.hpa import (
    BEHAVIOR_ANNOTATION,
    METRICS_ANNOTATION,
    HorizontalPodAutoscaler,
)
from gpuscale.base.objects.manifests import read_manifest

VERSIONS = ["v1", "v2beta1", "v2beta2", "v2"]
KEYS = [
    *("type", "pods", "object", "external", "resource", "containerResource", "metric", "target"),
    *(
        "name",
        "selector",
        "matchLabels",
        "matchExpressions",
        "describedObject",
        "kind",
        "container",
    ),
    *("value", "averageValue", "averageUtilization", "metricName", "targetValue"),
    *("targetAverageValue", "targetAverageUtilization", "metricSelector"),
    *("scaleUp", "scaleDown", "policies", "selectPolicy", "stabilizationWindowSeconds"),
    *("periodSeconds", "tolerance"),
]
WORDS = ["Pods", "Object", "External", "Resource", "ContainerResource", "Percent", "Max", "Value"]
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*WORDS, "AverageValue", "Utilization", "20", "500m"])
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)
metrics = st.fixed_dictionaries(
    {"type": st.sampled_from(WORDS)},
    optional=dict.fromkeys(("pods", "object", "external", "resource", "containerResource"), trees),
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "scaleTargetRef": trees,
        "minReplicas": leaves,
        "maxReplicas": leaves,
        "metrics": trees | st.lists(metrics, max_size=3),
        "behavior": trees,
        "targetCPUUtilizationPercentage": leaves,
    },
)
annotations = st.text(max_size=30) | trees.map(lambda tree: json.dumps(tree, default=str))


@given(
    version=st.sampled_from(VERSIONS),
    name=leaves,
    spec=trees | specs,
    metric_json=annotations,
    behavior_json=annotations,
    status=trees,
)
def test_any_manifest_is_read_or_refused(
    version, name, spec, metric_json, behavior_json, status
) -> None:
    data = {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": name,
            "annotations": {METRICS_ANNOTATION: metric_json, BEHAVIOR_ANNOTATION: behavior_json},
        },
        "spec": spec,
        "status": status,
    }
    document = Document("any.yaml", 0, data, {(): 1})
    try:
        hpa = read_manifest(document)
    except ConfigError as error:
        str(error).encode()
        return
    assert isinstance(hpa, HorizontalPodAutoscaler)
    assert hpa.metrics
    assert hpa.min_replicas is not None
    assert hpa.min_replicas <= hpa.max_replicas


def deep_annotation(depth: int) -> Document:
    data = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": "web",
            "annotations": {BEHAVIOR_ANNOTATION: '{"a":' * depth + "0" + "}" * depth},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
        },
    }
    return Document("any.yaml", 0, data, {(): 1})


def test_bottomless_json_in_an_annotation_is_refused() -> None:
    with pytest.raises(ConfigError, match="text that is not JSON"):
        read_manifest(deep_annotation(100_000))


def test_deep_json_in_an_annotation_is_read() -> None:
    assert read_manifest(deep_annotation(50))
