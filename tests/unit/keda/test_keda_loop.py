"""Polls, the HPA's questions, and how failures count towards the fallback.

Expected values: KEDA v2.21 pkg/scaling/scale_handler.go (getScaledObjectState, GetScaledObjectMetrics,
observeMetric), scale_handler_test.go, pkg/fallback/fallback.go.
"""

from dataclasses import dataclass, field, replace

import pytest

from gpuscale.base.errors import GpuscaleError, NotFoundError, UpstreamError
from gpuscale.base.objects.hpa import MetricSpec, MetricTarget, ResourceMetric, TargetType
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.scaled_object import (
    Fallback,
    FallbackBehavior,
    ScaledObject,
    ScaleTrigger,
    ScalingModifiers,
)
from gpuscale.base.quantity import parse_quantity
from gpuscale.triggers.keda.loop import ScaleLoop, ScaleTarget, unsupported
from gpuscale.triggers.keda.scalers import ResourceScaler, ScalerReading, external_metric

pytestmark = pytest.mark.asyncio
NOW_MS = 1_767_225_600_500
ONE = ScaleTarget(1, 1)


@dataclass
class Told:
    """A scaler that answers what it is told to."""

    name: str = "s0-queue"
    milli: int = 0
    failure: str = ""
    unreachable: str = ""
    asked: list[int] = field(default_factory=list)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        if self.unreachable:
            raise UpstreamError(self.unreachable)
        return (external_metric(self.name, "AverageValue", parse_quantity("10")),)

    async def read(self, now_ms: int) -> ScalerReading:
        self.asked.append(now_ms)
        if self.failure:
            raise UpstreamError(self.failure)
        return ScalerReading(self.milli, self.milli > 0)


def scaled(
    *triggers: ScaleTrigger, fallback: Fallback | None = None, least: int = 0
) -> ScaledObject:
    return ScaledObject(
        ObjectMeta("web"),
        "Deployment",
        "web",
        least=least,
        most=10,
        triggers=triggers or (ScaleTrigger("external"),),
        cooldown_s=60,
        fallback=fallback,
    )


def reasons(events) -> list[str]:
    return [event.reason for event in events]


async def test_a_value_above_zero_wakes_and_is_what_the_hpa_is_told() -> None:
    queue = Told(milli=25_000)
    loop = ScaleLoop(scaled(), [queue], 0)
    look = await loop.poll(NOW_MS, ScaleTarget(0, 0))
    assert look.step.replicas == 1
    assert look.step.event is not None
    assert look.step.event.message.endswith("triggered by s0-queue")
    assert await loop.answer("s0-queue", NOW_MS, ONE) == 25_000
    with pytest.raises(NotFoundError):
        await loop.answer("s1-queue", NOW_MS, ONE)


async def test_any_active_trigger_is_enough_and_all_are_named() -> None:
    triggers = ScaleTrigger("external"), ScaleTrigger("external"), ScaleTrigger("external")
    scalers = Told("s0-a", 1000), Told("s1-b", 0), Told("s2-c", 2000)
    look = await ScaleLoop(scaled(*triggers), scalers, 0).poll(NOW_MS, ScaleTarget(0, 0))
    assert look.step.event is not None
    assert look.step.event.message.endswith("triggered by s0-a;s2-c")


async def test_after_the_cooldown_any_count_goes_to_zero() -> None:
    queue = Told(milli=1000)
    loop = ScaleLoop(scaled(), [queue], 0)
    await loop.poll(NOW_MS, ONE)
    queue.milli = 0
    cooling = await loop.poll(NOW_MS + 59_000, ScaleTarget(7, 7))
    assert (cooling.step.replicas, cooling.step.active[1]) == (None, "ScalerCooldown")
    assert (await loop.poll(NOW_MS + 60_000, ScaleTarget(7, 7))).step.replicas == 0


async def test_polls_and_the_hpas_questions_count_failures_together() -> None:
    queue = Told(failure="connection refused")
    loop = ScaleLoop(scaled(fallback=Fallback(2, 4)), [queue], 0)
    first = await loop.poll(NOW_MS, ONE)
    assert reasons(first.events) == ["KEDAScalerFailed"]
    with pytest.raises(UpstreamError, match="metric:s0-queue encountered error"):
        await loop.answer("s0-queue", NOW_MS, ONE)
    assert loop.health.failures("s0-queue") == 2
    # The third failure is above the threshold of 2: 4 replicas at a target of 10.
    assert await loop.answer("s0-queue", NOW_MS, ONE) == 40_000
    fourth = await loop.poll(NOW_MS, ONE)
    assert fourth.step.active == ("True", "ScalerActive")
    # The HPA's question had set the condition already, so no event says so.
    assert reasons(fourth.events) == []
    queue.failure = ""
    assert reasons((await loop.poll(NOW_MS, ONE)).events) == ["ScaledObjectFallbackDeactivated"]


async def test_a_fallback_wakes_a_target_at_zero() -> None:
    loop = ScaleLoop(scaled(fallback=Fallback(0, 4)), [Told(failure="away")], 0)
    look = await loop.poll(NOW_MS, ScaleTarget(0, 0))
    assert look.step.replicas == 1
    assert reasons(look.events) == ["ScaledObjectFallbackActivated"]


