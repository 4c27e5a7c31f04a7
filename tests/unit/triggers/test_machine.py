"""The decision about a trigger, case by case; times are seconds of a monotonic clock."""

from dataclasses import replace

import pytest

from gpuscale.base.objects.pods import PodPhase
from gpuscale.hpa.replicas.pods import PodSample
from gpuscale.hpa.types import PodInfo, ReadyCondition
from gpuscale.triggers.held import held_of
from gpuscale.triggers.machine import TriggerState, evaluate
from gpuscale.triggers.observation import (
    Missing,
    Observation,
    PodLoads,
    PodsSeen,
    TotalLoad,
    WakeSeen,
)
from gpuscale.triggers.startup import learned_deadline_s
from gpuscale.triggers.trigger import PodLoad, ServedPolicy, Trigger, WakeQuery, WorkloadRef

TRIGGER = Trigger(
    "team-a",
    "load",
    WorkloadRef("Deployment", "web"),
    PodLoad("util"),
    60.0,
    activation_target=5.0,
    wakes=(WakeQuery("queue"),),
)
QUIET = (WakeSeen("query", False, "0, not above 0"),)
QUEUED = (WakeSeen("query", True, "3, above 0"),)
AWAY = (WakeSeen("query", None, "query: connection refused"),)
ZERO = PodsSeen(0)


def _running(count, starting_s=(), pending=0):
    pods = [PodInfo(f"web-{index}") for index in range(count)]
    waiting = PodInfo("", phase=PodPhase.PENDING, ready=ReadyCondition.FALSE)
    pods += [replace(waiting, name=f"new-{index}") for index in range(pending)]
    return PodsSeen(len(pods), tuple(pods), starting_s, 1800.0)


def _loads(*values):
    samples = {f"web-{i}": PodSample(value * 1000, 7, 60_000) for i, value in enumerate(values)}
    return PodLoads(samples, 7)


def _seen(now_s, load=None, pods=ZERO, wakes=QUIET):
    return Observation(1000, now_s, load or Missing("the source is away"), pods, wakes)


def _after(*seen, trigger=TRIGGER):
    state = TriggerState()
    outcome = None
    for each in seen:
        outcome = evaluate(trigger, each, state)
        state = outcome.state
    return outcome.answer


@pytest.mark.parametrize(
    ("load", "pods", "wakes", "value", "is_active"),
    [
        (None, ZERO, QUIET, 0.0, False),
        (None, ZERO, QUEUED, 60.0, True),
        (_loads(90, 80), _running(2), QUIET, 170.0, True),
        (_loads(3, 4), _running(2), QUIET, 0.0, False),
        (_loads(3, 4), _running(2), QUEUED, 60.0, True),
        # One pod is there and has no sample; the HPA fills in 0 against a scale-up: 95 / 60 of 2 pods is
        # above 1 without it and below with it, so that the count stays at 2 and the total is above 60.
        (_loads(95), _running(2), QUIET, 95.0, True),
        # And the whole target against a scale-down: 10 + 60 of 2 pods rounds up to 2.
        (_loads(10), _running(2), QUIET, 60.001, True),
        (None, _running(0, (30.0,), 1), QUIET, 60.0, True),
        (None, _running(0, (1801.0,), 1), QUIET, 0.0, False),
        (_loads(2), _running(1, (30.0,), 1), QUIET, 60.0, True),
    ],
)
def test_what_is_measured(load, pods, wakes, value, is_active):
    answer = _after(_seen(0.0, load, pods, wakes))
    assert (answer.value, answer.is_active, answer.basis) == (value, is_active, "measured")


def test_pods_that_are_starting_are_asked_for_as_they_are_by_a_fresh_replica():
    assert _after(_seen(0.0, None, _running(0, (5.0,) * 5, 5))).value == 300.0


def test_pods_that_are_replaced_together_keep_their_number():
    busy = _seen(0.0, _loads(90, 80, 85), _running(3))
    gone = _seen(5.0, None, _running(0, (5.0,) * 3, 3))
    assert _after(busy, gone, gone).value == 255.0


