"""What one sync of one HPA costs: `decide` with its words, its arithmetic alone, and that arithmetic
compiled.

    python benchmarks/bench_kernel.py

Seconds are of this process' CPU, so that a busy machine changes them less. The compiled loop is one as a
simulator has it: a service's average, its choice and its sync, step by step, with a memory of five
minutes.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import numpy as np

import harness
from gpuscale.base import compiling
from gpuscale.base.objects.hpa import (
    Behavior,
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    MetricTarget,
    PodsMetric,
    TargetType,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import (
    ControllerSettings,
    HpaState,
    MetricValue,
    PodInfo,
    PodValues,
    Scale,
    decide,
)
from gpuscale.hpa.kernel.compiled import compiled_kernel
from gpuscale.hpa.kernel.functions import PLAIN, Kernel
from gpuscale.hpa.kernel.memory import MAX, PERCENT, PODS, Cells, Limits, Rules, cells_of
from gpuscale.hpa.kernel.pods import SAMPLED, CpuRules, PodColumns, PodTotals
from gpuscale.hpa.kernel.proposals import NO_CHOICE, Choice, Tolerances, average_proposal, chosen
from gpuscale.hpa.kernel.syncing import sync
from gpuscale.hpa.types import Recommendation

COUNT = 4
SYNC_MS, WINDOW_MS = 15_000, 300_000
PLACES = WINDOW_MS // SYNC_MS + 2
START_MS = 1_700_000_000_000
STEPS = 5_760 * 14
"""Two weeks of syncs."""
TARGET_MILLI = 60_000
START = "start"
"""Argument of a process that only takes the time of its first use."""


def main() -> int:
    """Measure, and write the result."""
    figures = [
        each_us("decide, with words", 2_000, decided),
        each_us("the same sync, arithmetic from pods, interpreted", 10_000, plain_from_pods, 50.0),
        each_us(
            "the same sync, arithmetic from totals, interpreted", 10_000, plain_from_totals, 50.0
        ),
        *compiled_figures(),
    ]
    settings = {"pods": COUNT, "memory": PLACES, "steps": STEPS}
    return harness.write("kernel", figures, packages=("numba", "numpy"), settings=settings)


def each_us(
    name: str, times: int, work: Callable[[int], None], at_most: float | None = None
) -> harness.Figure:
    """Return the microseconds that one call takes."""
    values = []
    for _ in range(7):
        began = time.process_time()
        work(times)
        values.append((time.process_time() - began) / times * 1e6)
    return harness.figure(name, "us", values, at_most=at_most)


def decided(times: int) -> None:
    """Decide about four pods over their target, with a full history."""
    target = MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity("60"))
    hpa = HorizontalPodAutoscaler(
        ObjectMeta("web"),
        CrossVersionObjectReference("Deployment", "web"),
        50,
        (PodsMetric("gpu_util", target),),
        behavior=Behavior(),
    )
    pods = tuple(PodInfo(f"p{i}", {"app": "web"}) for i in range(COUNT))
    seen = (PodValues(tuple(MetricValue(pod.name, 90_000) for pod in pods)),)
    known = (Recommendation(COUNT, START_MS - SYNC_MS * i) for i in range(1, PLACES))
    state, settings = HpaState(tuple(known)), ControllerSettings()
    scale = Scale(COUNT, COUNT, "app=web")
    for _ in range(times):
        decide(hpa, scale, pods, seen, state, START_MS, settings)


def limits(kernel: Kernel) -> Limits:
    """Return the bounds of an HPA with the default behavior."""
    policies = kernel.column([PODS, 4, 15_000, PERCENT, 100, 15_000, PERCENT, 100, 15_000])
    up, down = Rules(0, MAX, 0, 2), Rules(WINDOW_MS, MAX, 2, 3)
    return Limits(1, 50, 1, WINDOW_MS, up, down, policies)


def memory(kernel: Kernel) -> Cells:
    """Return an empty memory with a place for each sync of the window."""
    return kernel.column([0] * cells_of(PLACES))


def plain_from_pods(times: int) -> None:
    """Run the interpreted kernel on pods in columns."""
    bounds, remembered, tolerances = limits(PLAIN), memory(PLAIN), Tolerances(0.1, 0.1)
    zeros = [0] * COUNT
    pods = PodColumns([SAMPLED] * COUNT, [90_000] * COUNT, zeros, zeros, zeros, zeros, zeros, zeros)
    rules = CpuRules(0, START_MS, 300_000, 30_000)
    for step in range(times):
        totals = PLAIN.pod_totals(pods, rules, 0)
        asked = PLAIN.average_proposal(totals, TARGET_MILLI, COUNT, tolerances)
        choice = PLAIN.chosen(NO_CHOICE, asked)
        PLAIN.sync(bounds, remembered, COUNT, choice, 0, START_MS + step * SYNC_MS)


def plain_from_totals(times: int) -> None:
    """Run the interpreted kernel on what a simulator knows of a service."""
    values = [TARGET_MILLI * (80 + step % 60) // 100 for step in range(times)]
    run(values, limits(PLAIN), memory(PLAIN), Tolerances(0.1, 0.1))


def run(values_milli: Any, bounds: Limits, remembered: Cells, tolerances: Tolerances) -> int:
    """Return the last count of a service whose pods have these averages, a sync each 15 s."""
    count = 4
    for step in range(len(values_milli)):
        totals = PodTotals(count, count, 0, 0, 0, values_milli[step] * count, 0, 0, 0, 0, 0)
        asked = average_proposal(totals, TARGET_MILLI, count, tolerances)
        count = sync(
            bounds, remembered, count, chosen(Choice(0, -1, 0, 0), asked), 0, step * SYNC_MS
        )
    return count


def compiled_figures() -> list[harness.Figure]:
    """Return what the compiled kernel does, and how long it takes to get it."""
    values = np.array([TARGET_MILLI * (80 + step % 60) // 100 for step in range(STEPS)])
    starts, rates = [], []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, compiling.CACHE_VARIABLE: folder}
        for _ in range(4):
            told = subprocess.run(
                [sys.executable, __file__, START],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            )
            starts.append(float(told.stdout))
    kernel, loop = compiled_kernel(_quiet), _loop()
    for _ in range(8):
        arguments = (values, limits(kernel), memory(kernel), Tolerances(0.1, 0.1))
        began = time.process_time()
        loop(*arguments)
        rates.append(STEPS / (time.process_time() - began))
    return [
        harness.figure("compiled syncs on one core", "syncs/s", rates[1:], at_least=5e6),
        harness.figure("first use, compiling", "s", starts[:1]),
        harness.figure("first use in a process, from the disk", "s", starts[1:]),
    ]


def _loop() -> Callable[..., int]:
    return compiling.compiled(cast("FunctionType", run), None, _quiet)


def _quiet(_: str) -> None:
    pass


def first_use_s() -> float:
    """Return the CPU seconds until a loop has run once in this process."""
    began = time.process_time()
    kernel = compiled_kernel(_quiet)
    _loop()(np.array([TARGET_MILLI]), limits(kernel), memory(kernel), Tolerances(0.1, 0.1))
    return time.process_time() - began


if __name__ == "__main__":
    if sys.argv[1:2] == [START]:
        print(first_use_s())
    else:
        sys.exit(main())
