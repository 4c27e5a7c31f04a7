"""Watched triggers: evaluated on a schedule, answered from memory."""

import asyncio
import heapq
import logging
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gpuscale.base.clock import Clock
from gpuscale.base.words import printable
from gpuscale.server.metricsapi.trigger_settings import TriggerSettings
from gpuscale.server.metricsapi.triggers.asking import Sees
from gpuscale.server.metricsapi.triggers.turns import NamespaceTurns, RateBudget
from gpuscale.server.metricsapi.triggers.workloads import Workloads
from gpuscale.triggers import (
    Answer,
    Basis,
    HeldTrigger,
    Key,
    Missing,
    Observation,
    PodsSeen,
    TooManyTriggersError,
    Trigger,
    TriggerOutcome,
    TriggerState,
    WakeSeen,
    evaluate,
    held_of,
)

_LOG = logging.getLogger(__name__)
_LOOK_S = 30.0
_LONGEST_BUDGET_WAIT_S = 0.02
_IDLE_S = 1.0
_ENTRY_BYTES = 2_000
"""What is kept of a trigger beside its texts."""


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """A trigger's answer whose activity or basis differs from the one before."""

    trigger: Trigger
    before: Answer | None
    answer: Answer


@dataclass(slots=True, eq=False)
class _Watched:
    """A trigger with its state and its latest answer."""

    trigger: Trigger
    state: TriggerState
    asked_s: float
    size_bytes: int
    is_pinned: bool = False
    outcome: TriggerOutcome | None = None
    evaluated_s: float | None = None
    active_wakes: frozenset[str] = frozenset()
    is_asleep: bool = True
    followers: int = 0
    changed: asyncio.Event | None = None
    """Set at the next change; None while nobody waits for one."""
    is_gone: bool = False

    def tell(self) -> None:
        """Wake the coroutines that wait for a change."""
        if self.changed is not None:
            self.changed.set()
            self.changed = None


@dataclass(slots=True)
class WatchCounts:
    """Counters since the start."""

    evaluations: int = 0
    seconds: float = 0.0
    refused: int = 0
    wakes: Counter[str] = field(default_factory=Counter)
    """How often a wake source became active, by source."""
    changes: Counter[str] = field(default_factory=Counter)
    """How often the basis of answers became another one, by the new one."""


