# mypy: disable-error-code="arg-type"
"""HPAs written as `autoscaling/v2` and read again."""

import json

import pytest

from gpuscale.base.objects.hpa.manifest import hpa_manifest
from gpuscale.base.objects.manifests import load_manifests

HEAD = """
kind: HorizontalPodAutoscaler
metadata: {name: h, namespace: ml, labels: {a: b}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}
  minReplicas: 2
  maxReplicas: 9
"""
METRICS = """
  metrics:
  - {type: Pods, pods: {metric: {name: m, selector: {matchLabels: {a: b}, matchExpressions: [
      {key: k, operator: NotIn, values: [x, y]}, {key: l, operator: Exists}]}},
      target: {type: Utilization, averageValue: 20}}}
  - {type: Object, object: {metric: {name: m}, describedObject: {apiVersion: v1, kind: Service, name: s},
      target: {type: Value, value: 1500m}}}
  - {type: External, external: {metric: {name: m}, target: {type: AverageValue, averageValue: 1Ki}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: c,
      target: {type: AverageValue, averageValue: 300m}}}
"""
BEHAVIOR = """
  behavior:
    scaleUp: {tolerance: 50m, policies: [{type: Pods, value: 2, periodSeconds: 30}], selectPolicy: Min}
    scaleDown: {stabilizationWindowSeconds: 30, policies: [{type: Percent, value: 10, periodSeconds: 60}]}
"""
OLD = """
  metrics:
  - {type: Pods, pods: {metricName: m, targetAverageValue: 20}}
  - {type: Object, object: {metricName: m, target: {kind: Service, name: s}, targetValue: 30}}
  - {type: External, external: {metricName: m, metricSelector: {matchLabels: {q: a}}, targetValue: 3}}
  - {type: Resource, resource: {name: cpu, targetAverageUtilization: 60}}
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"apiVersion: autoscaling/v2{HEAD}{METRICS}{BEHAVIOR}", id="v2"),
        pytest.param(f"apiVersion: autoscaling/v2beta2{HEAD}{METRICS}", id="v2beta2"),
        pytest.param(f"apiVersion: autoscaling/v2beta1{HEAD}{OLD}", id="v2beta1"),
        pytest.param(
            f"apiVersion: autoscaling/v1{HEAD}  targetCPUUtilizationPercentage: 50\n", id="v1"
        ),
    ],
)
def test_what_was_written_reads_as_the_same_hpa(text: str) -> None:
    (hpa,) = load_manifests(text, "hpa.yaml")
    manifest = hpa_manifest(hpa)
    assert manifest["apiVersion"] == "autoscaling/v2"
    assert load_manifests(json.dumps(manifest), "again.json") == (hpa,)


def test_the_beta_fields_get_their_new_names() -> None:
    (hpa,) = load_manifests(f"apiVersion: autoscaling/v2beta1{HEAD}{OLD}", "hpa.yaml")
    pods, described, external, resource = hpa_manifest(hpa)["spec"]["metrics"]
    assert pods["pods"] == {
        "metric": {"name": "m"},
        "target": {"type": "AverageValue", "averageValue": "20"},
    }
    assert described["object"]["describedObject"] == {"kind": "Service", "name": "s"}
    assert external["external"]["metric"]["selector"] == {"matchLabels": {"q": "a"}}
    assert resource["resource"]["target"] == {"type": "Utilization", "averageUtilization": 60}
