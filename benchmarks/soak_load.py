"""`gpuscale load http` in real time: flat memory however long it sends, and no request lost.

    python benchmarks/soak_load.py --minutes 60

The server takes 20 ms and an exponential time of mean 10 ms, and stands still for 1 s of every 60, so that
hundreds of requests wait again and again. They are due at equal intervals, so their number is known: rate
times seconds. Exits with 1 if not all were answered, or if the load's memory grew by more than 5 % from the
second quarter of the run to its second half. `results/load_soak.json` is of the latest whole run.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from bench_exporter import resident_mib
from bench_load import DELAY_S, GPUSCALE, SPREAD_S, Server

CHECK_S = 5.0
PRINTED = 12
"""Checks from one line to the next."""
MOST_GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class Soaked:
    """What was seen of a run."""

    mib: list[float]
    """Memory, once a check."""
    cpu_s: float
    result: dict[str, Any]


def soak(minutes: float, rate: float) -> Soaked:
    """Load a server that stalls, and look at the load's memory meanwhile."""
    held: list[float] = []
    with (
        Server((DELAY_S, SPREAD_S), (1.0, 60.0)) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        file = Path(folder) / "result.json"
        load = ("--rate", f"{rate:g}", "--for", f"{minutes:g}m", "--arrivals", "even")
        command = [*GPUSCALE, "load", "http", server.url, *load, "--output-file", str(file)]
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                time.sleep(CHECK_S)
                mib = memory_of(process.pid)
                if mib is None:
                    continue
                held.append(mib)
                if len(held) % PRINTED == 0:
                    print(f"{(time.monotonic() - began) / 60:5.1f} min: {mib:6.1f} MiB", flush=True)
        # The server still runs, so the load is the one child that has ended.
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Soaked(held, used.ru_utime + used.ru_stime, json.loads(file.read_text()))


def memory_of(pid: int) -> float | None:
    """Return the memory of a process and its children; None where it has just ended."""
    try:
        return resident_mib(pid) or None
    except OSError:
        return None


def figures_of(soaked: Soaked, minutes: float, rate: float) -> list[harness.Figure]:
    """Return figures; the last request may be due at the very end, so one fewer may be sent."""
    due, requests = round(rate * minutes * 60), soaked.result["requests"]
    quarter = len(soaked.mib) // 4
    cut = [soaked.mib[n * quarter : (n + 1) * quarter] for n in range(4)]
    return [
        *(
            harness.figure(f"memory in quarter {number}", "MiB", values)
            for number, values in enumerate(cut, 1)
        ),
        harness.figure(
            "most of the second half, by the second quarter's",
            "ratio",
            [harness.growth(soaked.mib)],
            at_most=MOST_GROWTH,
        ),
        harness.figure("due and not answered", "requests", [due - requests["ok"]], at_most=1),
        harness.figure("answered", "requests", [requests["ok"]]),
        harness.figure("errors", "requests", [requests["errors"]], at_most=0),
        harness.figure("CPU of one core", "ratio", [soaked.cpu_s / (minutes * 60)]),
        harness.figure("late, p99", "ms", [soaked.result["lateMilliseconds"]["p99"]]),
    ]


def main() -> int:
    """Run; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=500.0, help="requests per second")
    options = parser.parse_args()
    soaked = soak(options.minutes, options.rate)
    return harness.write(
        "load_soak",
        figures_of(soaked, options.minutes, options.rate),
        packages=("httptools", "uvloop", "hdrhistogram"),
        settings={"minutes": options.minutes, "rate": options.rate, "check_s": CHECK_S},
    )


if __name__ == "__main__":
    sys.exit(main())
