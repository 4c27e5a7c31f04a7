"""Conditions and events, word for word.

Source: kubernetes pkg/controller/podautoscaler/horizontal.go.
"""

from dataclasses import replace

import pytest

from gpuscale.base.objects.hpa import (
    Behavior,
    ContainerResourceMetric,
    ExternalMetric,
    MetricTarget,
    PolicyType,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    TargetType,
)
from gpuscale.base.objects.selectors import parse_selector, selector_of_labels
from gpuscale.hpa import (
    ContainerUsages,
    ControllerSettings,
    Event,
    ExternalValues,
    FetchError,
    HpaState,
    ObjectValue,
    PodInfo,
    PodValues,
    Recommendation,
    failed,
    hpas_selecting,
    scale_unreadable,
    succeeded,
)

DOWN = FetchError("the server could not find the requested resource")


def lines(conditions):
    return [(c.type, c.status, c.reason, c.message) for c in conditions]


def test_conditions_of_a_scale_up(given) -> None:
    decision = given.decide(given.hpa(given.pods_metric(20)), given.values(23), spec=1)
    assert lines(decision.conditions) == [
        (
            "AbleToScale",
            "True",
            "SucceededRescale",
            "the HPA controller was able to update the target scale to 2",
        ),
        (
            "ScalingActive",
            "True",
            "ValidMetricFound",
            "the HPA was able to successfully calculate a replica count from pods metric load",
        ),
        (
            "ScalingLimited",
            "False",
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
    ]


def test_conditions_of_no_change(given) -> None:
    decision = given.decide(given.hpa(given.pods_metric(20)), given.values(20), spec=1)
    assert lines(decision.conditions)[0] == (
        "AbleToScale",
        "True",
        "ReadyForNewScale",
        "recommended size matches current size",
    )


def test_conditions_of_a_held_scale_down(given) -> None:
    decision = given.decide(given.hpa(given.pods_metric(20)), given.values(2, 2), spec=2)
    assert lines(decision.conditions)[0] == (
        "AbleToScale",
        "True",
        "ScaleDownStabilized",
        "recent recommendations were higher than current one, "
        "applying the highest recent recommendation",
    )


def test_conditions_of_a_held_scale_up(given) -> None:
    up = replace(Behavior().scale_up, stabilization_window_s=60)
    hpa = given.hpa(given.pods_metric(20), behavior=Behavior(scale_up=up))
    decision = given.decide(hpa, given.values(40), spec=1)
    assert lines(decision.conditions)[0] == (
        "AbleToScale",
        "True",
        "ScaleUpStabilized",
        "recent recommendations were lower than current one, "
        "applying the lowest recent recommendation",
    )


@pytest.mark.parametrize(
    ("wanted", "hpa", "line"),
    [
        pytest.param(
            9,
            {"high": 3},
            (
                "True",
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count",
            ),
            id="TooMany",
        ),
        pytest.param(
            99,
            {},
            (
                "True",
                "ScaleUpLimit",
                "the desired replica count is increasing faster than the maximum scale rate",
            ),
            id="ScaleUpLimit",
        ),
    ],
)
def test_scaling_limited_upwards(given, wanted: int, hpa, line: tuple[str, ...]) -> None:
    decision = given.decide(
        given.hpa(given.external(given.average(1)), **hpa),
        ExternalValues((wanted * 1000,)),
        spec=2,
    )
    assert lines(decision.conditions)[2] == ("ScalingLimited", *line)


@pytest.mark.parametrize(
    ("low", "line"),
    [
        pytest.param(
            5,
            ("TooFewReplicas", "the desired replica count is less than the minimum replica count"),
            id="TooFew",
        ),
        pytest.param(
            1,
            (
                "ScaleDownLimit",
                "the desired replica count is decreasing faster than the maximum scale rate",
            ),
            id="ScaleDownLimit",
        ),
    ],
)
def test_scaling_limited_downwards(given, low: int, line: tuple[str, ...]) -> None:
    one_pod = ScalingPolicy(PolicyType.PODS, 1, 60)
    policies = (replace(one_pod, value=100),) if low == 5 else (one_pod,)
    down = ScalingRules(policies, stabilization_window_s=0)
    hpa = given.hpa(given.external(given.average(1)), low=low, behavior=Behavior(scale_down=down))
    decision = given.decide(hpa, ExternalValues((1000,)), spec=9)
    assert lines(decision.conditions)[2] == ("ScalingLimited", "True", *line)


def test_paused_condition(given) -> None:
    decision = given.decide(given.hpa(given.pods_metric(20)), DOWN, spec=0)
    assert lines(decision.conditions) == [
        (
            "AbleToScale",
            "True",
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        ),
        (
            "ScalingActive",
            "False",
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero",
        ),
    ]


def test_missing_selector(given) -> None:
    decision = given.decide(given.hpa(given.pods_metric(20)), given.values(23), spec=1, selector="")
    assert lines(decision.conditions)[1] == (
        "ScalingActive",
        "False",
        "InvalidSelector",
        "the HPA target's scale is missing a selector",
    )
    assert decision.warnings == (
        Event("Warning", "SelectorRequired", "selector is required"),
        Event("Warning", "FailedComputeMetricsReplicas", "selector is required"),
    )
    assert not decision.rescale


def test_unreadable_selector(given) -> None:
    decision = given.decide(
        given.hpa(given.pods_metric(20)), given.values(23), spec=1, selector="app in ("
    )
    active = lines(decision.conditions)[1]
    start = "couldn't convert selector into a corresponding internal selector object: "
    assert active[:3] == ("ScalingActive", "False", "InvalidSelector")
    assert active[3].startswith(start)
    assert [event.reason for event in decision.warnings] == [
        "InvalidSelector",
        "FailedComputeMetricsReplicas",
    ]
    assert {event.message for event in decision.warnings} == {active[3]}


@pytest.mark.parametrize(
    ("minor", "words"),
    [
        (36, "multiple HPAs: [default/web default/front]"),
        (37, "more than one HPA (e.g. [default/web default/front])"),
    ],
)
def test_selector_shared_with_another_hpa(given, minor, words) -> None:
    pods = (PodInfo("p0", labels={"app": "web", "tier": "front"}),)
    selectors = {
        "default/web": parse_selector("app=web"),
        "default/front": selector_of_labels({"tier": "front"}),
        "default/other": parse_selector("app=other"),
    }
    selecting = hpas_selecting(pods, selectors)
    assert selecting == ("default/web", "default/front")
    decision = given.decide(
        given.hpa(given.pods_metric(20)),
        given.values(23),
        spec=1,
        pods=pods,
        selecting_hpas=selecting,
        settings=ControllerSettings(minor=minor),
    )
    text = f"pods by selector app=web are controlled by {words}"
    assert lines(decision.conditions)[1] == ("ScalingActive", "False", "AmbiguousSelector", text)
    assert [event.reason for event in decision.warnings] == [
        "AmbiguousSelector",
        "FailedComputeMetricsReplicas",
    ]


def test_selector_of_one_hpa_alone_is_fine(given) -> None:
    decision = given.decide(
        given.hpa(given.pods_metric(20)), given.values(23), spec=1, selecting_hpas=("default/web",)
    )
    assert decision.desired_replicas == 2


def cpu(**target):
    return MetricTarget(TargetType.UTILIZATION, **target)


def failing_metrics(given):
    selector = selector_of_labels({"scaledobject.keda.sh/name": "web"})
    go_selector = (
        "&LabelSelector{MatchLabels:map[string]string{scaledobject.keda.sh/name: web,},"
        "MatchExpressions:[]LabelSelectorRequirement{},}"
    )
    fetch = "unable to fetch metrics from {} metrics API: the server could not find the requested resource"
    custom, external, resource = (fetch.format(api) for api in ("custom", "external", "resource"))
    pods = f"unable to get metric load: {custom}"
    # the arguments of upstream's format string stand in another order than it reads
    thing = f"unable to get metric requests: Service on default web/{custom}"
    keda = f"unable to get external metric default/queue/{go_selector}: {external}"
    plain = f"unable to get external metric default/queue/nil: {external}"
    usage = f"unable to get metrics for resource cpu: {resource}"
    return [
        (
            given.pods_metric(20),
            "FailedGetPodsMetric",
            pods,
            f"failed to get pods metric value: {pods}",
        ),
        (
            given.object_metric(given.value(5)),
            "FailedGetObjectMetric",
            thing,
            f"failed to get object metric value: {thing}",
        ),
        (
            given.object_metric(given.average(5)),
            "FailedGetObjectMetric",
            thing,
            f"failed to get object metric value: failed to get requests object metric: {thing}",
        ),
        (
            ExternalMetric("queue", given.average(5), selector),
            "FailedGetExternalMetric",
            keda,
            f"failed to get queue external metric value: failed to get queue external metric: {keda}",
        ),
        (
            given.external(given.value(5)),
            "FailedGetExternalMetric",
            plain,
            f"failed to get queue external metric value: failed to get external metric queue: {plain}",
        ),
        (
            ResourceMetric("cpu", cpu(average_utilization=50)),
            "FailedGetResourceMetric",
            f"failed to get cpu utilization: {usage}",
            f"failed to get cpu resource metric value: failed to get cpu utilization: {usage}",
        ),
        (
            ResourceMetric("cpu", given.average("500m")),
            "FailedGetResourceMetric",
            f"failed to get cpu usage: {usage}",
            f"failed to get cpu resource metric value: failed to get cpu usage: {usage}",
        ),
        (
            ContainerResourceMetric("cpu", "main", cpu(average_utilization=50)),
            "FailedGetContainerResourceMetric",
            f"failed to get cpu utilization: {usage}",
            f"failed to get main container metric value: failed to get cpu utilization: {usage}",
        ),
    ]


@pytest.mark.parametrize("index", range(8))
def test_failed_fetch(given, index) -> None:
    metric, reason, text, full_text = failing_metrics(given)[index]
    decision = given.decide(given.hpa(metric), DOWN, spec=3)
    assert lines(decision.conditions)[1] == (
        "ScalingActive",
        "False",
        reason,
        f"the HPA was unable to compute the replica count: {text}",
    )
    assert decision.warnings == (
        Event("Warning", reason, text),
        Event(
            "Warning",
            "FailedComputeMetricsReplicas",
            f"invalid metrics (1 invalid out of 1), first error is: {full_text}",
        ),
    )
    assert decision.metrics[0].error == text


def test_a_failed_object_metric_reads_in_order_from_1_37_on(given) -> None:
    """Source: kubernetes v1.37 replica_calculator.go, GetObjectMetricReplicas: "... on %s %s/%s: %w"."""
    metric = given.object_metric(given.value(5))
    decision = given.decide(given.hpa(metric), DOWN, spec=3, settings=ControllerSettings(minor=37))
    assert decision.warnings[0].message == (
        "unable to get metric requests on Service default/web: unable to fetch metrics from custom metrics "
        "API: the server could not find the requested resource"
    )


@pytest.mark.parametrize(
    ("source", "answer", "text"),
    [
        pytest.param(
            "pods",
            PodValues(()),
            "unable to get metric load: no metrics returned from custom metrics API",
            id="Pods",
        ),
        pytest.param(
            "external",
            ExternalValues(()),
            "unable to get external metric default/queue/nil: "
            "no metrics returned from external metrics API",
            id="External",
        ),
        pytest.param(
            "resource",
            ContainerUsages(()),
            "failed to get cpu utilization: unable to get metrics for resource cpu: "
            "no metrics returned from resource metrics API",
            id="Resource",
        ),
    ],
)
def test_empty_answer_is_an_error_and_not_zero(given, source: str, answer, text: str) -> None:
    metric = {
        "pods": given.pods_metric(20),
        "external": given.external(given.average(5)),
        "resource": given.resource(50),
    }[source]
    decision = given.decide(given.hpa(metric), answer, spec=3)
    assert decision.metrics[0].error == text
    assert decision.desired_replicas == 3


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        pytest.param(
            "", "no pods returned by selector while calculating replica count", id="NoPods"
        ),
        pytest.param(
            "pending",
            "did not receive metrics for targeted pods (pods might be unready)",
            id="OnlyPending",
        ),
    ],
)
def test_no_pods_to_count(given, pods: str, text: str) -> None:
    decision = given.decide(
        given.hpa(given.pods_metric(20)), given.values(5), spec=3, pods=given.pods(pods)
    )
    assert decision.metrics[0].error == text


