"""Text to the series store at growing sizes: CPU, memory, and the same text scraped by a real Prometheus.

    python benchmarks/series_ingest.py 1000000     one size, as a line of JSON

A target is a node of 8 GPUs as dcgm-exporter shows it: 25 metrics a GPU, 12 labels each, two more by the
target. Times are CPU seconds of the process that stores, so that other work on the machine counts little.
Each size runs in a process of its own.
"""

import functools
import gc
import http.server
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
from bench_exporter import resident_mib, stat_fields
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing.prometheus import free_port

SIZES = (1_000, 10_000, 100_000)
SERIES_OF_NODE = 200
METRICS = 25
SCRAPES = 10
MEASURED_SERIES = 20_000
"""For the memory by Python's own account, which is slow to keep."""
MEASURED_SCRAPES = 40
START_MS = 1_700_000_000_000
STEP_MS = 15_000
PROMETHEUS_SERIES = 100_000
PROMETHEUS_S = 20.0


def node_text(node: int, scrape: int) -> str:
    """Return what one node exposes."""
    lines: list[str] = []
    for metric in range(METRICS):
        name = f"DCGM_FI_DEV_METRIC_{metric:02d}"
        lines.append(f"# HELP {name} What it is.\n# TYPE {name} gauge")
        for gpu in range(SERIES_OF_NODE // METRICS):
            number = node * 8 + gpu
            lines.append(
                f'{name}{{gpu="{gpu}",UUID="GPU-{number:08x}-5b1c-4e7a-9d2f-{number:012x}",'
                f'pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",modelName="NVIDIA H200",'
                f'Hostname="node-{node:05d}",DCGM_FI_DRIVER_VERSION="570.124.06",container="main",'
                f'namespace="team-{node % 40}",pod="infer-{number // 2}-7d9f8b6c5-x2x4z",'
                f'pool="h200-{node % 4}"}} {(number * 7 + metric + scrape * 13) % 101}'
            )
    return "\n".join(lines) + "\n"


class Fleet:
    """Nodes that are scraped into one store.

    Args:
        series: of all of them together.
    """

    def __init__(self, series: int) -> None:
        nodes = range(series // SERIES_OF_NODE)
        self.series = series
        self.store = SeriesStore(max_series=2 * series + 10_000, max_samples=1 << 40)
        self.targets = [
            ScrapeTarget(
                self.store,
                {"job": "gpu", "instance": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:9400"},
            )
            for n in nodes
        ]
        self.texts = [[node_text(node, scrape) for node in nodes] for scrape in range(2)]
        self._scrapes = 0

    def scrape(self) -> float:
        """Scrape all nodes once; return the CPU seconds that took."""
        now_ms = START_MS + self._scrapes * STEP_MS
        texts = self.texts[self._scrapes % 2]
        self._scrapes += 1
        began = time.process_time()
        added = sum(
            target.ingest(text, now_ms).added
            for target, text in zip(self.targets, texts, strict=True)
        )
        seconds = time.process_time() - began
        assert added == self.series
        return seconds


def measured(series: int) -> dict[str, float]:
    """Return CPU and memory of one size."""
    fleet = Fleet(series)
    gc.collect()
    empty = resident_mib(os.getpid())
    first = fleet.scrape()
    gc.collect()
    filled = resident_mib(os.getpid())
    known = [fleet.scrape() for _ in range(SCRAPES)]
    after = resident_mib(os.getpid())
    return {
        "series": series,
        "first_per_s": series / first,
        "known_per_s": series / statistics.median(known),
        "known_s": statistics.median(known),
        "series_bytes": (filled - empty) * 2**20 / series,
        "sample_bytes": (after - filled) * 2**20 / series / SCRAPES,
    }


def allocated() -> tuple[float, float]:
    """Return the bytes of a series with its first sample, and of each further sample, by Python's account."""
    fleet = Fleet(MEASURED_SERIES)
    gc.collect()
    tracemalloc.start()
    fleet.scrape()
    first = tracemalloc.get_traced_memory()[0]
    for _ in range(MEASURED_SCRAPES):
        fleet.scrape()
    filled = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # What is said of the targets themselves, such as up, counts too.
    return first / MEASURED_SERIES, (filled - first) / MEASURED_SERIES / MEASURED_SCRAPES


def in_processes(sizes: tuple[int, ...]) -> list[dict[str, float]]:
    """Return what each size takes, in a process each."""
    return [
        json.loads(
            subprocess.run(
                [sys.executable, __file__, str(size)],
                stdout=subprocess.PIPE,
                check=True,
                cwd=Path(__file__).parent,
            ).stdout
        )
        for size in sizes
    ]


def figures() -> list[harness.Figure]:
    """Return the figures of ingestion and memory."""
    sizes = in_processes(SIZES)
    largest, smallest = sizes[-1], sizes[0]
    growth = math.log(largest["known_s"] / smallest["known_s"]) / math.log(
        largest["series"] / smallest["series"]
    )
    series_bytes, sample_bytes = allocated()
    found = [
        harness.figure(
            f"text to store, {size['series']:.0f} known series",
            "samples/s of CPU",
            [size["known_per_s"]],
            at_least=1_000_000,
        )
        for size in sizes
    ]
    found += [
        harness.figure("text to store, first scrape", "samples/s of CPU", [largest["first_per_s"]]),
        harness.figure("growth of ingestion with series", "exponent", [growth], at_most=1.1),
        harness.figure(
            "memory of a series, index and target included", "bytes", [series_bytes], at_most=1024
        ),
        harness.figure("memory of each further sample", "bytes", [sample_bytes], at_most=9),
        harness.figure(
            f"resident memory of a series, {largest['series']:.0f} of them",
            "bytes",
            [largest["series_bytes"]],
        ),
    ]
    if shutil.which("prometheus"):
        found += scraped_by_prometheus()
    return found


def scraped_by_prometheus() -> list[harness.Figure]:
    """Return what a real Prometheus takes to scrape the same text from as many targets."""
    samples_per_s, mib = prometheus_cost(PROMETHEUS_SERIES, PROMETHEUS_S)
    return [
        harness.figure(
            f"alternative: Prometheus scrapes the same {PROMETHEUS_SERIES} series over HTTP",
            "samples/s of CPU",
            [samples_per_s],
            note="its HTTP client included; the server is another process's",
        ),
        harness.figure(
            "alternative: Prometheus, resident memory of a series",
            "bytes",
            [mib * 2**20 / PROMETHEUS_SERIES],
            note="of the whole process",
        ),
    ]


def prometheus_cost(series: int, seconds: float) -> tuple[float, float]:
    """Return the samples that Prometheus scrapes in a second of CPU, and its resident memory in MiB."""
    nodes = series // SERIES_OF_NODE
    with tempfile.TemporaryDirectory() as name, text_server(nodes) as port:
        folder, own_port = Path(name), free_port()
        jobs = {
            "job_name": "gpu",
            "scrape_interval": "2s",
            "scrape_timeout": "2s",
            "http_sd_configs": [{"url": f"http://127.0.0.1:{port}/targets"}],
            "relabel_configs": [
                {"source_labels": ["__address__"], "target_label": "instance"},
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [jobs]}))
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own_port}",
        ]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                return _followed(process.pid, own_port, series, seconds)
            finally:
                process.terminate()


