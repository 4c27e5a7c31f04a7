"""`gpuscale load http` in real time: flat memory however long it sends, and no request lost.

    python benchmarks/soak_load.py --minutes 60

The server takes 20 ms and an exponential time of mean 10 ms, and stands still for 1 s of every 60, so that
hundreds of requests wait again and again. They are due at equal intervals, so their number is known: rate
times seconds. Exits with 1 if not all were answered, or if the load's memory grew by more than 5 % from the
second quarter of the run to its second half.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
from bench_exporter import resident_mib
from bench_load import DELAY_S, GPUSCALE, SPREAD_S, Server

CHECK_S = 5.0
PRINTED = 12
"""Checks from one line to the next."""
MOST_GROWTH = 1.05


def soak(minutes: float, rate: float) -> tuple[list[float], dict[str, int]]:
    """Return memory in MiB, once a check, and how the requests went."""
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
        return held, json.loads(file.read_text())["requests"]


def memory_of(pid: int) -> float | None:
    """Return the memory of a process and its children; None where it has just ended."""
    try:
        return resident_mib(pid) or None
    except OSError:
        return None


def main() -> int:
    """Run; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=500.0, help="requests per second")
    options = parser.parse_args()
    held, requests = soak(options.minutes, options.rate)
    due = round(options.rate * options.minutes * 60)
    # The last of them may be due at the very end.
    are_all_answered = due - 1 <= requests["ok"] <= due
    print(f"due {due}: {requests['ok']} answered, {requests['errors']} not")
    growth = harness.growth(held)
    print(f"most memory in the second half, of the most in the second quarter: {growth:.3f}")
    return int(not are_all_answered or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
