"""How true the shares of containers are, against work that the loads count themselves.

    python benchmarks/bench_shares.py

Loads share a GPU by time-slicing, on the model of NVIDIA's driver in `gpuscale.testing.nvml.time_slicing`,
and the agent's own reader and `split_utilisation` are asked once a second. No GPU is needed, and none is met.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import harness
from gpuscale.agent.attribution.processes.shares import split_utilisation
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.clock import ManualClock
from gpuscale.testing.nvml import FakeGpu, FakeNvml
from gpuscale.testing.nvml.time_slicing import ProcessLoad, TimeSlicedGpu

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
WINDOW_S = 10
SECONDS = 130
SEEDS = range(8)
MIXES = {
    "50:50": (40, 40),
    "70:30": (56, 24),
    "90:5:5": (75, 4, 4),
    "40:30:20:10": (32, 24, 16, 8),
}
JOIN_S = 30.3
JOINED = (56, 24)
"""One pod is there, and one joins."""


@dataclass(frozen=True)
class Told:
    """One reading of one container."""

    at_s: float
    pid: int
    percent: int
    standard_error: float | None
    true_percent: float
    """Of the same last 10 s, or since it joined."""

    @property
    def error(self) -> float:
        return self.percent - self.true_percent


def main() -> int:
    """Measure, and write the result."""
    figures = [each for name, mix in MIXES.items() for each in mix_figures(name, mix)]
    figures += join_figures()
    settings = {"seconds": SECONDS, "seeds": len(SEEDS), "source": "a model of the driver, no GPU"}
    return harness.write("shares_model", figures, packages=("nvidia-ml-py",), settings=settings)


def mix_figures(name: str, mix: Sequence[float]) -> Iterator[harness.Figure]:
    """Return how far readings of one mix are from the truth, without and with the cost of switches."""
    loads = [ProcessLoad(41 + n, percent) for n, percent in enumerate(mix)]
    rounds = [settled(run(loads, seed, switch_us=0)) for seed in SEEDS]
    told = [each for one in rounds for each in one]
    sliced = [each for seed in SEEDS for each in settled(run(loads, seed, switch_us=250))]
    by_pid = [[each for each in told if each.pid == load.pid] for load in loads]
    yield harness.figure(
        f"{name}: largest mean error of a container",
        "points",
        [max(abs(mean_error(each)) for each in by_pid)],
        at_most=2.0,
    )
    yield harness.figure(
        f"{name}: largest error of its part of the total, with switches",
        "points",
        [part_error(sliced)],
        at_most=2.0,
    )
    yield harness.figure(
        f"{name}: time-slicing adds",
        "%",
        [
            100
            * (sum(each.percent for each in sliced) / sum(each.true_percent for each in sliced) - 1)
        ],
    )
    yield harness.figure(
        f"{name}: mean error of one reading",
        "points",
        [statistics.mean(abs(each.error) for each in one) for one in rounds],
    )
    yield harness.figure(
        f"{name}: standard error that is served",
        "points",
        [statistics.mean(each.standard_error or 0.0 for each in one) for one in rounds],
    )
    yield harness.figure(
        f"{name}: readings within 5 points",
        "%",
        [100 * statistics.mean(abs(each.error) <= 5 for each in one) for one in rounds],
        note="the driver's five looks a second do not give all of them",
    )


def join_figures() -> Iterator[harness.Figure]:
    """Return how far the values of two pods are from the truth after one of them has joined."""
    there, joins = JOINED
    loads = [ProcessLoad(41, there), ProcessLoad(42, joins, joins_s=JOIN_S)]
    told = [each for seed in range(40) for each in run(loads, seed, switch_us=0, seconds=45)]
    for pid, who in ((42, "the one that joined"), (41, "its neighbour")):
        for after_s in (1, 2, 3, 5, 10):
            then = [
                each
                for each in told
                if each.pid == pid and after_s <= each.at_s - JOIN_S < after_s + 1
            ]
            yield harness.figure(
                f"{who}, mean error {after_s} s after",
                "points",
                [mean_error(then)],
                note=f"true mean {statistics.mean(each.true_percent for each in then):.1f}",
            )


def run(
    loads: Sequence[ProcessLoad], seed: int, *, switch_us: int, seconds: float = SECONDS
) -> list[Told]:
    """Return what was told of every container once a second."""
    shared = TimeSlicedGpu(loads, seconds, START_US, seed=seed, switch_us=switch_us)
    clock = ManualClock(START_US // 1000)
    gpu = FakeGpu(busy_percent=shared.busy_percent)
    reader = NvmlReader(
        NvmlSettings(poll_period_ms=0),
        FakeNvml([gpu], now_us=lambda: clock.now_ms() * 1000),
        frozenset({"DCGM_FI_DEV_GPU_UTIL"}),
        clock=clock,
        present=frozenset,
    )
    refs = {each.pid: ContainerRef("ml", str(each.pid), "main") for each in loads}
    joined_s = {each.pid: each.joins_s for each in loads}
    told = []
    for second in range(1, int(seconds)):
        clock.advance(1)
        now_us = clock.now_ms() * 1000
        gpu.processes = shared.processes(now_us)
        there = {each.pid for each in gpu.processes}
        reading = reader.read(clock.now_ms())[0]
        owned = Attribution({reading.gpu.uuid: tuple(refs.values())}, refs)
        for share in split_utilisation(reading, owned):
            pid = int(share.container.pod) if share.container else 0
            if pid in there:
                from_us = START_US + round(max(joined_s[pid], second - WINDOW_S) * SECOND_US)
                true = shared.true_percent(pid, from_us, now_us)
                told.append(Told(second, pid, share.sm_util, share.standard_error, true))
    reader.close()
    return told


def settled(told: Sequence[Told]) -> list[Told]:
    """Return the readings of full windows."""
    return [each for each in told if each.at_s > WINDOW_S]


def mean_error(told: Sequence[Told]) -> float:
    return statistics.mean(each.error for each in told)


def part_error(told: Sequence[Told]) -> float:
    """Return the largest error of a container's part of all that was told, in percent of it."""
    all_told = sum(each.percent for each in told)
    all_true = sum(each.true_percent for each in told)
    errors = []
    for pid in {each.pid for each in told}:
        own = [each for each in told if each.pid == pid]
        part = sum(each.percent for each in own) / all_told
        true = sum(each.true_percent for each in own) / all_true
        errors.append(abs(100 * (part - true)))
    return max(errors)


if __name__ == "__main__":
    raise SystemExit(main())