def _followed(pid: int, port: int, series: int, seconds: float) -> tuple[float, float]:
    began = time.monotonic()
    while _appended(port) < 2 * series:
        if time.monotonic() - began > 120:
            raise TimeoutError("Prometheus did not scrape all targets twice within two minutes")
        time.sleep(1)
    samples, cpu = _appended(port), _cpu_seconds(pid)
    time.sleep(seconds)
    samples, cpu = _appended(port) - samples, _cpu_seconds(pid) - cpu
    return samples / cpu, resident_mib(pid)


def _appended(port: int) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0.0
    name = "prometheus_tsdb_head_samples_appended_total"
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _cpu_seconds(pid: int) -> float:
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def text_server(nodes: int) -> Iterator[int]:
    """Serve the texts of nodes on addresses of loopback, and their list; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/targets":
                _, port = self.request.getsockname()
                hosts = [f"127.1.{node >> 8}.{node & 255}:{port}" for node in range(nodes)]
                self._answer(json.dumps([{"targets": hosts}]).encode(), "application/json")
            else:
                host = self.headers["Host"].split(":")[0].split(".")
                self._answer(body(int(host[2]) * 256 + int(host[3])), "text/plain; version=0.0.4")

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    @functools.cache
    def body(node: int) -> bytes:
        return node_text(node, 0).encode()

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing of a scraper that has gone."""

    server = Server(("", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