def test_a_source_that_is_away_leaves_the_last_decision_then_what_was_asked_for():
    busy = _seen(0.0, _loads(90, 80), _running(2))
    held = _after(busy, _seen(10.0, None, _running(2)), _seen(609.0, None, _running(2)))
    assert (held.value, held.is_active, held.basis, held.held_s) == (170.0, True, "held", 599.0)
    late = _after(busy, _seen(10.0, None, _running(2)), _seen(610.0, None, _running(2)))
    assert (late.value, late.is_active, late.basis) == (170.0, True, "fallback")
    stated = replace(TRIGGER, fallback_replicas=4)
    late = _after(
        busy, _seen(1.0, None, _running(2)), _seen(700.0, None, _running(2)), trigger=stated
    )
    assert (late.value, late.basis) == (240.0, "fallback")


def test_recovery_is_at_once():
    busy = _seen(0.0, _loads(90, 80), _running(2))
    away = _seen(10.0, None, _running(2))
    back = _after(
        busy, away, _seen(5000.0, None, _running(2)), _seen(5001.0, _loads(9, 9), _running(2))
    )
    assert (back.value, back.basis, back.held_s) == (18.0, "measured", 0.0)


def test_at_zero_a_wake_source_that_is_away_is_held_and_then_wakes():
    asleep = _seen(0.0)
    held = _after(asleep, _seen(1.0, wakes=AWAY), _seen(600.0, wakes=AWAY))
    assert (held.value, held.is_active, held.basis) == (0.0, False, "held")
    late = _after(asleep, _seen(1.0, wakes=AWAY), _seen(601.0, wakes=AWAY))
    assert (late.value, late.is_active, late.basis) == (60.0, True, "fallback")


@pytest.mark.parametrize("then", [AWAY, QUIET])
def test_what_a_wake_source_asked_for_while_pods_were_unknown_is_held(then):
    """Zero was decided, then it was woken: what is not known afterwards is no reason to go back."""
    gone = Missing("the API server does not answer")
    woken = _after(_seen(0), _seen(1, pods=gone, wakes=QUEUED))
    assert (woken.value, woken.is_active, woken.basis) == (60.0, True, "held")
    pods = ZERO if then is AWAY else gone
    after = _after(_seen(0), _seen(1, pods=gone, wakes=QUEUED), _seen(2, pods=pods, wakes=then))
    assert (after.value, after.is_active, after.basis) == (60.0, True, "held")
    known = _after(_seen(0), _seen(1, pods=gone, wakes=QUEUED), _seen(2))
    assert (known.value, known.is_active, known.basis) == (0.0, False, "measured")


def test_nothing_known_is_no_value():
    answer = _after(_seen(0.0, wakes=AWAY))
    assert (answer.value, answer.is_active, answer.basis) == (None, None, "unavailable")
    assert _after(_seen(0.0, None, Missing("no rights"))).basis == "unavailable"


def test_a_wake_source_that_is_away_does_not_matter_while_more_is_asked_for():
    answer = _after(_seen(0.0, _loads(90, 80), _running(2), AWAY))
    assert (answer.value, answer.basis) == (170.0, "measured")


def test_a_wake_source_that_is_away_keeps_an_idle_workload_up():
    busy = _seen(0.0, _loads(90), _running(1))
    idle = _after(busy, _seen(1.0, _loads(1), _running(1), AWAY))
    assert (idle.value, idle.is_active, idle.basis) == (60.0, True, "held")


def test_known_load_scales_in_while_a_wake_source_is_away_but_never_below_a_pod():
    several = replace(TRIGGER, wake_replicas=3)
    busy = _seen(0.0, _loads(90, 90, 90, 90), _running(4), QUEUED)
    less = _seen(1.0, _loads(20, 20, 20, 20), _running(4), AWAY)
    # The queue asked for three pods when it was last seen.
    assert _after(busy, less, trigger=several).value == 180.0


def test_the_highest_pod_counts_for_all():
    highest = replace(TRIGGER, load=PodLoad("util", aggregation="max"))
    assert _after(_seen(0.0, _loads(90, 10), _running(2)), trigger=highest).value == 180.0


def test_a_window_means_what_was_read_within_it():
    smooth = replace(TRIGGER, load=PodLoad("util", window_s=30.0))
    seen = [_seen(float(s), _loads(v), _running(1)) for s, v in ((0, 100), (10, 40), (20, 40))]
    assert _after(*seen, trigger=smooth).value == pytest.approx(60.0)
    assert _after(*seen, _seen(31.0, _loads(40), _running(1)), trigger=smooth).value == 40.0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_answer_that_is_no_number_is_no_load(value):
    query = replace(TRIGGER, load=PodLoad(query="x"), workload=None)
    seen = Observation(1000, 0.0, TotalLoad(value, 7), None, QUIET)
    assert evaluate(query, seen, TriggerState()).answer.basis == "unavailable"


