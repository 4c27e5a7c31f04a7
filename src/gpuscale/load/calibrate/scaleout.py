"""Predicts a step in load: the HPA's decisions, ready replicas, and users' latency meanwhile.

The HPA is `hpa.deciding`, asked at every sync; what it sees follows from a fluid, as in the simulator. What
users see is the fitted queue's, replayed on random arrivals that are spread over the replicas of each time: a
replica that is nearly full makes most of them wait, of which a fluid knows nothing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.streams import stream
from gpuscale.hpa import HpaState, PodInfo, PodValues, ReadyCondition, Scale, decide, succeeded
from gpuscale.load.calibrate.knee import Curve
from gpuscale.load.calibrate.levels import Objective
from gpuscale.load.calibrate.queues import shapes
from gpuscale.load.calibrate.signals import value_at

SYNC_S = 15
"""kube-controller-manager's `--horizontal-pod-autoscaler-sync-period`."""
MOST_S = 1_800
_BEFORE_S = 60
"""Of the load before the step, in a replay, so that the first requests find a queue."""
_MOST_REPLAYED = 2_000_000
"""Requests; of a faster replica the fluid's figures are taken, which chance adds little to."""
_REPLAYS = 4


@dataclass(frozen=True, slots=True)
class LoadStep:
    """A jump in load, and the workload it meets."""

    from_rate: float
    to_rate: float
    startup_s: float
    """From the decision until a new replica serves: node, image, model."""
    signal_delay_s: float = 15.0
    """Age of what the HPA sees: scrape and window."""


@dataclass(frozen=True, slots=True)
class ScaleOutCourse:
    """The predicted course after a step; times in seconds after it."""

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
    step: LoadStep,
) -> ScaleOutCourse:
    """Return the HPA's course after a step.

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
    served_by: list[int] = []
    backlog = missed = worst = 0.0
    decided: float | None = None
    ready_at: float | None = None
    changes: list[tuple[float, int]] = []
    calm = max(curve.at(min(step.from_rate / replicas, 0.9 * capacity)).percentile_ms[50], 0.0)
    for now in range(MOST_S):
        serving = sum(1 for each in started if now - each >= step.startup_s)
        served_by.append(serving)
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
    until = len(served_by) if ready_at is None else max(1, int(ready_at))
    if step.to_rate * len(served_by) <= _MOST_REPLAYED:
        missed, worst = _replayed(curve, objective, served_by, until, step)
    per_replica = step.to_rate / len(started)
    steady = (
        curve.at(per_replica, objective.percentile).percentile_ms[objective.percentile]
        if per_replica < 0.99 * capacity
        else None
    )
    return ScaleOutCourse(
        first, len(started), needed, decided, ready_at, worst, missed, steady, tuple(changes)
    )


def _replayed(
    curve: Curve, objective: Objective, served_by: Sequence[int], until_s: int, step: LoadStep
) -> tuple[float, float]:
    """Return how many requests miss the objective up to a time, and the longest latency in ms.

    Both are means of a few replays.

    Args:
        curve: one replica.
        objective: what users were promised.
        served_by: replicas in each second after the step; each request goes to any of them.
        until_s: requests that come later don't count.
        step: the load.
    """
    missed = worst = 0.0
    for seed in range(_REPLAYS):
        longest = 0.0
        for replica in range(max(served_by)):
            draw = stream(seed, "step", str(replica)).expovariate
            rates = list(_rates(replica, served_by, step))
            arrivals = []
            place = draw(1.0)
            passed = 0.0
            for second, rate in enumerate(rates):
                while place < passed + rate:
                    arrivals.append(second + (place - passed) / rate)
                    place += draw(1.0)
                passed += rate
            shape = shapes(curve.fit.baseline.latencies_ms, len(arrivals), seed)
            for answered_s, latency_s in curve.fit.queue.answers(arrivals, shape):
                if 0 <= answered_s - latency_s - _BEFORE_S < until_s:
                    missed += 1000 * latency_s > objective.limit_ms
                    longest = max(longest, latency_s)
        worst += 1000 * longest
    return missed / _REPLAYS, worst / _REPLAYS


def _rates(replica: int, served_by: Sequence[int], step: LoadStep) -> Iterator[float]:
    """Yield one replica's rate in each second, starting before the step."""
    first = served_by[0]
    for _ in range(_BEFORE_S):
        yield step.from_rate / first if replica < first else 0.0
    for count in served_by:
        yield step.to_rate / count if replica < count else 0.0


def _synced(
    hpa: HorizontalPodAutoscaler, state: HpaState, asked: int, serving: int, value: float, now: int
) -> tuple[HpaState, int]:
    """Return the controller's memory and the desired replicas after a sync."""
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
