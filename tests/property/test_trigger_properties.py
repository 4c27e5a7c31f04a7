"""What holds for triggers whatever happens: no wrong zero, nothing held moves by itself, recovery at once."""

from contextlib import suppress
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.pods import PodPhase
from gpuscale.hpa.replicas.pods import PodSample
from gpuscale.hpa.types import PodInfo
from gpuscale.triggers.held import decode, encode, held_of
from gpuscale.triggers.machine import TriggerState, evaluate
from gpuscale.triggers.metadata import read_metadata, read_triggers
from gpuscale.triggers.observation import Missing, Observation, PodLoads, PodsSeen, WakeSeen
from gpuscale.triggers.reading import KEYS
from gpuscale.triggers.trigger import PodLoad, Trigger, WakeQuery, WorkloadRef

TRIGGERS = st.builds(
    Trigger,
    namespace=st.just("a"),
    name=st.just("b"),
    workload=st.just(WorkloadRef("Deployment", "web")),
    load=st.sampled_from(
        [PodLoad("util"), PodLoad("util", window_s=30.0), PodLoad("util", aggregation="max")]
    ),
    target=st.sampled_from([0.6, 1.0, 60.0]),
    activation_target=st.sampled_from([0.0, 0.1, 5.0]),
    wakes=st.just((WakeQuery("q"), WakeQuery("r"))),
    wake_replicas=st.integers(1, 4),
    hold_s=st.sampled_from([0.0, 60.0, 600.0]),
    fallback_replicas=st.sampled_from([None, 1, 5]),
)
PHASES = st.sampled_from([PodPhase.RUNNING, PodPhase.PENDING, PodPhase.FAILED])


@st.composite
def observations(draw):
    desired = draw(st.integers(0, 4))
    phases = draw(st.lists(PHASES, max_size=4))
    pods = tuple(PodInfo(f"p{i}", phase=phase) for i, phase in enumerate(phases))
    ages = st.floats(0, 4000)
    seen = PodsSeen(desired, pods, tuple(draw(st.lists(ages, max_size=2))), 1800.0)
    values = st.integers(0, 200_000)
    samples = {f"p{i}": PodSample(draw(values), 1, 1) for i in draw(st.sets(st.integers(0, 3)))}
    load = PodLoads(samples, 1) if draw(st.booleans()) else Missing("away")
    states = (draw(st.sampled_from([True, False, None])) for _ in range(2))
    wakes = tuple(WakeSeen(f"w{i}", state, "") for i, state in enumerate(states))
    return Observation(
        0, 0.0, load, draw(st.sampled_from([seen, seen, seen, Missing("gone")])), wakes
    )


NO_WAKE = (WakeSeen("w0", False, ""), WakeSeen("w1", False, ""))
ONE_AWAY = (WakeSeen("w0", False, ""), WakeSeen("w1", None, ""))
STARTED_WHILE_AWAY = [
    (1.0, Observation(0, 0.0, Missing("away"), PodsSeen(0, (), (), 1800.0), NO_WAKE)),
    (1.0, Observation(0, 0.0, Missing("away"), PodsSeen(1, (), (0.0,), 1800.0), ONE_AWAY)),
    (1.0, Observation(0, 0.0, Missing("away"), PodsSeen(0, (), (), 1800.0), ONE_AWAY)),
]
"""A pod that started was asked for by somebody, perhaps by what can't be asked now."""
RUNNING = PodsSeen(1, (PodInfo("p0", phase=PodPhase.RUNNING),), (), 1800.0)
LOADED_WHILE_AWAY = [
    STARTED_WHILE_AWAY[0],
    (1.0, Observation(0, 0.0, PodLoads({"p0": PodSample(500, 1, 1)}, 1), RUNNING, ONE_AWAY)),
    (1.0, Observation(0, 0.0, PodLoads({"p0": PodSample(0, 1, 1)}, 1), RUNNING, ONE_AWAY)),
]
"""A load of less than the wake's two pods, which leaves it open what the source would say."""
WOKEN_BY_TWO = Trigger(
    *("a", "b"),
    workload=WorkloadRef("Deployment", "web"),
    load=PodLoad("util"),
    target=0.6,
    wakes=(WakeQuery("q"), WakeQuery("r")),
    wake_replicas=2,
    hold_s=60.0,
)
STEPS = st.lists(st.tuples(st.floats(0.1, 400), observations()), min_size=1, max_size=12)


