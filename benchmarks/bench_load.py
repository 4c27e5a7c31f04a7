"""What `gpuscale load http` can send, how punctual it is, and that it measures what hey measures.

The server is an event loop in a process of its own. It answers at once, or after a delay of a known
distribution: 20 ms and an exponential one of mean 10 ms, whose p99 is 20 + 10 ln 100 = 66.05 ms. hey has a
closed loop for each worker, held to a rate: below saturation, with more workers than are ever in flight, both
see the same service.

A server that stands still for 1 s of every 5 shows what a closed loop hides. Of all requests that were due,
one in five waits, evenly from 1 s down to nothing, so that 5 % wait more than 0.75 s. hey has 5 workers
there, each of which waits once: 5 of the 2 005 requests that it sends in 5 s, 0.2 %, so its p95 has no
wait at all. Each of its long waits is corrected as wrk2 does, with the waits of those that it should have
sent meanwhile (HdrHistogram's correction for coordinated omission, by the interval of one worker); then it
is 0.75 s too. That interval is how fine the correction is, since all workers of hey send in step: with 50
of them it is 100 ms, and the corrected p95 is anywhere from 0.7 to 0.8 s, by when the server happens to
stop; with 5 it is 10 ms.

It takes five minutes; `--quick` runs everything once, in two.
"""

import csv
import io
import json
import math
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from hdrh.histogram import HdrHistogram

import harness

GPUSCALE = (sys.executable, "-m", "gpuscale.cli.main")
QUICK = "--quick" in sys.argv
RUNS = 1 if QUICK else 3
DELAY_S, SPREAD_S = 0.02, 0.01
EXPECTED_MS = {
    percent: 1000 * (DELAY_S - SPREAD_S * math.log(1 - percent / 100)) for percent in (50, 99)
}
STALL_S, EVERY_S = 1.0, 5.0
STALLED_P95_MS = 1000 * (STALL_S - 0.05 * EVERY_S)
RATE, WORKERS, STALLED_WORKERS = 500, 100, 5
SERVER = """
import asyncio, random, sys, time, httptools, uvloop
PORT, DELAY_S, SPREAD_S, STALL_S, EVERY_S = int(sys.argv[1]), *map(float, sys.argv[2:])
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
draw = random.Random(1)
class Client(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.parser = transport, httptools.HttpRequestParser(self)
    def data_received(self, data):
        self.parser.feed_data(data)
    def on_message_complete(self):
        if DELAY_S or SPREAD_S:
            delay_s = DELAY_S + (draw.expovariate(1 / SPREAD_S) if SPREAD_S else 0)
            asyncio.get_running_loop().call_later(delay_s, self.transport.write, ANSWER)
        else:
            self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Client, "127.0.0.1", PORT, backlog=1024)
    while STALL_S:
        await asyncio.sleep(EVERY_S - STALL_S)
        time.sleep(STALL_S)
    await server.serve_forever()
uvloop.run(main())
"""


