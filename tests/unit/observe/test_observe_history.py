"""What status and events show of a controller's memory.

Upstream: a recommendation is recorded at each sync that computes one, raw; a change is recorded after it was
written, for an HPA with `behavior`.
"""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.ops.observe.history import read_history

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PLAIN = """
metadata: {name: vision}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  maxReplicas: 9
  metrics:
  - {type: External, external: {metric: {name: queue}, target: {type: Value, value: 50}}}
"""
BEHAVIOR = f"""{PLAIN}
  behavior: {{scaleUp: {{policies: [{{type: Pods, value: 4, periodSeconds: 60}}]}}}}
"""
UP, DOWN = "external metric queue above target", "All metrics below target"


def hpa(text):
    (document,) = load_documents(text, "hpa.yaml")
    return read_hpa(Fields(document, document.data))


def body(current, desired, active="True", changed="2025-12-31T23:50:00Z"):
    condition = {"type": "ScalingActive", "status": active, "lastTransitionTime": changed}
    status = {"currentReplicas": current, "desiredReplicas": desired, "conditions": [condition]}
    meta = {"uid": "u", "creationTimestamp": "2025-12-31T23:00:00Z"}
    return {"metadata": meta, "status": status}


def event(replicas, reason, time, uid="u"):
    message = f"New size: {replicas}; reason: {reason}"
    involved = {"involvedObject": {"uid": uid}}
    return {**involved, "reason": "SuccessfulRescale", "message": message, "lastTimestamp": time}


def entries(body, events=(), text=PLAIN, steps=()):
    return read_history(body, events, hpa(text), NOW_MS, steps).entries


def test_before_the_first_sync_there_is_no_history() -> None:
    assert entries({"metadata": {}}) == {}


@pytest.mark.parametrize(
    ("status", "record"),
    [
        pytest.param(body(3, 3), {"replicas": 3, "age": 0}, id="settled"),
        pytest.param(body(3, 5), {"replicas": 5, "age": 0}, id="scaled just now"),
        # Nothing is recommended while the metrics fail: the last was ten minutes ago.
        pytest.param(body(3, 3, "False"), {"replicas": 3, "age": 600}, id="failing"),
        # A controller that never had a value knows the count of its first sync alone.
        pytest.param(body(3, 0, "False"), {"replicas": 3, "age": 3600}, id="never worked"),
    ],
)
def test_the_last_recommendation(status, record) -> None:
    assert entries(status) == {"recommendations": [record]}


def test_changes_that_the_metrics_asked_for_are_recommendations() -> None:
    events = [
        event(6, DOWN, "2025-12-31T23:59:00Z"),
        event(10, UP, "2025-12-31T23:58:00Z"),
        event(4, "Current number of replicas below Spec.MinReplicas", "2025-12-31T23:57:00Z"),
        event(9, UP, "2025-12-31T23:30:00Z"),  # before the window of five minutes
        event(8, UP, "2025-12-31T23:59:30Z", uid="of an HPA of the same name before"),
        {"reason": "FailedGetScale", "message": "gone", "involvedObject": {"uid": "u"}},
    ]
    assert entries(body(6, 6), events)["recommendations"] == [
        {"replicas": 10, "age": 120},
        {"replicas": 6, "age": 60},
        {"replicas": 6, "age": 0},
    ]


def test_how_far_changes_went_follows_from_the_one_before() -> None:
    events = [
        event(5, UP, "2025-12-31T23:58:00Z"),
        event(9, UP, "2025-12-31T23:59:00Z"),
        event(7, DOWN, "2025-12-31T23:59:30Z"),
    ]
    found = entries(body(7, 7), events, BEHAVIOR)
    assert found["scaleUps"] == [{"change": 4, "age": 60}]
    assert found["scaleDowns"] == [{"change": 2, "age": 30}]


def test_how_far_the_last_change_went_is_in_the_status_of_its_sync() -> None:
    found = entries(body(1, 5), [event(5, UP, "2025-12-31T23:59:55Z")], BEHAVIOR)
    assert found["scaleUps"] == [{"change": 4, "age": 5}]


def test_how_far_a_change_went_is_in_the_deployments_event() -> None:
    step = {
        "message": "Scaled up replica set vision-5f6 from 1 to 5",
        "lastTimestamp": "2025-12-31T23:59:21Z",
    }
    found = entries(body(5, 5), [event(5, UP, "2025-12-31T23:59:20Z")], BEHAVIOR, [step])
    assert found["scaleUps"] == [{"change": 4, "age": 40}]


def test_a_change_of_unknown_size_within_a_policys_period_is_named() -> None:
    history = read_history(
        body(5, 5), [event(5, UP, "2025-12-31T23:59:20Z")], hpa(BEHAVIOR), NOW_MS
    )
    assert "scaleUps" not in history.entries
    assert history.unknown[-1].startswith("How far it went 40s ago: ")


def test_without_any_window_nothing_that_counts_is_unknown() -> None:
    text = f"{PLAIN}  behavior: {{scaleDown: {{stabilizationWindowSeconds: 0}}}}\n"
    assert read_history(body(3, 3), (), hpa(text), NOW_MS).unknown == ()
