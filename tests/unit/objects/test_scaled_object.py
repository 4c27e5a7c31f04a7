"""ScaledObjects from manifests: KEDA's defaults, all faults at once, annotations.

Expected values: KEDA v2.21 apis/keda/v1alpha1/scaledobject_types.go, scaledobject_types_test.go,
withtriggers_types.go.
"""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.scaled_object import Fallback, FallbackBehavior, ScaledObject

SMALLEST = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web}
spec:
  scaleTargetRef: {name: web}
  triggers:
    - type: external
      metadata: {scalerAddress: scaler:9090}
"""
WHOLE = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web, namespace: ml, annotations: {autoscaling.keda.sh/paused-scale-in: "yes"}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}
  pollingInterval: 5
  cooldownPeriod: 60
  initialCooldownPeriod: 10
  idleReplicaCount: 0
  minReplicaCount: 2
  maxReplicaCount: 8
  fallback: {failureThreshold: 3, replicas: 4, behavior: currentReplicasIfHigher}
  advanced:
    restoreToOriginalReplicaCount: true
    horizontalPodAutoscalerConfig:
      name: web-hpa
      behavior: {scaleDown: {stabilizationWindowSeconds: 30}}
  triggers:
    - type: prometheus
      name: queue
      metricType: Value
      useCachedMetrics: true
      authenticationRef: {name: secret}
      metadata: {serverAddress: http://prometheus, query: vector(1), threshold: "2.5"}
    - type: cpu
      metricType: Utilization
      metadata: {value: "60"}
"""
WRONG = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web, annotations: {autoscaling.keda.sh/paused-replicas: few}}
spec:
  scaleTargetRef: {kind: Deployment}
  pollingInterval: 0
  minReplicaCount: 3
  maxReplicaCount: 2
  idleReplicaCount: 3
  fallback: {replicas: -1, behavior: lots}
  triggers:
    - {type: prometheus, name: a, metricType: Utilization, metadata: {threshold: 3}}
    - {type: cron, name: a, useCachedMetrics: true, metadata: {start: "* * * * *"}}
"""


def read(text: str) -> ScaledObject:
    (found,) = load_manifests(text, "so.yaml")
    assert isinstance(found, ScaledObject)
    return found


def annotated(**values: str) -> str:
    pairs = ", ".join(f'autoscaling.keda.sh/{name}: "{value}"' for name, value in values.items())
    return SMALLEST.replace(
        "metadata: {name: web}", f"metadata: {{name: web, annotations: {{{pairs}}}}}"
    )


def test_what_a_manifest_leaves_out_has_kedas_defaults() -> None:
    found = read(SMALLEST)
    assert (found.least, found.most, found.idle) == (0, 100, None)
    assert (found.polling_interval_s, found.cooldown_s, found.initial_cooldown_s) == (30, 300, 0)
    assert (found.target_kind, found.target_api_version) == ("Deployment", "apps/v1")
    assert found.hpa_name == "keda-hpa-web"
    assert (found.fallback, found.modifiers, found.behavior) == (None, None, None)
    assert found.triggers[0].metric_type == "AverageValue"
    assert not found.triggers[0].uses_cached_metrics


def test_every_field_is_read() -> None:
    found = read(WHOLE)
    assert found.key == "ml/web"
    assert (found.target_kind, found.polling_interval_s, found.cooldown_s) == ("StatefulSet", 5, 60)
    assert (found.initial_cooldown_s, found.idle, found.least, found.most) == (10, 0, 2, 8)
    assert found.fallback == Fallback(3, 4, FallbackBehavior.CURRENT_IF_HIGHER)
    assert found.restores_replicas
    assert found.hpa_name == "web-hpa"
    assert found.behavior is not None
    assert found.behavior.scale_down.stabilization_window_s == 30
    queue, cpu = found.triggers
    assert (queue.name, queue.query, queue.threshold) == ("queue", "vector(1)", 2.5)
    assert (queue.is_average, queue.uses_cached_metrics, queue.authentication) == (
        False,
        True,
        "secret",
    )
    assert (cpu.kind, cpu.metric_type) == ("cpu", "Utilization")


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read(WRONG)
    texts = [str(problem).partition(": ")[2] for problem in caught.value.problems]
    assert texts == [
        "spec.maxReplicaCount: found 2, expected at least minReplicaCount, 3",
        "spec.idleReplicaCount: found 3, expected below minReplicaCount, 3",
        "metadata.annotations.autoscaling.keda.sh/paused-replicas: found 'few', "
        "expected a number of replicas",
        "spec.scaleTargetRef.name: this field is required",
        "spec.triggers[0].metadata.threshold: found 3, expected text; put it into quotes",
        "spec.triggers[0].metadata.query: this field is required",
        "spec.triggers[0].metricType: found 'Utilization', expected AverageValue or Value",
        "spec.triggers[1].useCachedMetrics: found true, expected false or nothing, for a cron trigger",
        "spec.triggers[1].name: found 'a', expected each trigger's name once",
        "spec.pollingInterval: found 0, expected a whole number from 1 on",
        "spec.fallback.failureThreshold: this field is required",
        "spec.fallback.behavior: found 'lots', expected one of static, currentReplicas, "
        "currentReplicasIfHigher, currentReplicasIfLower, scalingModifiers",
        "spec.fallback.replicas: found -1, expected a whole number from 0 on",
    ]


@pytest.mark.parametrize(
    ("value", "is_paused"),
    [("true", True), ("", True), ("maybe", True), ("false", False), ("0", False), ("F", False)],
)
def test_an_annotation_that_is_no_truth_value_counts_as_true(value: str, is_paused: bool) -> None:
    # getBoolAnnotation of scaledobject_types.go
    assert read(annotated(paused=value)).is_paused is is_paused


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ("  minReplicaCount: 0\n  idleReplicaCount: 0\n", True),
        ("  idleReplicaCount: 0\n", False),
        ("  minReplicaCount: 0\n  idleReplicaCount: 1\n", False),
    ],
)
def test_a_written_minimum_of_zero_counts_as_one_for_the_idle_count(fields, is_taken) -> None:
    # CheckReplicaCountBoundsAreValid and GetHPAMinReplicas of scaledobject_types.go
    text = SMALLEST.replace("  triggers:", f"{fields}  triggers:")
    if is_taken:
        assert read(text).idle == 0
    else:
        with pytest.raises(ConfigError, match="below minReplicaCount"):
            read(text)


def test_a_paused_count_pauses_by_itself() -> None:
    found = read(annotated(**{"paused-replicas": "2", "paused": "false"}))
    assert (found.is_paused, found.paused_replicas) == (True, 2)


@pytest.mark.parametrize(
    ("fields", "polls"),
    [
        ("", True),  # minReplicaCount 0
        ("  minReplicaCount: 1\n", False),
        ("  minReplicaCount: 1\n  idleReplicaCount: 0\n", True),
    ],
)
def test_polls_matter_where_keda_itself_may_change_the_count(fields: str, polls: bool) -> None:
    # IsPollingIntervalRelevant and UsesHPAObservations of scaledobject_types.go
    text = SMALLEST.replace("  triggers:", f"{fields}  triggers:")
    assert read(text).polls_matter is polls
