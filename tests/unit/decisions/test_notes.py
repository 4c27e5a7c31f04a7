"""Which rule shaped a decision, and what to change: one case for each rule."""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.hpa.decisions.documents import decide_request, read_decision
from gpuscale.hpa.decisions.notes import decision_notes
from gpuscale.hpa.decisions.observed import metric_label
from gpuscale.hpa.terms.queries import metric_command, scale_command
from impossible import CORRUPTIONS, SERIES

TEXT = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Decision
spec:
  hpa:
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {{name: web, namespace: prod}}
    spec:
      scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
      minReplicas: {low}
      maxReplicas: {high}
      metrics: [{metrics}]
      behavior: {behavior}
  scale: {{specReplicas: {spec}, statusReplicas: {spec}, selector: {selector}}}
  pods: [{pods}]
  observed: [{observed}]
  history: {{recommendations: [{recommendations}]}}
  config: {{scaleToZero: true}}
"""
QUEUE = "{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 1}}}"
OTHER = QUEUE.replace("queue", "other")
LOAD = "{type: Pods, pods: {metric: {name: load}, target: {type: AverageValue, averageValue: 20}}}"
CPU = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}"
OBJECT = (
    "{type: Object, object: {describedObject: {apiVersion: networking.k8s.io/v1, kind: Ingress, name: in}, "
    "metric: {name: rps, selector: {matchLabels: {code: ok}}}, target: {type: Value, value: 10}}}"
)
NOTHING_HIGHER = "{replicas: 0, age: 0}"


def text_of(
    observed,
    *,
    spec,
    metrics=QUEUE,
    pods="",
    low=1,
    high=100,
    behavior="",
    recommendations=NOTHING_HIGHER,
    selector="app=x",
):
    return TEXT.format(**locals())


def found(text):
    (document,) = load_documents(text, "why.yaml")
    request = read_decision(document)
    return [(f.rule, f.effect, f.remedy) for f in decision_notes(request, decide_request(request))]


def queue(number):
    return f"{{samples: [{number}]}}"


def test_nothing_where_nothing_held_it() -> None:
    assert found(text_of(queue(5), spec=3)) == []
    assert found(text_of(queue(3), spec=3)) == []


def test_a_value_far_above_its_target() -> None:
    # 64 GiB against 16: 64 * 2^30 / 16 = 4.29e9, * 2 pods is above 2^31
    held = LOAD.replace("load", "held").replace("20", "16")
    pods = ", ".join(f'{{name: p{i}, ready: "True"}}' for i in range(2))
    values = ", ".join(f"{{pod: p{i}, value: 64Gi}}" for i in range(2))
    text = text_of(f"{{pods: [{values}]}}", spec=2, metrics=held, pods=pods, low=2)
    (rule, effect, remedy), *_ = found(text)
    assert rule == "unit of the target"
    assert effect == (
        "Pods held is 4.29e+09 times its target, 16. That asks for more replicas than 32 bits hold; "
        "kube-controller-manager on amd64 takes it for -2147483648, and so for none."
    )
    assert remedy == "Does the target lack its unit? 16Gi is 16 GiB, 16 is 16 bytes."


def _of(metric: str) -> str:
    return LOAD.replace("load", metric)


@pytest.mark.parametrize("metric", [name for name in SERIES if ":" not in name])
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_value_that_no_gpu_has_is_named_and_no_target_is_blamed(
    metric: str, corruption: str
) -> None:
    # An adapter serves no more than 64 bits of thousandths.
    value = min(int(CORRUPTIONS[corruption]) * 1000, 2**63 - 1)
    values = f"{{pod: p0, value: 1}}, {{pod: p1, value: {value}m}}"
    pods = ", ".join(f'{{name: p{i}, ready: "True"}}' for i in range(2))
    text = text_of(f"{{pods: [{values}]}}", spec=2, metrics=_of(metric), pods=pods)
    rules = {rule: effect for rule, effect, _ in found(text)}
    assert rules["impossible value"].startswith(f"Pod p1: {metric} can't be ")
    assert rules["impossible value"].endswith(" The controller counts it.")
    assert "16Gi" not in str(found(text))


@pytest.mark.parametrize(
    ("third", "says"),
    [
        # DCGM's and NVML's codes for "no value", under a name that nothing is known of.
        (2**32 - 1, 'is 4294967295, a code of DCGM or NVML for "no value"'),
        (0x7FFFFFF2, "is 2147483634, a code"),
        # No code, and 20 * 10 000 is the most that another unit is looked for in.
        (3_000_000, "is 3e+06, where other pods have 45 at most"),
    ],
)
def test_one_pod_far_from_the_others_is_no_unit(third, says) -> None:
    values = f"{{pod: p0, value: 40}}, {{pod: p1, value: 45}}, {{pod: p2, value: {third}}}"
    pods = ", ".join(f'{{name: p{i}, ready: "True"}}' for i in range(3))
    text = text_of(f"{{pods: [{values}]}}", spec=3, metrics=LOAD, pods=pods)
    rules = {rule: effect for rule, effect, _ in found(text)}
    assert rules["impossible value"].startswith(f"Pod p2: Pods load {says}")
    assert "16Gi" not in str(found(text))


@pytest.mark.parametrize(
    ("metric", "values", "is_named"),
    [
        ("load", (300, 300, 300), True),
        ("load", (300, 300, 301), False),
        # As many requests by chance, and GPUs that are all busy.
        ("load", (4, 4, 4), False),
        ("DCGM_FI_DEV_GPU_UTIL", (100, 100, 100), False),
        ("DCGM_FI_DEV_GPU_UTIL", (64, 64, 64), True),
    ],
)
def test_one_number_of_all_pods_is_no_reason_for_more(metric, values, is_named) -> None:
    pods = ", ".join(f'{{name: p{i}, ready: "True"}}' for i in range(3))
    samples = ", ".join(f"{{pod: p{i}, value: {value}}}" for i, value in enumerate(values))
    own = LOAD.replace("load", metric).replace("20", "2")
    text = text_of(f"{{pods: [{samples}]}}", spec=3, metrics=own, pods=pods, high=4)
    (remedy,) = (remedy for rule, _, remedy in found(text) if rule == "maxReplicas")
    assert remedy.startswith("If it is one number" if is_named else "Raise spec.maxReplicas")


def test_a_sum_over_the_gpus_of_a_pod_is_possible() -> None:
    pods = '{name: p0, ready: "True"}'
    text = text_of(
        "{pods: [{pod: p0, value: 800}]}", spec=1, metrics=_of("DCGM_FI_DEV_GPU_UTIL"), pods=pods
    )
    assert "impossible value" not in {rule for rule, _, _ in found(text)}


@pytest.mark.parametrize(("total", "is_noted"), [(20_000, False), (20_001, True)])
def test_ten_thousand_times_a_target_is_the_border(total: int, is_noted: bool) -> None:
    # 20 001 over 2 replicas is 10 000.5 each, against 1
    rules = [rule for rule, _, _ in found(text_of(queue(total), spec=2))]
    assert ("unit of the target" in rules) == is_noted


def test_tolerance() -> None:
    # 21 / 20 = 1.05: inside 0.9 to 1.1; exact: ceil(21) = 21
    assert found(text_of(queue(21), spec=20)) == [
        (
            "tolerance",
            "A ratio from 0.9 to 1.1 counts as on target; without that the metrics would ask for 21.",
            "Set spec.behavior.scaleUp.tolerance below 0.1 (from Kubernetes 1.35 on; in 1.33 and 1.34 "
            "with the feature gate HPAConfigurableTolerance), or move the target.",
        )
    ]


def test_tolerance_that_changes_nothing_is_not_told() -> None:
    # 0.95 * 1 rounds up to the 1 that there is
    pods = '{name: p0, ready: "True"}'
    assert found(text_of("{pods: [{pod: p0, value: 19}]}", metrics=LOAD, pods=pods, spec=1)) == []


def test_an_own_tolerance_of_the_way_down() -> None:
    behavior = '{scaleDown: {tolerance: "0.2", stabilizationWindowSeconds: 0}}'
    # 85 / 100 = 0.85: inside 0.8 to 1.1
    ((rule, effect, remedy),) = found(text_of(queue(85), spec=100, behavior=behavior))
    assert rule == "tolerance"
    assert effect.endswith("without that the metrics would ask for 85.")
    assert remedy.startswith("Set spec.behavior.scaleDown.tolerance below 0.2 ")


def test_stabilization_of_a_first_sync() -> None:
    assert found(text_of(queue(2), spec=5, recommendations="")) == [
        (
            "stabilization",
            "The metrics ask for 2; the highest count of the last 5m holds. The document tells of no "
            "history: for a first sync that starts with the count there is.",
            "Wait: if they go on asking for 2, it holds for another 5m. A shorter "
            "spec.behavior.scaleDown.stabilizationWindowSeconds ends it earlier.",
        )
    ]


def test_stabilization_ends_when_the_last_higher_one_leaves_the_window() -> None:
    # 3 is higher than 2 and 100 s old: 300 - 100 = 200 s are left
    past = "{replicas: 5, age: 250}, {replicas: 3, age: 100}, {replicas: 2, age: 10}"
    ((rule, effect, remedy),) = found(text_of(queue(2), spec=5, recommendations=past))
    assert rule == "stabilization"
    assert effect == "The metrics ask for 2; the highest count of the last 5m holds."
    assert "it holds for another 3m20s." in remedy


def test_stabilization_on_the_way_up() -> None:
    behavior = "{scaleUp: {stabilizationWindowSeconds: 60}}"
    past = "{replicas: 3, age: 45}, {replicas: 8, age: 10}"
    ((_, effect, remedy),) = found(
        text_of(queue(8), spec=3, behavior=behavior, recommendations=past)
    )
    assert effect == "The metrics ask for 8; the lowest count of the last 1m holds."
    assert remedy == (
        "Wait: if they go on asking for 8, it holds for another 15s. A shorter "
        "spec.behavior.scaleUp.stabilizationWindowSeconds ends it earlier."
    )


ONE_POD = "policies: [{type: Pods, value: 1, periodSeconds: 60}]"


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        pytest.param(
            {"observed": queue(50), "spec": 3, "high": 5},
            (
                "maxReplicas",
                "The count is cut to spec.maxReplicas, 5.",
                "Raise spec.maxReplicas, and see that the nodes have room for more pods.",
            ),
            id="max",
        ),
        pytest.param(
            {"observed": queue(1), "spec": 9, "low": 4},
            (
                "minReplicas",
                "The count is raised to spec.minReplicas, 4.",
                "Lower spec.minReplicas.",
            ),
            id="min",
        ),
        pytest.param(
            {"observed": queue(0), "spec": 9},
            (
                "minReplicas",
                "The count is raised to spec.minReplicas, 1.",
                "Nothing, unless the target may stop: spec.minReplicas 0 takes an Object or External metric.",
            ),
            id="min of one",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 3},
            (
                "scale-up limit",
                "In one sync an HPA without spec.behavior at most doubles the count, or goes to 4.",
                "Wait: the next sync goes on from there. "
                "spec.behavior.scaleUp.policies sets another rate.",
            ),
            id="doubling",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 3, "behavior": f"{{scaleUp: {{{ONE_POD}}}}}"},
            (
                "policies",
                "spec.behavior.scaleUp.policies let the count go no further than 4 now.",
                "Wait until earlier changes are older than the policies' periods, "
                "or let them allow more.",
            ),
            id="policies up",
        ),
        pytest.param(
            {
                "observed": queue(1),
                "spec": 3,
                "behavior": f"{{scaleDown: {{stabilizationWindowSeconds: 0, {ONE_POD}}}}}",
            },
            (
                "policies",
                "spec.behavior.scaleDown.policies let the count go no further than 2 now.",
                "Wait until earlier changes are older than the policies' periods, "
                "or let them allow more.",
            ),
            id="policies down",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 3, "behavior": "{scaleUp: {selectPolicy: Disabled}}"},
            (
                "selectPolicy",
                "spec.behavior.scaleUp.selectPolicy is Disabled.",
                "Set it to Max or Min.",
            ),
            id="disabled",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 9, "high": 5},
            (
                "maxReplicas",
                "A count outside the bounds is set to the bound before anything else is looked at.",
                "Raise spec.maxReplicas of the HPA if the count was meant.",
            ),
            id="above max",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 2, "low": 5},
            (
                "minReplicas",
                "A count outside the bounds is set to the bound before anything else is looked at.",
                "Lower spec.minReplicas of the HPA if the count was meant.",
            ),
            id="below min",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 0},
            (
                "pause",
                "An HPA leaves a target with 0 replicas alone.",
                "Start it by hand: kubectl scale -n prod deployment/web --replicas=1",
            ),
            id="paused",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 0, "low": 0},
            (
                "pause",
                "From 0 replicas an HPA wakes only what it put to 0 itself, which the condition ScaledToZero "
                "says; a 0 that something else wrote is a pause.",
                "Start it by hand: kubectl scale -n prod deployment/web --replicas=1. If a manifest in Git "
                "has replicas: 0, take the field out, or it stops again at the next apply.",
            ),
            id="someone else's zero",
        ),
        pytest.param(
            {"observed": queue(50), "spec": 3, "selector": '""'},
            (
                "selector",
                "The HPA does not know which pods are its target's.",
                "Correct the selector in the status of the target's scale; "
                "a custom resource names it with labelSelectorPath.",
            ),
            id="no selector",
        ),
    ],
)
def test_a_rule(arguments, finding: tuple[str, ...]) -> None:
    assert found(text_of(**arguments)) == [finding]


LOAD_COMMAND = (
    "kubectl get --raw '/apis/custom.metrics.k8s.io/v1beta2/namespaces/prod/pods/*/load"
    "?labelSelector=app%3Dx'"
)
LOAD_WHY = "gpuscale metrics-api why 'pods/prod/*' load -l app=x"


@pytest.mark.parametrize(
    ("metrics", "observed", "remedy"),
    [
        pytest.param(
            LOAD,
            "{error: gone}",
            f"Ask as the controller does: {LOAD_COMMAND}; or follow it hop by hop: {LOAD_WHY}",
            id="error",
        ),
        pytest.param(
            LOAD,
            "{pods: []}",
            f"Ask as the controller does: {LOAD_COMMAND}; or follow it hop by hop: {LOAD_WHY}",
            id="empty list",
        ),
        pytest.param(
            QUEUE,
            "{samples: []}",
            "Ask as the controller does: "
            "kubectl get --raw '/apis/external.metrics.k8s.io/v1beta1/namespaces/prod/queue'; "
            "or follow it hop by hop: gpuscale metrics-api why external/prod queue",
            id="no series",
        ),
        pytest.param(
            CPU,
            "{pods: [{pod: p0, containers: {c: 1}}]}",
            "Give every container of the target's pods a request for the resource.",
            id="no request",
        ),
        pytest.param(
            LOAD,
            "{pods: [{pod: p1, value: 1}]}",
            "Look at the target's pods: kubectl get pods -n prod -l 'app=x'",
            id="only a pending pod",
        ),
        pytest.param(
            OBJECT.replace("type: Value", "type: Utilization"),
            "{value: 1}",
            "Make target.type name the target field that is set.",
            id="target of another type",
        ),
    ],
)
def test_a_failed_metric_says_how_to_look_into_it(metrics, observed: str, remedy: str) -> None:
    pods = '{name: p0, ready: "True", startAge: 900, containers: [{name: c}]}, {name: p1, phase: Pending}'
    if "p1" not in observed:
        pods = pods.partition(", {name: p1")[0]
    ((rule, effect, told),) = found(text_of(observed, metrics=metrics, pods=pods, spec=2))
    assert rule.startswith("failed metric ")
    assert effect == "Without a metric there is no count to scale to."
    assert told == remedy


@pytest.mark.parametrize(
    ("other", "effect"),
    [
        (5, "The other metrics decide; they can raise the count and not lower it."),
        (1, "The other metrics ask for 1, but while one fails the count is not lowered."),
    ],
)
def test_a_failed_metric_beside_another(other: int, effect: str) -> None:
    observed = f"{{error: gone}}, {queue(other)}"
    ((rule, told, _),) = found(text_of(observed, metrics=f"{OTHER}, {QUEUE}", spec=3))
    assert (rule, told) == ("failed metric External other", effect)


def test_pods_without_a_sample() -> None:
    pods = "{name: p0}, {name: p1}, {name: p2}, {name: p3}"
    observed = "{pods: [{pod: p0, value: 60}, {pod: p1, value: 60}, {pod: p2, value: 60}]}"
    # 180 / 4 = 45, / 20 = 2.25, * 4 = 9; without p3: 60 / 20 * 3 = 9: the same, and not told
    assert found(text_of(observed, metrics=LOAD, pods=pods, spec=5)) == []
    observed = "{pods: [{pod: p0, value: 25}]}"
    # 25 / 4 = 6.25, / 20 turns around and keeps 1; without the others: ceil(25 / 20 * 1) = 2
    assert found(text_of(observed, metrics=LOAD, pods=pods, spec=1)) == [
        (
            "pods without a sample",
            "Pods that are not ready or have no sample damp the change; "
            "without them the metrics would ask for 2.",
            "Find out why they report nothing: kubectl get pods -n prod -l 'app=x'",
        )
    ]


def test_pods_that_are_too_young_for_cpu() -> None:
    # p1 is 10 s old: 900m / 1 = 90 %; with p1 as 0: 45 % / 50 % turns around; with its 900m: 90 / 50 * 2 = 4
    pod = "containers: [{{name: c, requests: {{cpu: 1}}}}], ready: {0}, startAge: {1}, readyTransitionAge: 5"
    pods = f"{{name: p0, {pod.format('true', 900)}}}, {{name: p1, {pod.format('false', 10)}}}"
    observed = "{pods: [{pod: p0, containers: {c: 900m}}, {pod: p1, containers: {c: 900m}}]}"
    ((rule, effect, _),) = found(text_of(observed, metrics=CPU, pods=pods, spec=2))
    assert rule == "pods without a sample"
    assert effect.endswith("without them the metrics would ask for 4.")


def test_value_targets_multiply_ready_pods_only() -> None:
    # 30 / 10 = 3, * 1 ready pod = 3; with all three ready: 9
    pods = "{name: p0, ready: true}, {name: p1, ready: false}, {name: p2, phase: Pending}"
    assert found(text_of("{value: 30}", metrics=OBJECT, pods=pods, spec=3)) == [
        (
            "ready pods",
            "A Value target multiplies only the pods that run and are ready; "
            "with all of them ready the metrics would ask for 9.",
            "Get the pods ready, or use an AverageValue target, which does not look at them.",
        )
    ]


def read(metric):
    (document,) = load_documents(text_of("{error: x}", metrics=metric, spec=3), "why.yaml")
    return read_decision(document).hpa


@pytest.mark.parametrize(
    ("metric", "path"),
    [
        (
            OBJECT,
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/prod/ingresses.networking.k8s.io/in/rps"
            "?metricLabelSelector=code%3Dok",
        ),
        (
            OBJECT.replace("networking.k8s.io/v1", "v1").replace("Ingress", "Proxy"),
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/prod/proxies/in/rps"
            "?metricLabelSelector=code%3Dok",
        ),
        (CPU, "/apis/metrics.k8s.io/v1beta1/namespaces/prod/pods?labelSelector=app%3Dx"),
    ],
    ids=["object of a group", "object of the core group", "resource"],
)
def test_the_command_that_asks_as_the_controller_does(metric, path: str) -> None:
    (spec,) = read(metric).metrics
    assert metric_command(spec, "prod", "app=x") == f"kubectl get --raw '{path}'"


def test_commands_do_not_break_out_of_their_quotation_marks() -> None:
    hpa = read(QUEUE.replace("name: queue", 'name: "a\'b"'))
    assert metric_command(hpa.metrics[0], "prod", "app=x").count("'") == 2
    assert (
        scale_command(hpa.target, "a b", 1) == "kubectl scale -n a%20b deployment/web --replicas=1"
    )


def test_labels_of_metrics_are_short() -> None:
    assert metric_label(read(OBJECT).metrics[0]) == "Object rps(code=ok)"


@pytest.mark.parametrize(
    ("version", "needed"),
    [
        ("1.36", "the feature gate HPAScaleToZero and an Object or External metric"),
        ("1.37", "an Object or External metric"),
    ],
)
def test_what_zero_takes_follows_the_release(version, needed) -> None:
    text = text_of(observed=queue(0), spec=9).replace(
        "config: {scaleToZero: true}", f'config: {{kubernetesVersion: "{version}"}}'
    )
    ((_, _, remedy),) = found(text)
    assert remedy == f"Nothing, unless the target may stop: spec.minReplicas 0 takes {needed}."
