"""Servers that were given no rules, and rules in a folder that changes."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from gpuscale.base.clock import WallClock
from gpuscale.series.promapi.app import add_routes as add_prometheus_api
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.process import MetricsApiServer
from gpuscale.server.metricsapi.settings import read_settings

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
RULE = """
- seriesQuery: {name}
  resources: {{template: <<.Resource>>}}
  metricsQuery: sum({name}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
PODS = {"bert-7d9f8b6c5d-x2f4z": 80.0, "bert-7d9f8b6c5d-q8r7k": 30.0, "other-0": 5.0}


@pytest.fixture
async def prometheus():
    store, clock = SeriesStore(), WallClock()
    for pod, value in PODS.items():
        for name in ("DCGM_FI_DEV_GPU_UTIL", "one", "two"):
            labels = {"__name__": name, "namespace": "ml", "pod": pod, "Hostname": "n1"}
            store.append(labels, clock.now_ms(), value)
    app = web.Application()
    add_prometheus_api(app, store, clock)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class Client:
    """Asks a server on loopback."""

    def __init__(self, session, port) -> None:
        self._session, self._port = session, port

    async def get(self, path):
        async with self._session.get(f"http://127.0.0.1:{self._port}{path}") as response:
            return response.status, await response.text()

    async def value(self, path):
        """Return the only value of a metric, or None where there is none."""
        status, text = await self.get(f"{CUSTOM}/namespaces/ml/{path}")
        return json.loads(text)["items"][0]["value"] if status == 200 else None

    async def until(self, path, expected) -> None:
        async with asyncio.timeout(60):
            while await self.value(path) != expected:  # noqa: ASYNC110 - a server has no event
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(prometheus, *configs):
    port = unused_port()
    flags = {
        "config": [str(path) for path in configs],
        "prometheus-url": [prometheus],
        "secure-port": ["0"],
        "insecure-loopback-port": [str(port)],
    }
    settings = read_settings({name: texts for name, texts in flags.items() if texts})
    stop, started = asyncio.Event(), asyncio.Event()
    server = MetricsApiServer(settings)
    task = asyncio.create_task(server.run(stop, lambda _: started.set()))
    try:
        async with asyncio.timeout(30):
            await started.wait()
        async with aiohttp.ClientSession() as session:
            yield Client(session, port)
    finally:
        stop.set()
        await task


async def test_without_rules_gpu_metrics_are_there(prometheus) -> None:
    async with running(prometheus) as client:
        # The mean of 80 and 30; then that of 80, 30 and 5, which is 38.333...
        await client.until("deployments.apps/bert/gpu_utilization", "55")
        assert await client.value("pods/other-0/DCGM_FI_DEV_GPU_UTIL_AVG") == "5"
        status, text = await client.get(f"{CUSTOM}/nodes/n1/DCGM_FI_DEV_GPU_UTIL")
        assert (status, json.loads(text)["items"][0]["value"]) == (200, "38333m")


async def test_files_come_and_go_bad_and_each_only_touches_itself(
    prometheus, tmp_path: Path
) -> None:
    (tmp_path / "one.yaml").write_text(RULE.format(name="one"))
    async with running(prometheus, tmp_path) as client:
        await client.until("pods/other-0/one", "5")
        assert await client.value("pods/other-0/two") is None
        (tmp_path / "two.yaml").write_text(RULE.format(name="two"))
        await client.until("pods/other-0/two", "5")
        (tmp_path / "one.yaml").write_text("rules: 1")
        (tmp_path / "two.yaml").write_text(RULE.format(name="two").replace("sum(", "2 * sum("))
        await client.until("pods/other-0/two", "10")
        assert await client.value("pods/other-0/one") == "5"
        _, ready = await client.get("/readyz?verbose")
        assert f"[+]rules ok: the last good rules stay: {tmp_path}/one.yaml:1: rules" in ready
        _, metrics = await client.get("/metrics")
        name = "gpuscale_metrics_api_rule_source_last_reload_successful"
        assert f'{name}{{source="{tmp_path}/one.yaml"}} 0\n' in metrics
        assert f'{name}{{source="{tmp_path}/two.yaml"}} 1\n' in metrics