class Server:
    """Answers on loopback, in a process of its own.

    Args:
        delays_s: what every answer takes, and the mean of what it takes beyond.
        stalls_s: how long it stands still, and how often.
    """

    def __init__(
        self, delays_s: tuple[float, float] = (0, 0), stalls_s: tuple[float, float] = (0, 1)
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/predict?query=Music"
        times = map(str, (*delays_s, *stalls_s))
        self._command = [sys.executable, "-c", SERVER, str(self.port), *times]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def load(url: str, *arguments: str) -> tuple[dict[str, Any], float, float]:
    """Return the result, the CPU seconds and the most memory in MiB of one run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [*GPUSCALE, "load", "http", url, *arguments, "--output-file", str(file)]
        watched = subprocess.run(
            [sys.executable, "-c", WATCH, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return json.loads(file.read_text()), cpu_s, float(watched.stdout.splitlines()[-1])


WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def hey_ms(url: str, seconds: int, workers: int = WORKERS) -> list[float]:
    """Return what hey's workers measured, in milliseconds."""
    each = RATE / workers
    command = ["hey", "-z", f"{seconds}s", "-c", str(workers), "-q", f"{each:g}", "-o", "csv", url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [1000 * float(row["response-time"]) for row in csv.DictReader(io.StringIO(out))]


def p_ms(values_ms: list[float], percent: float, interval_ms: float = 0.0) -> float:
    """Return a percentile; with an interval, corrected for coordinated omission."""
    histogram = HdrHistogram(1, 3_600_000_000, 3)
    for value in values_ms:
        histogram.record_corrected_value(round(1000 * value), round(1000 * interval_ms))
    return float(histogram.get_value_at_percentile(percent)) / 1000


def main() -> int:
    """Measure, and return the exit code."""
    figures = [*capacity(), *memory(), *beside_hey(), *stalled()]
    return harness.write(
        "load",
        figures,
        packages=("httptools", "uvloop", "hdrhistogram"),
        settings={"runs": RUNS, "rate": RATE, "workers of hey": WORKERS},
    )


def capacity() -> list[harness.Figure]:
    with Server() as server:
        runs = [
            load(server.url, "--rate=10000", "--for=5s", "--arrivals=even") for _ in range(RUNS)
        ]
        sent = [result["requests"]["ok"] / cpu_s for result, cpu_s, _ in runs]
        most = [
            max(row["sent"] for row in result["seconds"])
            for result, _, _ in (
                load(server.url, "--rate=60000", "--for=3s", "--arrivals=even") for _ in range(RUNS)
            )
        ]
        late = [
            load(server.url, "--rate=1000", "--for=5s")[0]["lateMilliseconds"]["p99"]
            for _ in range(RUNS)
        ]
        late_fast = [result["lateMilliseconds"]["p99"] for result, _, _ in runs]
    return [
        harness.figure("requests a second of CPU, at 10 000/s", "1/s", sent, at_least=10_000),
        harness.figure("sent in the best second, one process", "1/s", most),
        harness.figure("late, p99 at 1 000/s", "ms", late, at_most=1.0),
        harness.figure("late, p99 at 10 000/s", "ms", late_fast, at_most=1.0),
    ]


def memory() -> list[harness.Figure]:
    """Return the most memory of runs of four lengths, and what an hour would add by their slope."""
    lengths = (3, 6, 12, 24) if QUICK else (4, 8, 16, 32)
    with Server() as server:
        mib = [load(server.url, "--rate=5000", f"--for={seconds}s")[2] for seconds in lengths]
    slope = (mib[-1] - mib[0]) / (lengths[-1] - lengths[0])
    return [
        *(
            harness.figure(f"memory after {seconds} s at 5 000/s", "MiB", [value])
            for seconds, value in zip(lengths, mib, strict=True)
        ),
        harness.figure("more after the longest", "MiB", [mib[-1] - mib[0]], at_most=2),
        harness.figure("more in an hour, by that slope", "MiB", [slope * 3600]),
    ]


def beside_hey() -> list[harness.Figure]:
    """Return percentiles of a known distribution, by us and by hey, in turn on one server."""
    seconds = 15
    ours: list[dict[str, float]] = []
    theirs: list[list[float]] = []
    with Server((DELAY_S, SPREAD_S)) as server:
        for _ in range(RUNS):
            result, _, _ = load(
                server.url, f"--rate={RATE}", f"--for={seconds}s", "--arrivals=even"
            )
            ours.append(result["latencyMilliseconds"])
            if shutil.which("hey"):
                theirs.append(hey_ms(server.url, seconds))
    figures = []
    for percent, expected_ms in EXPECTED_MS.items():
        found = [each[f"p{percent}"] for each in ours]
        name, note = f"p{percent} of a known distribution", f"by theory {expected_ms:.2f} ms"
        figures.append(harness.figure(name, "ms", found, note=note))
        off = [abs(each / expected_ms - 1) for each in found]
        figures.append(harness.figure(f"{name}, off theory", "ratio", off, at_most=0.05))
        if theirs:
            by_hey = [p_ms(each, percent) for each in theirs]
            figures.append(harness.figure(f"{name}, by hey", "ms", by_hey))
            off = [abs(mine / other - 1) for mine, other in zip(found, by_hey, strict=True)]
            figures.append(harness.figure(f"{name}, off hey", "ratio", off, at_most=0.05))
    return figures


def stalled() -> list[harness.Figure]:
    """Return the p95 of a server that stands still at times: ours, hey's, and hey's corrected."""
    seconds = 15  # three whole rounds of the server, so that it doesn't matter when they begin
    ours, plain, corrected = [], [], []
    for _ in range(RUNS):
        with Server((0.001, 0), (STALL_S, EVERY_S)) as server:
            result, _, _ = load(
                server.url, f"--rate={RATE}", f"--for={seconds}s", "--arrivals=even"
            )
        ours.append(result["latencyMilliseconds"]["p95"])
        if shutil.which("hey"):
            with Server((0.001, 0), (STALL_S, EVERY_S)) as server:
                values = hey_ms(server.url, seconds, STALLED_WORKERS)
            plain.append(p_ms(values, 95))
            corrected.append(p_ms(values, 95, 1000 * STALLED_WORKERS / RATE))
    note = f"by theory {STALLED_P95_MS:g} ms"
    off = [abs(each / STALLED_P95_MS - 1) for each in ours]
    figures = [
        harness.figure("p95 of a server that stalls", "ms", ours, note=note),
        harness.figure("p95 of a server that stalls, off theory", "ratio", off, at_most=0.05),
    ]
    if plain:
        off = [abs(mine / other - 1) for mine, other in zip(ours, corrected, strict=True)]
        hidden = [mine / other for mine, other in zip(ours, plain, strict=True)]
        figures += [
            harness.figure("the same by hey, as it prints it", "ms", plain),
            harness.figure("times what hey prints", "ratio", hidden, at_least=10),
            harness.figure("the same by hey, corrected as wrk2 does", "ms", corrected),
            harness.figure("off hey's corrected", "ratio", off, at_most=0.05),
        ]
    return figures


if __name__ == "__main__":
    sys.exit(main())