class TriggerWatch:
    """Evaluates watched triggers and holds their answers.

    Args:
        seeing: makes what a decision is made of.
        clock: measures ages; it never goes backwards.
        settings: bounds and paces.
        workloads: forget those that no trigger is about any more; None where there is no API server.
        changed: called when the basis of a trigger's answers, or whether it is active, becomes another.
    """

    def __init__(
        self,
        seeing: Sees,
        clock: Clock,
        settings: TriggerSettings | None = None,
        workloads: Workloads | None = None,
        changed: Callable[[AnswerChange], None] = lambda _: None,
    ) -> None:
        self.counts = WatchCounts()
        self._seeing = seeing
        self._clock = clock
        self._settings = settings or TriggerSettings()
        self._workloads = workloads
        self._notify = changed
        self._watched: dict[Trigger, _Watched] = {}
        self._latest: dict[Key, _Watched] = {}
        """The trigger that was added last under each key; one with other metadata goes on from it."""
        self._of_namespace: Counter[str] = Counter()
        self._bytes = 0
        self._seeds: dict[Key, HeldTrigger] = {}
        self._due: list[tuple[float, int, _Watched]] = []
        self._number = 0
        self._poke = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def answer(self, trigger: Trigger) -> Answer | None:
        """Return the newest answer; None before the first evaluation.

        Raises:
            TooManyTriggersError: so many triggers are watched already that this one can't be.
        """
        outcome = self.outcome(trigger)
        return outcome.answer if outcome is not None else None

    def outcome(self, trigger: Trigger) -> TriggerOutcome | None:
        """Return the newest answer with its explanation; see `answer`."""
        watched = self._watched.get(trigger) or self._add(trigger)
        now_s = self._now_s()
        watched.asked_s = now_s
        if watched.evaluated_s is not None:
            age_s = now_s - watched.evaluated_s
            if age_s > self._settings.stale_s:
                reason = f"it could not be evaluated for {age_s:.0f} s"
                self._take(watched, self._unseen(trigger, reason), now_s)
                watched.evaluated_s = now_s - self._settings.stale_s
        return watched.outcome

    def kept(self, trigger: Trigger) -> Answer | None:
        """Return the decision that an earlier process saved; see `KeptAnswers`."""
        watched = self._watched.get(trigger)
        if watched is None or watched.state.decision is None:
            return None
        seen = self._unseen(trigger, "it was not evaluated yet since the start")
        return evaluate(trigger, seen, watched.state).answer

    async def changes(self, trigger: Trigger) -> AsyncIterator[Answer]:
        """Yield the newest answer, then each one whose `is_active` or `basis` changed; see `answer`."""
        watched = self._watched.get(trigger) or self._add(trigger)
        watched.followers += 1
        sent: tuple[bool | None, Basis] | None = None
        try:
            while not watched.is_gone:
                outcome = watched.outcome
                if outcome is not None:
                    kind = (outcome.answer.is_active, outcome.answer.basis)
                    if kind != sent:
                        sent = kind
                        yield outcome.answer
                        continue
                if watched.changed is None:
                    watched.changed = asyncio.Event()
                await watched.changed.wait()
        finally:
            watched.followers -= 1
            watched.asked_s = self._now_s()

    def pin(self, triggers: Iterable[Trigger]) -> None:
        """Watch these triggers although nobody asks for them; replaces those of the last call."""
        wanted = dict.fromkeys(triggers)
        for watched in self._watched.values():
            watched.is_pinned = watched.trigger in wanted
        for trigger in wanted:
            if trigger not in self._watched:
                try:
                    self._add(trigger).is_pinned = True
                except TooManyTriggersError as error:
                    _LOG.warning("%s", error)

    def seed(self, held: Mapping[Key, HeldTrigger]) -> None:
        """Set saved decisions, from which triggers continue once they are watched."""
        self._seeds |= held
        for watched in self._watched.values():
            if watched.state.decision is None:
                self._seed(watched)

    def held(self) -> dict[Key, HeldTrigger]:
        """Return the decisions of all watched triggers, for saving."""
        now_s = self._now_s()
        kept: dict[Key, HeldTrigger] = {}
        for watched in self._watched.values():
            trigger = watched.trigger
            starts_s: tuple[float, ...] = ()
            if self._workloads is not None and trigger.workload is not None:
                starts_s = self._workloads.starts_s(trigger.namespace, trigger.workload)
            held = held_of(watched.state, now_s, starts_s)
            known = kept.get(key_of(trigger))
            if held is not None and (
                known is None or known.decision.measured_ms <= held.decision.measured_ms
            ):
                kept[key_of(trigger)] = held
        return kept

    def answers(self) -> Iterable[tuple[Trigger, Answer | None]]:
        """Return each watched trigger with its newest answer; this does not count as a request."""
        for watched in self._watched.values():
            yield watched.trigger, watched.outcome.answer if watched.outcome else None

    @property
    def size_bytes(self) -> int:
        return self._bytes

    async def run(self) -> None:
        """Evaluate each watched trigger when it is due."""
        loop = asyncio.get_running_loop()
        turns: NamespaceTurns[_Watched] = NamespaceTurns()
        budget = RateBudget(self._settings.questions_per_s, loop.time())
        # One question at a time, as the process' other work waits while several are computed in a
        # row.
        short_wait_s = min(_LONGEST_BUDGET_WAIT_S, 1 / self._settings.questions_per_s)
        look_s = loop.time() + _LOOK_S
        async with asyncio.TaskGroup() as group:
            while True:
                self._poke.clear()
                now_s = loop.time()
                while self._due and self._due[0][0] <= now_s:
                    watched = heapq.heappop(self._due)[2]
                    if not watched.is_gone:
                        # Somebody waits for a trigger's first evaluation.
                        is_first = watched.outcome is None
                        turns.add(watched.trigger.namespace, watched, is_first=is_first)
                is_short = self._begin(group, turns, budget, now_s)
                if now_s >= look_s:
                    self._forget()
                    look_s = now_s + _LOOK_S
                wait_s = self._due[0][0] - now_s if self._due else _IDLE_S
                if is_short:
                    wait_s = short_wait_s
                timer = loop.call_later(min(max(wait_s, 0.001), _IDLE_S), self._poke.set)
                try:
                    await self._poke.wait()
                finally:
                    timer.cancel()

    def _begin(
        self,
        group: asyncio.TaskGroup,
        turns: NamespaceTurns[_Watched],
        budget: RateBudget,
        now_s: float,
    ) -> bool:
        """Start the evaluations that are next; return whether the budget ran out."""
        while turns and len(self._running) < self._settings.at_once:
            watched = turns.peek()
            if not budget.spend(_questions(watched), now_s):
                return True
            turns.take()
            task = group.create_task(self._evaluate(watched))
            self._running.add(task)
            task.add_done_callback(self._ended)
        return False

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._poke.set()

    async def _evaluate(self, watched: _Watched) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        seen = await self._seeing.see(watched.trigger)
        if watched.is_gone:
            return
        watched.evaluated_s = seen.now_s
        self._take(watched, seen, seen.now_s)
        self.counts.evaluations += 1
        self.counts.seconds += loop.time() - began_s
        # Missing values are looked for as often as wake sources.
        is_quick = watched.is_asleep or watched.state.away_s is not None
        interval_s = self._settings.asleep_interval_s if is_quick else self._settings.interval_s
        self._schedule(watched, began_s + interval_s)

    def _take(self, watched: _Watched, seen: Observation, now_s: float) -> None:
        """Decide for one trigger, and wake those who wait for its answer."""
        before = watched.outcome.answer if watched.outcome else None
        outcome = evaluate(watched.trigger, seen, watched.state)
        watched.outcome, watched.state = outcome, outcome.state
        active = frozenset(wake.source for wake in seen.wakes if wake.is_active)
        self.counts.wakes.update(active - watched.active_wakes)
        watched.active_wakes = active
        answer = outcome.answer
        if isinstance(seen.pods, PodsSeen):
            watched.is_asleep = seen.pods.desired == 0
        else:
            watched.is_asleep = not answer.is_active
        if before is not None and (before.is_active, before.basis) == (
            answer.is_active,
            answer.basis,
        ):
            return
        if before is None or before.basis != answer.basis:
            self.counts.changes[answer.basis] += 1
            self._log(watched.trigger, before, answer)
        watched.tell()
        self._notify(AnswerChange(watched.trigger, before, answer))

    def _log(self, trigger: Trigger, before: Answer | None, answer: Answer) -> None:
        if before is None and answer.basis == "measured":
            return
        level = logging.INFO if answer.basis == "measured" else logging.WARNING
        name, reason = f"{trigger.namespace}/{trigger.name}", printable(answer.reason)
        _LOG.log(level, "trigger %s is %s: %s", name, answer.basis, reason)

    def _unseen(self, trigger: Trigger, reason: str) -> Observation:
        """Return an empty observation, for a trigger that could not be evaluated."""
        wakes = tuple(WakeSeen(wake.source, None, reason) for wake in trigger.wakes)
        now_ms = self._clock.now_ms()
        pods = None if trigger.workload is None else Missing(reason)
        return Observation(now_ms, now_ms / 1000, Missing(reason), pods, wakes)

    def _add(self, trigger: Trigger) -> _Watched:
        size = _ENTRY_BYTES + _text_bytes(trigger)
        settings, namespace = self._settings, trigger.namespace
        if self._of_namespace[namespace] >= settings.max_namespace_triggers:
            self.counts.refused += 1
            raise TooManyTriggersError(
                f"{settings.max_namespace_triggers} triggers of {namespace} are watched already"
            )
        if len(self._watched) >= settings.max_triggers or self._bytes + size > settings.max_bytes:
            self.counts.refused += 1
            raise TooManyTriggersError(f"{len(self._watched)} triggers are watched already")
        watched = _Watched(trigger, TriggerState(), self._now_s(), size)
        before = self._latest.get(key_of(trigger))
        self._watched[trigger] = watched
        self._of_namespace[namespace] += 1
        self._bytes += size
        self._latest[key_of(trigger)] = watched
        if before is not None and before.state.decision is not None:
            watched.state = before.state.renewed(trigger.target)
        else:
            self._seed(watched)
        self._schedule(watched, 0.0)
        self._poke.set()
        return watched

    def _seed(self, watched: _Watched) -> None:
        trigger = watched.trigger
        held = self._seeds.pop(key_of(trigger), None)
        if held is None:
            return
        watched.state = held.state(self._now_s()).renewed(trigger.target)
        if self._workloads is not None and trigger.workload is not None:
            self._workloads.seed(trigger.namespace, trigger.workload, held.starts_s)

    def _schedule(self, watched: _Watched, due_s: float) -> None:
        self._number += 1
        if due_s and watched.outcome is not None:
            # Triggers that began together are spread over the interval.
            due_s += 0.1 * (zlib.crc32(watched.trigger.name.encode()) % 1000) / 1000
        heapq.heappush(self._due, (due_s, self._number, watched))

    def _forget(self) -> None:
        now_s = self._now_s()
        gone = [
            each
            for each in self._watched.values()
            if not each.is_pinned
            and not each.followers
            and now_s - each.asked_s > self._settings.forget_s
        ]
        for watched in gone:
            trigger = watched.trigger
            del self._watched[trigger]
            if self._latest.get(key_of(trigger)) is watched:
                del self._latest[key_of(trigger)]
            watched.is_gone = True
            watched.tell()
            self._of_namespace[trigger.namespace] -= 1
            self._bytes -= watched.size_bytes
        self._of_namespace += Counter()
        left = {(t.namespace, t.workload) for t in self._watched}
        for trigger in (each.trigger for each in gone):
            is_left = (trigger.namespace, trigger.workload) in left
            if self._workloads is not None and trigger.workload is not None and not is_left:
                self._workloads.forget(trigger.namespace, trigger.workload)

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def key_of(trigger: Trigger) -> Key:
    """Return the key of a trigger's decisions: its metadata may change, its workload may not."""
    workload = trigger.workload
    of = f" {workload.kind}/{workload.name}" if workload is not None else ""
    return trigger.namespace, trigger.name + of


def _questions(watched: _Watched) -> int:
    """Return the number of queries in an evaluation."""
    load = watched.trigger.load is not None and not (watched.outcome and watched.is_asleep)
    return max(1, load + len(watched.trigger.wakes))


def _text_bytes(trigger: Trigger) -> int:
    texts = [trigger.namespace, trigger.name, *(wake.query for wake in trigger.wakes)]
    if trigger.load is not None:
        texts += [trigger.load.metric, trigger.load.query]
    return 4 * sum(map(len, texts))
