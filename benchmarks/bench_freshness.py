"""From a change on a GPU to its value in an answer of the metrics API: by streams, and through a Prometheus.

A node agent with a simulated GPU runs in this process, so that the moment of a change is known. Beside it run
`gpuscale metrics-api --source streams`, then a real Prometheus that scrapes the agent every 15 s, and a
`gpuscale metrics-api` over that Prometheus. Everything is on loopback. After each change the API is asked
again and again until it answers with the new value; the time is that of the whole way, HTTP included.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp

import harness
from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.exporter.routes import ServeOptions
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.base.clock import WallClock
from gpuscale.signals import Counter, load_counters
from gpuscale_testing.addresses import free_ports

GPUSCALE = str(Path(sys.executable).parent / "gpuscale")
SEED = 5
CHANGES = 100
PROMETHEUS_CHANGES = 12
SCRAPE_S = 15
STREAM_INTERVAL_S = 0.1
ASK_EVERY_S = 0.02
UTIL = "DCGM_FI_DEV_GPU_UTIL"
NEW_METRICS = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
)
RULES = """
rules:
- seriesQuery: '{__name__=~"DCGM_FI_DEV_.*"}'
  resources: {overrides: {Hostname: {resource: node}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SCRAPE = """
global: {scrape_interval: %ds}
scrape_configs:
- job_name: gpu
  honor_labels: true
  static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


class Gpu:
    """One GPU whose utilisation is set by hand."""

    def __init__(self) -> None:
        self.busy = 0.5
        self._ports: list[int] = []
        reader = SimulatedReader("n1", MODELS["Tesla T4"], 1, SEED, self._work)
        self.agent = NodeAgent(
            reader,
            lambda _: Attribution(),
            counters(),
            FamilyOptions("n1"),
            WallClock(),
            1.0,
            serve=ServeOptions(stream_interval_s=STREAM_INTERVAL_S),
            reader_blocks=False,
        )

    def _work(self, *_: object) -> tuple[GpuWork, ...]:
        return (GpuWork(101, "python", self.busy, 0.1, 4000),)


def counters(*more: str) -> tuple[Counter, ...]:
    """Return the counters of these fields."""
    rows = "".join(f"{name}, gauge, A field.\n" for name in (UTIL, *more))
    return load_counters(rows, "bench.csv")


class Api:
    """Asks one metrics API."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/apis/custom.metrics.k8s.io/v1beta2/nodes/n1/"

    async def value(self, metric: str = UTIL) -> str | None:
        """Return the value, None where there is none."""
        try:
            async with self._session.get(self._url + metric) as answer:
                if answer.status != 200:
                    return None
                return str((await answer.json())["items"][0]["value"])
        except aiohttp.ClientError:
            return None

    async def seconds_until(self, expected: str | None, metric: str = UTIL) -> float:
        """Return how long it takes until the value is there; None waits for any value."""
        started = time.perf_counter()
        async with asyncio.timeout(90):
            while True:
                found = await self.value(metric)
                if found is not None and expected in (None, found):
                    return time.perf_counter() - started
                await asyncio.sleep(ASK_EVERY_S)


@asynccontextmanager
async def process(*command: str) -> AsyncIterator[None]:
    """Run a command beside this process."""
    running = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        running.terminate()
        await running.wait()


def metrics_api(folder: Path, port: int, *flags: str) -> AbstractAsyncContextManager[None]:
    """Run a metrics API over a source."""
    return process(
        GPUSCALE,
        "metrics-api",
        f"--config={folder / 'rules.yaml'}",
        "--secure-port=0",
        f"--insecure-loopback-port={port}",
        "--metrics-relist-interval=15s",
        "--metrics-max-age=5m",
        *flags,
    )


async def changes(
    gpu: Gpu, api: Api, count: int, pause_s: float, chance: random.Random
) -> list[float]:
    """Return the seconds that each change took to be served."""
    seconds = []
    for number in range(count):
        await asyncio.sleep(chance.uniform(0, pause_s))
        percent = 10 + (37 * number) % 80
        gpu.busy = percent / 100
        seconds.append(await api.seconds_until(str(percent)))
    return seconds


async def new_metrics(gpu: Gpu, api: Api) -> list[float]:
    """Return the seconds from a new series on the agent to its metric's first value."""
    seconds = []
    for number in range(1, len(NEW_METRICS) + 1):
        gpu.agent.configure(counters(*NEW_METRICS[:number]))
        seconds.append(await api.seconds_until(None, NEW_METRICS[number - 1]))
    return seconds


async def measure(folder: Path) -> list[harness.Figure]:
    """Run everything, and return the figures."""
    (folder / "rules.yaml").write_text(RULES)
    gpu, chance = Gpu(), random.Random(SEED)
    port = await gpu.agent.start("127.0.0.1", 0)
    streams_port, prometheus_port, over_prometheus_port = free_ports(3)
    (folder / "prometheus.yml").write_text(SCRAPE % (SCRAPE_S, port))
    async with aiohttp.ClientSession() as session:
        streams = Api(session, streams_port)
        async with metrics_api(
            folder, streams_port, "--source=streams", f"--agent=127.0.0.1:{port}"
        ):
            await streams.seconds_until(None)
            fresh = await changes(gpu, streams, CHANGES, 1.0, chance)
            new = await new_metrics(gpu, streams)
        over = Api(session, over_prometheus_port)
        url = f"http://127.0.0.1:{prometheus_port}"
        async with (
            process(
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{prometheus_port}",
            ),
            metrics_api(folder, over_prometheus_port, f"--prometheus-url={url}"),
        ):
            await over.seconds_until(None)
            slow = await changes(gpu, over, PROMETHEUS_CHANGES, SCRAPE_S, chance)
    await gpu.agent.stop()
    return [
        *_figures("streams", fresh, p50=0.5, p99=1.5),
        harness.figure("streams: a new metric is served", "s", new, at_most=1.0),
        *_figures(f"Prometheus, scraped every {SCRAPE_S} s", slow),
    ]


def _figures(
    name: str, seconds: list[float], p50: float | None = None, p99: float | None = None
) -> list[harness.Figure]:
    note = f"of {len(seconds)} changes"
    return [
        harness.figure(f"{name}: change to value", "s", seconds, at_most=p50, note=note),
        harness.figure(
            f"{name}: change to value, p99",
            "s",
            [harness.quantile(seconds, 0.99)],
            at_most=p99,
            note=note,
        ),
    ]


def main() -> int:
    """Measure, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder)))
    return harness.write(
        "freshness",
        figures,
        packages=["aiohttp"],
        programs={"prometheus": ["prometheus", "--version"]},
        settings={
            "seed": SEED,
            "stream_interval_s": STREAM_INTERVAL_S,
            "scrape_interval_s": SCRAPE_S,
            "asked_every_s": ASK_EVERY_S,
            "value_freshness": "1s",
            "load_at_end": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    sys.exit(main())
