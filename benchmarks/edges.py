"""How long after a load begins its values pass half of their height, and what that costs.

    python benchmarks/edges.py        # an NVIDIA GPU and PyTorch; four minutes

A load on the first GPU begins and ends at random times (`tests/gpu/load.py`) and notes when it begins. The
delay is from there until a client has a value above half of what the load reaches. One client scrapes every
250 ms, as often as the agent collects, on one connection; another follows the stream at 100 ms. Processor
time is the agent's over all of the edges, with what the client costs it.

The result goes to benchmarks/results/edges_<GPUs>x<model>.json, or where GPUSCALE_BENCH_OUT says.
"""

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import harness
from bench_exporter import (
    HOST,
    LOAD,
    cpu_seconds,
    free_port,
    gpus,
    has_torch,
    resident_mib,
    result_file,
)

HALVES = {
    "DCGM_FI_DEV_GPU_UTIL": 50.0,
    "DCGM_FI_PROF_SM_ACTIVE": 0.45,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.4,
}
"""Field to half of what matrix products bring it to."""
COUNTERS = "DCGM_FI_PROF_SM_ACTIVE, gauge, Ratio of cycles an SM has a warp assigned.\n"
SCRAPED_EDGES, STREAMED_EDGES = 24, 12
SCRAPE_S = 0.25
IDLE_S = 20.0
START_LIMIT_S = 30.0
WARM_UP_S = 3.0
P50_BUDGET_S, P99_BUDGET_S = 0.3, 1.0
CPU_BUDGET_PERCENT, IDLE_BUDGET_PERCENT = 2.0, 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A value as a client had it."""

    at_s: float
    field: str
    value: float


Client = Callable[[int, list[Seen], threading.Event], None]
"""Reads from a port into a list until it is told to stop."""


def main() -> int:
    """Measure, and return the exit code."""
    found = gpus()
    if not found or not has_torch():
        sys.exit("edges: needs an NVIDIA GPU that NVML reads, and PyTorch to load it")
    figures = [
        *followed("scrape at 250 ms", "250ms", scrape, SCRAPED_EDGES, found[0].uuid),
        *followed("stream at 100 ms", "1s", stream, STREAMED_EDGES, found[0].uuid),
        *left_alone(),
    ]
    result = result_file(found).with_stem(result_file(found).stem.replace("exporter_", "edges_"))
    harness.RESULTS = result.parent
    settings = {
        "gpus": [gpu.model for gpu in found],
        "edges": {"scrape": SCRAPED_EDGES, "stream": STREAMED_EDGES},
        "halves": HALVES,
    }
    return harness.write(
        result.stem, figures, packages=("nvidia-ml-py", "torch"), settings=settings
    )


def followed(
    name: str, interval: str, client: Client, edges: int, uuid: str
) -> Iterator[harness.Figure]:
    """Return the delays of one client, and what the agent cost meanwhile."""
    seen: list[Seen] = []
    stop = threading.Event()
    with agent(interval) as (process, port):
        reading = threading.Thread(target=client, args=(port, seen, stop), daemon=True)
        reading.start()
        time.sleep(WARM_UP_S)
        begun, began_cpu_s = time.perf_counter(), cpu_seconds(process.pid)
        loads = run_loads(edges, uuid)
        used_s = cpu_seconds(process.pid) - began_cpu_s
        percent = 100 * used_s / (time.perf_counter() - begun)
        stop.set()
        reading.join(5)
    for field, half in HALVES.items():
        found = [delay for load in loads if (delay := delay_s(seen, field, half, load)) is not None]
        if len(found) < len(loads):
            sys.exit(
                f"edges: {name}: {field} passed {half:g} at {len(found)} of {len(loads)} loads"
            )
        yield harness.figure(f"{name}: {field}, p50", "s", found, at_most=P50_BUDGET_S)
        yield harness.figure(f"{name}: {field}, longest", "s", [max(found)], at_most=P99_BUDGET_S)
    budget = CPU_BUDGET_PERCENT if client is scrape else None
    yield harness.figure(f"{name}: CPU", "% of core", [percent], at_most=budget)


def left_alone() -> Iterator[harness.Figure]:
    """Return what the agent costs at 1 s that nobody asks."""
    with agent("1s") as (process, _):
        time.sleep(WARM_UP_S)
        begun, began_cpu_s = time.perf_counter(), cpu_seconds(process.pid)
        time.sleep(IDLE_S)
        used_s = cpu_seconds(process.pid) - began_cpu_s
        percent = 100 * used_s / (time.perf_counter() - begun)
        memory_mib = resident_mib(process.pid)
    yield harness.figure("1 s, no client: CPU", "% of core", [percent], at_most=IDLE_BUDGET_PERCENT)
    yield harness.figure("1 s, no client: resident memory", "MiB", [memory_mib])


def delay_s(
    seen: Sequence[Seen], field: str, half: float, load: tuple[float, float]
) -> float | None:
    """Return the seconds from the beginning of a load to the first value above half."""
    begin_s, end_s = load
    return min(
        (
            each.at_s - begin_s
            for each in seen
            if each.field == field and each.value > half and begin_s < each.at_s < end_s + 0.5
        ),
        default=None,
    )


def run_loads(edges: int, uuid: str) -> list[tuple[float, float]]:
    """Return when each load began and ended, in seconds since the epoch."""
    rng = random.Random(4)
    steps = ",".join(
        f"{rng.uniform(1.6, 2.4):.3f}x0,{rng.uniform(1.5, 2.0):.3f}x1" for _ in range(edges)
    )
    done = subprocess.run(
        (sys.executable, str(LOAD), "--steps", f"{steps},1x0", "--period-ms", "20"),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    began = [
        each["time_ms"] / 1000 for each in said if each.get("duty") == 1 and each["event"] == "step"
    ]
    ended = [
        each["time_ms"] / 1000
        for each in said
        if each.get("duty") == 1 and each["event"] == "stepped"
    ]
    return list(zip(began, ended, strict=True))


@contextmanager
def agent(interval: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run the agent, and return its process and port once it serves a GPU."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        counters = Path(folder) / "counters.csv"
        counters.write_text(COUNTERS)
        command = (
            *(sys.executable, "-m", "gpuscale.cli.main", "exporter", "--gpu", "nvml"),
            *("--collect-interval", interval, "--stream-interval", "100ms"),
            *("--collectors", str(counters), "--counters-mode", "add"),
            *("--address", f"{HOST}:{port}"),
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_served(process, port)
            yield process, port
        finally:
            process.terminate()
            process.wait(10)


def wait_until_served(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Return once the agent has served a GPU."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"edges: the agent ended with {process.returncode}: {process.args!r}")
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            if b"\nDCGM_FI_DEV_GPU_UTIL{" in connection.getresponse().read():
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    sys.exit(f"edges: the agent has served no GPU within {START_LIMIT_S:g} s")


def scrape(port: int, seen: list[Seen], stop: threading.Event) -> None:
    """Scrape at a fixed pace on one connection."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    due = time.monotonic()
    while not stop.is_set():
        connection.request("GET", "/metrics")
        body = connection.getresponse().read().decode()
        now_s = time.time()
        for line in body.splitlines():
            field = line.partition("{")[0]
            if field in HALVES and 'gpu="0"' in line:
                seen.append(Seen(now_s, field, float(line.rpartition(" ")[2])))
        due += SCRAPE_S
        time.sleep(max(0.0, due - time.monotonic()))
    connection.close()


def stream(port: int, seen: list[Seen], stop: threading.Event) -> None:
    """Follow the stream."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    connection.request("GET", "/stream")
    fields: dict[str, str] = {}
    with connection.getresponse() as answer:
        while not stop.is_set() and (line := answer.readline()):
            note_change(json.loads(line), time.time(), fields, seen)
    connection.close()


def note_change(
    change: Mapping[str, object], now_s: float, fields: dict[str, str], seen: list[Seen]
) -> None:
    """Keep the first GPU's values of one line of the stream."""
    values: dict[str, object] = dict(change.get("values", {}))  # type: ignore[call-overload]
    for key in ("series", "new"):
        for number, field, labels, value in change.get(key, ()):  # type: ignore[attr-defined]
            if field in HALVES and labels.get("gpu") == "0":
                fields[str(number)] = field
                values[str(number)] = value
    seen += [
        Seen(now_s, fields[number], float(str(value)))
        for number, value in values.items()
        if number in fields
    ]


if __name__ == "__main__":
    sys.exit(main())
