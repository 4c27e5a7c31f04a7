# mypy: disable-error-code="arg-type"
"""The same exposition scraped by a real Prometheus and by our targets: the same series are current."""

import asyncio
import math
import shutil
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.base.clock import WallClock
from gpuscale.base.exposition.write import CONTENT_TYPE
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing.prometheus import query_data

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("prometheus")]

FIRST = """\
# HELP util How busy.
# TYPE util gauge
util{gpu="0",pod="train",namespace="ml"} 1.5
util{gpu="1",pod="",exported_pod="x",namespace="ml"} +Inf
util{ gpu = "2" , pod = "a\\"b\\\\c" } 3e2
vanishing 1
timed 5 %d
# TYPE h histogram
h_bucket{le="+Inf"} 2
h_sum 1
h_count 2
none NaN
"""
SECOND = FIRST.replace("vanishing 1\n", "").replace("util{gpu", 'util{new="1",gpu')
BROKEN = FIRST.replace("+Inf\n", "much\n")
# About a scrape itself Prometheus writes more, and of a broken one it counts the lines up to the fault.
QUERY = '{__name__=~".+",__name__!~"scrape_.*"}'
CONFIG = """\
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
- job_name: plain
  static_configs: [{targets: ['%(address)s'], labels: {pod: exporter, namespace: ''}}]
- job_name: honor
  honor_labels: true
  static_configs: [{targets: ['%(address)s'], labels: {pod: exporter}}]
"""


class Target:
    """Serves whatever text it is told to."""

    def __init__(self) -> None:
        self.text = FIRST

    async def metrics(self, request):
        return web.Response(body=self.text.encode(), headers={"Content-Type": CONTENT_TYPE})


@asynccontextmanager
async def prometheus(folder, address):
    (folder / "prometheus.yml").write_text(CONFIG % {"address": address})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{probe.getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        shutil.which("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={own}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://{own}"
    finally:
        process.terminate()
        async with asyncio.timeout(20):
            await process.wait()


def series_of(data):
    return {
        tuple(sorted(each["metric"].items())): float(each["value"][1]) for each in data["result"]
    }


def same(left, right):
    return left.keys() == right.keys() and all(
        left[key] == right[key] or (math.isnan(left[key]) and math.isnan(right[key]))
        for key in left
    )


class Ours:
    """The same two jobs, scraped by hand; `t_ms` is any time that moves on."""

    def __init__(self, address) -> None:
        self.store = SeriesStore()
        own = {"instance": address, "pod": "exporter"}
        self.targets = [
            ScrapeTarget(self.store, {"job": "plain", "namespace": "", **own}),
            ScrapeTarget(self.store, {"job": "honor", **own}, honor_labels=True),
        ]

    def scrape(self, text, t_ms):
        for target in self.targets:
            target.ingest(text, t_ms)
        return series_of(query_data(instant(self.store, QUERY, t_ms), t_ms))


async def settled(session, url, want):
    """Ask Prometheus until it answers as expected, or for a minute."""
    got = {}
    for _ in range(600):
        try:
            async with session.get(f"{url}/api/v1/query", params={"query": QUERY}) as response:
                got = series_of((await response.json())["data"])
        except (aiohttp.ClientError, KeyError):
            pass
        if same(got, want):
            return got
        await asyncio.sleep(0.1)
    return got


async def test_scraped_series_are_those_of_prometheus(tmp_path: Path) -> None:
    target = Target()
    app = web.Application()
    app.router.add_get("/metrics", target.metrics)
    async with TestServer(app, host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        address = f"127.0.0.1:{server.port}"
        ours = Ours(address)
        async with prometheus(tmp_path, address) as url:
            now_ms = WallClock().now_ms()
            for i, text in enumerate((FIRST, SECOND, BROKEN, FIRST)):
                target.text = text % now_ms
                want = ours.scrape(target.text, now_ms + i + 1)
                assert len(want) > 2
                got = await settled(session, url, want)
                assert same(got, want), (got, want)
