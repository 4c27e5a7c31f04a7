"""Reading Decision documents: what is taken for what, and every fault with its line and field."""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.pods import PodPhase
from gpuscale.hpa import (
    Condition,
    ControllerSettings,
    MetricValue,
    ObjectValue,
    PodUsage,
    ReadyCondition,
    Recommendation,
    Scale,
    ScaleEvent,
)
from gpuscale.hpa.decisions.answers import answer
from gpuscale.hpa.decisions.document_fields import NOW_MS
from gpuscale.hpa.decisions.documents import decide_request, read_decision

HEAD = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Decision
spec:
"""
HPA = """\
  hpa:
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: web, namespace: prod}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
      maxReplicas: 10
      metrics:
        - {type: Pods, pods: {metric: {name: load}, target: {type: AverageValue, averageValue: 20}}}
"""
SCALE = "  scale: {specReplicas: 1, statusReplicas: 2, selector: app=x}\n"
PODS = "  pods: [{name: p0, labels: {app: x}}]\n"
OBSERVED = '  observed: [{pods: [{pod: p0, value: "23"}]}]\n'
CPU = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}"
OBJECT = (
    "{type: Object, object: {describedObject: {kind: Service, name: web}, "
    "metric: {name: rps}, target: {type: Value, value: 3}}}"
)
EXTERNAL = "{type: External, external: {metric: {name: queue}, target: {type: Value, value: 3}}}"


def text_of(hpa=HPA, scale=SCALE, pods=PODS, observed=OBSERVED, more=""):
    return HEAD + hpa + scale + pods + observed + more


def with_metric(metric):
    return HPA[: HPA.index("        - ")] + f"        - {metric}\n"


def read(text):
    (document,) = load_documents(text, "why.yaml")
    return read_decision(document)


def faults(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_defaults() -> None:
    request = read(text_of())
    (pod,) = request.pods
    (values,) = request.observations
    assert request.place == "why.yaml:1"
    assert request.scale == Scale(1, 2, "app=x")
    assert (pod.phase, pod.deleted, pod.ready) == (PodPhase.RUNNING, False, ReadyCondition.ABSENT)
    assert (pod.start_ms, pod.ready_transition_ms, pod.containers) == (None, None, ())
    assert values.samples == (MetricValue("p0", 23_000, NOW_MS, 60_000),)
    assert request.settings == ControllerSettings()
    assert request.state.recommendations == ()
    assert request.is_first_sync
    assert request.notes == ()


def test_everything_that_can_be_said_of_a_pod() -> None:
    pods = """\
  pods:
    - name: p0
      labels: {app: x}
      phase: Pending
      ready: "False"
      readyTransitionAge: 0.29
      startAge: 1.001
      deleted: true
      requests: {cpu: 2}
      containers: [{name: c, requests: {cpu: 500m}}]
"""
    (pod,) = read(text_of(pods=pods)).pods
    assert (pod.phase, pod.ready, pod.deleted) == (PodPhase.PENDING, ReadyCondition.FALSE, True)
    # 0.29 * 1000 is 290.00000000000006 in float64
    assert (pod.ready_transition_ms, pod.start_ms) == (NOW_MS - 290, NOW_MS - 1001)
    assert pod.pod_requests["cpu"].milli_value() == 2000
    assert pod.containers[0].requests["cpu"].milli_value() == 500


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        ('"True"', ReadyCondition.TRUE),
        ("True", ReadyCondition.TRUE),
        ("false", ReadyCondition.FALSE),
        ("Unknown", ReadyCondition.UNKNOWN),
        ("", ReadyCondition.ABSENT),
    ],
)
def test_ready_may_lack_its_quotation_marks(text: str, ready) -> None:
    assert read(text_of(pods=f"  pods: [{{name: p0, ready: {text} }}]\n")).pods[0].ready is ready


@pytest.mark.parametrize(
    ("age", "milliseconds"),
    [
        ("5", 5000),
        ("0.1", 100),
        ("2.675", 2675),  # 2674.9999999999995 in float64
        ("0.0004", 0),
        ("12.3456789", 12_346),
        ("1000000000", 10**12),
    ],
)
def test_ages_are_exact_in_milliseconds(age: str, milliseconds) -> None:
    observed = f"  observed: [{{pods: [{{pod: p0, value: 1, age: {age}, window: 0.5}}]}}]\n"
    (values,) = read(text_of(observed=observed)).observations
    assert values.samples == (MetricValue("p0", 1000, NOW_MS - milliseconds, 500),)


def test_history_and_configuration() -> None:
    more = """\
  history:
    recommendations: [{replicas: 5, age: 30}, {replicas: 0}]
    scaleUps: [{change: 2, age: 20.5}]
    scaleDowns: [{change: 1}]
  config:
    tolerance: 0.25
    downscaleStabilization: 60
    cpuInitializationPeriod: 120
    initialReadinessDelay: 10
    scaleToZero: true
