"""What PromQL over many series costs, beside a real Prometheus with the same samples.

`bench_series.py` takes its figures from here.

Both are processes that are asked over HTTP, one query after the other; what counts is the CPU time of the
process, from /proc, so that a busy machine does little harm. The client reads the answers and no more.

Run alone, it prints its figures: `python benchmarks/series_queries.py`.
"""

import asyncio
import contextlib
import http.client
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import harness
from gpuscale.testing.prometheus import Sample, serve

if TYPE_CHECKING:
    from gpuscale.series.storage.store import SeriesStore

START_MS = 1_700_000_000_000
STEP_MS = 15_000
HOUR = 261
"""Scrapes of an hour, and of the five minutes before it that its first step looks back on."""
LOOKBACK = 21
"""Scrapes of five minutes."""
SERIES_A_TARGET = 8
SIZES = {1_000: HOUR, 10_000: HOUR, 100_000: HOUR, 1_000_000: LOOKBACK}
BESIDE = {1_000: HOUR, 10_000: HOUR, 100_000: LOOKBACK}
"""What Prometheus is given: series, and scrapes of each."""
MIN_CPU_S = 0.4
MAX_RUNS = 12
INSTANT = (
    "avg by (pod) (u)",
    "sum by (pod) (rate(u[5m]))",
    "rate(u[5m])",
    "u / on (UUID) u",
)
RANGE = (
    "avg by (pod) (u)",
    "sum(rate(u[5m]))",
    "sum by (pod) (rate(u[5m]))",
    "max(max_over_time(u[5m]))",
    "u",
)
LARGEST = {"u": 1_000}
"""Series that all samples of an hour are answered of; 10 000 are more than a query may hold."""
GROWING = ("sum by (pod) (rate(u[5m]))", "sum(rate(u[5m]))")
GOAL_INSTANT, GOAL_RANGE = 0.5, 1.0
"""Of Prometheus' CPU time."""
MOST = 2.0
"""What the benchmark fails at: half as quick as Prometheus."""


def labels(i: int) -> dict[str, str]:
    """Return the labels of one GPU's series, as dcgm-exporter has them."""
    node = i // SERIES_A_TARGET
    return {
        "__name__": "u",
        "UUID": f"GPU-{i:08x}-0000",
        "Hostname": f"node-{node}",
        "container": "main",
        "device": f"nvidia{i % SERIES_A_TARGET}",
        "gpu": str(i % SERIES_A_TARGET),
        "instance": f"10.{node >> 8}.{node & 255}.1:9400",
        "job": "gpu",
        "modelName": "NVIDIA H200",
        "namespace": "prod",
        "pod": f"infer-{node}",
    }


def values(series: int, scrape: int) -> list[float]:
    """Return the samples of a scrape: eighths, rising, and starting again now and then."""
    number = np.arange(series)
    samples: list[float] = (((number * 7 + scrape * (number % 13 + 1)) % 4_000) / 8).tolist()
    return samples


def end_ms(scrapes: int) -> int:
    """Return the time of the last scrape."""
    return START_MS + (scrapes - 1) * STEP_MS


