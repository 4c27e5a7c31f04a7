# mypy: disable-error-code="arg-type"
"""What upstream's rules say, said as Decision documents: the counts that come out.

Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go, horizontal.go.
"""

from dataclasses import dataclass

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.hpa.decisions.documents import decide_request, read_decision


def pods_metric(target, name="load"):
    target = f"{{type: AverageValue, averageValue: {target}}}"
    return f"{{type: Pods, pods: {{metric: {{name: {name}}}, target: {target}}}}}"


def total(kind, target, name="queue"):
    described = "describedObject: {kind: Service, name: web}, " if kind == "Object" else ""
    metric = f"metric: {{name: {name}}}"
    return f"{{type: {kind}, {kind.lower()}: {{{described}{metric}, target: {target}}}}}"


def value(amount):
    return f"{{type: Value, value: {amount}}}"


def average(amount):
    return f"{{type: AverageValue, averageValue: {amount}}}"


def percent(amount):
    return f"{{type: Utilization, averageUtilization: {amount}}}"


def resource(target, name="cpu"):
    return f"{{type: Resource, resource: {{name: {name}, target: {target}}}}}"


def container_resource(target, container="c"):
    inner = f"{{name: cpu, container: {container}, target: {target}}}"
    return f"{{type: ContainerResource, containerResource: {inner}}}"


