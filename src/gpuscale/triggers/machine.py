"""A trigger's decision: from an observation and the earlier state to an answer.

A value is a total, to be divided by the target: the load while pods run, `wake_replicas` targets while a wake
source is active, and one target while a pod is starting. It is 0, and the trigger inactive, only where all of
it is known. What is not known leaves the last decision in place for a while, and then the stated pods; what
is known may add to it, and takes nothing away.
"""

import math
from dataclasses import dataclass, replace

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.words import counted
from gpuscale.hpa import ReadyCondition
from gpuscale.hpa.controller import DEFAULT_SETTINGS
from gpuscale.hpa.kernel import Tolerances
from gpuscale.hpa.replicas import SyncContext, UncomputableError, plain_metric_total_milli
from gpuscale.triggers.answer import Answer
from gpuscale.triggers.credit import Flow, credited, kept_flows
from gpuscale.triggers.observation import Missing, Observation, PodLoads, PodsSeen, TotalLoad
from gpuscale.triggers.trigger import PodLoad, Trigger

_MAX_READINGS = 240
_TOLERANCES = Tolerances(DEFAULT_SETTINGS.tolerance, DEFAULT_SETTINGS.tolerance)
MAX_VALUE = 1e15
"""A larger total is no load of a cluster; a quantity could not hold it in thousandths."""


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    """The last decision made with complete knowledge, and later additions."""

    value: float
    is_active: bool
    load: float
    """The part of the value that running pods carried."""
    waking: tuple[str, ...]
    """The wake sources that were active."""
    target: float
    measured_ms: int


@dataclass(frozen=True, slots=True)
class TriggerState:
    """A trigger's state between evaluations; the empty one is a new trigger's."""

    decision: TriggerDecision | None = None
    away_s: float | None = None
    """Monotonic time since which something is not known; None while all is."""
    readings: tuple[tuple[float, float], ...] = ()
    """Monotonic times and loads within the window."""
    is_restored: bool = False
    """Whether the decision is of a process before, which may have decided once more after it was kept."""
    flows: tuple[Flow, ...] = ()
    """Of the last minute, for a trigger with credit."""

    def renewed(self, target: float) -> "TriggerState":
        """Return the state of the same trigger with other metadata: the last decision stays, in pods."""
        old = self.decision
        if old is None or old.target == target:
            return replace(self, readings=())
        factor = target / old.target
        decision = replace(old, value=old.value * factor, load=old.load * factor, target=target)
        return TriggerState(decision, self.away_s, is_restored=self.is_restored)


@dataclass(frozen=True, slots=True)
class TriggerOutcome:
    """An answer, the new state, and an explanation."""

    answer: Answer
    state: TriggerState
    story: tuple[str, ...]
    """A sentence each on load, wake sources, starting pods and what is held."""


@dataclass(frozen=True, slots=True)
class _LoadPart:
    """The load; its total is None if unknown."""

    total: float | None
    per_pod: float
    words: str
    measured_ms: int
    is_stopped: bool = False
    """Whether no pod is asked for, which ends a window at once."""
    credit: str = ""
    """What starting pods count with; empty where there is nothing to say."""


def evaluate(trigger: Trigger, seen: Observation, state: TriggerState) -> TriggerOutcome:
    """Return the answer at a time, and the next state."""
    load, state = _credited(trigger, _load(trigger, seen, state), seen, state)
    load, state = _smoothed(trigger.load, load, seen, state)
    awake = tuple(wake.source for wake in seen.wakes if wake.is_active)
    unknown = tuple(wake for wake in seen.wakes if wake.is_active is None)
    starting = (
        isinstance(seen.pods, PodsSeen) and seen.pods.desired > 0 and _within(trigger, seen.pods)
    )
    floor = trigger.target * trigger.wake_replicas
    known = 0.0 if load.total is None else load.total
    is_loaded = load.total is not None and load.per_pod > trigger.activation_target
    value = known if is_loaded else 0.0
    if starting:
        value = max(value, trigger.target)
    if awake:
        value = max(value, floor)
    is_active = bool(is_loaded or starting or awake)
    # A missing wake source makes no difference if the others ask for as many pods without it.
    is_known = load.total is not None and (
        not unknown or bool(awake) or (is_active and value >= floor)
    )
    story = _story(trigger, seen, load, starting)
    if is_known:
        decision = TriggerDecision(
            value, is_active, known if is_loaded else 0.0, awake, trigger.target, load.measured_ms
        )
        causes = [load.words]
        if awake:
            causes.append(f"woken by {', '.join(awake)}")
        if starting:
            causes.append("a pod is starting")
        if not is_active:
            causes.append("nothing keeps the workload up")
        answer = Answer(value, is_active, "measured", "; ".join(causes), load.measured_ms)
        return TriggerOutcome(
            answer, replace(state, decision=decision, away_s=None, is_restored=False), story
        )
    away_s = seen.now_s if state.away_s is None else state.away_s
    state = replace(state, away_s=away_s)
    why = "; ".join([load.words] * (load.total is None) + [w.shown for w in unknown])
    is_over = trigger.policy is not None and seen.now_s - away_s >= trigger.hold_s
    if (state.is_restored or is_over) and load.total is None and isinstance(seen.pods, PodsSeen):
        # Existing pods are evidence of decisions that were lost; but they are no order to remove
        # what a policy had asked for.
        value = max(value, trigger.target * seen.pods.desired)
        is_active = is_active or seen.pods.desired > 0
    answer = _without(trigger, state, seen.now_s - away_s, value, is_active, load, unknown, why)
    last = state.decision
    if is_active and last is not None:
        # The source that has asked for pods may be the next to go missing; its end is no reason
        # for zero before all sources are known again.
        waking = tuple(dict.fromkeys((*last.waking, *awake)))
        raised = replace(last, value=max(last.value, value), is_active=True, waking=waking)
        state = replace(state, decision=raised)
    return TriggerOutcome(answer, state, (*story, answer.reason))


