"""The series store against its budgets, and against the alternatives in the same run.

Text to store: a scrape of 10 000 series that was seen before, a scrape never seen before, and the general
reader (`parse_text`) followed by appends, which is what a store without a per-target memory would do.

`avg by (pod)` over 10 000 series: warm, the first time after a series came or went, over HTTP, and from a
real Prometheus on the same data over HTTP where the program is installed.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

import harness
from gpuscale.core.clock import WallClock
from gpuscale.exposition.parse import parse_text
from gpuscale.promapi.app import add_routes
from gpuscale.series.evaluate import instant
from gpuscale.series.scrape import ScrapeTarget
from gpuscale.series.store import SeriesStore

SERIES = 10_000
PODS = 1_250
RUNS = 15
SCRAPES = 10
START_MS = 1_700_000_000_000
STEP_MS = 15_000
QUERY = "avg by (pod) (DCGM_FI_DEV_GPU_UTIL)"
TARGET = {"job": "gpu", "instance": "10.0.0.1:9400"}


def lines(scrape: int) -> list[str]:
    """Return one line per GPU as dcgm-exporter prints it."""
    return [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i % 8}",UUID="GPU-{i:08x}-0000",device="nvidia{i % 8}",'
        f'modelName="NVIDIA H200",Hostname="node-{i // 8}",container="main",namespace="prod",'
        f'pod="infer-{i % PODS}"}} {(i * 7 + scrape * 13) % 101}'
        for i in range(SERIES)
    ]


def exposition(scrape: int) -> str:
    """Return the whole text of one scrape."""
    head = (
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    )
    return head + "\n".join(lines(scrape)) + "\n"


def ingest_known() -> list[float]:
    """Return samples/s of scrapes whose series are known to the target."""
    texts = [exposition(scrape) for scrape in range(SCRAPES)]
    store = SeriesStore()
    target = ScrapeTarget(store, TARGET)
    t_ms = START_MS

    def work() -> None:
        nonlocal t_ms
        for text in texts:
            t_ms += 1_000
            assert target.ingest(text, t_ms).added == SERIES

    return [SERIES * SCRAPES / seconds for seconds in harness.timed(work, runs=RUNS)]


def ingest_new() -> list[float]:
    """Return samples/s of a target's very first scrape."""
    text = exposition(0)

    def work() -> None:
        ScrapeTarget(SeriesStore(), TARGET).ingest(text, START_MS)

    return [SERIES / seconds for seconds in harness.timed(work, runs=5)]


def ingest_general() -> list[float]:
    """Return samples/s of reading whole families and appending each sample by its labels."""
    text = exposition(0)
    store = SeriesStore()
    t_ms = START_MS

    def work() -> None:
        nonlocal t_ms
        t_ms += STEP_MS
        for family in parse_text(text):
            for sample in family.samples:
                labels = {**dict(sample.labels), **TARGET, "__name__": family.name}
                store.append(labels, t_ms, sample.value)

    return [SERIES / seconds for seconds in harness.timed(work, runs=5)]


def filled_store() -> tuple[SeriesStore, int]:
    """Return a store with ten minutes of samples, and the time of the last."""
    store = SeriesStore()
    target = ScrapeTarget(store, TARGET)
    for scrape in range(40):
        target.ingest(exposition(scrape), START_MS + scrape * STEP_MS)
    return store, START_MS + 39 * STEP_MS


def query_warm(store: SeriesStore, at_ms: int) -> list[float]:
    """Return milliseconds of the query, asked again and again."""
    return [s * 1000 for s in harness.timed(lambda: instant(store, QUERY, at_ms), runs=51)]


def query_after_churn(store: SeriesStore, at_ms: int) -> list[float]:
    """Return milliseconds of the query right after a series of another metric began."""
    found = []
    for i in range(15):
        store.append({"__name__": "churn", "i": str(i)}, at_ms, 1.0)
        found += harness.timed(lambda: instant(store, QUERY, at_ms), runs=1, warm_up=0)
    return [s * 1000 for s in found]


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Serve the same samples from a real Prometheus on loopback."""
    text = [
        f"{line} {(START_MS + scrape * STEP_MS) // 1000}"
        for scrape in range(40)
        for line in lines(scrape)
    ]
    (folder / "samples.txt").write_text("\n".join([*text, "# EOF", ""]))
    (folder / "prometheus.yml").write_text("global: {}\n")
    build = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "samples.txt", "data"]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    options = ["--storage.tsdb.retention.time=100y", f"--web.listen-address={address}"]
    process = subprocess.Popen(
        [*command, *options], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_ready(f"http://{address}/-/ready")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_ready(url: str) -> None:
    """Return once the URL answers."""
    for _ in range(200):
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer within 10 s")


@contextmanager
def our_api(store: SeriesStore) -> Iterator[str]:
    """Serve our API on loopback from a thread of this process."""
    loop = asyncio.new_event_loop()
    app = web.Application()
    add_routes(app, store, WallClock())
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    loop.run_until_complete(site.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def query_http(url: str, at_ms: int) -> list[float]:
    """Return milliseconds of the query over HTTP, answer read."""
    parameters = urllib.parse.urlencode({"query": QUERY, "time": at_ms // 1000})

    def work() -> None:
        with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}") as answer:
            assert len(json.load(answer)["data"]["result"]) == PODS

    return [s * 1000 for s in harness.timed(work, runs=31, warm_up=3)]


def main() -> int:
    """Measure everything; return an exit code."""
    store, at_ms = filled_store()
    figures = [
        harness.figure(
            "text to store, known series", "samples/s", ingest_known(), at_least=500_000
        ),
        harness.figure("text to store, first scrape", "samples/s", ingest_new()),
        harness.figure(
            "alternative: parse_text, then append by labels", "samples/s", ingest_general()
        ),
        harness.figure(
            "avg by (pod), 10 000 series, warm", "ms", query_warm(store, at_ms), at_most=10
        ),
        harness.figure(
            "avg by (pod), first after a series came", "ms", query_after_churn(store, at_ms)
        ),
    ]
    with our_api(store) as url:
        figures.append(
            harness.figure("avg by (pod), our API over HTTP", "ms", query_http(url, at_ms))
        )
    if shutil.which("prometheus") and shutil.which("promtool"):
        with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder)) as url:
            figures.append(
                harness.figure(
                    "alternative: Prometheus over HTTP, same data", "ms", query_http(url, at_ms)
                )
            )
    return harness.write(
        "series",
        figures,
        packages=["google-re2", "promql-parser"],
        programs={"prometheus": ["prometheus", "--version"]},
        settings={"series": SERIES, "pods": PODS, "scrapes": SCRAPES, "query": QUERY},
    )


if __name__ == "__main__":
    sys.exit(main())
