"""KEDA's own steps: 0 <-> 1, the idle count, cooldowns, pauses.

Expected values: KEDA v2.21 pkg/scaling/executor/scale_scaledobjects_test.go where a case names its test, and
the conditions of scale_scaledobjects.go otherwise.
"""

from dataclasses import replace

import pytest

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.scaled_object import Fallback, ScaledObject, ScaleTrigger
from gpuscale.triggers.keda.activation import ActivationTimes, Activity, request_scale

NOW_MS = 1_767_225_600_500
SECOND_MS = 1_767_225_600_000
BUSY, QUIET = Activity(True, False, ("s0-queue",)), Activity(False, False)
SCALED = ScaledObject(
    ObjectMeta("name", "namespace"),
    "Deployment",
    "name",
    least=0,
    most=10,
    triggers=(ScaleTrigger("external"),),
)
LONG_AGO = ActivationTimes(0, 0)


def annotated(scaled: ScaledObject, name: str) -> ScaledObject:
    annotations = {f"autoscaling.keda.sh/{name}": "true"}
    return replace(scaled, metadata=replace(scaled.metadata, annotations=annotations))


IDLE = replace(SCALED, idle=0, least=5)


@pytest.mark.parametrize(
    ("scaled", "current", "activity", "replicas", "active"),
    [
        # TestScaleToMinReplicasWhenNotActive
        pytest.param(SCALED, 2, QUIET, 0, ("False", "ScalerNotActive"), id="to zero"),
        # TestScaleToMinReplicasFromLowerInitialReplicaCount
        pytest.param(
            replace(SCALED, least=5), 1, QUIET, 5, ("False", "ScalerNotActive"), id="to min"
        ),
        # TestScaleFromMinReplicasWhenActive
        pytest.param(SCALED, 0, BUSY, 1, ("True", "ScalerActive"), id="from zero"),
        # TestScaleToIdleReplicasWhenNotActive
        pytest.param(IDLE, 10, QUIET, 0, ("False", "ScalerNotActive"), id="to idle"),
        # TestScaleFromIdleToMinReplicasWhenActive
        pytest.param(IDLE, 0, BUSY, 5, ("True", "ScalerActive"), id="from idle"),
        # TestNoScaleToMinReplicasWhenNotActiveAndPauseScaleInAnnotationSet
        pytest.param(
            annotated(SCALED, "paused-scale-in"),
            2,
            QUIET,
            None,
            ("False", "ScalerNotActive"),
            id="no scale-in",
        ),
        # TestNoScaleToIdleReplicasWhenNotActiveAndPauseScaleInAnnotationSet
        pytest.param(
            annotated(IDLE, "paused-scale-in"),
            10,
            QUIET,
            None,
            ("False", "ScalerNotActive"),
            id="no idle",
        ),
        # TestScaleFromMinReplicasWhenActivationForced
        pytest.param(
            annotated(SCALED, "force-activation"),
            0,
            QUIET,
            1,
            ("True", "ScalerActive"),
            id="forced",
        ),
        # TestNoScaleFromMinReplicasWhenActiveAndPausedScaleOutAnnotationSet
        pytest.param(
            annotated(SCALED, "paused-scale-out"),
            0,
            BUSY,
            None,
            ("True", "ScalerActive"),
            id="no scale-out",
        ),
        # TestScaleToPausedReplicasCount: the reconciler scales, the executor does not
        pytest.param(annotated(SCALED, "paused"), 2, BUSY, None, ("", ""), id="paused"),
        pytest.param(SCALED, 3, BUSY, None, ("True", "ScalerActive"), id="the HPA's business"),
        pytest.param(SCALED, 0, QUIET, None, ("False", "ScalerNotActive"), id="at rest"),
        pytest.param(
            replace(SCALED, least=2), 1, BUSY, None, ("True", "ScalerActive"), id="the HPA repairs"
        ),
    ],
)
def test_a_look_changes_the_count_as_upstream(
    scaled: ScaledObject,
    current: int,
    activity: Activity,
    replicas: int | None,
    active: tuple[str, str],
) -> None:
    step = request_scale(scaled, LONG_AGO, current, activity, NOW_MS)
    assert (step.replicas, step.active) == (replicas, active)


