"""Calibrations of queues in virtual time: what a real ramp does, with answers that a queue computes."""

import random
from dataclasses import dataclass

from gpuscale.load.calibrate.fitting import Fit, fit_queue
from gpuscale.load.calibrate.levels import PERCENTILES, Baseline, Level, Objective, percentile_of
from gpuscale.load.calibrate.queues import Queue, poisson
from gpuscale.load.calibrate.ramp import Done, Next, RampSettings, next_level

JITTER_MS = 0.2


@dataclass(frozen=True)
class Ramp:
    """A ramp that is over."""

    levels: list[Level]
    baseline: Baseline
    end: Done

    @property
    def fit(self) -> Fit:
        found = fit_queue(self.levels, self.baseline)
        assert found is not None
        return found


def measured(
    queue: Queue, rate: float, settings: RampSettings, seed: int, *, spread: bool
) -> Level:
    """Return what a generator would measure of the queue; `spread` draws exponential service times."""
    warmup_s, end_s = settings.hold(rate)
    draw = random.Random(seed)
    arrivals = [each / rate for each in poisson(int(2 * rate * end_s) + 100, seed)]
    arrivals = [each for each in arrivals if each < end_s]
    shape = [draw.expovariate(1.0) if spread else 1.0 for _ in arrivals]
    answered = [each for each in queue.answers(arrivals, shape) if warmup_s <= each[0] < end_s]
    latencies = sorted(1000 * latency + abs(draw.gauss(0, JITTER_MS)) for _, latency in answered)
    return Level(
        rate=rate,
        arrivals=arrivals,
        warmup_s=warmup_s,
        end_s=end_s,
        answered=len(latencies),
        failed=0,
        mean_ms=sum(latencies) / len(latencies) if latencies else None,
        percentile_ms={each: percentile_of(latencies, each) for each in PERCENTILES}
        if latencies
        else {},
    )


def baseline(base_ms: float, seed: int, *, spread: bool) -> Baseline:
    draw = random.Random(seed)
    times = (base_ms * (draw.expovariate(1.0) if spread else 1.0) + JITTER_MS for _ in range(200))
    return Baseline(tuple(sorted(times)))


def ramp(
    queue: Queue,
    base_ms: float,
    objective: Objective,
    seed: int,
    *,
    spread: bool,
    hold_s: float = 4.0,
) -> Ramp:
    settings = RampSettings(objective, hold_s=hold_s)
    alone = baseline(base_ms, seed, spread=spread)
    levels: list[Level] = []
    while isinstance(step := next_level(levels, alone, settings), Next):
        levels.append(measured(queue, step.rate, settings, 100 * seed + len(levels), spread=spread))
    return Ramp(levels, alone, step)
