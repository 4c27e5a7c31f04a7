"""How memory and CPU of gpuscale's processes grow, at four sizes of each thing that they grow with.

    python benchmarks/bench_sizing.py                       # about twelve minutes
    python benchmarks/bench_sizing.py --parts streams store # these; the others stay as they are

The parts are pods, rates, connections, replicas, streams, store, prometheus and agent. Each keeps its
commit, its time and the machine's load average in benchmarks/results/sizing.json, and its table in
docs/sizing.md is brought up to date. Memory is what is resident (RSS), which other work on the machine does
not change. CPU it does: look at `load_1m` first.

`pods`, `rates`, `connections` and `replicas` run beside a real API server and a real Prometheus, as
bench_metrics_api.py does, and need their programs.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bench_metrics_api as metrics_api
import bench_streams
import harness
import series_ingest
import sizing_tables
from bench_exporter import cpu_seconds, resident_mib
from gpuscale.testing.prometheus import Prometheus, free_port
from gpuscale_testing import ControlPlane, missing
from gpuscale_testing.metrics_apis import MetricsApi, gpuscale_metrics_api

Row = dict[str, float]
PODS = (10, 100, 1_000, 10_000)
RATES = (5, 66, 330, metrics_api.FLAT_OUT)
CONNECTIONS = (0, 500, 1_500, 5_000)
FROM_AN_ADDRESS = 500
NODES = (10, 100, 500, 1_000)
STORES = ((1_000, 240), (10_000, 240), (33_000, 120), (100_000, 60))
"""Series, and samples of each, within the hour that a store keeps."""
PROMETHEUS_SERIES = (1_000, 10_000, 33_000, 100_000)
GPUS = (1, 4, 8, 16)
REAL_RATE = 66
"""Requests a second of a controller with 1 000 HPAs."""
ROUND_S = 10.0
WARM_S = metrics_api.SYNC_S + 1
BEHIND_API_SERVER = ("connections", "pods", "rates", "replicas")


@dataclass
class Plane:
    """A control plane and a Prometheus, started when they are first needed."""

    folder: Path
    stack: ExitStack
    pods: int = 0
    _started: tuple[ControlPlane, Prometheus, metrics_api.Bench] | None = field(default=None)

    def with_pods(self, pods: int) -> tuple[ControlPlane, Prometheus, metrics_api.Bench]:
        """Return them, with at least so many pods that have samples."""
        if self._started is None:
            bench = metrics_api.Bench(self.folder, metrics_api.built_load(self.folder), ROUND_S)
            plane = self.stack.enter_context(ControlPlane(metrics_api.plane_settings()))
            prometheus = self.stack.enter_context(metrics_api.prometheus_of(self.folder))
            self._started = plane, prometheus, bench
        plane, prometheus, bench = self._started
        asyncio.run(metrics_api.make_pods(plane, self.pods, max(pods, self.pods)))
        self.pods = max(pods, self.pods)
        prometheus.write(metrics_api.samples(self.pods, bench.written_ms))
        return self._started

    @contextmanager
    def server(self, pods: int, *more: str) -> Iterator[MetricsApi]:
        """Run a metrics API that has answered for one of the pods."""
        plane, prometheus, _ = self.with_pods(pods)
        rules = self.folder / "rules.yaml"
        rules.write_text(metrics_api.RULES)
        flags = ["--metrics-relist-interval=1m", "--metrics-max-age=10m", *more]
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        with gpuscale_metrics_api(plane, prometheus.url, rules, folder, more=flags) as api:
            metrics_api.ask_until(api, plane, metrics_api.hpa_paths(pods, 5)[0])
            yield api

    def asked(
        self, api: MetricsApi, paths: list[str], rate: float, seconds: float = ROUND_S
    ) -> metrics_api.Round:
        """Return what a rate of requests costs a server; 0 is as fast as it answers."""
        plane, prometheus, bench = self._started or self.with_pods(0)
        warm_s = WARM_S if rate else 3
        return metrics_api.run(
            [str(bench.load)],
            api,
            plane,
            prometheus,
            paths,
            rate,
            warm_s,
            seconds,
        )


def main() -> int:
    """Measure the parts, and return the exit code."""
    measures: dict[str, Callable[[Plane], list[Row]]] = {
        "connections": connections,
        "pods": pods,
        "rates": rates,
        "replicas": replicas,
        "streams": streams,
        "store": store,
        "prometheus": prometheus,
        "agent": agent,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=list(measures), default=list(measures))
    chosen = parser.parse_args().parts
    if any(part in BEHIND_API_SERVER for part in chosen) and (reason := unusable()):
        print(f"bench_sizing: {reason}")
        return 1
    metrics_api.compile_ahead()
    with tempfile.TemporaryDirectory(prefix="gpuscale-bench-") as name, ExitStack() as stack:
        plane = Plane(Path(name), stack)
        for part in measures:
            if part not in chosen:
                continue
            began = time.monotonic()
            rows = measures[part](plane)
            keep(part, rows, time.monotonic() - began)
            print(part, *rows, sep="\n  ", flush=True)
    sizing_tables.main()
    return 0


def keep(part: str, rows: list[Row], took_s: float) -> None:
    """Write a part into the results; the others stay as they are."""
    result = sizing_tables.RESULT
    document: dict[str, Any] = {"benchmark": "sizing"}
    if result.exists():
        document = json.loads(result.read_text())
    document.setdefault("parts", {})[part] = {
        "commit": harness.commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": round(took_s, 1),
        "machine": harness.machine(),
        "rows": [{name: round(value, 4) for name, value in row.items()} for row in rows],
    }
    result.write_text(json.dumps(document, indent=2) + "\n")


def unusable() -> str:
    """Return what a control plane with a Prometheus is missing; empty if nothing is."""
    absent = [name for name in ("prometheus", "go") if shutil.which(name) is None]
    return missing() or (f"needs the program {absent[0]}" if absent else "")


def connections(plane: Plane) -> list[Row]:
    """Connections of strangers that keep quiet, with room for all of them, and then with the defaults."""
    rows = []
    for limit, sizes in ((max(CONNECTIONS) + 500, CONNECTIONS), (2_500, CONNECTIONS[-1:])):
        with plane.server(PODS[0], f"--max-connections={limit}") as api, ExitStack() as stack:
            opened: list[ssl.SSLSocket] = []
            for size in sizes:
                while len(opened) < size:
                    # Another address for each few, as the number from one address is bounded too.
                    source = f"127.0.1.{1 + len(opened) // FROM_AN_ADDRESS}"
                    opened.append(stack.enter_context(stranger(api.port, source)))
                rows.append(
                    {
                        "opened": size,
                        "limit": limit,
                        "open": sum(map(is_open, opened)),
                        "serving_mib": resident_mib(api.pid),
                    }
                )
    return rows


_TLS = ssl.create_default_context()
_TLS.check_hostname = False
_TLS.verify_mode = ssl.CERT_NONE


def stranger(port: int, source: str) -> ssl.SSLSocket:
    """Return a connection that has asked once, and asks no more."""
    raw = socket.create_connection(("127.0.0.1", port), 60, (source, 0))
    connection = _TLS.wrap_socket(raw)
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: metrics\r\n\r\n")
    if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
        raise RuntimeError("the metrics API does not answer a stranger")
    return connection


def is_open(connection: ssl.SSLSocket) -> bool:
    """Return whether the other end has not closed a connection."""
    connection.setblocking(False)
    with suppress(ssl.SSLWantReadError):
        try:
            return connection.recv(4096) != b""
        except OSError as error:
            if isinstance(error, ssl.SSLWantReadError):
                raise
            return False
    return True


def pods(plane: Plane) -> list[Row]:
    """Pods, one server for each number, asked as 1 000 HPAs do."""
    rows = []
    for count in PODS:
        with plane.server(count) as api:
            start_s = cpu_seconds(api.pid)
            done = plane.asked(api, metrics_api.hpa_paths(count, REAL_RATE), REAL_RATE)
            row = {"pods": count, "start_cpu_s": start_s, "serving_mib": done.resident_mib}
            rows.append({**row, "most_mib": metrics_api.most_mib(api.pid)})
    return rows


def rates(plane: Plane) -> list[Row]:
    """Requests a second, one after the other, with the largest number of pods."""
    with plane.server(PODS[-1]) as api:
        return [
            {"rate": rate, **costs(plane.asked(api, metrics_api.hpa_paths(PODS[-1], rate), rate))}
            for rate in RATES
        ]


def costs(*rounds: metrics_api.Round) -> Row:
    """Return what one load cost all servers that shared it."""
    seconds = rounds[0].seconds
    answered = sum(each.told["requests"] for each in rounds)
    return {
        "answered_per_s": answered / seconds,
        "cores": sum(each.cpu_s for each in rounds) / seconds,
        "cpu_ms_a_request": 1000 * sum(each.cpu_s for each in rounds) / max(1, answered),
        # Each round counts all that Prometheus did meanwhile.
        "prometheus_cores": max(each.prometheus_cpu_s for each in rounds) / seconds,
        "prometheus_queries_per_s": max(each.queries for each in rounds) / seconds,
        "serving_mib": sum(each.resident_mib for each in rounds),
    }


def replicas(plane: Plane) -> list[Row]:
    """One server and two that share a load, at the rate of 1 000 HPAs and as fast as they answer."""
    rows = []
    for count in (1, 2):
        with ExitStack() as stack:
            servers = [stack.enter_context(plane.server(PODS[-1])) for _ in range(count)]
            rows += [shared(plane, servers, rate) for rate in (REAL_RATE, metrics_api.FLAT_OUT)]
    return rows


def shared(plane: Plane, servers: list[MetricsApi], rate: int) -> Row:
    """Return what servers answer that get equal parts of a load at the same time."""
    count = len(servers)
    paths = metrics_api.hpa_paths(PODS[-1], rate)

    def asked(number: int) -> metrics_api.Round:
        return plane.asked(servers[number], paths[number::count], rate / count)

    with ThreadPoolExecutor(count) as pool:
        return {"servers": count, "rate": rate, **costs(*pool.map(asked, range(count)))}


def streams(plane: Plane) -> list[Row]:
    """Nodes of eight GPUs whose agents are followed, right after the start."""
    template = asyncio.run(bench_streams.snapshot(plane.folder))
    rows = []
    for nodes in NODES:
        metrics = len(bench_streams.FIELDS)
        run = asyncio.run(bench_streams.measure(nodes, 0, 12, template, plane.folder, metrics))
        serving, collector = run.each_mib
        rows.append(
            {
                "nodes": nodes,
                "series": run.store["store_series"],
                "samples": run.store["store_samples"],
                "cores": run.cpu,
                "serving_mib": serving,
                "collector_mib": collector,
            }
        )
    return rows


def store(_: Plane) -> list[Row]:
    """Series and samples of a store, each in a process of its own."""
    return [
        json.loads(
            subprocess.run(
                [sys.executable, __file__, "filled", str(series), str(scrapes)],
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        for series, scrapes in STORES
    ]


def filled(series: int, scrapes: int) -> Row:
    """Return what a store adds to this process."""
    fleet = series_ingest.Fleet(series)
    before = resident_mib(os.getpid())
    for _ in range(scrapes):
        fleet.scrape()
    stats = fleet.store.stats()
    return {
        "series": stats.series,
        "samples": stats.samples,
        "store_mib": resident_mib(os.getpid()) - before,
    }


def prometheus(_: Plane) -> list[Row]:
    """Series of a Prometheus that has scraped them a few times."""
    rows = []
    for series in PROMETHEUS_SERIES:
        samples_per_cpu_s, mib = series_ingest.prometheus_cost(series, 8)
        rows.append({"series": series, "samples_per_cpu_s": samples_per_cpu_s, "mib": mib})
    return rows


def agent(_: Plane) -> list[Row]:
    """GPUs of a node agent that reads once a second and is scraped as often."""
    rows = []
    for gpus in GPUS:
        port = free_port()
        device = f"--gpu=simulated:NVIDIA H200:{gpus}"
        command: list[str | Path] = [
            bench_streams.GPUSCALE,
            "exporter",
            device,
            f"--address=127.0.0.1:{port}",
        ]
        lines: list[str] = []
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(5)
                cpu, began = cpu_seconds(process.pid), time.monotonic()
                for _second in range(8):
                    time.sleep(1)
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                        lines = answer.read().decode().splitlines()
                cores = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - began)
                exposed = sum(not line.startswith("#") for line in lines)
                mib = resident_mib(process.pid)
            finally:
                process.terminate()
        rows.append({"gpus": gpus, "series": exposed, "cores": cores, "mib": mib})
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["filled"]:
        print(json.dumps(filled(int(sys.argv[2]), int(sys.argv[3]))))
        sys.exit()
    sys.exit(main())
