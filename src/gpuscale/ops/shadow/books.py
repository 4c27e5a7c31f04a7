"""The books of a shadow: syncs of an HPA that is only imagined, beside those of the real one. No I/O.

The values that it sees are those of the pods that run, so they are of the real replicas: from them come what
its metrics ask for. Where it stands, what it recommended and how far it moved are its own.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuscale.hpa import Decision, HpaState
from gpuscale.hpa.decisions import DecisionRequest, answer, decide_request
from gpuscale.hpa.terms import could_decide
from gpuscale.ops.dashboard.deciding import why_scaled

_MOST_STEPS = 10_000
"""That are remembered: a day in which every other sync changes a count."""
_MOST_REASONS = 100
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Step:
    """A sync at which one of both had another count than before."""

    at_ms: int
    real: tuple[int, int]
    """Replicas at the sync before, and now."""
    shadow: tuple[int, int]
    real_why: Sequence[str]
    """In `decide`'s words; none where the count is the same, or nothing explains it."""
    shadow_why: Sequence[str]


@dataclass(slots=True)
class Account:
    """What one of both ran up."""

    replicas: int = 0
    """Now."""
    steps: int = 0
    pod_hours: float = 0.0
    short_pod_hours: float = 0.0
    """Of pods that its own metrics asked for, beyond those that there were."""
    short_ms: int = 0

    def add(self, before: int, after: int, asked: int | None, span_ms: int) -> None:
        """Add the time between two syncs.

        Args:
            before: replicas at its begin.
            after: at its end; the change came at some time between.
            asked: what the metrics asked for at its begin, before windows, rates and bounds; None where they
                could not be had.
            span_ms: its length.
        """
        self.pod_hours += (before + after) / 2 * span_ms / _HOUR_MS
        if asked is not None:
            short = (max(0, asked - before) + max(0, asked - after)) / 2
            self.short_pod_hours += short * span_ms / _HOUR_MS
            self.short_ms += span_ms if min(before, after) < asked else 0


@dataclass(slots=True)
class _Moment:
    """A sync."""

    at_ms: int
    request: DecisionRequest
    """Of the real one."""
    real: int
    shadow: int
    real_asked: int | None
    shadow_asked: int | None


@dataclass(slots=True)
class Shadow:
    """Runs an imagined HPA from sync to sync, and keeps the books of both.

    Args:
        longest_ms: between two syncs, beyond which nothing is said of the time between.
    """

    longest_ms: int
    real: Account = field(default_factory=Account)
    shadow: Account = field(default_factory=Account)
    begin_ms: int | None = None
    end_ms: int = 0
    syncs: int = 0
    seen_ms: int = 0
    """Time between syncs that are close to each other."""
    more_ms: int = 0
    """Of it, in which the shadow had more replicas, at both ends."""
    fewer_ms: int = 0
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    faults: Counter[str] = field(default_factory=Counter)
    """Why a sync saw or decided nothing, and how often."""
    _state: HpaState = field(default_factory=HpaState)
    _last: _Moment | None = None

    def sync(self, at_ms: int, real: DecisionRequest, other: DecisionRequest) -> Step | None:
        """Decide once; return what changed.

        Args:
            at_ms: now.
            real: what the real HPA sees.
            other: what the imagined one would see in its place.
        """
        last, running = self._last, real.scale.spec_replicas
        replicas = running if last is None else last.shadow
        # It begins with what the real controller remembers, as if the real HPA had been edited.
        state = other.state if last is None else _aged(self._state, at_ms - last.at_ms)
        scale = replace(other.scale, spec_replicas=replicas, status_replicas=replicas)
        request = replace(other, scale=scale, state=state)
        decision = decide_request(request, running)
        self._state = decision.next_state
        if real.scale_error or not could_decide(decision):
            self.fault("could not decide: " + " ".join(decision.explanation[:1]))
        now = _Moment(
            at_ms,
            real,
            running,
            decision.desired_replicas,
            _asked(decide_request(real)),
            _asked(decision),
        )
        self._last = now
        self.syncs += 1
        self.real.replicas, self.shadow.replicas = now.real, now.shadow
        self.begin_ms = at_ms if self.begin_ms is None else self.begin_ms
        self.end_ms = at_ms
        if last is not None:
            self._account(last, now)
        was = (running, replicas) if last is None else (last.real, last.shadow)
        if was == (now.real, now.shadow):
            return None
        self.real.steps += was[0] != now.real
        self.shadow.steps += was[1] != now.shadow
        told = answer(request, decision)["explanation"] if was[1] != now.shadow else ()
        why: Sequence[str] = ()
        if last is not None and was[0] != now.real:
            why = why_scaled(last.request, real, now.real).why
        step = Step(
            at_ms,
            (was[0], now.real),
            (was[1], now.shadow),
            why,
            tuple(map(str, told)) if isinstance(told, list) else (),
        )
        self.steps.append(step)
        return step

    def fault(self, reason: str) -> None:
        """Note why a sync saw or decided nothing."""
        if reason in self.faults or len(self.faults) < _MOST_REASONS:
            self.faults[reason] += 1

    def _account(self, last: _Moment, now: _Moment) -> None:
        span_ms = now.at_ms - last.at_ms
        if not 0 < span_ms <= self.longest_ms:
            return
        self.seen_ms += span_ms
        self.real.add(last.real, now.real, last.real_asked, span_ms)
        # Its own change came at the sync itself.
        self.shadow.add(last.shadow, last.shadow, last.shadow_asked, span_ms)
        # Syncs of both fall at other times: one alone with another count is no difference.
        self.more_ms += span_ms if last.shadow > last.real and now.shadow > now.real else 0
        self.fewer_ms += span_ms if last.shadow < last.real and now.shadow < now.real else 0


def _asked(decision: Decision) -> int | None:
    """Return what the metrics ask for; None where that is not known."""
    known = [
        each.proposed_replicas for each in decision.metrics if each.proposed_replicas is not None
    ]
    return max(known, default=None) if could_decide(decision) else None


def _aged(state: HpaState, by_ms: int) -> HpaState:
    """Return a memory after some time: requests count their times back from one fixed moment."""
    return replace(
        state,
        recommendations=tuple(
            replace(each, time_ms=each.time_ms - by_ms) for each in state.recommendations
        ),
        scale_up_events=tuple(
            replace(each, time_ms=each.time_ms - by_ms) for each in state.scale_up_events
        ),
        scale_down_events=tuple(
            replace(each, time_ms=each.time_ms - by_ms) for each in state.scale_down_events
        ),
    )