def _without(
    trigger: Trigger,
    state: TriggerState,
    away_s: float,
    value: float,
    is_active: bool,
    load: _LoadPart,
    unknown: tuple[object, ...],
    why: str,
) -> Answer:
    """Return the answer while a source is unknown; `value` is what the known ones ask for."""
    last = state.decision
    if last is None:
        return Answer(None, None, "unavailable", f"{why}; nothing was decided yet", None, away_s)
    away = format_duration(round(max(away_s, 0.0)) * 1000)
    if away_s < trigger.hold_s:
        held = last.value if load.total is None else 0.0
        if unknown and last.waking:
            held = max(held, min(last.value, trigger.target * trigger.wake_replicas))
        if last.is_active and max(held, value) <= 0:
            held = min(last.value, trigger.target)
        reason = f"{why}; the last decision is held, for {away} of {_length(trigger.hold_s)} so far"
        return Answer(
            max(held, value),
            last.is_active or is_active,
            "held",
            reason,
            last.measured_ms,
            away_s,
        )
    if trigger.fallback_replicas is not None:
        pods, which = trigger.fallback_replicas, "as stated"
    elif load.total is None:
        pods, which = max(1, math.ceil(last.value / trigger.target - 1e-9)), "asked for last"
    else:
        pods, which = 1, "at least"
    stated = max(value, trigger.target * pods)
    if trigger.fallback_replicas is None and load.total is None:
        stated = max(value, last.value, trigger.target)
    reason = f"{why}; for {away}, longer than the hold: {counted(pods, 'pod')}, {which}"
    return Answer(stated, True, "fallback", reason, last.measured_ms, away_s)


def _load(trigger: Trigger, seen: Observation, state: TriggerState) -> _LoadPart:
    if trigger.load is None:
        return _LoadPart(0.0, 0.0, "no load is looked at", seen.now_ms)
    if trigger.policy is not None:
        # The replicas that the policy wants, whatever the number of pods.
        name = trigger.policy.name
        if not isinstance(seen.load, TotalLoad):
            reason = "it has no policy's answer"
            if isinstance(seen.load, Missing):
                reason = seen.load.reason
            return _LoadPart(None, 0.0, f"policy {name}: {reason}", seen.now_ms)
        replicas = seen.load.value
        words = f"policy {name} wants {counted(round(replicas), 'replica')}"
        return _LoadPart(replicas, replicas, words, seen.load.measured_ms)
    pods = seen.pods
    if isinstance(pods, Missing):
        return _LoadPart(None, 0.0, pods.reason, seen.now_ms)
    running = 0
    if pods is not None:
        alive = [p for p in pods.pods if not p.deleted and p.phase is not PodPhase.FAILED]
        running = sum(p.phase is not PodPhase.PENDING for p in alive)
        if pods.desired == 0:
            words = "no pod is asked for, so there is no load"
            return _LoadPart(0.0, 0.0, words, seen.now_ms, is_stopped=True)
        if not running and not _within(trigger, pods):
            return _LoadPart(0.0, 0.0, "no pod is running, so there is no load", seen.now_ms)
        if not running:
            # While pods may still start, the earlier load applies.
            last = state.decision
            total = trigger.target * pods.desired if last is None else last.load
            words = "no pod is running, and those that start are asked for as before"
            return _LoadPart(total, math.inf if total > 0 else 0.0, words, seen.now_ms)
    if isinstance(seen.load, Missing):
        return _LoadPart(None, 0.0, seen.load.reason, seen.now_ms)
    if isinstance(seen.load, PodLoads):
        return _pods_load(trigger, pods, seen.load, seen.now_ms)
    total = seen.load.value
    if not math.isfinite(total):
        return _LoadPart(None, 0.0, "the query's answer is no number", seen.now_ms)
    total = min(max(total, 0.0), MAX_VALUE)
    words = f"the load is {total:.6g}"
    return _LoadPart(total, total / max(running, 1), words, seen.load.measured_ms)