@example(WOKEN_BY_TWO, STARTED_WHILE_AWAY)
@example(WOKEN_BY_TWO, LOADED_WHILE_AWAY)
@given(TRIGGERS, STEPS)
def test_no_wrong_zero(trigger, steps):
    state, now_s, before = TriggerState(), 0.0, None
    for step_s, seen in steps:
        now_s += step_s
        outcome = evaluate(trigger, replace(seen, now_s=now_s), state)
        answer, state = outcome.answer, outcome.state
        is_away = answer.basis != "measured"
        if any(wake.is_active for wake in seen.wakes) and answer.value is not None:
            assert answer.value >= trigger.target * trigger.wake_replicas
            assert answer.is_active
        if is_away and before is not None and before.is_active:
            assert answer.is_active
            assert answer.value is not None
            assert answer.value > 0
        if answer.basis == "fallback":
            assert answer.is_active
            assert answer.value >= trigger.target * (trigger.fallback_replicas or 1) * 0.999
        if answer.is_active is not None:
            assert answer.is_active == (answer.value != 0)
        if answer.basis == "measured":
            assert answer.is_active or all(wake.is_active is False for wake in seen.wakes)
            assert answer.held_s == 0
            assert state.away_s is None
        if answer.basis == "unavailable":
            assert before is None or before.basis == "unavailable"
        before = answer


@given(TRIGGERS, STEPS, observations(), st.lists(st.floats(0.1, 100), min_size=2, max_size=8))
def test_what_is_held_does_not_move_by_itself(trigger, steps, seen, waits):
    state, now_s = TriggerState(), 0.0
    for step_s, each in steps:
        now_s += step_s
        state = evaluate(trigger, replace(each, now_s=now_s), state).state
    dark = replace(
        seen,
        load=Missing("away"),
        pods=Missing("away"),
        wakes=tuple(replace(wake, is_active=None) for wake in seen.wakes),
    )
    answers = []
    last = state.decision
    for wait_s in waits:
        now_s += wait_s
        outcome = evaluate(trigger, replace(dark, now_s=now_s), state)
        answers.append(outcome.answer)
        state = outcome.state
    for answer in answers:
        if answer.basis == "held":
            assert last is not None
            assert (answer.value, answer.is_active) == (last.value, last.is_active)
    for basis in ("held", "fallback", "unavailable"):
        assert len({(a.value, a.is_active) for a in answers if a.basis == basis}) <= 1


@given(TRIGGERS, STEPS, st.integers(0, 10**12), st.floats(0, 10**6))
def test_a_restart_goes_on_from_what_was_held(trigger, steps, now_ms, later_s):
    state, now_s = TriggerState(), 0.0
    for step_s, each in steps:
        now_s += step_s
        state = evaluate(trigger, replace(each, now_s=now_s), state).state
    held = held_of(state, now_s)
    if held is None:
        return
    text = encode({("a", "b"): held}, now_ms, 10_000)
    assert len(text.encode()) <= 10_000
    again = decode(text, now_ms)[("a", "b")].state(later_s)
    assert again.decision == state.decision
    dark = Observation(0, later_s, Missing("away"), Missing("away"), (WakeSeen("w", None, ""),))
    answer = evaluate(trigger, dark, again).answer
    assert answer.value is not None
    assert answer.value > 0 or not state.decision.is_active


@given(
    st.dictionaries(st.text(max_size=12), st.integers(1, 3), max_size=40), st.integers(200, 4000)
)
def test_what_is_kept_fits(names, max_bytes):
    trigger = Trigger("a", "b", None, PodLoad(query="x"), 1.0)
    state = evaluate(trigger, Observation(0, 0.0), TriggerState()).state
    woken = (WakeSeen("w", True, ""),)
    only = replace(trigger, load=None)
    state = evaluate(only, Observation(0, 0.0, wakes=woken), state).state
    kept = held_of(state, 0.0)
    assert kept is not None
    held = {("n", name): kept for name in names}
    text = encode(held, 5, max_bytes)
    assert len(text.encode()) <= max_bytes
    assert decode(text, 5).items() <= held.items()


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_any_text_is_read_as_held(text):
    assert isinstance(decode(str(text), 0), dict)


@given(st.dictionaries(st.sampled_from(sorted(KEYS)) | st.text(), st.text(), max_size=8))
def test_any_metadata_is_a_trigger_or_a_fault(metadata):
    try:
        trigger = read_metadata(metadata, "a")
    except ConfigError:
        return
    assert trigger.target > 0


@given(st.text())
def test_any_text_is_a_file_of_triggers_or_a_fault(text):
    with suppress(ConfigError):
        read_triggers(text, "t.yaml")
