"""What `gpuscale load http` can send, how punctual it is, and that it measures what hey measures.

The server is an event loop in a process of its own that answers at once, or after a constant time. hey has a
closed loop for each worker, held to a rate: below saturation, with more workers than are ever in flight, both
see the same service.
"""

import json
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import harness

GPUSCALE = str(Path(sys.executable).with_name("gpuscale"))
RUNS = 5
SERVER = """
import asyncio, sys, httptools, uvloop
PORT, WAIT_S = int(sys.argv[1]), float(sys.argv[2])
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
class Client(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.parser = transport, httptools.HttpRequestParser(self)
    def data_received(self, data):
        self.parser.feed_data(data)
    def on_message_complete(self):
        if WAIT_S:
            asyncio.get_running_loop().call_later(WAIT_S, self.transport.write, ANSWER)
        else:
            self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Client, "127.0.0.1", PORT, backlog=1024)
    await server.serve_forever()
uvloop.run(main())
"""


class Server:
    """Answers on loopback after a constant time, in a process of its own."""

    def __init__(self, wait_s: float = 0.0) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/predict?query=Music"
        self._command = [sys.executable, "-c", SERVER, str(self.port), str(wait_s)]

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
        command = [GPUSCALE, "load", "http", url, *arguments, "--output-file", str(file)]
        watched = subprocess.run(
            ["/usr/bin/env", "python3", "-c", WATCH, *command],
            stdout=subprocess.PIPE,
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


def hey(url: str, rate: int, workers: int, seconds: int) -> dict[float, float]:
    """Return hey's percentiles in milliseconds."""
    each = rate / workers
    out = subprocess.run(
        ["hey", "-z", f"{seconds}s", "-c", str(workers), "-q", str(each), url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r"(\d+)% in ([0-9.]+) secs", out)
    return {float(percent): float(value) * 1000 for percent, value in found}


def main() -> int:
    """Measure, and return the exit code."""
    figures = []
    with Server() as server:
        runs = [
            load(server.url, "--rate=10000", "--for=5s", "--arrivals=even") for _ in range(RUNS)
        ]
        sent = [result["requests"]["ok"] / cpu_s for result, cpu_s, _ in runs]
        figures.append(
            harness.figure("requests a second of CPU, at 10 000/s", "1/s", sent, at_least=10_000)
        )
        most = [
            max(
                row["sent"]
                for row in load(server.url, "--rate=60000", "--for=3s", "--arrivals=even")[0][
                    "timeline"
                ]
            )
            for _ in range(RUNS)
        ]
        figures.append(harness.figure("sent in the best second, one process", "1/s", most))
        late = [
            load(server.url, "--rate=1000", "--for=5s")[0]["lateMilliseconds"]["p99"]
            for _ in range(RUNS)
        ]
        figures.append(harness.figure("late, p99 at 1 000/s", "ms", late, at_most=1.0))
        for seconds in (5, 10, 20, 40):
            mib = [load(server.url, "--rate=5000", f"--for={seconds}s")[2]]
            figures.append(harness.figure(f"memory after {seconds} s at 5 000/s", "MiB", mib))
    with Server(0.05) as server:
        ours = [
            load(server.url, "--rate=500", "--for=5s", "--arrivals=even")[0]["latencyMilliseconds"]
            for _ in range(RUNS)
        ]
        for name in ("p50", "p99"):
            values = [each[name] for each in ours]
            figures.append(
                harness.figure(f"{name} of a server that takes 50 ms, at 500/s", "ms", values)
            )
        if shutil.which("hey"):
            theirs = [hey(server.url, 500, 50, 5) for _ in range(RUNS)]
            for percentile in (50.0, 99.0):
                values = [each[percentile] for each in theirs]
                figures.append(harness.figure(f"the same by hey, p{percentile:g}", "ms", values))
            ratio = [mine["p99"] / other[99.0] for mine, other in zip(ours, theirs, strict=True)]
            figures.append(harness.figure("p99 beside hey's", "ratio", ratio, at_most=1.05))
    return harness.write(
        "load", figures, packages=("httptools", "uvloop", "hdrhistogram"), settings={"runs": RUNS}
    )


if __name__ == "__main__":
    sys.exit(main())
