"""Pages of agents, scraped beside their streams and with the credentials of these."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from background import until
from gpuscale.agent.exporter.families.azure import AzureCluster, AzureMetrics
from gpuscale.agent.gpu.owners import ContainerRef, NodeGpuResources
from gpuscale.base.clock import WallClock
from gpuscale.base.exposition.write import CONTENT_TYPE, render_text
from gpuscale.series.promql.evaluate import instant
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.feeds.targets import agent_page, static_agent

CLOCK = WallClock()
NODE = NodeGpuResources(8, 7, {ContainerRef("ml", "bert-0", "main", "uid-0"): 2})


class Agent:
    """Streams one series, and has Azure's page; both only with the token."""

    def __init__(self) -> None:
        self.address = ""
        self.token = "agents"
        self.refused = 0

    def _let_in(self, request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            self.refused += 1
            raise web.HTTPUnauthorized

    async def stream(self, request):
        self._let_in(request)
        response = web.StreamResponse()
        await response.prepare(request)
        line = '{"kind":"snapshot","version":1,"ms":%d,"series":[[1,"util",{},5]]}\n'
        await response.write((line % CLOCK.now_ms()).encode())
        while True:
            await asyncio.sleep(0.1)
            await response.write(b'{"kind":"heartbeat","ms":%d}\n' % CLOCK.now_ms())

    async def azure(self, request):
        self._let_in(request)
        text = render_text(AzureMetrics(AzureCluster("id", "aks")).families(NODE))
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


@pytest_asyncio.fixture
async def agent():
    found = Agent()
    app = web.Application()
    app.router.add_get("/stream", found.stream)
    app.router.add_get("/metrics/azure", found.azure)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.address = f"127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def settings(agent, token_file: Path, *pages: str) -> FeedSettings:
    return FeedSettings(
        static=(static_agent(agent.address),),
        agent_pages=pages,
        agent_token_file=token_file,
        scrape_interval_s=0.1,
    )


def values(collector, query):
    return {
        tuple(sorted(each.labels.items())): each.value
        for each in instant(collector.store, query, CLOCK.now_ms()).samples
    }


@pytest_asyncio.fixture
async def collecting(agent, tmp_path: Path):
    (tmp_path / "token").write_text("agents")
    collector = FeedCollector(settings(agent, tmp_path / "token", "/metrics/azure"), CLOCK)
    task = asyncio.create_task(collector.run())
    yield collector
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.timeout(60)
async def test_the_page_comes_beside_the_stream(agent, collecting) -> None:
    await until(lambda: values(collecting, "util") and values(collecting, "nodeGpuCapacity"))
    node = {
        "container_azm_ms_clusterId": "id",
        "container_azm_ms_clusterName": "aks",
        "gpuVendor": "nvidia",
        "instance": agent.address,
        "job": "gpuscale-exporter",
        "metrics_path": "/metrics/azure",
    }
    capacity = tuple(sorted({**node, "__name__": "nodeGpuCapacity"}.items()))
    assert values(collecting, "nodeGpuCapacity") == {capacity: 8}
    assert list(values(collecting, "containerGpuRequests").values()) == [2]
    assert agent.refused == 0
    assert sorted(each.kind for each in collecting.states()) == ["scrape", "stream"]
    # Both have an `up`, of different paths.
    assert len(values(collecting, "up")) == 2


async def test_a_page_is_its_agents(agent) -> None:
    target = static_agent(f"https://{agent.address}")
    page = agent_page(target, "/metrics/azure")
    assert page.url == f"https://{agent.address}/metrics/azure"
    assert (page.is_agent, page.is_page) == (False, True)
    assert dict(page.labels) == {**dict(target.labels), "metrics_path": "/metrics/azure"}
