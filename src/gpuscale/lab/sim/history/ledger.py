"""What a workload's days would have taken with other settings, and whether advice that was taken came true.

All figures are of the moments whose demand and replicas are known: those of other settings are the twin's.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.lab.sim.history.demand import Demand
from gpuscale.lab.sim.history.recording import Column, Recording, target_column

MONTH_HOURS = 730.0
LEAST_HOURS = 72.0
"""As few days as a promise's interval is made of."""
_MS_PER_HOUR = 3_600_000
_DAY_S = 86_400
_CLOSE = 1e-6

Changes = Sequence[Mapping[str, Any]]
"""Of an HPA, as a scenario has them: the first is what held before any."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings that were advised, and what they were to save."""

    settings: Mapping[str, float]
    """By the columns of `Recording.hpa`: those that were to change."""
    saved: float
    """GPU-hours of a month, of 730 hours."""
    interval: tuple[float, float] | None
    """In which `saved` was to be, in 90 of 100 draws."""
    short: float
    """Share of the time in which pods were to be short at most."""


@dataclass(frozen=True, slots=True)
class LedgerDay:
    """A day (UTC): GPU-hours of its known moments."""

    begin_s: int
    hours: float
    """That are known."""
    took: float
    at_maximum: float
    default: float | None
    """An HPA with the defaults; None where that can't be replayed."""
    before: float | None
    """The settings before the last change, kept; None where nothing changed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of advice."""

    verdict: str
    """`kept`, `not kept`, `not sure`, `too early`, `not taken`, or `not known`."""
    why: str
    promised: float
    came: float | None = None
    """GPU-hours that were saved so far; None where nothing can be said."""
    a_month: float | None = None
    """At that rate."""
    since_s: int | None = None
    """When the settings became those that were advised."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A workload's days."""

    name: str
    days: tuple[LedgerDay, ...]
    error: float
    """Of the twin: GPU-hours of what really ran, replayed, above those that were recorded, as a share."""
    changed_s: int | None
    """When the HPA changed last in the range."""
    outcome: Outcome | None
    """None without advice."""
    gpu_hour: float | None = None
    """What one costs; None where that is not known."""
    notes: tuple[str, ...] = ()
    """What was assumed."""