"""
    request = read(text_of(more=more))
    assert request.state.recommendations == (
        Recommendation(5, NOW_MS - 30_000),
        Recommendation(0, NOW_MS),
    )
    assert request.state.scale_up_events == (ScaleEvent(2, NOW_MS - 20_500),)
    assert request.state.scale_down_events == (ScaleEvent(1, NOW_MS),)
    assert request.settings == ControllerSettings(60, 0.25, 120, 10, scale_to_zero=True)
    assert not request.is_first_sync


def test_only_the_condition_that_a_decision_depends_on_is_taken_from_the_status() -> None:
    conditions = (
        '[{type: AbleToScale, status: "True"}, '
        '{type: ScaledToZero, status: "True", reason: R, message: M}]'
    )
    hpa = HPA.replace("    spec:\n", f"    status: {{conditions: {conditions}}}\n    spec:\n")
    assert read(text_of(hpa=hpa)).state.conditions == (
        Condition("ScaledToZero", "True", "R", "M", 0),
    )


def test_resource_usage_may_lack_a_container() -> None:
    observed = "  observed: [{pods: [{pod: p0, containers: {c: 300m, d: }, age: 5, window: 15}]}]\n"
    (usages,) = read(text_of(hpa=with_metric(CPU), observed=observed)).observations
    assert usages.samples == (PodUsage("p0", {"c": 300, "d": None}, NOW_MS - 5000, 15_000),)


def test_object_and_external_values() -> None:
    hpa = with_metric(OBJECT) + f"        - {EXTERNAL}\n"
    observed = '  observed: [{value: "1.5"}, {samples: [3, "4", -1m]}]\n'
    first, second = read(text_of(hpa=hpa, observed=observed)).observations
    assert first == ObjectValue(1500)
    assert second.values_milli == (3000, 4000, -1)


def test_pods_outside_the_selector_are_left_out_with_a_note() -> None:
    names = "".join(f", {{name: q{i}, labels: {{app: y}}}}" for i in range(5))
    request = read(text_of(pods=f"  pods: [{{name: p0, labels: {{app: x}}}}{names}]\n"))
    assert [pod.name for pod in request.pods] == ["p0"]
    assert request.notes == (
        "Left out, since the selector app=x does not find them: pods q0, q1, q2 and 2 more.",
    )


def test_a_pod_without_labels_is_taken_for_the_targets() -> None:
    request = read(text_of(pods="  pods: [{name: p0}, {name: p1, labels: {}}]\n"))
    assert [pod.name for pod in request.pods] == ["p0"]


def test_samples_of_pods_that_are_not_there_are_kept_and_noted() -> None:
    observed = "  observed: [{pods: [{pod: p0, value: 1}, {pod: po, value: 3}]}]\n"
    request = read(text_of(observed=observed))
    assert len(request.observations[0].samples) == 2
    assert request.notes == (
        "Pods load has samples of pods that are not the target's, "
        "which count in its average all the same: po.",
    )


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param("{specReplicas: 0, statusReplicas: 0, selector: app=x}", id="paused"),
        pytest.param("{specReplicas: 40, statusReplicas: 40, selector: app=x}", id="above max"),
    ],
)
def test_observed_may_be_left_out_where_metrics_are_not_looked_at(scale: str) -> None:
    request = read(text_of(scale=f"  scale: {scale}\n", observed=""))
    assert decide_request(request).metrics == ()


def test_every_fault_is_told_at_once_in_the_order_of_lines() -> None:
    text = text_of(
        hpa=HPA.replace("maxReplicas: 10", "maxReplicas: 0"),
        scale="  scale: {specReplicas: -2, statusReplicas: 2.5}\n",
        pods="  pods:\n    - {name: p0, phase: Runing}\n    - {name: p0, startAge: 5m}\n",
        observed="  observed: [{pods: [{pod: p0, value: 1x}]}]\n",
        more="  history: {scaleUps: [{change: 0}]}\n  config: {tolerance: x}\n",
    )
    assert faults(text) == [
        "why.yaml:10: spec.hpa.spec.maxReplicas: Invalid value: 0: must be greater than 0",
        "why.yaml:13: spec.scale.selector: this field is required; "
        "write an empty text for a target that gives none",
        "why.yaml:13: spec.scale.specReplicas: found -2, expected a whole number from 0 to 2147483647",
        "why.yaml:13: spec.scale.statusReplicas: found 2.5, expected a whole number",
        "why.yaml:15: spec.pods[0].phase: found 'Runing', "
        "expected one of Pending, Running, Succeeded, Failed, Unknown",
        "why.yaml:16: spec.pods[1].name: found 'p0', expected each pod once",
        "why.yaml:16: spec.pods[1].startAge: found '5m', "
        "expected a number of seconds, such as 30 or 0.5",
        "why.yaml:17: spec.observed[0].pods[0].value: found '1x', expected a quantity such as "
        "20, 500m or 1Gi",
        "why.yaml:18: spec.history.scaleUps[0].change: found 0, "
        "expected a whole number from 1 to 2147483647",
        "why.yaml:19: spec.config.tolerance: found 'x', "
        "expected a ratio of zero or more, such as 0.1",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("- 1\n", "why.yaml:1: found a list, expected a mapping", id="a list"),
        pytest.param(
            "kind: Decision\n",
            "why.yaml:1: apiVersion: found nothing, expected gpuscale.dev/v1alpha1",
            id="no version",
        ),
        pytest.param(
            HEAD.replace("kind: Decision", "kind: Scenario"),
            "why.yaml:2: kind: found 'Scenario', expected Decision",
            id="another kind",
        ),
        pytest.param(HEAD, "why.yaml:3: spec: this field is required", id="no spec"),
        pytest.param(
            text_of(more="  observations: []\n"),
            "why.yaml:16: spec.observations: no such field here; "
            "the fields here are hpa, scale, pods, selectingHpas, observed, history, config, unknown, "
            "nodes",
            id="unknown field",
        ),
        pytest.param(text_of(hpa=""), "why.yaml:3: spec.hpa: this field is required", id="no HPA"),
        pytest.param(
            text_of(hpa="  hpa: web\n"),
            "why.yaml:4: spec.hpa: found 'web', expected a mapping",
            id="name of an HPA",
        ),
        pytest.param(
            text_of(hpa=HPA.replace("autoscaling/v2", "autoscaling/v3")),
            "why.yaml:5: spec.hpa.apiVersion: found 'autoscaling/v3', expected one of "
            "autoscaling/v1, autoscaling/v2beta1, autoscaling/v2beta2, autoscaling/v2",
            id="unknown version of the HPA",
        ),
        pytest.param(
            text_of(hpa=HPA.replace("HorizontalPodAutoscaler", "VerticalPodAutoscaler")),
            "why.yaml:6: spec.hpa.kind: found 'VerticalPodAutoscaler', "
            "expected HorizontalPodAutoscaler",
            id="no HPA but something else",
        ),
        pytest.param(
            text_of(
                hpa=with_metric(EXTERNAL).replace(
                    "      maxReplicas", "      minReplicas: 0\n      maxReplicas"
                ),
                observed="  observed: [{samples: [1]}]\n",
            ),
            "why.yaml:10: spec.hpa.spec.minReplicas: found 0, expected at least 1; "
            "set spec.config.kubernetesVersion if the cluster is 1.37 or later, or spec.config.scaleToZero "
            "if it has the feature gate HPAScaleToZero",
            id="zero without the gate",
        ),
        pytest.param(
            text_of(observed=""),
            "why.yaml:3: spec.observed: found 0 entries, "
            "expected 1 entry, one for each metric of the HPA in its order: Pods load",
            id="nothing observed",
        ),
        pytest.param(
            text_of(observed="  observed: [{error: a}, {error: b}]\n"),
            "why.yaml:15: spec.observed: found 2 entries, "
            "expected 1 entry, one for each metric of the HPA in its order: Pods load",
            id="too many observed",
        ),
        pytest.param(
            text_of(observed="  observed: [{samples: [3]}]\n"),
            "why.yaml:15: spec.observed[0]: found samples, "
            "expected one of pods, error for the metric Pods load",
            id="answer of another metric",
        ),
        pytest.param(
            text_of(observed="  observed: [{pods: [], error: x}]\n"),
            "why.yaml:15: spec.observed[0]: found pods and error, "
            "expected one of pods, error for the metric Pods load",
            id="two answers",
        ),
        pytest.param(
            text_of(observed="  observed: [{}]\n"),
            "why.yaml:15: spec.observed[0]: found no answer, "
            "expected one of pods, error for the metric Pods load",
            id="no answer",
        ),
        pytest.param(
            text_of(hpa=with_metric(CPU)),
            "why.yaml:15: spec.observed[0].pods[0].value: no such field here; "
            "the fields here are pod, containers, age, window",
            id="value where containers belong",
        ),
        pytest.param(
            text_of(observed="  observed: [{pods: [{pod: p0, value: 1}, {pod: p0, value: 1}]}]\n"),
            "why.yaml:15: spec.observed[0].pods[1].pod: found 'p0', expected each pod once",
            id="two samples of a pod",
        ),
        pytest.param(
            text_of(observed="  observed: [{pods: [{pod: p0, value: 1, age: -3}]}]\n"),
            "why.yaml:15: spec.observed[0].pods[0].age: found -3, "
            "expected seconds from 0 to 1000000000",
            id="negative age",
        ),
        pytest.param(
            text_of(observed="  observed: [{pods: [{pod: p0, value: 1, window: .inf}]}]\n"),
            "why.yaml:15: spec.observed[0].pods[0].window: found inf, "
            "expected seconds from 0 to 1000000000",
            id="endless window",
        ),
        pytest.param(
            text_of(observed="  observed: [{pods: [{pod: p0, value: 9e99}]}]\n"),
            "why.yaml:15: spec.observed[0].pods[0].value: found 9e+99, "
            "expected at most 9223372036854775807m, as a metrics API can say",
            id="value too large",
        ),
        pytest.param(
            text_of(observed="  observed: [{pods: [{pod: p0}]}]\n"),
            "why.yaml:15: spec.observed[0].pods[0].value: this field is required",
            id="no value",
        ),
        pytest.param(
            text_of(hpa=with_metric(EXTERNAL), observed="  observed: [{samples: [3, []]}]\n"),
            "why.yaml:15: spec.observed[0].samples[1]: found a list, "
            "expected a quantity such as 20, 500m or 1Gi",
            id="sample that is no quantity",
        ),
        pytest.param(
            text_of(hpa=with_metric(EXTERNAL), observed="  observed: [{samples: 3}]\n"),
            "why.yaml:15: spec.observed[0].samples: found 3, expected a list of quantities",
            id="samples that are no list",
        ),
        pytest.param(
            text_of(pods="  pods: [{name: p0, containers: [{name: c, requests: {cpu: -1}}]}]\n"),
            "why.yaml:14: spec.pods[0].containers[0].requests.cpu: found -1, "
            "expected an amount of zero or more",
            id="negative request",
        ),
        pytest.param(
            text_of(pods="  pods: [{name: p0, ready: perhaps}]\n"),
            "why.yaml:14: spec.pods[0].ready: found 'perhaps', "
            "expected one of True, False, Unknown",
            id="unknown readiness",
        ),
        pytest.param(
            text_of(pods="  pods: [{name: p0, readyTransitionAge: 3}]\n"),
            "why.yaml:14: spec.pods[0].readyTransitionAge: only beside the field ready",
            id="change of no condition",
        ),
        pytest.param(
            text_of(more="  config: {downscaleStabilization: -1}\n"),
            "why.yaml:16: spec.config.downscaleStabilization: found -1, "
            "expected a whole number from 0 to 1000000000",
            id="negative window of the controller",
        ),
    ],
)
def test_a_fault(text, told: str) -> None:
    assert faults(text)[0] == told


def test_an_hpa_that_can_not_be_read_hides_no_fault_of_what_was_observed() -> None:
    hpa = HPA.replace("maxReplicas: 10", "maxReplicas: 0")
    observed = (
        "  observed: [{pods: [{pod: p0, containers: {c: x}}]}, {samples: [x]}, {value: x}, {}]\n"
    )
    fields = [line.split(": ")[1] for line in faults(text_of(hpa=hpa, observed=observed))]
    assert fields == [
        "spec.hpa.spec.maxReplicas",
        "spec.observed[0].pods[0].containers.c",
        "spec.observed[1].samples[0]",
        "spec.observed[2].value",
        "spec.observed[3]",
    ]


# ---- what `decide hpa/NAME` writes down beside

STATUS = """\
    status:
      currentReplicas: 3
      desiredReplicas: 4
      lastScaleTime: 2026-01-02T03:04:05Z
      conditions:
        - {type: AbleToScale, status: "True", reason: ReadyForNewScale, message: m}
        - {type: ScalingActive, status: "False", reason: FailedGetPodsMetric, message: gone}
        - {type: ScalingLimited, status: "False", reason: R, message: n}