async def test_a_failure_without_a_fallback_changes_nothing_and_is_told() -> None:
    loop = ScaleLoop(scaled(), [Told(failure="away")], 0)
    look = await loop.poll(NOW_MS, ONE)
    assert (look.step.replicas, look.step.ready) == (None, ("False", "TriggerError"))
    assert loop.health.failures("s0-queue") == 0


async def test_a_scaler_that_gives_no_metric_never_falls_back() -> None:
    # kedacore/keda#8056: no metric, so there is nothing to count.
    loop = ScaleLoop(
        scaled(fallback=Fallback(0, 4)), [Told(unreachable="got empty metric spec")], 0
    )
    for _ in range(5):
        look = await loop.poll(NOW_MS, ONE)
        assert look.step.replicas is None
        assert look.events[0].message == "got empty metric spec"
    assert not loop.health.is_falling_back


async def test_such_a_scaler_fails_the_other_triggers_questions_too() -> None:
    # kedacore/keda#5914
    triggers = ScaleTrigger("external"), ScaleTrigger("external")
    scalers = Told("s0-a", 1000), Told("s1-b", unreachable="got empty metric spec")
    loop = ScaleLoop(scaled(*triggers), scalers, 0)
    with pytest.raises(UpstreamError):
        await loop.answer("s0-a", NOW_MS, ONE)
    # Unless the fallback stands in for the metric that was asked for.
    falling = ScaleLoop(
        scaled(*triggers, fallback=Fallback(0, 3)), (Told("s0-a", failure="away"), scalers[1]), 0
    )
    assert await falling.answer("s0-a", NOW_MS, ONE) == 30_000


async def test_a_cached_trigger_answers_with_the_latest_poll() -> None:
    queue = Told(milli=5000)
    loop = ScaleLoop(scaled(ScaleTrigger("external", uses_cached_metrics=True)), [queue], 0)
    assert await loop.answer("s0-queue", NOW_MS, ONE) == 5000  # before the first poll it is asked
    await loop.poll(NOW_MS, ONE)
    queue.milli = 9000
    assert await loop.answer("s0-queue", NOW_MS + 1000, ONE) == 5000
    assert len(queue.asked) == 2
    await loop.poll(NOW_MS + 2000, ONE)
    assert await loop.answer("s0-queue", NOW_MS + 3000, ONE) == 9000


async def test_with_at_least_one_replica_the_hpas_questions_stand_in_for_polls() -> None:
    # UsesHPAObservations and hpaActivelyQuerying of KEDA 2.21 (keda#8031)
    queue = Told(milli=5000)
    loop = ScaleLoop(scaled(least=1), [queue], 0)
    await loop.poll(NOW_MS, ONE, hpa_is_asking=True)
    assert len(queue.asked) == 1  # nothing was observed yet
    await loop.answer("s0-queue", NOW_MS, ONE)
    await loop.poll(NOW_MS, ONE, hpa_is_asking=True)
    assert len(queue.asked) == 2
    await loop.poll(NOW_MS, ONE, hpa_is_asking=False)
    assert len(queue.asked) == 3


async def test_with_resource_triggers_alone_it_is_always_active() -> None:
    cpu = ResourceScaler(
        (ResourceMetric("cpu", MetricTarget(TargetType.UTILIZATION, average_utilization=60)),)
    )
    loop = ScaleLoop(scaled(ScaleTrigger("cpu"), least=1), [cpu], 0)
    assert (await loop.poll(NOW_MS, ONE)).step.active == ("True", "ScalerActive")


async def test_a_push_wakes_without_a_poll() -> None:
    loop = ScaleLoop(scaled(ScaleTrigger("external-push")), [Told(milli=1000)], 0)
    look = loop.push(0, NOW_MS, ScaleTarget(0, 0))
    assert look.step.replicas == 1
    assert look.step.event is not None
    assert look.step.event.message.endswith("triggered by s0-queue")


async def test_a_paused_object_is_left_alone() -> None:
    paused = replace(
        scaled(), metadata=ObjectMeta("web", annotations={"autoscaling.keda.sh/paused": "true"})
    )
    look = await ScaleLoop(paused, [Told(milli=1000)], 0).poll(NOW_MS, ScaleTarget(0, 0))
    assert look.step.replicas is None


async def test_formulas_are_named_as_not_known() -> None:
    modified = replace(scaled(), modifiers=ScalingModifiers("a + b", "1", "", "AverageValue"))
    assert [what for _, what in unsupported(modified)] == ["scalingModifiers"]
    behavior = Fallback(1, 1, FallbackBehavior.SCALING_MODIFIERS)
    assert [path for path, _ in unsupported(scaled(fallback=behavior))] == [
        ("fallback", "behavior")
    ]
    assert not list(unsupported(scaled()))


async def test_a_fallback_of_a_value_without_ready_pods_fails() -> None:
    @dataclass
    class Valued(Told):
        @property
        def metrics(self) -> tuple[MetricSpec, ...]:
            return (external_metric(self.name, "Value", parse_quantity("10")),)

    loop = ScaleLoop(scaled(fallback=Fallback(0, 4)), [Valued(failure="away")], 0)
    with pytest.raises(GpuscaleError):
        await loop.answer("s0-queue", NOW_MS, ScaleTarget(2, 0))
    assert await loop.answer("s0-queue", NOW_MS, ScaleTarget(2, 2)) == 20_000  # 10 x 4 / 2
