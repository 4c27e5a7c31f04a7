"""What a step of the load leads to: what the HPA decides, when replicas serve, what users see meanwhile.

The load is a fluid, as in the simulator; the HPA is `hpa.decide`, asked at every sync.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.calibrate.knee import Curve
from gpuscale.calibrate.levels import Objective
from gpuscale.calibrate.signals import value_at
from gpuscale.hpa.decide import decide, succeeded
from gpuscale.hpa.types import HpaState, PodInfo, PodValues, ReadyCondition, Scale
from gpuscale.objects.hpa import HorizontalPodAutoscaler
from gpuscale.objects.metric_values import MetricValue

SYNC_S = 15
"""kube-controller-manager's `--horizontal-pod-autoscaler-sync-period`."""
MOST_S = 1_800


@dataclass(frozen=True, slots=True)
class Step:
    """A jump of the load, and what it hits."""

    from_rate: float
    to_rate: float
    startup_s: float
    """From the decision until a new replica serves: node, image, model."""
    signal_delay_s: float = 15.0
    """Age of what the HPA sees: scrape and window."""


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """What the step leads to; times in seconds after it."""

    from_replicas: int
    to_replicas: int
    needed_replicas: int
    """With fewer the objective is missed at the new rate."""
    decided_s: float | None
    """The first decision; None where there was none."""
    ready_s: float | None
    """When as many replicas serve as are needed; None where that never happens."""
    worst_ms: float
    """Latency of the unluckiest requests."""
    missed: float
    """Requests that miss the objective, about."""
    steady_ms: float | None
    """The objective's percentile once all is ready; None where replicas don't keep up."""
    changes: tuple[tuple[float, int], ...]
    """(time, replicas asked for)."""


def predict_step(
    curve: Curve,
    objective: Objective,
    limit_rate: float,
    target_rate: float,
    points: Sequence[tuple[float, float]],
    hpa: HorizontalPodAutoscaler,
    step: Step,
) -> ScaleOut:
    """Return what the HPA makes of a step.

    Args:
        curve: one replica.
        objective: what users were promised.
        limit_rate: the highest rate at which one replica keeps it.
        target_rate: the rate at which a replica's signal is at the target.
        points: (rate, value) of the signal, of one replica.
        hpa: with one Pods metric, that signal.
        step: the load.
    """
    capacity = curve.fit.queue.capacity
    needed = math.ceil(step.to_rate / limit_rate)
    replicas = max(1, hpa.min_replicas or 1, math.ceil(step.from_rate / target_rate - 1e-6))
    first = replicas
    started = [-step.startup_s] * replicas
    state, asked = HpaState(), replicas
    seen: list[float] = []
    backlog = missed = worst = 0.0
    decided: float | None = None
    ready_at: float | None = None
    changes: list[tuple[float, int]] = []
    calm = max(curve.at(min(step.from_rate / replicas, 0.9 * capacity)).percentile_ms[50], 0.0)
    for now in range(MOST_S):
        serving = sum(1 for each in started if now - each >= step.startup_s)
        work = step.to_rate + backlog
        done = min(work, serving * capacity)
        backlog = work - done
        wait_ms = 1000 * backlog / (serving * capacity)
        latency = wait_ms + calm
        worst = max(worst, latency)
        if serving < needed:
            missed += step.to_rate * (1.0 if wait_ms > 0 else 0.05)
        elif latency > objective.limit_ms:
            missed += step.to_rate
        if ready_at is None and serving >= needed and latency <= objective.limit_ms:
            ready_at = float(now)
        seen.append(value_at(points, done / serving))
        if now % SYNC_S == SYNC_S - 1:
            index = len(seen) - 1 - round(step.signal_delay_s)
            value = seen[index] if index >= 0 else value_at(points, step.from_rate / first)
            state, asked = _synced(hpa, state, asked, serving, value, now)
            if asked > len(started):
                decided = float(now) if decided is None else decided
                started += [float(now)] * (asked - len(started))
                changes.append((float(now), asked))
            elif asked < len(started):
                break
        if ready_at is not None and now > ready_at + 4 * SYNC_S + step.signal_delay_s:
            break
    per_replica = step.to_rate / len(started)
    steady = (
        curve.at(per_replica, objective.percentile).percentile_ms[objective.percentile]
        if per_replica < 0.99 * capacity
        else None
    )
    return ScaleOut(
        first, len(started), needed, decided, ready_at, worst, missed, steady, tuple(changes)
    )


def _synced(
    hpa: HorizontalPodAutoscaler, state: HpaState, asked: int, serving: int, value: float, now: int
) -> tuple[HpaState, int]:
    """Return what one sync of the controller leaves: its memory, and the replicas asked for."""
    now_ms = 1000 * now
    pods = [
        PodInfo(
            f"pod-{index}",
            ready=ReadyCondition.TRUE if index < serving else ReadyCondition.FALSE,
            start_ms=0,
        )
        for index in range(asked)
    ]
    values = PodValues(
        tuple(MetricValue(f"pod-{index}", round(1000 * value), now_ms) for index in range(serving))
    )
    decision = decide(hpa, Scale(asked, asked, "app=calibrated"), pods, [values], state, now_ms)
    outcome = succeeded(decision)
    return outcome.state, decision.desired_replicas
