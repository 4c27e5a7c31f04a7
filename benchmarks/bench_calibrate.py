"""How near `gpuscale calibrate` comes to theory, on real HTTP servers whose queue is known, and how long.

    python benchmarks/bench_calibrate.py [HOLD] [CASE ...]

M/D/1 by Erlang's formula and M/M/1 by the exponential are theory, and so are their knees (Kleinrock); M/D/4
and batches are a simulation of many requests in the few lines below, which share nothing with what calibrate
does. Cases run together where the machine has four cores for each; named cases run alone.
"""

import heapq
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

GPUSCALE = (sys.executable, "-m", "gpuscale.cli.main")
SERVER = Path(__file__).parents[1] / "tests" / "support" / "queue_server.py"
REQUESTS = 400_000


def md1(limit_s: float, service_s: float) -> float:
    """Return the highest rate of M/D/1 at which 95 % of requests take at most so long."""

    def within(rate: float) -> float:
        wait = limit_s - service_s
        total = 0.0
        for k in range(int(wait / service_s + 1e-9) + 1):
            power = rate * (k * service_s - wait)
            total += power**k / math.factorial(k) * math.exp(-power)
        return (1 - rate * service_s) * total

    return highest(1 / service_s, lambda rate: within(rate) >= 0.95)


def highest(capacity: float, is_kept: Callable[[float], bool]) -> float:
    low, high = 0.01 * capacity, 0.995 * capacity
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if is_kept(middle) else (low, middle)
    return low


def knee(capacity: float, latencies: Callable[[float], list[float]]) -> float:
    """Return the rate at which throughput divided by mean latency is largest."""

    def power(rate: float) -> float:
        return rate / statistics.fmean(latencies(rate))

    low, high = 0.2 * capacity, 0.95 * capacity
    golden = (math.sqrt(5) - 1) / 2
    while high - low > 0.01 * capacity:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if power(left) < power(right):
            low = left
        else:
            high = right
    return (low + high) / 2


def p95(latencies: list[float]) -> float:
    latencies.sort()
    return latencies[int(0.95 * len(latencies))]


def arrivals(rate: float) -> Iterator[float]:
    draw, now = random.Random(3), 0.0
    for _ in range(REQUESTS):
        now += draw.expovariate(rate)
        yield now


def workers(rate: float, count: int, service_s: float) -> list[float]:
    free, found = [0.0] * count, []
    for now in arrivals(rate):
        end = max(now, free[0]) + service_s
        heapq.heapreplace(free, end)
        found.append(end - now)
    return found


def batches(rate: float, most: int, fixed_s: float, each_s: float) -> list[float]:
    found: list[float] = []
    waiting: list[float] = []
    end = 0.0
    for now in arrivals(rate):
        while waiting and max(end, waiting[0]) < now:
            start = max(end, waiting[0])
            taken = [each for each in waiting if each <= start][:most]
            waiting = waiting[len(taken) :]
            end = start + fixed_s + each_s * len(taken)
            found += [end - each for each in taken]
        waiting.append(now)
    return found


def four(rate: float) -> list[float]:
    return workers(rate, 4, 0.02)


def batched(rate: float) -> list[float]:
    return batches(rate, 16, 0.01, 0.002)


@dataclass(frozen=True, slots=True)
class Case:
    """A server, its objective in ms, and the rates that theory gives for the limit and the knee."""

    options: tuple[str, ...]
    p95_ms: int
    limit: Callable[[], float]
    knee: Callable[[], float]


CASES = {
    "M/D/1, 10 ms": Case(
        ("--service-ms=10",), 60, lambda: md1(0.06, 0.01), lambda: 100 / (1 + math.sqrt(0.5))
    ),
    "M/M/1, 10 ms": Case(
        ("--service-ms=10", "--exponential"), 120, lambda: 100 - math.log(20) / 0.12, lambda: 50.0
    ),
    "M/D/4, 20 ms": Case(
        ("--service-ms=20", "--workers=4"),
        60,
        lambda: highest(200, lambda rate: p95(four(rate)) <= 0.06),
        lambda: knee(200, four),
    ),
    "batches of 16, 10 ms + 2 ms each": Case(
        ("--batch=16", "--service-ms=10", "--each-ms=2"),
        80,
        lambda: highest(16 / 0.042, lambda rate: p95(batched(rate)) <= 0.08),
        lambda: knee(16 / 0.042, batched),
    ),
}


def calibrated(case: Case, hold: str) -> tuple[dict[str, Any], float]:
    with subprocess.Popen(
        [sys.executable, str(SERVER), *case.options], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/"
        options = (f"--promise=p95={case.p95_ms}ms", f"--hold={hold}", "-o", "json")
        started = time.monotonic()
        done = subprocess.run(
            [*GPUSCALE, "calibrate", url, *options], stdout=subprocess.PIPE, text=True, check=False
        )
        taken = time.monotonic() - started
        server.kill()
    return json.loads(done.stdout), taken


def measured(name: str, hold: str) -> list[harness.Figure]:
    case = CASES[name]
    found, taken = calibrated(case, hold)
    limit, check = found.get("limit", {}), found.get("check", {})
    low, high = limit.get("low", 0.0), limit.get("high", 0.0)
    late = sum(not each["isUsed"] for each in found["levels"])
    expected, knee_at = case.limit(), case.knee()
    note = (
        f"p95 of {case.p95_ms} ms: theory {expected:.1f}, found {limit.get('rate', 0.0):.1f} "
        f"({low:.1f} to {high:.1f}) requests/s; {found.get('model', {}).get('queue', 'no model')}; "
        f"{len(found['levels'])} levels, {late} left out; {' '.join(found['notes'])}"
    )
    error = abs(100 * (limit.get("rate", 0.0) / expected - 1))
    figures = [harness.figure(f"limit of {name}, error", "%", [error], at_most=5, note=note)]
    knee_found = found.get("knee", {}).get("rate", 0.0)
    figures.append(
        harness.figure(
            f"knee of {name}, error",
            "%",
            [abs(100 * (knee_found / knee_at - 1))],
            at_most=5,
            note=f"theory {knee_at:.1f}, found {knee_found:.1f} requests/s",
        )
    )
    if "difference" in check:
        off = abs(100 * check["difference"])
        figures.append(harness.figure(f"p95 at the check of {name}, error", "%", [off], at_most=20))
    figures.append(harness.figure(f"time of {name}", "s", [taken], at_most=900))
    return figures


def main() -> int:
    hold, names = next(iter(sys.argv[1:]), "10s"), sys.argv[2:] or list(CASES)
    together = max(1, min(len(names), (os.cpu_count() or 1) // 4))
    with ThreadPoolExecutor(together) as pool:
        figures = [
            each for part in pool.map(lambda name: measured(name, hold), names) for each in part
        ]
    return harness.write(
        "calibrate",
        figures,
        packages=("uvloop", "hdrhistogram"),
        settings={"hold": hold, "together": together},
    )


if __name__ == "__main__":
    sys.exit(main())
