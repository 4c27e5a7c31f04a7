"""How many settings of an HPA are tried how fast: 10 000 of them on a day at 15 s, on two threads.

    python benchmarks/bench_tune.py [--runs 3]

Settings are Sobol points over all that `gpuscale tune` searches, and demand is a day's rhythm with noise. The
alternative in the same run is the same loop without numba, on fewer settings; and one thread. Growth is that
of processor time, which other programs on the machine disturb less.
"""

import argparse
import sys
import time
from statistics import median

import numpy

import harness
from gpuscale.base.objects.hpa import Behavior
from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.tuning import sobol
from gpuscale.lab.plan.tuning.contender import LEAST, Contender, Setting, at_share
from gpuscale.lab.plan.tuning.outcomes import Trial
from gpuscale.lab.plan.tuning.rates import behavior_searched
from gpuscale.lab.plan.tuning.workers import workers
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies.behavior import behavior_settings
from gpuscale.triggers.policies.hpa import HPA
from gpuscale.triggers.policies.policy import Numbers, Parameter
from gpuscale.triggers.policies.replaying import ReplaySettings, run

PER_DAY = 5760
SERVICE = ReplaySettings()
SIZES = (1250, 2500, 5000, 10_000)
DAYS = (1, 2, 4, 8)
BUDGET_S = 120.0
SHORT = Promise()
WAITS = Promise((PromiseTerm("wait", 0.005, 5.0),))
WAITS_BUDGET_S = 240.0
BATCH = 16
INTERPRETED = 6
CONTENDER = Contender(
    HPA,
    behavior_settings(Behavior(), 0.1),
    (
        Setting(Parameter(LEAST, 1, 1, 20), "least"),
        *behavior_searched(Behavior(), 0.1, 900.0),
    ),
)


def demand(days: int) -> Numbers:
    """Return 4 to 16 pods of demand, with noise."""
    steps = numpy.arange(days * PER_DAY)
    noise = numpy.random.default_rng(1).normal(0, 0.3, len(steps))
    rhythm: Numbers = 10 + 6 * numpy.sin(2 * numpy.pi * steps / PER_DAY) + noise
    return rhythm


def settings(count: int) -> list[Numbers]:
    """Return Sobol points over what is searched."""
    parameters = CONTENDER.parameters
    return [
        numpy.array([at_share(each, share) for each, share in zip(parameters, point, strict=True)])
        for point in sobol.points(len(parameters), count, seed=1)
    ]


def seconds(count: int, days: int, threads: int, promise: Promise = SHORT) -> tuple[float, float]:
    """Return how long so many settings take, and the processor time of that."""
    trial = Trial(CONTENDER, demand(days), SERVICE, promise, Requests(1.0), PER_DAY)
    points = settings(count)
    batches = [points[first : first + BATCH] for first in range(0, count, BATCH)]
    with workers(None, threads) as each:
        list(each(trial, batches[:2]))
        started, before = time.perf_counter(), time.process_time()
        list(each(trial, batches))
        return time.perf_counter() - started, time.process_time() - before


def interpreted() -> float:
    """Return the processor time that a setting takes on a day without numba."""
    column = demand(1)
    fixed = numpy.concatenate([HPA.settings(), CONTENDER.fixed])
    started = time.process_time()
    for _ in range(INTERPRETED):
        outputs = [numpy.zeros(len(column)) for _ in range(4)]
        run(HPA.desired, fixed, numpy.zeros(HPA.memory), column, SERVICE, *outputs)
    return (time.process_time() - started) / INTERPRETED


def measured(
    count: int, days: int, threads: int, runs: int, promise: Promise = SHORT
) -> tuple[list[float], float]:
    """Return the times of several runs, and the middle one of their processor times."""
    found = [seconds(count, days, threads, promise) for _ in range(runs)]
    return [wall for wall, _ in found], median(cpu for _, cpu in found)


def exponent(sizes: tuple[int, ...], took: list[float]) -> float:
    """Return the growth's exponent: the slope of time over size, both as logarithms."""
    return float(numpy.polyfit(numpy.log(sizes), numpy.log(took), 1)[0])


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    figures: list[harness.Figure] = []
    growths: dict[str, list[float]] = {"settings": [], "days": []}
    for count in SIZES:
        took, cpu_s = measured(count, 1, 2, runs)
        growths["settings"].append(cpu_s)
        at_most = BUDGET_S if count == SIZES[-1] else None
        figures.append(harness.figure(f"{count} settings, 1 day", "s", took, at_most=at_most))
    for days in DAYS:
        took, cpu_s = measured(SIZES[0], days, 2, runs)
        growths["days"].append(cpu_s)
        figures.append(harness.figure(f"{SIZES[0]} settings, {days} days", "s", took))
    for name, sizes in (("settings", SIZES), ("days", DAYS)):
        slope = exponent(sizes, growths[name])
        figures.append(harness.figure(f"exponent over {name}", "", [slope], at_most=1.1))
    took, _ = measured(SIZES[-1], 1, 2, runs, WAITS)
    name = f"{SIZES[-1]} settings, 1 day, {WAITS}"
    figures.append(harness.figure(name, "s", took, at_most=WAITS_BUDGET_S))
    alone, cpu_s = measured(SIZES[0], 1, 1, runs)
    together, _ = measured(SIZES[0], 1, 2, runs)
    ratio = median(alone) / median(together)
    figures.append(harness.figure("one thread against two", "x", [ratio]))
    ratio = median(interpreted() for _ in range(runs)) / (cpu_s / SIZES[0])
    figures.append(harness.figure("without numba against with, one thread", "x", [ratio]))
    for each in figures:
        print(f"{each.name:<42} {each.median:>9.3f} {each.unit}")
    return harness.write("tune", figures, packages=["numba", "numpy", "joblib"])


if __name__ == "__main__":
    sys.exit(main())