@dataclass(frozen=True, slots=True)
class Replays:
    """A workload's recorded days, with its twin."""

    recording: Recording
    demand: Demand
    gpus_per_pod: int
    hpa: Mapping[str, float]
    """What the HPA says at the end, by the columns of `Recording.hpa`."""
    changes: Changes
    """Of the HPA until then."""
    replayed: Callable[[Changes], Column]
    """Returns the replicas at the recording's steps under an HPA that changes so."""

    @property
    def step_hours(self) -> float:
        return self.recording.step_ms / _MS_PER_HOUR

    @property
    def known(self) -> list[bool]:
        """Return of each step whether demand and replicas are known."""
        pairs = zip(self.demand.rates, self.recording.columns.replicas, strict=True)
        return [rate is not None and pods is not None for rate, pods in pairs]

    @property
    def states(self) -> list[tuple[int, Mapping[str, float]]]:
        """Return what the HPA said from each step on at which it changed, from step 0 on."""
        state = dict(self.hpa)
        found: list[tuple[int, Mapping[str, float]]] = [(0, dict(state))]
        for number, change in enumerate(self.changes):
            state |= {key: change[key] for key in ("minReplicas", "maxReplicas") if key in change}
            targets = change.get("targets", {})
            state |= {target_column(metric): value for metric, value in targets.items()}
            if number == 0:
                found.clear()
            found.append((parse_duration_ms(change["at"]) // self.recording.step_ms, dict(state)))
        return found

    def gpu_hours(self, pods: Column) -> list[float]:
        """Return the GPU-hours of each step; 0 where it is not known."""
        hours = self.gpus_per_pod * self.step_hours
        return [
            (count or 0.0) * hours if is_known else 0.0
            for count, is_known in zip(pods, self.known, strict=True)
        ]

    def time_s(self, step: int) -> int:
        return (self.recording.start_ms + step * self.recording.step_ms) // 1000


def ledger_of(
    name: str,
    replays: Replays,
    default: Mapping[str, Any] | None = None,
    advice: Advice | None = None,
    gpu_hour: float | None = None,
    notes: Sequence[str] = (),
) -> Ledger:
    """Return a workload's days against other settings.

    Args:
        name: `namespace/name` of the Deployment.
        replays: its days.
        default: the one change that makes its HPA one of defaults; None where its metric is not known.
        advice: to be checked.
        gpu_hour: what a GPU-hour costs.
        notes: what was assumed.
    """
    steps, states, known = range(len(replays.recording)), replays.states, replays.known
    took = replays.gpu_hours(replays.recording.columns.replicas)
    begins = [first for first, _ in states]
    most = [states[bisect_right(begins, step) - 1][1]["maxReplicas"] for step in steps]
    at_maximum = replays.gpu_hours(tuple(most))
    by_default = None if default is None else replays.gpu_hours(replays.replayed([default]))
    as_it_ran = replays.gpu_hours(replays.replayed(replays.changes))
    error = sum(as_it_ran) / sum(took) - 1 if sum(took) else 0.0
    before = None
    if len(states) > 1:
        before = replays.gpu_hours(replays.replayed(replays.changes[:-1]))
    days: dict[int, list[int]] = {}
    for step in steps:
        time_s = replays.time_s(step)
        days.setdefault(time_s - time_s % _DAY_S, []).append(step)

    def summed(column: Sequence[float] | None, at: Sequence[int]) -> float | None:
        return None if column is None else sum(column[step] for step in at)

    return Ledger(
        name,
        tuple(
            LedgerDay(
                day_s,
                sum(known[step] for step in at) * replays.step_hours,
                sum(took[step] for step in at),
                sum(at_maximum[step] for step in at),
                summed(by_default, at),
                summed(before, at),
            )
            for day_s, at in days.items()
        ),
        error,
        replays.time_s(states[-1][0]) if len(states) > 1 else None,
        None if advice is None else _outcome(replays, advice, took, before, error),
        gpu_hour,
        tuple(notes),
    )


def _outcome(
    replays: Replays,
    advice: Advice,
    took: Sequence[float],
    before: Sequence[float] | None,
    error: float,
) -> Outcome:
    """Return what became of advice; `before` is what settings before the last change take."""
    states = replays.states
    if unknown := [name for name in advice.settings if name not in states[-1][1]]:
        return Outcome("not known", f"nothing recorded says {unknown[0]}", advice.saved)
    number = next((at for at, each in enumerate(states) if _is_taken(advice, each[1])), None)
    if number is None:
        told = ", ".join(f"{name} {value:g}" for name, value in advice.settings.items())
        now = ", ".join(f"{states[-1][1][name]:g}" for name in advice.settings)
        return Outcome("not taken", f"advised {told}; it is {now}", advice.saved)
    if number == 0:
        why = "the HPA had these settings when the range began: ask for a longer one"
        return Outcome("not known", why, advice.saved)
    first = states[number][0]
    last = states[number + 1][0] if number + 1 < len(states) else len(took)
    if before is None or number + 1 < len(states):
        before = replays.gpu_hours(replays.replayed(replays.changes[:number]))
    known = replays.known[first:last]
    hours = sum(known) * replays.step_hours
    would = sum(before[first:last])
    came = would - sum(took[first:last])
    since_s = replays.time_s(first)
    if hours < LEAST_HOURS:
        why = f"{hours:.0f} known hours since, expected {LEAST_HOURS:.0f}"
        return Outcome("too early", why, advice.saved, came, None, since_s)
    a_month, margin = (each / hours * MONTH_HOURS for each in (came, abs(error) * would))
    least = advice.saved if advice.interval is None else min(advice.interval)
    bounds = zip(replays.demand.lower_bounds[first:last], known, strict=True)
    full = sum(bound and is_known for bound, is_known in bounds) / sum(known)
    if a_month < least:
        is_near = a_month + margin >= least
        verdict = "not sure" if is_near else "not kept"
        why = f"{least - a_month:,.0f} GPU-hours a month below the least that was promised"
        why += f", within the twin's error of {abs(error):.1%}" if is_near else ""
    elif full > advice.short:
        verdict = "not sure"
        why = f"it saves that; GPUs were full in {full:.2%} of the time, and more may have waited"
    else:
        verdict, why = "kept", f"GPUs were full in {full:.2%} of the time"
    return Outcome(verdict, why, advice.saved, came, a_month, since_s)


def _is_taken(advice: Advice, state: Mapping[str, float]) -> bool:
    return all(
        isclose(state[name], value, rel_tol=_CLOSE) for name, value in advice.settings.items()
    )
