"""What `gpuscale scaler` costs under the calls that KEDA makes, beside KEDA's own Prometheus scaler.

    python benchmarks/bench_scaler.py [--scaled-objects 100,300,1000,3000] [--seconds 40]

Each ScaledObject has three triggers, a query of its own each, over a real Prometheus. KEDA polls each
trigger every 30 seconds (GetMetricSpec, GetMetrics, IsActive), and its HPA asks for each metric every 15
(the specs of all three, then value and activity): 1 300 calls a second of 1 000 ScaledObjects. The calls are
made by KEDA's own scalers, in a Go program (`load/keda/main.go`) that is built with KEDA's module; they are
due at even times, and time counts from then. The server has one core, and shares it with what else runs.

In the same run KEDA's Prometheus scaler asks for the same queries at the same times, and Prometheus' CPU
counts with it. `gpuscale scaler` asks Prometheus by itself, so Prometheus' CPU counts there too.

The last part is hostile clients, one after the other, and what memory the scaler has after each.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio

import harness
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import programs

TRIGGERS = 3
POLL_S, SYNC_S = 30.0, 15.0
_MODULE = Path(programs.__file__).parents[1] / "modules" / "keda"
_PRIORITY = -20 if os.geteuid() == 0 else 0
"""Of what is measured, so that other work on the machine counts less."""
_COMPILED = Path(tempfile.gettempdir()) / "gpuscale-bench-scaler"
_TICKS = os.sysconf("SC_CLK_TCK")


def unusable() -> str:
    absent = [name for name in ("prometheus", "go") if shutil.which(name) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


def built_load(folder: Path) -> Path:
    """Build the load; minutes the first time, as it has KEDA in it."""
    for each in (*_MODULE.glob("go.*"), Path(__file__).parent / "load" / "keda" / "main.go"):
        shutil.copy(each, folder)
    program = folder / "keda-load"
    subprocess.run(
        ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), "main.go"],
        check=True,
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"},
    )
    return program


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def mib(pid: int, field: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ValueError(field)


class Scaler:
    """The server under test, on the last core."""

    def __init__(self, prometheus_port: int) -> None:
        self.port, self.metrics_port = (prometheus_process.free_port() for _ in range(2))
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [
                *("taskset", "-c", "0", "nice", "-n", str(_PRIORITY)),
                *(sys.executable, "-m", "gpuscale.cli.main", "scaler"),
                f"--prometheus-url=http://127.0.0.1:{prometheus_port}",
                *("--bind-address=127.0.0.1", f"--port={self.port}"),
                *(f"--metrics-port={self.metrics_port}", "--shutdown-delay-duration=0s"),
                *("--max-triggers=9500", "--max-triggers-per-address=9500"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.005)
        self.started_s = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self.process.pid

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as found:
            return str(found.read().decode())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def _environment() -> dict[str, str]:
    """Return the environment of a scaler that finds its modules compiled, as those of a package are."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(_COMPILED)}


@contextlib.contextmanager
def scaler_of(prometheus_port: int) -> Iterator[Scaler]:
    found = Scaler(prometheus_port)
    try:
        yield found
    finally:
        found.close()


def query(trigger: int) -> str:
    return f'sum(queue_length{{object="NUMBER",part="{trigger}"}})'


