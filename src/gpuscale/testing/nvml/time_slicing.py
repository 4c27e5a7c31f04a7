"""A GPU that processes share by time-slicing, and what the driver's looks make of it.

The loads count their own work, so the truth is known. Work comes in bursts; processes that have some take
turns, and each turn begins with a switch of contexts in which the GPU is busy and no work is done. The driver
looks every 200 ms: it computes how long the GPU was busy since the look before, and gives all of it to the
one process that it finds running, or that ran last.

    shared = TimeSlicedGpu([Load(41, 56), Load(42, 24)], seconds=60, start_us=0)
    gpu = FakeGpu(busy_percent=shared.busy_percent, processes=shared.processes(at_us=0))

Source: the driver's looks as measured on an H200 with driver 580, one every 200 ms.
"""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuscale.testing.nvml.gpus import FakeProcess

LOOK_US = 200_000
_SLICE_US = (1_700, 2_300)
"""Turns differ a little: a fixed length would divide the time between two looks."""
_SWITCH_US = 250
"""Makes a contended GPU busy for about a tenth longer than its work takes, as measured."""
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """One process and the work that it asks for."""

    pid: int
    percent: float
    """Of the GPU's time, for what the work takes alone."""
    joins_s: float = 0.0
    leaves_s: float | None = None
    burst_s: float = 0.015
    """Mean length of a burst; lengths and the times between bursts are exponentially distributed."""
    period_s: float | None = None
    """Makes bursts of equal length that begin a period apart."""


class TimeSlicedGpu:
    """What happens on one GPU from a start on, worked out at once.

    Args:
        loads: the processes.
        seconds: how long.
        start_us: when, in microseconds since the epoch.
        seed: of the bursts.
        switch_us: of GPU time for each switch of contexts.
    """

    def __init__(
        self,
        loads: Sequence[ProcessLoad],
        seconds: float,
        start_us: int,
        *,
        seed: int = 1,
        switch_us: int = _SWITCH_US,
    ) -> None:
        self._loads = tuple(loads)
        self._start_us = start_us
        self._switch_us = switch_us
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._pids: list[int] = []
        self._busy_us: list[int] = []
        """Busy time up to each turn's end."""
        self._work: dict[int, _Steps] = {each.pid: _Steps() for each in loads}
        self._run(_arrivals(self._loads, seconds, seed), random.Random(seed))  # noqa: S311

    def busy_percent(self, at_us: int) -> int:
        """Return what the driver computed at its last look."""
        look_us = at_us // LOOK_US * LOOK_US
        busy_us = self._busy_until(look_us) - self._busy_until(look_us - LOOK_US)
        return round(100 * busy_us / LOOK_US)

    def found_pid(self, at_us: int) -> int | None:
        """Return the process that the last look found running, or that ran last before it."""
        n = bisect_right(self._starts, at_us // LOOK_US * LOOK_US - self._start_us) - 1
        return self._pids[n] if n >= 0 else None

    def true_percent(self, pid: int, from_us: int, to_us: int) -> float:
        """Return the work that a process did, as percent of the time."""
        work = self._work[pid]
        done_us = work.until(to_us - self._start_us) - work.until(from_us - self._start_us)
        return 100 * done_us / (to_us - from_us)

    def processes(self, at_us: int) -> list[FakeProcess]:
        """Return the processes that are there at a time."""
        at_s = (at_us - self._start_us) / _SECOND_US
        return [
            FakeProcess(each.pid, self._percent_of(each.pid))
            for each in self._loads
            if each.joins_s <= at_s and (each.leaves_s is None or at_s < each.leaves_s)
        ]

    def _percent_of(self, pid: int) -> Callable[[int], int]:
        def percent(at_us: int) -> int:
            return self.busy_percent(at_us) if self.found_pid(at_us) == pid else 0

        return percent

    def _busy_until(self, at_us: int) -> int:
        at_us -= self._start_us
        n = bisect_right(self._ends, at_us)
        before_us = self._busy_us[n - 1] if n else 0
        if n == len(self._ends):
            return before_us
        return before_us + max(0, at_us - self._starts[n])

    def _run(self, arrivals: Sequence[tuple[int, int, int]], rng: random.Random) -> None:
        """Let processes take turns until all work is done."""
        coming = deque(arrivals)
        left_us = {each.pid: 0 for each in self._loads}
        ready: deque[int] = deque()
        now_us, running = 0, None
        while coming or ready:
            if not ready:
                now_us = max(now_us, coming[0][0])
            while coming and coming[0][0] <= now_us:
                _, pid, work_us = coming.popleft()
                if not left_us[pid]:
                    ready.append(pid)
                left_us[pid] += work_us
            pid = ready.popleft()
            switch_us = self._switch_us if pid != running else 0
            turn_us = min(rng.randint(*_SLICE_US), left_us[pid])
            self._add(pid, now_us, now_us + switch_us + turn_us)
            now_us += switch_us + turn_us
            self._work[pid].add(now_us, turn_us)
            left_us[pid] -= turn_us
            if left_us[pid]:
                ready.append(pid)
            running = pid

    def _add(self, pid: int, start_us: int, end_us: int) -> None:
        self._starts.append(start_us)
        self._ends.append(end_us)
        self._pids.append(pid)
        self._busy_us.append((self._busy_us[-1] if self._busy_us else 0) + end_us - start_us)


class _Steps:
    """Work done up to the end of each turn."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._sums: list[int] = []

    def add(self, end_us: int, work_us: int) -> None:
        self._ends.append(end_us)
        self._sums.append((self._sums[-1] if self._sums else 0) + work_us)

    def until(self, at_us: int) -> int:
        n = bisect_right(self._ends, at_us)
        return self._sums[n - 1] if n else 0


def _arrivals(
    loads: Iterable[ProcessLoad], seconds: float, seed: int
) -> list[tuple[int, int, int]]:
    """Return (microseconds, PID, microseconds of work) of every burst, in order of time."""
    found: list[tuple[int, int, int]] = []
    for load in loads:
        rng = random.Random(f"{seed}-{load.pid}")  # noqa: S311
        part = load.percent / 100
        end_s = seconds if load.leaves_s is None else min(seconds, load.leaves_s)
        at_s = load.joins_s
        while at_s < end_s:
            if load.period_s is None:
                at_s += rng.expovariate(part / load.burst_s)
                work_s = rng.expovariate(1 / load.burst_s)
            else:
                at_s += load.period_s
                work_s = part * load.period_s
            found.append((round(at_s * _SECOND_US), load.pid, max(1, round(work_s * _SECOND_US))))
    return sorted(found)
