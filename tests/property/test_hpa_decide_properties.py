"""What holds for every decision."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.objects.hpa import (
    Behavior,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    PolicyType,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    TargetType,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import (
    ContainerInfo,
    ContainerUsages,
    ControllerSettings,
    ExternalValues,
    FetchError,
    HpaState,
    MetricValue,
    ObjectValue,
    PodInfo,
    PodUsage,
    PodValues,
    ReadyCondition,
    Recommendation,
    Scale,
    ScaleEvent,
    decide,
    failed,
    succeeded,
    targets_cell,
)
from gpuscale.hpa.kernel.memory import scale_down_limit, scale_up_limit
from gpuscale.hpa.replicas.numbers import limits_of, memory_of

NOW_MS = 10_000_000
REQUESTS = (ContainerInfo("main", {"cpu": parse_quantity(1)}),)


def average(milli: int) -> MetricTarget:
    return MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(f"{milli}m"))


targets = st.integers(1, 100_000).map(average)
values = st.integers(0, 10**9)
times = st.integers(NOW_MS - 400_000, NOW_MS)
policies = st.builds(
    ScalingPolicy, st.sampled_from(PolicyType), st.integers(1, 200), st.integers(1, 1800)
)
rules = st.builds(
    ScalingRules,
    st.lists(policies, min_size=1, max_size=3).map(tuple),
    st.sampled_from(SelectPolicy),
    st.none() | st.integers(0, 3600),
)
behaviors = st.none() | st.builds(Behavior, rules, rules)
events = st.lists(st.builds(ScaleEvent, st.integers(1, 50), times), max_size=4).map(tuple)
states = st.builds(
    HpaState,
    st.lists(st.builds(Recommendation, st.integers(0, 200), times), max_size=5).map(tuple),
    events,
    events,
)
pods = st.lists(
    st.builds(
        PodInfo,
        name=st.integers(0, 20).map("p{}".format),
        phase=st.sampled_from(PodPhase),
        deleted=st.booleans(),
        ready=st.sampled_from(ReadyCondition),
        ready_transition_ms=st.none() | times,
        start_ms=st.none() | times,
        containers=st.just(REQUESTS),
    ),
    max_size=8,
    unique_by=lambda pod: pod.name,
)
names = st.integers(0, 20).map("p{}".format)
pod_values = st.builds(
    PodValues, st.lists(st.builds(MetricValue, names, values, times), max_size=8).map(tuple)
)
usages = st.builds(
    ContainerUsages,
    st.lists(
        st.builds(PodUsage, names, st.dictionaries(st.just("main"), st.none() | values), times),
        max_size=8,
    ).map(tuple),
)
fetch_errors = st.builds(FetchError, st.text(max_size=20))
reference = CrossVersionObjectReference("Service", "web")
percents = st.integers(1, 500).map(
    lambda percent: MetricTarget(TargetType.UTILIZATION, average_utilization=percent)
)
answers = st.one_of(
    st.tuples(targets.map(lambda t: PodsMetric("m", t)), pod_values | fetch_errors),
    st.tuples(
        targets.map(lambda t: ObjectMetric(reference, "m", t)),
        st.builds(ObjectValue, values) | fetch_errors,
    ),
    st.tuples(
        targets.map(lambda t: ExternalMetric("m", t)),
        st.builds(ExternalValues, st.lists(values, max_size=3).map(tuple)) | fetch_errors,
    ),
    st.tuples(percents.map(lambda t: ResourceMetric("cpu", t)), usages | fetch_errors),
)


@st.composite
def situations(draw):
    """Draw everything that `decide` takes."""
    measured = draw(st.lists(answers, min_size=1, max_size=3))
    low = draw(st.integers(0, 20))
    hpa = HorizontalPodAutoscaler(
        ObjectMeta("web"),
        CrossVersionObjectReference("Deployment", "web"),
        max_replicas=draw(st.integers(max(low, 1), 200)),
        metrics=tuple(metric for metric, _ in measured),
        min_replicas=low,
        behavior=draw(behaviors),
    )
    scale = Scale(draw(st.integers(0, 250)), draw(st.integers(0, 250)), "app=web")
    settings = ControllerSettings(scale_to_zero=draw(st.booleans()))
    observations = tuple(observation for _, observation in measured)
    return hpa, scale, draw(pods), observations, draw(states), NOW_MS, settings


@given(situations())
def test_a_rescale_ends_within_the_bounds(situation) -> None:
    hpa = situation[0]
    decision = decide(*situation)
    if decision.rescale:
        assert hpa.min_replicas <= decision.desired_replicas <= hpa.max_replicas


@given(situations())
def test_only_a_rescale_has_an_event_and_a_reason_to_write(situation) -> None:
    decision = decide(*situation)
    assert (decision.event is not None) is decision.rescale
    if not decision.rescale:
        assert decision.desired_replicas == decision.current_replicas
        assert decision.next_state == decision.state_before_write


@given(situations())
def test_policies_are_respected_by_every_step_that_is_no_repair(situation) -> None:
    hpa, scale, _, _, state, now_ms, _ = situation
    current = scale.spec_replicas
    if hpa.behavior is None or not max(1, hpa.min_replicas) <= current <= hpa.max_replicas:
        return
    desired = decide(*situation).desired_replicas
    memory, limits = memory_of(state), limits_of(hpa, ControllerSettings())
    if desired > current:
        assert desired <= scale_up_limit(memory, limits, current, now_ms)
    if desired < current:
        assert desired >= scale_down_limit(memory, limits, current, now_ms)


@given(situations())
def test_without_behavior_no_step_up_is_more_than_a_doubling_or_four(situation) -> None:
    hpa, scale, *_ = situation
    current = scale.spec_replicas
    if hpa.behavior is None and hpa.min_replicas <= current <= hpa.max_replicas:
        assert decide(*situation).desired_replicas <= max(current, 2 * current, 4)


@given(situations(), st.text(max_size=20))
def test_no_data_is_no_decision(situation, text) -> None:
    hpa, scale, found, observations, state, now_ms, settings = situation
    current = scale.spec_replicas
    if not max(1, hpa.min_replicas) <= current <= hpa.max_replicas:
        return
    errors = tuple(FetchError(text) for _ in observations)
    decision = decide(hpa, scale, found, errors, state, now_ms, settings)
    assert decision.desired_replicas == current
    active = next(c for c in decision.conditions if c.type == "ScalingActive")
    assert active.status == "False"
    assert all(status.error is not None for status in decision.metrics)
    if state.recommendations:
        assert decision.next_state.recommendations == state.recommendations


@given(situations())
def test_the_same_inputs_give_the_same_decision(situation) -> None:
    assert decide(*situation) == decide(*situation)


@given(situations())
def test_every_decision_explains_itself_and_can_be_shown(situation) -> None:
    decision = decide(*situation)
    assert all(sentence.endswith(".") for sentence in decision.explanation)
    assert decision.explanation
    assert targets_cell(situation[0], decision.metrics)


@given(situations())
def test_a_failed_write_records_no_scale_event(situation) -> None:
    decision = decide(*situation)
    outcome = failed(decision, "conflict", NOW_MS)
    state = situation[4]
    assert outcome.state.scale_up_events == state.scale_up_events
    assert outcome.state.scale_down_events == state.scale_down_events
    assert succeeded(decision).state == decision.next_state


@given(
    st.integers(1, 20),
    st.integers(1, 100_000),
    st.lists(st.integers(0, 10**7), min_size=1, max_size=20),
    st.integers(0, 10**7),
    st.data(),
)
def test_more_load_never_asks_for_fewer_replicas(spec, target_milli, loads, more, data) -> None:
    metric = PodsMetric("m", average(target_milli))
    hpa = HorizontalPodAutoscaler(
        ObjectMeta("web"), CrossVersionObjectReference("Deployment", "web"), 10_000, (metric,)
    )
    found = tuple(PodInfo(f"p{i}") for i in range(len(loads)))
    # with fewer or more pods than spec.replicas, being within the tolerance answers with spec
    scale = Scale(len(loads), spec, "app=web")
    raised = data.draw(st.integers(0, len(loads) - 1))

    def proposed(milli):
        samples = tuple(MetricValue(f"p{i}", value) for i, value in enumerate(milli))
        decision = decide(hpa, scale, found, (PodValues(samples),), HpaState(), NOW_MS)
        return decision.metrics[0].proposed_replicas, decision.desired_replicas

    higher = [load + (more if i == raised else 0) for i, load in enumerate(loads)]
    before, after = proposed(loads), proposed(higher)
    assert before[0] <= after[0]
    assert before[1] <= after[1]