def test_events_say_what_upstreams_say() -> None:
    # TestEventWitTriggerInfo, with the kind that a live status has
    scaled = replace(IDLE, target_kind="Deployment")
    woken = request_scale(scaled, LONG_AGO, 2, Activity(True, False, ("a", "b")), NOW_MS)
    assert woken.event is not None
    assert (woken.event.reason, woken.event.message) == (
        "KEDAScaleTargetActivated",
        "Scaled apps/v1.Deployment namespace/name from 2 to 5, triggered by a;b",
    )
    stopped = request_scale(SCALED, LONG_AGO, 7, QUIET, NOW_MS)
    assert stopped.event is not None
    assert (stopped.event.reason, stopped.event.message) == (
        "KEDAScaleTargetDeactivated",
        "Deactivated apps/v1.Deployment namespace/name from 7 to 0",
    )
    forced = request_scale(annotated(SCALED, "force-activation"), LONG_AGO, 0, QUIET, NOW_MS)
    assert forced.event is not None
    assert forced.event.message.endswith("from 0 to 1, caused by forced activation annotation")


@pytest.mark.parametrize(
    ("last_active_ms", "replicas"),
    [(SECOND_MS - 59_000, None), (SECOND_MS - 60_000, 0), (SECOND_MS - 61_000, 0)],
)
def test_the_cooldown_counts_from_the_last_activity(
    last_active_ms: int, replicas: int | None
) -> None:
    # lastActiveTime + cooldownPeriod has to lie before now; half a second of now is past the whole one.
    scaled = replace(SCALED, cooldown_s=60)
    step = request_scale(scaled, ActivationTimes(0, last_active_ms), 3, QUIET, NOW_MS)
    assert step.replicas == replicas
    assert step.active[1] == ("ScalerCooldown" if replicas is None else "ScalerNotActive")


def test_without_any_activity_the_initial_cooldown_counts_from_the_creation() -> None:
    scaled = replace(SCALED, cooldown_s=600, initial_cooldown_s=30)
    young, old = ActivationTimes(SECOND_MS - 20_000), ActivationTimes(SECOND_MS - 30_000)
    assert request_scale(scaled, young, 3, QUIET, NOW_MS).replicas is None
    assert request_scale(scaled, old, 3, QUIET, NOW_MS).replicas == 0
    # The default of 0 drops a workload that is up at once.
    assert request_scale(SCALED, ActivationTimes(SECOND_MS), 3, QUIET, NOW_MS).replicas == 0


def test_activity_is_remembered_in_whole_seconds() -> None:
    assert request_scale(SCALED, LONG_AGO, 0, BUSY, NOW_MS).last_active_ms == SECOND_MS
    assert request_scale(SCALED, LONG_AGO, 3, BUSY, NOW_MS).last_active_ms == SECOND_MS
    assert request_scale(SCALED, LONG_AGO, 3, QUIET, NOW_MS).last_active_ms == 0


def test_a_failed_trigger_beside_an_active_one_leaves_the_time_of_activity() -> None:
    step = request_scale(SCALED, LONG_AGO, 3, Activity(True, True, ("a",)), NOW_MS)
    assert (step.replicas, step.ready) == (None, ("Unknown", "PartialTriggerError"))
    assert step.last_active_ms == 0


@pytest.mark.parametrize(
    ("fallback", "replicas", "ready"),
    [
        (Fallback(3, 2), None, ("True", "ScaledObjectReady")),
        (None, None, ("False", "TriggerError")),
        (Fallback(3, 0), 0, ("True", "ScaledObjectReady")),
    ],
    ids=["waits for the fallback", "no fallback", "a fallback of 0 goes to zero"],
)
def test_failed_triggers_alone_hold_the_count(
    fallback: Fallback | None, replicas: int | None, ready: tuple[str, str]
) -> None:
    scaled = replace(SCALED, fallback=fallback)
    step = request_scale(scaled, LONG_AGO, 3, Activity(False, True), NOW_MS)
    assert (step.replicas, step.ready) == (replicas, ready)