class TestEvents:
    def test_above_target(self, given) -> None:
        decision = given.decide(given.hpa(given.pods_metric(20)), given.values(23), spec=1)
        assert decision.event == Event(
            "Normal", "SuccessfulRescale", "New size: 2; reason: pods metric load above target"
        )

    def test_all_below_target(self, given) -> None:
        down = replace(Behavior().scale_down, stabilization_window_s=0)
        hpa = given.hpa(given.pods_metric(20), behavior=Behavior(scale_down=down))
        decision = given.decide(hpa, given.values(1, 1), spec=2)
        assert decision.event == Event(
            "Normal", "SuccessfulRescale", "New size: 1; reason: All metrics below target"
        )

    def test_object_value(self, given) -> None:
        metric = given.object_metric(given.value(10))
        decision = given.decide(given.hpa(metric), ObjectValue(40_000), spec=1)
        assert decision.reason == "Service metric requests above target"

    def test_reason_compares_the_raw_proposal_and_not_what_came_of_it(self, given) -> None:
        # the metric asks for less, but the history lifts the count
        state = HpaState(recommendations=(Recommendation(4, given.now_ms),))
        decision = given.decide(
            given.hpa(given.pods_metric(20)), given.values(1, 1), spec=2, state=state
        )
        assert decision.event == Event(
            "Normal", "SuccessfulRescale", "New size: 4; reason: All metrics below target"
        )

    def test_no_change_has_no_event(self, given) -> None:
        decision = given.decide(given.hpa(given.pods_metric(20)), given.values(20), spec=1)
        assert (decision.event, decision.reason, decision.warnings) == (None, "", ())