@dataclass
class Server:
    """A process that answers queries.

    Args:
        host: where it listens, with the port.
        pid: of the process.
    """

    host: str
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU time that the threads of the process have taken, to the nanosecond."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def peak_mib(self) -> float:
        """Return the most memory that the process has had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def ask(self, path: str) -> int:
        """Return how many bytes an answer has; 0 where the query is beyond what one may hold."""
        connection = http.client.HTTPConnection(self.host, timeout=120)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status == 422:
            return 0
        if answer.status != 200:
            raise ValueError(f"found {answer.status} {body[:200]!r} for {path}, expected 200")
        return len(body)

    def costs_ms(self, path: str) -> list[float]:
        """Return the CPU time of a query, several times; what goes on in the background comes on top.

        Empty where the query is beyond what one may hold.
        """
        if not self.ask(path):
            return []
        found: list[float] = []
        began = self.cpu_s()
        while len(found) < MAX_RUNS and (len(found) < 3 or self.cpu_s() - began < MIN_CPU_S):
            before = self.cpu_s()
            self.ask(path)
            found.append((self.cpu_s() - before) * 1000)
        return found


def instant_path(query: str, scrapes: int) -> str:
    """Return the path of an instant query at the last scrape."""
    return (
        f"/api/v1/query?{urllib.parse.urlencode({'query': query, 'time': end_ms(scrapes) / 1000})}"
    )


def range_path(query: str, scrapes: int) -> str:
    """Return the path of a range query over the last hour."""
    end = end_ms(scrapes) / 1000
    times = {"start": end - 3600, "end": end, "step": STEP_MS / 1000}
    return f"/api/v1/query_range?{urllib.parse.urlencode({'query': query, **times})}"


@contextmanager
def ours(series: int, scrapes: int) -> Iterator[Server]:
    """Run our API over a store of its own, in a process."""
    command = [sys.executable, __file__, "--serve", str(series), str(scrapes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def theirs(series: int, scrapes: int) -> Iterator[Server]:
    """Run Prometheus with the same samples."""
    with tempfile.TemporaryDirectory() as folder, serve([], Path(folder)) as prometheus:
        # It takes no sample that is an hour older than the newest of all.
        for first in range(0, scrapes, HOUR // 2):
            last = min(scrapes, first + HOUR // 2)
            scraped = {scrape: values(series, scrape) for scrape in range(first, last)}
            for start in range(0, series, 1_000):
                prometheus.write(_samples(range(start, min(series, start + 1_000)), scraped))
        yield Server(prometheus.url.removeprefix("http://"), prometheus.pid)


def _samples(series: range, scraped: dict[int, list[float]]) -> Iterator[Sample]:
    for i in series:
        mine = labels(i)
        for scrape, row in scraped.items():
            yield mine, START_MS + scrape * STEP_MS, row[i]


def filled(series: int, scrapes: int) -> "SeriesStore":
    """Return a store with targets of eight series each."""
    from gpuscale.series.storage.store import SeriesStore

    store = SeriesStore(2 * 3_600_000, series + 1, series * (scrapes + 100) * 2)
    targets = [
        range(start, min(series, start + SERIES_A_TARGET))
        for start in range(0, series, SERIES_A_TARGET)
    ]
    parts = [([store.ref(labels(i)) for i in target], store.group()) for target in targets]
    for scrape in range(scrapes):
        t_ms, row = START_MS + scrape * STEP_MS, values(series, scrape)
        for target, (refs, group) in zip(targets, parts, strict=True):
            store.append_many(refs, row[target.start : target.stop], t_ms, t_ms, group)
    return store


def serve_ours(series: int, scrapes: int) -> None:
    """Fill a store and answer queries until the process is ended."""
    import gc

    from aiohttp import web

    from gpuscale.base.clock import WallClock
    from gpuscale.series.promapi.app import add_routes
    from gpuscale.series.promapi.query_pool import QueryPool

    async def run() -> None:
        app = web.Application()
        add_routes(app, store, WallClock(), pool=QueryPool(timeout_s=120))
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        print(f"{host}:{port}", flush=True)
        await asyncio.Event().wait()

    store = filled(series, scrapes)
    gc.collect()
    gc.freeze()
    asyncio.run(run())


def longest_copy_ms(series: int) -> list[float]:
    """Return for how long copying keeps the event loop at most, in CPU time, for some queries."""
    from gpuscale.series.promql.evaluate import LOOKBACK_MS, range_covered
    from gpuscale.series.promql.parse import parse_query
    from gpuscale.series.promql.vectorised.samples import QuerySamples

    store = filled(series, LOOKBACK)
    end = end_ms(LOOKBACK)
    found: list[float] = []
    for query in ("u", "rate(u[5m])", "sum(rate(u[5m]))"):
        covered = range_covered(end, end, 1)
        for is_measured in (False, True):
            gaps, began = [], time.process_time()
            samples = QuerySamples(store, parse_query(query).root, covered, LOOKBACK_MS)
            for _ in samples.fill():
                now = time.process_time()
                gaps.append(now - began)
                began = now
            if is_measured:
                found.append(max(gaps, default=time.process_time() - began) * 1000)
    return found


def figures(sizes: dict[int, int] | None = None) -> list[harness.Figure]:
    """Return all figures; without a program `prometheus`, our own alone.

    Args:
        sizes: numbers of series, and scrapes of each.
    """
    found: list[harness.Figure] = []
    ours_ms: dict[tuple[int, str], list[float]] = {}
    for series, scrapes in (sizes or SIZES).items():
        with ours(series, scrapes) as server:
            for name, path in _asked(series, scrapes):
                costs = server.costs_ms(path)
                if not costs:
                    found.append(harness.figure(f"{name}, {series:,} series", "refused", [1]))
                    continue
                ours_ms[series, name] = costs
                found.append(harness.figure(f"{name}, {series:,} series", "CPU ms", costs))
            peak = server.peak_mib()
        note = f"{scrapes} samples of each series in the store"
        found.append(harness.figure(f"peak memory, {series:,} series", "MiB", [peak], note=note))
    found += _growth(ours_ms)
    copy = longest_copy_ms(min(100_000, max(sizes or SIZES)))
    found.append(
        harness.figure("longest copy in one go on the event loop", "CPU ms", copy, at_most=20)
    )
    if harness.versions([], {"prometheus": ["prometheus", "--version"]})["prometheus"] == "absent":
        return found
    for series, scrapes in BESIDE.items():
        if series in (sizes or SIZES):
            found += _beside(series, scrapes, ours_ms)
    return found


def _asked(series: int, scrapes: int) -> Iterator[tuple[str, str]]:
    for query in INSTANT if series <= 100_000 else GROWING[:1]:
        yield f"instant {query}", instant_path(query, scrapes)
    for query in RANGE:
        if scrapes == HOUR and (series <= LARGEST.get(query, 10_000) or query in GROWING[1:]):
            yield f"1 h {query}", range_path(query, scrapes)


def _beside(
    series: int, scrapes: int, ours_ms: dict[tuple[int, str], list[float]]
) -> Iterator[harness.Figure]:
    with theirs(series, scrapes) as server:
        for name, path in _asked(series, scrapes):
            if (series, name) not in ours_ms:
                continue
            cost = server.costs_ms(path)
            yield harness.figure(
                f"alternative: Prometheus, {name}, {series:,} series", "CPU ms", cost
            )
            yield harness.figure(
                f"ours / Prometheus, {name}, {series:,} series",
                "ratio",
                [_mean(ours_ms[series, name]) / max(_mean(cost), 1.0)],
                at_most=MOST,
                note=f"goal: {GOAL_INSTANT if name.startswith('instant') else GOAL_RANGE}",
            )


def _growth(ours_ms: dict[tuple[int, str], list[float]]) -> Iterator[harness.Figure]:
    """Yield how much more each series of a large store costs than one of a store a tenth its size."""
    for query in (f"instant {GROWING[0]}", f"1 h {GROWING[1]}"):
        sizes = sorted(series for series, name in ours_ms if name == query)
        for small, large in itertools.pairwise(sizes):
            grown = _mean(ours_ms[large, query]) / _mean(ours_ms[small, query])
            yield harness.figure(
                f"growth, {query}, {small:,} to {large:,} series",
                "ratio",
                [grown / (large / small)],
                note="1 is linear",
            )


def _mean(values: list[float]) -> float:
    return statistics.fmean(values)


def main() -> int:
    """Print the figures, or serve a store to the process that asked for it."""
    if sys.argv[1:2] == ["--serve"]:
        serve_ours(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    sizes = {int(size): SIZES.get(int(size), HOUR) for size in sys.argv[1:]} or None
    found = figures(sizes)
    for each in found:
        print(harness.line(each))
    return 0 if all(each.is_within_budget() for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
