# mypy: disable-error-code="arg-type"
"""Triggers that are watched: what is asked, how often, for whom, and what is kept of it."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from background import started, until
from gpuscale.base.clock import ManualClock, WallClock
from gpuscale.base.errors import UnavailableError
from gpuscale.series.values import Scalar, Vector, VectorSample
from gpuscale.server.metricsapi.trigger_settings import TriggerSettings
from gpuscale.server.metricsapi.triggers.asking import Seeing
from gpuscale.server.metricsapi.triggers.stores import HeldFile, Keeper
from gpuscale.server.metricsapi.triggers.turns import NamespaceTurns, RateBudget
from gpuscale.server.metricsapi.triggers.watch import TriggerWatch, key_of
from gpuscale.server.sources.freshness import AgeLimit
from gpuscale.triggers.answer import TooManyTriggersError
from gpuscale.triggers.observation import Missing, Observation, WakeSeen
from gpuscale.triggers.trigger import PodLoad, Trigger, WakeQuery

WAKE = Trigger("team-a", "queue", None, None, 1.0, wakes=(WakeQuery("q"),))
FAST = TriggerSettings(asleep_interval_s=0.02, interval_s=0.02)


class Queue:
    """Sees a queue that tests set; None is away."""

    def __init__(self, clock):
        self.length = 0
        self.seen = Counter()
        self._clock = clock

    async def see(self, trigger):
        self.seen[trigger.namespace] += 1
        await asyncio.sleep(0)
        now_ms = self._clock.now_ms()
        active = None if self.length is None else self.length > 0
        return Observation(now_ms, now_ms / 1000, wakes=(WakeSeen("query", active, "as set"),))


@pytest.fixture
def clock():
    return WallClock()


@pytest.fixture
def queue(clock):
    return Queue(clock)


async def test_what_is_asked_for_is_evaluated_and_then_answered_from_memory(queue, clock):
    watch = TriggerWatch(queue, clock, FAST)
    assert watch.answer(WAKE) is None
    async with started(watch.run()):
        await until(lambda: watch.answer(WAKE))
        queue.length = 3
        await until(lambda: watch.answer(WAKE).is_active)
    assert watch.answer(WAKE).value == 1.0
    assert watch.counts.wakes == {"query": 1}


async def test_changes_are_those_of_activity_and_of_basis(queue, clock):
    watch = TriggerWatch(queue, clock, FAST)
    kinds = []

    async def follow():
        async for answer in watch.changes(WAKE):
            kinds.append((answer.is_active, answer.basis))

    async with started(watch.run()), started(follow()):
        await until(lambda: len(kinds) == 1)
        queue.length = 2
        await until(lambda: len(kinds) == 2)
        queue.length = None
        await until(lambda: len(kinds) == 3)
        queue.length = 0
        await until(lambda: len(kinds) == 4)
    assert kinds == [
        *((False, "measured"), (True, "measured"), (True, "held"), (False, "measured")),
    ]


async def test_a_namespace_has_so_many_triggers_and_all_together_so_many(queue, clock):
    bounds = TriggerSettings(max_triggers=5, max_namespace_triggers=3)
    watch = TriggerWatch(queue, clock, bounds)
    for number in range(3):
        watch.answer(replace(WAKE, name=f"q{number}"))
    with pytest.raises(TooManyTriggersError, match="3 triggers of team-a"):
        watch.answer(replace(WAKE, name="q3"))
    watch.answer(replace(WAKE, namespace="team-b"))
    watch.answer(replace(WAKE, namespace="team-c"))
    with pytest.raises(TooManyTriggersError, match="5 triggers"):
        watch.answer(replace(WAKE, namespace="team-d"))
    assert watch.counts.refused == 2
    tight = TriggerWatch(queue, clock, TriggerSettings(max_bytes=10_000))
    with pytest.raises(TooManyTriggersError):
        tight.answer(replace(WAKE, wakes=(WakeQuery("x" * 4000),)))


async def test_a_trigger_that_nobody_asks_for_is_forgotten_and_one_of_a_file_is_not(queue):
    clock = ManualClock(1000)
    watch = TriggerWatch(queue, clock, FAST)
    kept = replace(WAKE, name="kept")
    watch.pin([kept])
    watch.answer(WAKE)
    clock.advance(601)
    watch._forget()
    assert [trigger.name for trigger, _ in watch.answers()] == ["kept"]
    watch.pin([])
    clock.advance(601)
    watch._forget()
    assert list(watch.answers()) == []
    assert watch.size_bytes == 0


async def test_an_answer_that_is_not_renewed_is_held(queue):
    clock = ManualClock(1000)
    queue._clock = clock
    queue.length = 1
    watch = TriggerWatch(queue, clock, TriggerSettings(stale_s=30))
    async with started(watch.run()):
        await until(lambda: watch.answer(WAKE))
    clock.advance(31)
    answer = watch.answer(WAKE)
    assert (answer.basis, answer.is_active, answer.value) == ("held", True, 1.0)
    clock.advance(600)
    assert watch.answer(WAKE).basis == "fallback"


async def test_other_metadata_goes_on_from_the_last_decision(queue, clock):
    queue.length = 1
    watch = TriggerWatch(queue, clock, FAST)
    async with started(watch.run()):
        await until(lambda: watch.answer(WAKE))
        queue.length = None
        changed = replace(WAKE, target=5.0)
        await until(lambda: watch.answer(changed))
    answer = watch.answer(changed)
    assert (answer.basis, answer.value) == ("held", 5.0)


async def test_a_busy_namespace_does_not_make_others_wait(queue, clock):
    slow = TriggerSettings(
        asleep_interval_s=0.01, interval_s=0.01, questions_per_s=200, max_namespace_triggers=500
    )
    watch = TriggerWatch(queue, clock, slow)
    for number in range(400):
        watch.answer(replace(WAKE, name=f"q{number}"))
    watch.answer(replace(WAKE, namespace="team-b"))
    async with started(watch.run()):
        await until(lambda: queue.seen["team-b"] >= 5)
        assert queue.seen["team-a"] < 400


def test_turns_go_round():
    turns = NamespaceTurns()
    for thing in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.add(thing[0], thing)
    assert [turns.take() for _ in range(len(turns))] == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_what_is_new_in_a_namespace_comes_before_what_is_done_again():
    turns = NamespaceTurns()
    for thing in ("a1", "a2", "b1"):
        turns.add(thing[0], thing)
    for thing in ("a3", "a4"):
        turns.add(thing[0], thing, is_first=True)
    assert [turns.take() for _ in range(len(turns))] == ["a3", "b1", "a4", "a1", "a2"]


def test_a_budget_is_so_many_a_second():
    budget = RateBudget(10, 0.0)
    assert sum(budget.spend(1, 0.0) for _ in range(50)) == 10
    assert sum(budget.spend(1, 1.0) for _ in range(50)) == 10
    assert sum(budget.spend(1, 100.0) for _ in range(50)) == 10


async def test_a_fresh_replica_goes_on_from_the_file(queue, clock, tmp_path):
    store = HeldFile(tmp_path / "held.json", clock)
    queue.length = 1
    first = TriggerWatch(queue, clock, FAST)
    async with started(first.run()):
        await until(lambda: first.answer(WAKE))
    await Keeper(first, store, clock).keep()
    queue.length = None
    second = TriggerWatch(queue, clock, FAST)
    keeper = Keeper(second, store, clock)
    await keeper.restore()
    async with started(second.run()):
        await until(lambda: second.answer(WAKE))
    answer = second.answer(WAKE)
    assert (answer.basis, answer.is_active, answer.value) == ("held", True, 1.0)
    without = TriggerWatch(queue, clock, FAST)
    async with started(without.run()):
        await until(lambda: without.answer(WAKE))
    assert without.answer(WAKE).basis == "unavailable"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version":1}', "\x00", '{"version":1,"triggers":[1]}']
)
async def test_a_file_that_makes_no_sense_is_as_none(queue, clock, tmp_path, text):
    path = tmp_path / "held.json"
    path.write_text(text)
    assert await HeldFile(path, clock).read() == {}


async def test_a_folder_that_is_gone_is_noted_and_does_not_stop_anything(queue, clock, tmp_path):
    queue.length = 1
    watch = TriggerWatch(queue, clock, FAST)
    async with started(watch.run()):
        await until(lambda: watch.answer(WAKE))
    keeper = Keeper(watch, HeldFile(tmp_path / "none" / "held.json", clock), clock)
    await keeper.keep()
    assert keeper.fault is not None
    assert "can't be written" in keeper.fault


class Provider:
    """Answers queries from a table; an exception is raised."""

    def __init__(self, value):
        self.value = value
        self.asked = Counter()
        self.age_limit = AgeLimit(60_000)

    async def ask(self, query, at_ms):
        self.asked[query] += 1
        await asyncio.sleep(0.01)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def _two(now_ms):
    return Vector((_row(1, now_ms), _row(2, now_ms)))


def _row(value, measured_ms):
    return VectorSample({}, value, measured_ms)


async def _seen(value, clock, trigger=WAKE):
    seeing = Seeing(Provider(value), None, clock, 1.0, 0.9)
    found = await seeing.see(trigger)
    await seeing.close()
    return found.wakes[0]


async def test_a_wake_source_is_active_above_its_threshold(clock):
    now_ms = clock.now_ms()
    assert (await _seen(Vector((_row(1.0, now_ms),)), clock)).is_active is True
    assert (await _seen(Vector((_row(0.0, now_ms),)), clock)).is_active is False
    assert (await _seen(Scalar(2.0), clock)).is_active is True


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Vector(()), "has no row"),
        (_two, "has 2 rows"),
        (Vector((_row(1, 10**15),)), "of the future"),
        (Vector((_row(1, 0),)), "too old"),
        (Scalar(float("nan")), "no number"),
        (UnavailableError("connection refused"), "connection refused"),
    ],
)
async def test_what_is_no_answer_is_away_with_a_reason(clock, value, words):
    seen = await _seen(value(clock.now_ms()) if callable(value) else value, clock)
    assert seen.is_active is None
    assert words in seen.shown


async def test_identical_queries_are_asked_once(clock):
    provider = Provider(Scalar(1.0))
    seeing = Seeing(provider, None, clock, 1.0, 0.9)
    triggers = [replace(WAKE, name=f"t{number}") for number in range(20)]
    await asyncio.gather(*map(seeing.see, triggers))
    assert provider.asked == {"q": 1}
    await seeing.close()


async def test_a_source_that_hangs_is_away_in_time(clock):
    class Hangs(Provider):
        async def ask(self, query, at_ms):
            await asyncio.Event().wait()

    seeing = Seeing(Hangs(None), None, clock, 0.05, 0.9)
    loaded = replace(WAKE, load=PodLoad(query="load"))
    seen = await seeing.see(loaded)
    assert seen.wakes[0].is_active is None
    assert isinstance(seen.load, Missing)
    assert "no answer within 0.05 s" in seen.load.reason
    await seeing.close()


def test_a_key_tells_workloads_apart():
    from gpuscale.triggers.trigger import WorkloadRef

    one, two = (replace(WAKE, workload=WorkloadRef("Deployment", name)) for name in ("a", "b"))
    assert len({key_of(WAKE), key_of(one), key_of(two)}) == 3