def test_other_metadata_keeps_the_last_decision_in_pods():
    busy = evaluate(TRIGGER, _seen(0.0, _loads(90, 80), _running(2)), TriggerState())
    changed = replace(TRIGGER, target=30.0)
    away = evaluate(changed, _seen(1.0, None, _running(2)), busy.state.renewed(30.0))
    assert (away.answer.value, away.answer.basis) == (85.0, "held")


def test_the_deadline_is_learned_from_the_last_ten_starts():
    assert learned_deadline_s(()) == 1800.0
    assert learned_deadline_s((20.0,)) == 300.0
    assert learned_deadline_s((900.0, *(100.0,) * 9)) == 1860.0
    assert learned_deadline_s((900.0, *(200.0,) * 10)) == 460.0


def test_a_restart_asks_for_no_fewer_pods_than_there_are_while_the_source_is_away():
    busy = evaluate(TRIGGER, _seen(0.0, _loads(90, 80), _running(2)), TriggerState()).state
    kept = held_of(busy, 1.0)
    assert kept is not None
    # Eight were asked for after the decision of 170 was kept.
    away = _seen(100.0, None, _running(8))
    fresh = evaluate(TRIGGER, away, kept.state(100.0))
    assert (fresh.answer.value, fresh.answer.basis) == (480.0, "held")
    assert evaluate(TRIGGER, away, busy).answer.value == 170.0
    back = evaluate(TRIGGER, _seen(101.0, _loads(*(10,) * 8), _running(8)), fresh.state)
    assert evaluate(TRIGGER, away, back.state).answer.value == 80.0


def test_a_restart_keeps_up_what_came_up_after_the_decision_was_kept():
    kept = held_of(evaluate(TRIGGER, _seen(0.0), TriggerState()).state, 0.0)
    assert kept is not None
    answer = evaluate(TRIGGER, _seen(9.0, None, _running(1)), kept.state(9.0)).answer
    assert (answer.value, answer.is_active, answer.basis) == (60.0, True, "held")
    asleep = evaluate(TRIGGER, _seen(9.0, wakes=AWAY), kept.state(9.0)).answer
    assert (asleep.value, asleep.is_active) == (0.0, False)


POLICY = Trigger(
    "team-a",
    "wanted",
    WorkloadRef("Deployment", "web"),
    PodLoad(query="sum(load)"),
    1.0,
    hold_s=60.0,
    fallback_replicas=2,
    policy=ServedPolicy("trend", (), 10.0, 180.0, 1, 20),
)


@pytest.mark.parametrize("pods", [ZERO, _running(3), _running(0, (5.0,), 5), Missing("no list")])
def test_what_a_policy_wants_counts_whatever_pods_there_are(pods):
    answer = _after(_seen(0.0, TotalLoad(7.0, 5), pods, ()), trigger=POLICY)
    assert (answer.value, answer.is_active, answer.basis) == (7.0, True, "measured")
    assert "policy trend wants 7 replicas" in answer.reason


@pytest.mark.parametrize(
    ("away_s", "pods", "value", "basis"),
    [
        (59.0, _running(9), 7.0, "held"),
        # After the hold the stated 2, but never below what runs, where that is known.
        (61.0, _running(9), 9.0, "fallback"),
        (61.0, _running(1), 2.0, "fallback"),
        (61.0, Missing("no list"), 2.0, "fallback"),
    ],
)
def test_a_policy_without_its_source_takes_no_pod_away(away_s, pods, value, basis):
    first = _seen(0.0, TotalLoad(7.0, 5), _running(7), ())
    gone = [_seen(each, None, pods, ()) for each in (1.0, 1.0 + away_s)]
    answer = _after(first, *gone, trigger=POLICY)
    assert (answer.value, answer.is_active, answer.basis) == (value, True, basis)


def test_a_policy_that_learns_after_a_start_asks_for_no_less_than_there_is():
    kept = held_of(evaluate(POLICY, _seen(0.0, TotalLoad(7.0, 5)), TriggerState()).state, 0.0)
    learning = _seen(5.0, Missing("it learns from the past, 40 % so far"), _running(8), ())
    answer = evaluate(POLICY, learning, kept.state(4.0)).answer
    assert (answer.value, answer.basis) == (8.0, "held")
    assert "40 % so far" in answer.reason