class TestFailedWrite:
    def test_condition_event_and_state(self, given) -> None:
        hpa = given.hpa(given.pods_metric(20), behavior=Behavior())
        before = HpaState(desired_replicas=1)
        decision = given.decide(hpa, given.values(23), spec=1, state=before)
        outcome = failed(decision, "the object has been modified", given.now_ms + 500)
        assert outcome.event == Event(
            "Warning",
            "FailedRescale",
            "New size: 2; reason: pods metric load above target; "
            "error: the object has been modified",
        )
        able = outcome.state.conditions[0]
        assert (able.status, able.reason, able.message) == (
            "False",
            "FailedUpdateScale",
            "the HPA controller was unable to update the target scale: "
            "the object has been modified",
        )
        assert able.last_transition_ms == given.now_ms + 500
        assert outcome.state.desired_replicas == 1
        assert outcome.state.last_scale_ms is None
        assert outcome.state.scale_up_events == ()
        # what the metrics asked for is remembered all the same
        assert [r.replicas for r in outcome.state.recommendations] == [1, 2]

    def test_successful_write(self, given) -> None:
        hpa = given.hpa(given.pods_metric(20), behavior=Behavior())
        outcome = succeeded(given.decide(hpa, given.values(23), spec=1))
        assert outcome.event is not None
        assert outcome.event.reason == "SuccessfulRescale"
        assert outcome.state.desired_replicas == 2
        assert outcome.state.last_scale_ms == given.now_ms
        assert [e.replica_change for e in outcome.state.scale_up_events] == [1]


def test_scale_that_cannot_be_read(given) -> None:
    outcome = scale_unreadable(HpaState(), 'deployments.apps "web" not found', given.now_ms)
    assert outcome.event == Event("Warning", "FailedGetScale", 'deployments.apps "web" not found')
    assert lines(outcome.state.conditions) == [
        (
            "AbleToScale",
            "False",
            "FailedGetScale",
            "the HPA controller was unable to get the target's current scale: "
            'deployments.apps "web" not found',
        )
    ]
    assert outcome.state.recommendations == ()


class TestTransitionTimes:
    def test_time_moves_only_with_the_status(self, controller, given) -> None:
        it = controller(4)
        it.decide(0, 4)
        decision = it.decide(15, 8)
        able = decision.conditions[0]
        assert (able.reason, able.last_transition_ms) == ("SucceededRescale", given.now_ms)

    def test_time_moves_when_the_status_changes(self, controller, given) -> None:
        it = controller(4)
        it.decide(0, 4)
        limited = it.decide(15, 800).conditions[2]
        assert (limited.type, limited.status) == ("ScalingLimited", "True")
        assert limited.last_transition_ms == given.now_ms + 15_000
