"""The series store against its budgets, and against the alternatives in the same run.

Text to store: a scrape of 10 000 series that was seen before, a scrape never seen before, and the general
reader (`parse_text`) followed by appends, which is what a store without a per-target memory would do.

Memory: what Python allocates for a series (its labels, the index, and what the target remembers of its lines)
and for each further sample; beside it, how much a real Prometheus grows by the same series and samples.

`avg by (pod)` over 10 000 series: warm, the first time after a series came or went, over HTTP, and from a
real Prometheus on the same data over HTTP where the program is installed.
"""

import asyncio
import gc
import json
import shutil
import sys
import tempfile
import threading
import tracemalloc
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

import harness
from bench_exporter import resident_mib
from gpuscale.core.clock import WallClock
from gpuscale.exposition.lines import SampleLine, parse_line
from gpuscale.exposition.parse import parse_text
from gpuscale.promapi.app import add_routes
from gpuscale.series.evaluate import instant
from gpuscale.series.scrape import ScrapeTarget
from gpuscale.series.store import SeriesStore
from gpuscale.testing.prometheus import Sample, serve

SERIES = 10_000
PODS = 1_250
RUNS = 15
SCRAPES = 10
FILLED_SCRAPES = 40
"""Ten minutes of them."""
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
    kept: list[SeriesStore] = []

    def work() -> None:
        # Taking a store down is no part of filling it.
        kept.append(SeriesStore())
        assert ScrapeTarget(kept[-1], TARGET).ingest(text, START_MS).added == SERIES

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
    for scrape in range(FILLED_SCRAPES):
        target.ingest(exposition(scrape), START_MS + scrape * STEP_MS)
    return store, START_MS + (FILLED_SCRAPES - 1) * STEP_MS


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


def samples() -> Iterator[Sample]:
    """Return what the store holds, for Prometheus."""
    for scrape in range(FILLED_SCRAPES):
        for line in lines(scrape):
            parsed = parse_line(line)
            assert isinstance(parsed, SampleLine)
            labels = {"__name__": parsed.name, **dict(parsed.labels), **TARGET}
            yield labels, START_MS + scrape * STEP_MS, float(parsed.value)


def memory() -> tuple[list[float], list[float]]:
    """Return the bytes that a series takes with its first sample, and those of each further sample."""
    texts = [exposition(scrape) for scrape in range(FILLED_SCRAPES)]
    gc.collect()
    tracemalloc.start()
    store = SeriesStore()
    target = ScrapeTarget(store, TARGET)
    target.ingest(texts[0], START_MS)
    first = tracemalloc.get_traced_memory()[0]
    for scrape, text in enumerate(texts[1:], start=1):
        target.ingest(text, START_MS + scrape * STEP_MS)
    filled = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert store.stats().samples >= SERIES * FILLED_SCRAPES
    return [first / SERIES], [(filled - first) / SERIES / (FILLED_SCRAPES - 1)]


def beside_prometheus(at_ms: int) -> list[harness.Figure]:
    """Return how quick a real Prometheus answers over the same data, and how much it grows by them."""
    with tempfile.TemporaryDirectory() as folder, serve([], Path(folder)) as prometheus:
        empty = resident_mib(prometheus.pid)
        prometheus.write(samples())
        grown = (resident_mib(prometheus.pid) - empty) * 1024 * 1024
        return [
            harness.figure(
                "alternative: Prometheus over HTTP, same data",
                "ms",
                query_http(prometheus.url, at_ms),
            ),
            harness.figure(
                f"alternative: Prometheus, resident growth a series of {FILLED_SCRAPES} samples",
                "bytes",
                [grown / SERIES],
                note="written at once by remote write; garbage of the writes included",
            ),
        ]


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
    first, further = memory()
    figures += [
        harness.figure("memory of a series, index and target included", "bytes", first),
        harness.figure("memory of each further sample", "bytes", further),
    ]
    if shutil.which("prometheus"):
        figures += beside_prometheus(at_ms)
    return harness.write(
        "series",
        figures,
        packages=["google-re2", "promql-parser"],
        programs={"prometheus": ["prometheus", "--version"]},
        settings={
            "series": SERIES,
            "pods": PODS,
            "scrapes": SCRAPES,
            "filled_scrapes": FILLED_SCRAPES,
            "query": QUERY,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