def run_load(
    program: Path,
    kind: str,
    count: int,
    seconds: float,
    pids: tuple[int, ...],
    keys: dict[str, str],
) -> dict[str, Any]:
    """Return what the load saw, and the CPU of processes from the moment that calls count."""
    triggers = [{**keys, "query": query(number)} for number in range(TRIGGERS)]
    if kind != "prometheus":
        for number, trigger in enumerate(triggers):
            trigger["metricName"] = f"queue-{number}"
    settings = {
        "kind": kind,
        "scaled_objects": count,
        "triggers": triggers,
        "poll_seconds": POLL_S,
        "sync_seconds": SYNC_S,
        "warm_seconds": 25.0,
        "seconds": seconds,
        "at_once": 5_000,
    }
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        os.setpriority(os.PRIO_PROCESS, process.pid, _PRIORITY)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings))
        process.stdin.close()
        process.stdout.readline()
        before = {pid: cpu_s(pid) for pid in pids}
        found: dict[str, Any] = json.loads(process.stdout.readline())
        found["cpu"] = {pid: cpu_s(pid) - spent_s for pid, spent_s in before.items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scaled-objects", default="100,300,1000,3000")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--load", type=Path, help="the load, built already")
    parser.add_argument("--no-hostile", action="store_true")
    given = parser.parse_args()
    if reason := unusable():
        print(reason)
        return 0
    figures: list[harness.Figure] = []
    counts = [int(each) for each in given.scaled_objects.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = given.load or built_load(folder)
        now_ms = time.time_ns() // 1_000_000
        samples = [
            (
                {"__name__": "queue_length", "object": str(o), "part": str(p)},
                at_ms,
                float(1 + o % 7),
            )
            for o in range(max(counts))
            for p in range(TRIGGERS)
            for at_ms in range(now_ms - 240_000, now_ms, 60_000)
        ]
        port = prometheus_process.free_port()
        with prometheus_process.serve(samples, folder, port) as prometheus:
            os.setpriority(os.PRIO_PROCESS, prometheus.pid, _PRIORITY)
            stop = keep_fresh(prometheus, max(counts))
            with scaler_of(port):
                pass  # compiles its modules
            try:
                for count in counts:
                    figures += measured(program, count, given.seconds, port, prometheus.pid)
                if not given.no_hostile:
                    figures += hostile(port)
            finally:
                stop.set()
    load = [round(each, 1) for each in os.getloadavg()]
    settings = {"scaled_objects": counts, "seconds": given.seconds, "load_average": load}
    return harness.write("scaler", figures, packages=("grpcio", "aiohttp"), settings=settings)


def keep_fresh(prometheus: prometheus_process.Prometheus, objects: int) -> Any:
    """Write the series again and again, as scrapes would; return what ends it."""
    import threading

    stop = threading.Event()

    def write() -> None:
        while not stop.wait(60.0):
            now_ms = time.time_ns() // 1_000_000
            prometheus.write(
                [
                    (
                        {"__name__": "queue_length", "object": str(o), "part": str(p)},
                        now_ms,
                        float(1 + o % 7),
                    )
                    for o in range(objects)
                    for p in range(TRIGGERS)
                ]
            )

    threading.Thread(target=write, daemon=True).start()
    return stop


def hostile(port: int) -> list[harness.Figure]:
    """Return the memory of a scaler after clients did what they can, at the size of its bounds."""
    with scaler_of(port) as scaler:
        figures = []

        def note(name: str, peak: float) -> None:
            time.sleep(3.0)
            after = mib(scaler.pid)
            print(f"after {name}: {after:.1f} MiB, at its peak {peak:.1f}", flush=True)
            figures.append(
                harness.figure(f"memory after {name}", "MiB", [after], note=f"peak {peak:.1f} MiB")
            )

        asyncio.run(_calls(scaler.port, 100))
        note("a hundred calls", mib(scaler.pid))
        streams = asyncio.run(_streams(scaler, 6_000))
        note("6 000 streams", streams)
        connections = asyncio.run(_connections(scaler, 320))
        note("320 connections", connections)
        names = asyncio.run(_calls(scaler.port, 12_000, spread=True))
        note("12 000 new triggers", max(names, mib(scaler.pid)))
        huge = asyncio.run(_huge(scaler, 500))
        note("500 messages of 4 MB", huge)
    return figures


def _ref(number: int) -> bytes:
    metadata = {"query": f"vector({number})", "target": "1", "metricName": f"m{number}"}
    ref = pb.ScaledObjectRef(name="so", namespace="ml", scalerMetadata=metadata)
    return bytes(ref.SerializeToString())


async def _calls(port: int, count: int, *, spread: bool = False) -> float:
    path = "/externalscaler.ExternalScaler/IsActive"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(path)
        for first in range(0, count, 200):
            numbers = range(first, min(count, first + 200))
            bodies = [_ref(number if spread else 0) for number in numbers]
            await asyncio.gather(*(call(body) for body in bodies), return_exceptions=True)
    return 0.0


async def _streams(scaler: Scaler, count: int) -> float:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        opened: Any = channel.unary_stream("/externalscaler.ExternalScaler/StreamMetricSpec")
        streams = [opened(_ref(0)) for _ in range(count)]
        for stream in streams:
            await stream.read()
        peak = mib(scaler.pid)
        for stream in streams:
            stream.cancel()
    return peak


async def _connections(scaler: Scaler, count: int) -> float:
    found = [socket.create_connection(("127.0.0.1", scaler.port)) for _ in range(count)]
    await asyncio.sleep(2.0)
    peak = mib(scaler.pid)
    for each in found:
        each.close()
    return peak


async def _huge(scaler: Scaler, count: int) -> float:
    body = pb.ScaledObjectRef(scalerMetadata={"query": "x" * 4_000_000}).SerializeToString()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        call: Any = channel.unary_unary("/externalscaler.ExternalScaler/GetMetricSpec")
        for _ in range(count // 20):
            await asyncio.gather(*(call(body) for _ in range(20)), return_exceptions=True)
    return mib(scaler.pid)


def measured(
    program: Path, count: int, seconds: float, port: int, prometheus_pid: int
) -> list[harness.Figure]:
    def note(name: str, unit: str, value: float, **budget: Any) -> harness.Figure:
        found = harness.figure(f"{count} ScaledObjects: {name}", unit, [value], **budget)
        print(found.name, round(value, 3), unit, flush=True)
        return found

    figures = []
    with scaler_of(port) as scaler:
        budgets = {"at_most": 5.0} if count == 1000 else {}
        ours = run_load(
            program,
            "external",
            count,
            seconds,
            (scaler.pid, prometheus_pid),
            {"scalerAddress": f"127.0.0.1:{scaler.port}", "target": "5"},
        )
        figures += [
            note("start until it listens", "s", scaler.started_s, at_most=1.0),
            note("calls", "1/s", ours["calls"] / seconds),
            note("errors", "", float(sum(ours["errors"].values())), at_most=0.0),
            note("GetMetricSpec, p50", "ms", ours["p50_ms"]["spec"]),
            note("GetMetricSpec, p99", "ms", ours["p99_ms"]["spec"], **budgets),
            note("GetMetrics and IsActive, p50", "ms", ours["p50_ms"]["value and activity"]),
            note("GetMetrics and IsActive, p99", "ms", ours["p99_ms"]["value and activity"]),
            note("CPU of the scaler", "cores", ours["cpu"][scaler.pid] / seconds),
            note("CPU of Prometheus", "cores", ours["cpu"][prometheus_pid] / seconds),
            note(
                "memory of the scaler",
                "MiB",
                mib(scaler.pid),
                **({"at_most": 80.0} if count == 1000 else {}),
            ),
        ]
    theirs = run_load(
        program,
        "prometheus",
        count,
        seconds,
        (prometheus_pid,),
        {"serverAddress": f"http://127.0.0.1:{port}", "threshold": "5"},
    )
    figures += [
        note("KEDA's Prometheus scaler, errors", "", float(sum(theirs["errors"].values()))),
        note(
            "KEDA's Prometheus scaler, value and activity, p50",
            "ms",
            theirs["p50_ms"]["value and activity"],
        ),
        note(
            "KEDA's Prometheus scaler, value and activity, p99",
            "ms",
            theirs["p99_ms"]["value and activity"],
        ),
        note(
            "KEDA's Prometheus scaler, CPU of the process that asks",
            "cores",
            theirs["cpu_seconds"] / seconds,
        ),
        note(
            "KEDA's Prometheus scaler, CPU of Prometheus",
            "cores",
            theirs["cpu"][prometheus_pid] / seconds,
        ),
        note("the process that asks gpuscale, CPU", "cores", ours["cpu_seconds"] / seconds),
    ]
    for found in (ours, theirs):
        for text, number in list(found["errors"].items())[:3]:
            print(f"  {number} x {text}")
    return figures


if __name__ == "__main__":
    sys.exit(main())