"""


def answered(text):
    request = read(text)
    return answer(request, decide_request(request))


def test_metadata_names_the_answer() -> None:
    metadata = (
        "metadata: {name: a, namespace: b, labels: {c: d}, annotations: {e: f}, uid: g}\nspec:\n"
    )
    found = answered(text_of().replace("spec:\n", metadata, 1))
    assert (found["name"], found["namespace"]) == ("a", "b")
    assert "name" not in answered(text_of())


def test_metadata_has_the_types_of_kubernetes() -> None:
    text = text_of().replace("spec:\n", "metadata: {name: [a], labels: {b: []}}\nspec:\n", 1)
    assert faults(text) == [
        "why.yaml:3: metadata.labels.b: found a list, expected text",
        "why.yaml:3: metadata.name: found a list, expected text",
    ]


def test_a_scale_that_can_not_be_read_ends_the_sync() -> None:
    scale = "  scale: {error: deployments.apps web not found}\n"
    found = answered(text_of(hpa=HPA + STATUS, scale=scale, observed=""))
    assert found["desiredReplicas"] is None
    assert found["event"] == {
        "reason": "FailedGetScale",
        "message": "deployments.apps web not found",
    }
    assert found["conditions"] == [
        {
            "type": "AbleToScale",
            "status": "False",
            "reason": "FailedGetScale",
            "message": "the HPA controller was unable to get the target's current scale: "
            "deployments.apps web not found",
        }
    ]


def test_hpas_that_select_the_same_pods_stop_each_other() -> None:
    found = answered(text_of(observed="", more="  selectingHpas: [prod/web, prod/other]\n"))
    condition = found["conditions"][-1]
    assert (condition["reason"], condition["message"]) == (
        "AmbiguousSelector",
        "pods by selector app=x are controlled by multiple HPAs: [prod/web prod/other]",
    )
    assert found["desiredReplicas"] == 1


def test_a_target_without_a_selector_needs_no_metrics() -> None:
    found = answered(text_of(scale=SCALE.replace("app=x", '""'), observed=""))
    assert found["conditions"][-1]["reason"] == "InvalidSelector"


def test_what_is_unknown_is_repeated() -> None:
    assert answered(text_of(more="  unknown: [its flags]\n"))["unknown"] == ["its flags"]


def test_the_status_is_held_against_the_answer() -> None:
    status = answered(text_of(hpa=HPA + STATUS))["status"]
    assert (status["currentReplicas"], status["desiredReplicas"]) == (3, 4)
    assert status["lastScaleTime"] == "2026-01-02T03:04:05Z"
    # 1 pod at 23 of 20 asks for 2, where the status has 3 that became 4, and a metric that failed.
    assert [(d["field"], d["reported"], d["decided"]) for d in status["differences"]] == [
        ("currentReplicas", "3", "1"),
        ("desiredReplicas", "4", "2"),
        (
            "ScalingActive",
            "False FailedGetPodsMetric: gone",
            "True ValidMetricFound: the HPA was able to successfully calculate a replica count "
            "from pods metric load",
        ),
        (
            "ScalingLimited",
            "False R: n",
            "False DesiredWithinRange: the desired count is within the acceptable range",
        ),
    ]


def test_a_status_of_the_sync_that_scaled_is_no_difference() -> None:
    status = STATUS.replace("currentReplicas: 3", "currentReplicas: 2").replace("4", "1", 1)
    status = status[: status.index("        - {type: ScalingActive")]
    found = answered(text_of(hpa=HPA.replace("maxReplicas: 10", "maxReplicas: 1") + status))
    assert [each["field"] for each in found["status"]["differences"]] == [
        "ScalingActive",
        "ScalingLimited",
    ]


@pytest.mark.parametrize("status", ["{}", "{conditions: 3}", "{conditions: [{type: [3]}]}"])
def test_odd_conditions_in_a_status_are_no_fault(status: str) -> None:
    decide_request(read(text_of(hpa=f"{HPA}    status: {status}\n")))


def test_the_phase_unknown_is_one_of_kubernetes() -> None:
    request = read(text_of(pods="  pods: [{name: p0, phase: Unknown}]\n"))
    assert request.pods[0].phase is PodPhase.UNKNOWN
    # Neither pending nor failed, it counts by its sample: ceil(23 / 20) = 2.
    assert decide_request(request).desired_replicas == 2