def _pods_load(trigger: Trigger, pods: PodsSeen | None, load: PodLoads, now_ms: int) -> _LoadPart:
    if pods is None:
        return _LoadPart(None, 0.0, "a metric of pods needs a workload", now_ms)
    sync = SyncContext(
        pods.desired, len(pods.pods), pods.pods, _TOLERANCES, DEFAULT_SETTINGS, now_ms
    )
    samples = dict(load.samples)
    if not samples:
        return _LoadPart(None, 0.0, "no pod has a value of the load", now_ms)
    if trigger.load is not None and trigger.load.aggregation == "max":
        highest = max(sample.value_milli for sample in samples.values())
        samples = {pod: replace(each, value_milli=highest) for pod, each in samples.items()}
    try:
        total_milli = plain_metric_total_milli(samples, max(1, round(trigger.target * 1000)), sync)
    except UncomputableError as error:
        return _LoadPart(None, 0.0, str(error), now_ms)
    total = min(max(total_milli / 1000, 0.0), MAX_VALUE)
    per_pod = sum(sample.value_milli for sample in samples.values()) / 1000 / len(samples)
    words = f"the load is {per_pod:.6g} a pod, {total:.6g} together"
    return _LoadPart(total, per_pod, words, load.measured_ms)


def _credited(
    trigger: Trigger, part: _LoadPart, seen: Observation, state: TriggerState
) -> tuple[_LoadPart, TriggerState]:
    """Return the load less what starting pods will take; see `triggers.credit`."""
    pods, credit = seen.pods, trigger.credit
    if credit is None or part.total is None or not isinstance(pods, PodsSeen):
        return part, state
    if part.is_stopped or math.isinf(part.per_pod):
        return part, replace(state, flows=())
    if isinstance(seen.flow, Missing) or seen.flow is None:
        # A load that asks for no more pods needs no credit.
        if part.total <= trigger.target * pods.desired:
            return part, state
        reason = "what waits is not known" if seen.flow is None else seen.flow.reason
        return _LoadPart(None, 0.0, reason, seen.now_ms), state
    ready = sum(p.ready is ReadyCondition.TRUE and not p.deleted for p in pods.pods)
    newest = Flow(seen.now_s, part.total, seen.flow.waiting, seen.flow.finished_per_s, ready)
    flows = kept_flows(state.flows, newest)
    start_s = credit.start_s or pods.longest_start_s or pods.deadline_s
    found = credited(trigger.target, pods.desired, flows, pods.starting_s, start_s, credit.drain_s)
    per_pod = part.per_pod if part.total <= 0 else part.per_pod * found.load / part.total
    changed = replace(part, total=found.load, per_pod=per_pod, credit=found.words)
    return changed, replace(state, flows=flows)


def _smoothed(
    load: PodLoad | None, part: _LoadPart, seen: Observation, state: TriggerState
) -> tuple[_LoadPart, TriggerState]:
    """Return the mean load within the window; a missing reading stays missing."""
    if load is None or load.window_s <= 0 or part.total is None or math.isinf(part.per_pod):
        return part, state
    if part.is_stopped:
        return part, replace(state, readings=())
    kept = [each for each in state.readings if each[0] > seen.now_s - load.window_s]
    spacing_s = load.window_s / _MAX_READINGS
    if kept and seen.now_s - kept[-1][0] < spacing_s:
        kept.pop()
    readings = (*kept, (seen.now_s, part.total))[-_MAX_READINGS - 1 :]
    mean = math.fsum(value for _, value in readings) / len(readings)
    per_pod = part.per_pod if part.total <= 0 else part.per_pod * mean / part.total
    if part.total <= 0 < mean:
        per_pod = mean
    words = f"{part.words}; {mean:.6g} on average of {_length(load.window_s)}"
    return replace(part, total=mean, per_pod=per_pod, words=words), replace(
        state, readings=readings
    )


def _within(trigger: Trigger, pods: PodsSeen) -> bool:
    return any(age_s < _deadline_s(trigger, pods) for age_s in pods.starting_s)


def _deadline_s(trigger: Trigger, pods: PodsSeen) -> float:
    return pods.deadline_s if trigger.wake_deadline_s is None else trigger.wake_deadline_s


def _story(trigger: Trigger, seen: Observation, load: _LoadPart, starting: bool) -> tuple[str, ...]:
    lines = [f"load: {load.words}"]
    lines += [f"wake source {wake.source}: {wake.shown}" for wake in seen.wakes]
    if load.credit:
        lines.append(f"credit: {load.credit}")
    lines += seen.policy
    if isinstance(seen.pods, PodsSeen):
        running = sum(p.phase is PodPhase.RUNNING for p in seen.pods.pods)
        lines.append(f"pods: {seen.pods.desired} asked for, {running} running")
        if seen.pods.starting_s:
            oldest = _length(max(seen.pods.starting_s))
            state = "within" if starting else "past"
            deadline = _length(_deadline_s(trigger, seen.pods))
            how = "learned" if trigger.wake_deadline_s is None else "stated"
            lines.append(f"starting for {oldest}: {state} the deadline of {deadline}, {how}")
    elif isinstance(seen.pods, Missing):
        lines.append(f"pods: {seen.pods.reason}")
    return tuple(lines)


def _length(seconds: float) -> str:
    return format_duration(round(max(seconds, 0.0)) * 1000)
