# mypy: disable-error-code="arg-type, has-type, misc"
"""What an API server writes as parts of a Decision document: pods, and answers of the metrics APIs."""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.ops.observe.answers import age_s, observed_entry
from gpuscale.ops.observe.document import pod_entry

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
POD_LIST = {
    "kind": "List",
    "items": [
        {
            "metadata": {"name": "vision-1", "labels": {"app": "vision"}},
            "spec": {
                "overhead": {"cpu": "250m"},
                "resources": {"requests": {"memory": "1Gi"}},
                # Since 1.34 a container may say when it restarts; that makes it no sidecar.
                "containers": [
                    {
                        "name": "main",
                        "restartPolicy": "Always",
                        "resources": {"requests": {"cpu": "500m"}},
                    }
                ],
                "initContainers": [
                    {"name": "setup", "resources": {"requests": {"cpu": "9"}}},
                    {
                        "name": "proxy",
                        "restartPolicy": "Always",
                        "resources": {"requests": {"cpu": "100m"}},
                    },
                ],
            },
            "status": {
                "phase": "Running",
                "startTime": "2025-12-31T23:50:00Z",
                "conditions": [
                    {"type": "Initialized", "status": "True"},
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": "2025-12-31T23:51:00Z",
                    },
                ],
            },
        },
        {
            "metadata": {
                "name": "vision-2",
                "labels": {"app": "vision"},
                "deletionTimestamp": "2026-01-01T00:00:09Z",
            },
            "spec": {"containers": [{"name": "main", "resources": {}}]},
            "status": {"phase": "Pending"},
        },
    ],
}
CUSTOM_VALUES = {
    "kind": "MetricValueList",
    "apiVersion": "custom.metrics.k8s.io/v1beta2",
    "items": [
        {
            "describedObject": {"kind": "Pod", "name": "vision-1", "apiVersion": "/v1"},
            "metric": {"name": "gpu_util", "selector": None},
            "timestamp": "2025-12-31T23:59:55Z",
            "value": "53500m",
        },
        {
            "describedObject": {"kind": "Pod", "name": "vision-2", "apiVersion": "/v1"},
            "metric": {"name": "gpu_util", "selector": None},
            "timestamp": "2026-01-01T00:00:02Z",
            "windowSeconds": 30,
            "value": "7",
        },
    ],
}
OBJECT_VALUE = {
    "kind": "MetricValueList",
    "items": [{"describedObject": {"kind": "Service", "name": "vision"}, "value": "120"}],
}
EXTERNAL_VALUES = {
    "kind": "ExternalMetricValueList",
    "items": [{"metricName": "queue", "value": "3"}, {"metricName": "queue", "value": "4500m"}],
}
POD_METRICS = {
    "kind": "PodMetricsList",
    "items": [
        {
            "metadata": {"name": "vision-1"},
            "timestamp": "2025-12-31T23:59:40Z",
            "window": "1m0.5s",
            "containers": [
                {"name": "main", "usage": {"cpu": "4930n", "memory": "1Gi"}},
                {"name": "proxy", "usage": {"memory": "1Mi"}},
            ],
        }
    ],
}


HPA = """
metadata: {name: vision}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  maxReplicas: 9
  metrics:
  - {type: Pods, pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 50}}}
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: vision}
      metric: {name: requests}
      target: {type: Value, value: 50}
  - {type: External, external: {metric: {name: queue}, target: {type: Value, value: 50}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
"""
(_DOCUMENT,) = load_documents(HPA, "hpa.yaml")
PODS, OBJECT, EXTERNAL, CPU = read_hpa(Fields(_DOCUMENT, _DOCUMENT.data)).metrics


def test_pods() -> None:
    found = [pod_entry(pod, NOW_MS, has_usage=True) for pod in POD_LIST["items"]]
    assert found == [
        {
            "name": "vision-1",
            "labels": {"app": "vision"},
            "phase": "Running",
            "startAge": 600,
            "ready": "True",
            "readyTransitionAge": 540,
            "requests": {"memory": "1Gi"},
            "overhead": {"cpu": "250m"},
            "containers": [{"name": "main", "requests": {"cpu": "500m"}}],
            "initContainers": [
                {"name": "setup", "requests": {"cpu": "9"}},
                {"name": "proxy", "requests": {"cpu": "100m"}, "restartPolicy": "Always"},
            ],
        },
        {
            "name": "vision-2",
            "labels": {"app": "vision"},
            "phase": "Pending",
            "deleted": True,
            "containers": [{"name": "main", "requests": {}}],
        },
    ]


@pytest.mark.parametrize(
    ("spec", "answer", "entry"),
    [
        pytest.param(
            PODS,
            CUSTOM_VALUES,
            {
                "pods": [
                    {"pod": "vision-1", "value": "53500m", "age": 5},
                    # measured by a clock that is two seconds ahead
                    {"pod": "vision-2", "value": "7", "age": 0, "window": 30},
                ]
            },
            id="Pods",
        ),
        pytest.param(OBJECT, OBJECT_VALUE, {"value": "120"}, id="Object"),
        pytest.param(EXTERNAL, EXTERNAL_VALUES, {"samples": ["3", "4500m"]}, id="External"),
        pytest.param(
            EXTERNAL, {"kind": "ExternalMetricValueList", "items": []}, {"samples": []}, id="none"
        ),
        pytest.param(PODS, {"kind": "MetricValueList", "items": []}, {"pods": []}, id="no pods"),
        pytest.param(
            CPU,
            POD_METRICS,
            {
                "pods": [
                    {
                        "pod": "vision-1",
                        "containers": {"main": "4930n", "proxy": None},
                        "age": 20,
                        "window": 60.5,
                    }
                ]
            },
            id="Resource",
        ),
    ],
)
def test_what_an_api_answers_becomes_an_entry(spec, answer, entry) -> None:
    assert observed_entry(spec, answer, NOW_MS) == entry


@pytest.mark.parametrize(
    ("spec", "answer", "error"),
    [
        (PODS, {}, "the answer is no list of metrics"),
        (PODS, {"items": [1]}, "the answer is no list of metrics"),
        (PODS, {"items": [{"value": "1"}]}, "the answer has an item without a name"),
        (EXTERNAL, {"items": [{}]}, "the answer has an item without a value"),
        (
            EXTERNAL,
            {"items": [{"value": "1x"}]},
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            OBJECT,
            {"items": []},
            "the custom metrics API server returned 0 results when we asked for exactly one",
        ),
    ],
)
def test_an_answer_that_can_not_be_decoded_is_an_error(spec, answer, error: str) -> None:
    assert observed_entry(spec, answer, NOW_MS) == {"error": error}


def test_of_two_values_for_a_pod_the_last_counts() -> None:
    items = [{"describedObject": {"name": "p"}, "value": value} for value in ("1", "2")]
    (entry,) = observed_entry(PODS, {"items": items}, NOW_MS)["pods"]
    assert entry["value"] == "2"


@pytest.mark.parametrize("time", [None, "", "yesterday", "0001-01-01T00:00:00Z", 5])
def test_a_time_that_is_missing_is_long_ago(time) -> None:
    assert age_s(time, NOW_MS) == 1_000_000_000