TEXT = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Decision
spec:
  hpa:
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {{name: web}}
    spec:
      scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
      maxReplicas: 1000
      metrics: [{metrics}]
{hpa}
  scale: {{specReplicas: {spec}, statusReplicas: {status}, selector: app=x}}
  pods: {pods}
{more}
"""
OLD = "startAge: 7200, readyTransitionAge: 7200, containers: [{name: c, requests: {cpu: 1}}]"
KINDS = {
    "ready": f'ready: "True", {OLD}',
    "unready": f'ready: "False", {OLD}',
    "unknown": f'ready: "Unknown", {OLD}',
    "no-condition": "startAge: 7200, containers: [{name: c, requests: {cpu: 1}}]",
    "pending": f'phase: Pending, ready: "False", {OLD}',
    "failed": f'phase: Failed, ready: "False", {OLD}',
    "succeeded": f'phase: Succeeded, ready: "False", {OLD}',
    "deleted": f'deleted: true, ready: "True", {OLD}',
}


def some_pods(states):
    items = (f"{{name: p{i}, {KINDS[state]}}}" for i, state in enumerate(states.split()))
    return f"[{', '.join(items)}]"


def values(*numbers):
    samples = (f'{{pod: p{i}, value: "{n}"}}' for i, n in enumerate(numbers) if n is not None)
    return f"{{pods: [{', '.join(samples)}]}}"


def usages(*numbers):
    samples = (
        f"{{pod: p{i}, containers: {{c: {n}m}}}}" for i, n in enumerate(numbers) if n is not None
    )
    return f"{{pods: [{', '.join(samples)}]}}"


def document(metrics, observed, pods, *, spec, status=None, hpa="", more=""):
    """Return a document; `hpa` and `more` are lines of YAML below `spec.hpa.spec` and `spec`."""
    entries = observed if isinstance(observed, list) else [observed]
    return TEXT.format(
        metrics=", ".join(metrics if isinstance(metrics, list) else [metrics]),
        hpa="\n".join(f"      {line}" for line in hpa.splitlines()),
        spec=spec,
        status=spec if status is None else status,
        pods=pods if pods.startswith("[") else some_pods(pods),
        more="\n".join(
            f"  {line}" for line in (f"observed: [{', '.join(entries)}]", *more.splitlines())
        ),
    )


def decided(text):
    (loaded,) = load_documents(text, "case.yaml")
    return decide_request(read_decision(loaded))


def reason(decision, kind):
    conditions = decision.state_before_write.conditions
    return next((c.reason for c in conditions if c.type == kind), None)


@dataclass(frozen=True)
class Row:
    """A metric, what it shows, and what it asks for; None where it fails."""

    name: str
    metric: str
    observed: str
    pods: str
    spec: int
    asks: int | None
    status: int | None = None


SINGLE = [
    # 2.1, 2.3: the plain average
    # 23 / 20 = 1.15 > 1.1; ceil(1.15 * 1) = 2
    Row("PlainScaleUp", pods_metric(20), values(23), "ready", 1, 2),
    # 22 / 20 = 1.1 <= 1 + 0.1: the edge is inside
    Row("PlainUpperEdgeOfTolerance", pods_metric(20), values(22), "ready", 1, 1),
    # 18 / 20 = 0.9 >= 1 - 0.1
    Row("PlainLowerEdgeOfTolerance", pods_metric(20), values(18, 18), "ready ready", 2, 2),
    # 20 / 50 = 0.4, * 5 = 2
    Row("PlainScaleDown", pods_metric(50), values(*[20] * 5), "ready " * 5, 5, 2),
    # 0.07 * 100 = 7.000000000000001 in float64 -> 8
    Row("PlainFloatArtefact", pods_metric(100), values(*[7] * 100), "ready " * 100, 100, 8),
    # 0.001 / 3 is cut off to 0 thousandths
    Row("PlainAverageIsCutOff", pods_metric(1), values("1m", 0, 0), "ready " * 3, 3, 0),
    # 0.0005 is rounded up to 0.001; 0.002 / 0.001 = 2
    Row("TargetIsRoundedUpToMilli", pods_metric('"500u"'), values("2m"), "ready", 1, 2),
    # 2.2: classes of pods
    # (50 + 10 + 30) / 3 = 30, / 15 = 2, * 3 = 6: readiness does not matter to a Pods metric
    Row("PlainUnreadyCounts", pods_metric(15), values(50, 10, 30), "ready unready unready", 3, 6),
    # 30 / 15 = 2, * 2 = 4
    Row("PlainSucceededCounts", pods_metric(15), values(30, 30), "ready succeeded", 2, 4),
    # the third pod and its sample are passed over: 40 / 20 = 2, * 2 = 4
    Row("PlainFailedIgnored", pods_metric(20), values(40, 40, 500), "ready ready failed", 3, 4),
    Row("PlainDeletedIgnored", pods_metric(20), values(40, 40, 500), "ready ready deleted", 3, 4),
    # the sample of a Pending pod is dropped: 10 / 20 = 0.5, * 2 = 1
    Row("PlainPendingDropped", pods_metric(20), values(10, 10, 99), "ready ready pending", 3, 1),
    # (40 + 40 + 0) / 3 = 26.666, / 20 = 1.3333, * 3 = 3.9999 -> 4
    Row("PlainPendingDampsUp", pods_metric(20), values(40, 40), "ready ready pending", 3, 4),
    # (25 + 25 + 0) / 3 / 20 = 0.8333: turned around
    Row("PlainPendingTurns", pods_metric(20), values(25, 25), "ready ready pending", 3, 3),
    # (10 + 10 + 20) / 3 / 20 = 0.66665, * 3 = 1.99995 -> 2
    Row("PlainMissingIsOnTarget", pods_metric(20), values(10, 10), "ready " * 3, 3, 2),
    # (60 + 60 + 0) / 3 / 20 = 2, * 3 = 6
    Row("PlainMissingIsZeroOnUp", pods_metric(20), values(60, 60), "ready " * 3, 3, 6),
    # (17 + 20 + 20) / 3 / 20 = 0.95: inside the dead band, although 17 / 20 is not
    Row("PlainMissingWithinTolerance", pods_metric(20), values(17), "ready " * 3, 3, 3),
    # 20 / 20 = 1: missing pods are left out
    Row("PlainMissingAtRatioOne", pods_metric(20), values(20), "ready ready", 2, 2),
    # (70 + 0) / 2 / 20 = 1.75, * 2 -> 4 < 6 on the way up
    Row("PlainUpWouldShrink", pods_metric(20), values(70), "ready ready", 6, 6),
    # (1 + 3 * 20) / 4 / 20 = 0.7625, * 4 = 3.05 -> 4 > 2 on the way down
    Row("PlainDownWouldGrow", pods_metric(20), values(1), "ready " * 4, 2, 2),
    # (20 + 60) / 2 / 20 = 2, * 1 pod that is there
    Row("PlainUnknownPodInAverage", pods_metric(20), values(20, 60), "ready", 1, 2),
    Row("PlainNoSamples", pods_metric(20), "{pods: []}", "ready", 1, None),
    Row("PlainNoPods", pods_metric(20), values(20), "[]", 1, None),
    Row("PlainOnlyPending", pods_metric(20), values(20), "pending", 1, None),
    Row("PlainFetchFailed", pods_metric(20), "{error: gone}", "ready", 1, None),
    # 2.1: totals
    # 20 / 15 = 1.3333, * 3 = 4
    Row("ObjectValue", total("Object", value(15)), "{value: 20}", "ready " * 3, 3, 4),
    # only one ready: 1.3333 * 1 -> 2, fewer than now
    Row(
        "ObjectValueFewReady",
        total("Object", value(15)),
        "{value: 20}",
        "ready unready unready",
        3,
        2,
    ),
    Row("ObjectValueNoneReady", total("Object", value(15)), "{value: 20}", "unready " * 3, 3, 0),
    # 16 / 15 = 1.0667: spec.replicas stays
    Row("ObjectValueTolerance", total("Object", value(15)), "{value: 16}", "ready", 3, 3, 7),
    Row("ObjectValueNoPods", total("Object", value(15)), "{value: 20}", "[]", 3, None),
    # ceil(100 / 20) = 5, whatever the pods do
    Row("ObjectAverage", total("Object", average(20)), "{value: 100}", "[]", 3, 5),
    # 100 / (20 * 5) = 1: status.replicas stays, not spec.replicas
    Row("ObjectAverageKeepsStatus", total("Object", average(20)), "{value: 100}", "[]", 3, 5, 5),
    # 8 + 12 = 20, / 10 = 2, * 2 = 4
    Row(
        "ExternalValueIsSummed",
        total("External", value(10)),
        "{samples: [8, 12]}",
        "ready " * 2,
        2,
        4,
    ),
    # 64 / (20 * 3) = 1.0667: inside
    Row("ExternalAverageTolerance", total("External", average(20)), "{samples: [64]}", "[]", 3, 3),
    # 64 / (20 * 5) = 0.64, ceil(64 / 20) = 4
    Row(
        "ExternalAverageByStatus", total("External", average(20)), "{samples: [64]}", "[]", 3, 4, 5
    ),
    Row("ExternalEmpty", total("External", average(20)), "{samples: []}", "[]", 3, None),
    # sums and counts end at their types' largest numbers
    Row(
        "ExternalSaturates",
        total("External", average("1m")),
        '{samples: ["9223372036854775807m", "9223372036854775807m"]}',
        "[]",
        2,
        (1 << 31) - 1,
    ),
    # type Utilization beside a value is no target of an Object metric
    Row(
        "ObjectWrongType",
        total("Object", "{type: Utilization, averageValue: 20}"),
        "{value: 3}",
        "ready",
        1,
        None,
    ),
    # 2.4: utilization; every pod requests 1 cpu, so 300m is 30 %
    # 1500 / 3000 = 50 %, / 30 = 1.6667, * 3 = 5
    Row("Utilization", resource(percent(30)), usages(300, 500, 700), "ready " * 3, 3, 5),
    # unready: 1200 / 2000 = 60 %; with it as 0: 40 %, / 30 = 1.333, * 3 = 4
    Row(
        "UtilizationUnready",
        resource(percent(30)),
        usages(300, 500, 700),
        "unready ready ready",
        3,
        4,
    ),
    Row(
        "UtilizationUnknown",
        resource(percent(30)),
        usages(300, 500, 700),
        "unknown ready ready",
        3,
        5,
    ),
    Row(
        "UtilizationNoCondition",
        resource(percent(30)),
        usages(300, 500, 700),
        "no-condition ready ready",
        3,
        4,
    ),
    # 1109 / 1000 is cut off to 110 %: on the edge of the dead band
    Row("UtilizationIsCutOff", resource(percent(100)), usages(1109), "ready", 1, 1),
    # 111 % is not; 1.11 * 1 -> 2
    Row("UtilizationBeyond", resource(percent(100)), usages(1119), "ready", 1, 2),
    # missing uses 100 % of its request: 1500 / 3000 = 50 %, / 70 = 0.714, * 3 -> 3
    Row("UtilizationMissing", resource(percent(70)), usages(100, 400), "ready " * 3, 3, 3),
    # with a target of 300 % it uses 300 %: 3100 / 2000 = 155 %, / 300 = 0.5167, * 2 -> 2
    Row("UtilizationMissingAbove100", resource(percent(300)), usages(100), "ready " * 2, 2, 2),
    # 600m / 300m = 2; with the unready pod as 0: 400m / 300m, * 3 = 4
    Row(
        "RawResource", resource(average("300m")), usages(900, 500, 700), "unready ready ready", 3, 4
    ),
    # 80 % / 50 % = 1.6 -> 2; the other container does not count
    Row(
        "ContainerUtilization",
        container_resource(percent(50)),
        "{pods: [{pod: p0, containers: {c: 800m, proxy: 9}}]}",
        "ready",
        1,
        2,
    ),
    # the container is not in p1's sample, so p1 is missing and uses 100 %:
    # (100 + 1000) / 2000 = 55 %, / 60 = 0.9167: inside the dead band
    Row(
        "ContainerWithoutUsage",
        container_resource(percent(60)),
        "{pods: [{pod: p0, containers: {c: 100m}}, {pod: p1, containers: {proxy: 1}}]}",
        "ready ready",
        2,
        2,
    ),
    # a container that reports none of it makes its pod missing: as before
    Row(
        "ResourceWithoutUsage",
        resource(percent(60)),
        "{pods: [{pod: p0, containers: {c: 100m}}, {pod: p1, containers: {c: , proxy: 1}}]}",
        "ready ready",
        2,
        2,
    ),
    Row("ContainerNotFound", container_resource(percent(50), "other"), usages(1), "ready", 1, None),
    Row("RequestMissing", resource(percent(50), "memory"), usages(1), "ready", 1, None),
    # 600 / 2000 = 30 %, / 60 = 0.5, * 1 -> 1: the pod's own request counts
    Row(
        "PodLevelRequest",
        resource(percent(60)),
        usages(600),
        "[{name: p0, requests: {cpu: 2}, startAge: 900, ready: true, containers: [{name: c}]}]",
        1,
        1,
    ),
    Row(
        "PodLevelRequestMissing",
        resource(percent(60)),
        usages(600),
        "[{name: p0, requests: {memory: 2}, startAge: 900, ready: true, containers: [{name: c}]}]",
        1,
        None,
    ),
]


@pytest.mark.parametrize("row", SINGLE, ids=lambda row: row.name)
def test_what_one_metric_asks_for(row) -> None:
    text = document(row.metric, row.observed, row.pods, spec=row.spec, status=row.status)
    (status,) = decided(text).metrics
    assert status.proposed_replicas == row.asks


@pytest.mark.parametrize(
    ("pod", "sample", "counts"),
    [
        # younger than 300 s: must be ready, and for a full window of 60 s before the sample
        pytest.param("True 200 100", "age: 0", True, id="YoungReadyForAWindow"),
        pytest.param("False 200 100", "age: 0", False, id="YoungUnready"),
        pytest.param("True 200 60", "age: 0", True, id="ReadyForExactlyAWindow"),
        pytest.param("True 200 59.999", "age: 0", False, id="AMillisecondLess"),
        pytest.param("True 200 100", "age: 50", False, id="SampleTooSoon"),
        pytest.param("True 200 100", "age: 50, window: 50", True, id="ShorterWindow"),
        pytest.param("True 200 100.3", "age: 50.2, window: 50.1", True, id="ExactInTenths"),
        pytest.param("Unknown 200 100", "age: 0", True, id="UnknownIsNotFalse"),
        # at 300 s and later: unready counts, unless it turned so within 30 s of the start
        pytest.param("True 300 5", "age: 0", True, id="TheEdgeIsOld"),
        pytest.param("False 1000 971", "age: 0", False, id="NeverReady"),
        pytest.param("False 1000 970", "age: 0", True, id="ReadyOnce"),
    ],
)
def test_readiness_of_cpu_samples(pod: str, sample: str, counts: bool) -> None:
    ready, start, changed = pod.split()
    judged = (
        f'{{name: p0, ready: "{ready}", startAge: {start}, readyTransitionAge: {changed}, '
        "containers: [{name: c, requests: {cpu: 1}}]}"
    )
    other = f"{{name: p1, {KINDS['ready']}}}"
    text = document(
        resource(percent(50)),
        f"{{pods: [{{pod: p0, containers: {{c: 900m}}, {sample}}}, {{pod: p1, containers: {{c: 100m}}}}]}}",
        f"[{judged}, {other}]",
        spec=2,
    )
    # counted: (900 + 100) / 2000 = 50 %; passed over: 100 / 1000 = 10 %
    assert decided(text).metrics[0].average_utilization == (50 if counts else 10)


@dataclass(frozen=True)
class Sync:
    """Queues that each ask for as many replicas as they show; None is a failed one."""

    name: str
    spec: int
    wanted: tuple[int | None, ...]
    desired: int
    able: str = "ReadyForNewScale"
    active: str = "ValidMetricFound"
    limited: str | None = "DesiredWithinRange"
    hpa: str = ""
    more: str = ""


LOW = "history: {recommendations: [{replicas: 0}]}"
UP_WINDOW = """\
behavior:
  scaleUp: {stabilizationWindowSeconds: 60, policies: [{type: Percent, value: 900, periodSeconds: 15}]}"""
DOWN_WINDOW = "behavior: {scaleDown: {stabilizationWindowSeconds: 60}}"


def rules(direction, policy, *, select="Max"):
    return (
        f"behavior: {{{direction}: {{stabilizationWindowSeconds: 0, selectPolicy: {select}, "
        f"policies: [{policy}]}}}}"
    )


def pods_policy(number):
    return f"{{type: Pods, value: {number}, periodSeconds: 60}}"


def percent_policy(number):
    return f"{{type: Percent, value: {number}, periodSeconds: 60}}"


SYNCS = [
    # 3: several metrics
    Sync("HighestOfTwo", 3, (5, 2), 5),
    Sync("HighestOfTwoBelow", 4, (1, 2), 2, more=LOW),
    Sync("AllFailed", 3, (None, None), 3, "SucceededGetScale", "FailedGetExternalMetric", None),
    Sync("OneFailedOtherAbove", 3, (None, 5), 5),
    Sync("OneFailedOtherEqual", 3, (3, None), 3),
    Sync(
        "OneFailedOtherBelow", 3, (2, None), 3, "SucceededGetScale", "FailedGetExternalMetric", None
    ),
    # 4.1: without behavior
    Sync("FirstSyncHoldsADown", 10, (3,), 10, "ScaleDownStabilized"),
    Sync(
        "RecommendationAsOldAsTheWindowCounts",
        10,
        (3,),
        8,
        "ScaleDownStabilized",
        more="history: {recommendations: [{replicas: 8, age: 300}, {replicas: 10, age: 300.001}]}",
    ),
    Sync(
        "OlderOnesDoNot",
        10,
        (3,),
        3,
        more="history: {recommendations: [{replicas: 10, age: 300.001}]}",
    ),
    Sync(
        "WindowOfTheController",
        10,
        (3,),
        3,
        more="history: {recommendations: [{replicas: 10, age: 61}]}\nconfig: {downscaleStabilization: 60}",
    ),
    # 20 was asked for 15 s ago; the cap is 2 * 8
    Sync(
        "OlderHigherOneLifts",
        8,
        (5,),
        16,
        "ScaleDownStabilized",
        limited="ScaleUpLimit",
        more="history: {recommendations: [{replicas: 20, age: 15}]}",
    ),
    Sync("OneReachesFour", 1, (50,), 4, limited="ScaleUpLimit"),
    Sync("ThreeDoubles", 3, (50,), 6, limited="ScaleUpLimit"),
    Sync("ExactlyDouble", 3, (6,), 6),
    Sync("MaxBeforeTheCap", 3, (50,), 5, limited="TooManyReplicas", hpa="maxReplicas: 5"),
    Sync("RaisedToMin", 9, (1,), 4, limited="TooFewReplicas", hpa="minReplicas: 4", more=LOW),
    # 4.2: with behavior
    Sync("UpWindowHoldsTheFirstSync", 4, (9,), 4, "ScaleUpStabilized", hpa=UP_WINDOW),
    # 9 and 6 are younger than 60 s, the 4 is not
    Sync(
        "UpGoesToTheLowestOfTheWindow",
        4,
        (15,),
        6,
        "ScaleUpStabilized",
        hpa=UP_WINDOW,
        more="history: {recommendations: [{replicas: 4, age: 60}, {replicas: 6, age: 30}, {replicas: 9}]}",
    ),
    Sync(
        "DownGoesToTheHighestOfTheWindow",
        10,
        (2,),
        7,
        "ScaleDownStabilized",
        hpa=DOWN_WINDOW,
        more="history: {recommendations: [{replicas: 10, age: 60}, {replicas: 7, age: 59.999}]}",
    ),
    Sync(
        "BehaviorNeverLifts",
        8,
        (5,),
        8,
        "ScaleDownStabilized",
        hpa=DOWN_WINDOW,
        more="history: {recommendations: [{replicas: 20, age: 15}]}",
    ),
    Sync("UpPods", 10, (99,), 14, limited="ScaleUpLimit", hpa=rules("scaleUp", pods_policy(4))),
    # ceil(3 * 1.1) = ceil(3.3000000000000003) = 4
    Sync(
        "UpPercentRoundsUp",
        3,
        (99,),
        4,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", percent_policy(10)),
    ),
    # ceil(90 * 1.1) = ceil(99.00000000000001) = 100
    Sync(
        "UpFloatArtefact",
        90,
        (500,),
        100,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", percent_policy(10)),
    ),
    # the larger of 10 + 4 and 10 * 1.5
    Sync(
        "UpMaxOfTwo",
        10,
        (99,),
        15,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", f"{pods_policy(4)}, {percent_policy(50)}"),
    ),
    Sync(
        "UpMinOfTwo",
        10,
        (99,),
        14,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", f"{pods_policy(4)}, {percent_policy(50)}", select="Min"),
    ),
    Sync(
        "UpDisabled",
        10,
        (99,),
        10,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", pods_policy(4), select="Disabled"),
    ),
    # 10 - 3 + 4: what was added within the period is used up
    Sync(
        "UpBudget",
        10,
        (99,),
        11,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", pods_policy(4)),
        more="history: {scaleUps: [{change: 3, age: 59.999}, {change: 9, age: 60}]}",
    ),
    # 10 + 5 + 4: what was taken away gives budget back
    Sync(
        "UpBudgetGivenBack",
        10,
        (99,),
        19,
        limited="ScaleUpLimit",
        hpa=rules("scaleUp", pods_policy(4)),
        more="history: {scaleDowns: [{change: 5, age: 30}]}",
    ),
    Sync("DownPods", 10, (1,), 7, limited="ScaleDownLimit", hpa=rules("scaleDown", pods_policy(3))),
    # trunc(10 * (1 - 0.25)) = trunc(7.5) = 7
    Sync(
        "DownPercentIsCutOff",
        10,
        (1,),
        7,
        limited="ScaleDownLimit",
        hpa=rules("scaleDown", percent_policy(25)),
    ),
    # trunc(10 * (1 - 0.9)) = trunc(0.9999999999999998) = 0, and min is 1
    Sync(
        "DownFloatArtefact",
        10,
        (0,),
        1,
        limited="TooFewReplicas",
        hpa=rules("scaleDown", percent_policy(90)),
    ),
    Sync(
        "DownDisabled",
        10,
        (1,),
        10,
        limited="ScaleDownLimit",
        hpa=rules("scaleDown", pods_policy(3), select="Disabled"),
    ),
    # 10 + 2 - 3: two of the three were used
    Sync(
        "DownBudget",
        10,
        (1,),
        9,
        limited="ScaleDownLimit",
        hpa=rules("scaleDown", pods_policy(3)),
        more="history: {scaleDowns: [{change: 2, age: 30}]}",
    ),
    # 21 / 20 = 1.05 <= 1 + 0.05
    Sync("OwnTolerance", 20, (21,), 20, hpa='behavior: {scaleUp: {tolerance: "0.05"}}'),
    Sync("OwnToleranceBeyond", 20, (22,), 22, hpa='behavior: {scaleUp: {tolerance: "0.05"}}'),
    Sync("ToleranceOfTheController", 20, (21,), 21, more="config: {tolerance: 0.04}"),
    # 1: repairs and the pause look at nothing else
    Sync("AboveMax", 40, (1,), 5, "SucceededGetScale", None, None, "maxReplicas: 5"),
    Sync("BelowMin", 2, (1,), 30, "SucceededGetScale", None, None, "minReplicas: 30"),
    Sync("Paused", 0, (5,), 0, "SucceededGetScale", "ScalingDisabled", None),
]


def queues(sync):
    metrics = [total("External", average(1), f"q{i}") for i in range(len(sync.wanted))]
    answers = ["{error: gone}" if n is None else f"{{samples: [{n}]}}" for n in sync.wanted]
    hpa = sync.hpa
    text = document(metrics, answers, "[]", spec=sync.spec, hpa=hpa, more=sync.more)
    return text.replace("      maxReplicas: 1000\n", "") if "maxReplicas" in hpa else text


@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.name)
def test_one_sync(sync) -> None:
    decision = decided(queues(sync))
    assert decision.desired_replicas == sync.desired
    found = tuple(reason(decision, k) for k in ("AbleToScale", "ScalingActive", "ScalingLimited"))
    assert found == (sync.able, sync.active, sync.limited)


def test_a_target_without_a_selector() -> None:
    text = document(pods_metric(20), values(23), "ready", spec=1).replace("app=x", '""')
    assert reason(decided(text), "ScalingActive") == "InvalidSelector"


def test_a_selector_that_can_not_be_read() -> None:
    text = document(pods_metric(20), values(23), "ready", spec=1).replace("app=x", '"app in ("')
    assert reason(decided(text), "ScalingActive") == "InvalidSelector"


@pytest.mark.parametrize(
    ("own_zero", "desired", "active"),
    [
        # ceil(2.5 / 1) = 3
        pytest.param(True, 3, "ValidMetricFound", id="ItsOwnZero"),
        pytest.param(False, 0, "ScalingDisabled", id="SomeoneElsesZero"),
    ],
)
def test_waking_from_zero_takes_the_condition_in_the_hpas_status(
    own_zero: bool, desired: int, active: str
) -> None:
    text = document(
        total("External", average(1)),
        '{samples: ["2.5"]}',
        "[]",
        spec=0,
        hpa="minReplicas: 0",
        more="config: {scaleToZero: true}",
    )
    status = f'{{conditions: [{{type: ScaledToZero, status: "{own_zero}"}}]}}'
    text = text.replace("{name: web}\n", f"{{name: web}}\n    status: {status}\n", 1)
    decision = decided(text)
    assert decision.desired_replicas == desired
    assert reason(decision, "ScalingActive") == active


def test_going_to_zero() -> None:
    # 0 / 1 asks for none, and nothing higher was asked for within the window
    text = document(
        total("External", average(1)),
        "{samples: [0]}",
        "[]",
        spec=3,
        hpa="minReplicas: 0",
        more=f"{LOW}\nconfig: {{scaleToZero: true}}",
    )
    decision = decided(text)
    assert decision.desired_replicas == 0
    assert decision.conditions[-1].reason == "ScaledToZero"


@pytest.mark.parametrize(
    ("version", "metric"),
    [
        ("v2", pods_metric(20)),
        ("v2beta2", pods_metric(20)),
        ("v2beta1", "{type: Pods, pods: {metricName: load, targetAverageValue: 20}}"),
    ],
)
def test_an_hpa_of_any_version(version: str, metric) -> None:
    text = document(metric, values(23), "ready", spec=1).replace(
        "autoscaling/v2", f"autoscaling/{version}"
    )
    assert decided(text).desired_replicas == 2  # 23 / 20 = 1.15


def test_an_hpa_of_v1() -> None:
    text = document("", usages(900), "ready", spec=1).replace("autoscaling/v2", "autoscaling/v1")
    text = text.replace("metrics: []", "targetCPUUtilizationPercentage: 50")
    assert decided(text).desired_replicas == 2  # 90 % / 50 % = 1.8


def test_an_hpa_without_metrics_looks_at_cpu() -> None:
    text = document("", usages(900), "ready", spec=1)
    assert decided(text).metrics[0].proposed_replicas == 2  # 90 % / 80 % = 1.125
