"""`gpuscale exporter` and `gpuscale metrics-api --source streams` as processes, and nothing between them."""

import asyncio
import json
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

pytestmark = pytest.mark.timeout(300)  # five processes start, on machines of two slow cores

GPUSCALE = Path(sys.executable).parent / "gpuscale"
RULES = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  resources: {overrides: {instance: {resource: node}}}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: up
  resources: {overrides: {instance: {resource: node}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
externalRules:
- seriesQuery: up
  resources: {namespaced: false}
  name: {as: agents_up}
  metricsQuery: sum(up{<<.LabelMatchers>>})
"""
API = "/apis/custom.metrics.k8s.io/v1beta2"


class Process:
    """One command; its log is kept."""

    def __init__(self, folder, name, *arguments):
        self._log = folder / f"{name}.log"
        self._arguments = arguments
        self._process = None

    async def start(self):
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                GPUSCALE, *self._arguments, stdout=log, stderr=log
            )

    async def stop(self, number=signal.SIGTERM):
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    @property
    def log(self):
        return self._log.read_text()


@asynccontextmanager
async def running(folder, name, *arguments):
    process = Process(folder, name, *arguments)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def agent(folder, port):
    return running(
        folder,
        f"agent-{port}",
        "exporter",
        "--gpu=simulated:NVIDIA H200:2",
        f"--address=127.0.0.1:{port}",
        "--stream-interval=100ms",
    )


def metrics_api(folder, port, *agents):
    (folder / "rules.yaml").write_text(RULES)
    return running(
        folder,
        "metrics-api",
        "metrics-api",
        f"--config={folder / 'rules.yaml'}",
        "--source=streams",
        *(f"--agent=127.0.0.1:{each}" for each in agents),
        "--secure-port=0",
        f"--insecure-loopback-port={port}",
    )


class Client:
    """Asks the metrics API."""

    def __init__(self, session, port):
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def get(self, path):
        try:
            async with self._session.get(self._url + path) as answer:
                text = await answer.text()
                return answer.status, text
        except aiohttp.ClientError as error:
            return 0, str(error)

    async def status(self, node, metric="gpu_util"):
        return (await self.get(f"{API}/nodes/127.0.0.1:{node}/{metric}"))[0]

    async def value(self, path):
        """Return the only value there is, None where there is none."""
        status, text = await self.get(path)
        items = json.loads(text)["items"] if status == 200 else []
        return items[0]["value"] if items else None

    async def metric(self, name):
        (_, text) = await self.get("/metrics")
        found = re.findall(rf"^gpuscale_metrics_api_{name} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))


@pytest.fixture
async def ask():
    port = unused_port()
    async with aiohttp.ClientSession() as session:
        yield Client(session, port), port


async def until(ask, expected, limit_s=60):
    found = None
    try:
        async with asyncio.timeout(limit_s):
            while True:
                found = await ask()
                if found == expected:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"found {found}, expected {expected}")


async def test_agents_come_vanish_and_return(tmp_path, ask):
    client, port = ask
    one, two = unused_port(), unused_port()
    async with metrics_api(tmp_path, port, one, two) as api:
        # The metric is listed once there is a series, long before the next discovery in ten minutes.
        await until(lambda: client.status(one), 404)
        async with agent(tmp_path, one) as first, agent(tmp_path, two):
            await until(lambda: client.status(one), 200)
            await until(lambda: client.status(two), 200)
            assert await client.metric(r"feed_up\{[^}]*\}") == 2
            # Killed, so that nothing says good-bye: its values end, the other's go on.
            await first.stop(signal.SIGKILL)
            await until(lambda: client.status(one), 404)
            assert await client.status(two) == 200
            assert await client.value(f"{API}/nodes/127.0.0.1:{one}/up") == "0"
            await first.start()
            await until(lambda: client.status(one), 200)
        await until(lambda: client.status(two), 404)
        assert await client.metric(r"feed_up\{[^}]*\}") == 0
        assert await api.stop() == 0
    assert "Traceback" not in api.log


async def test_what_feeds_do_is_told(tmp_path, ask):
    client, port = ask
    one = unused_port()
    async with agent(tmp_path, one), metrics_api(tmp_path, port, one):
        await until(lambda: client.status(one), 200)
        target = rf'\{{instance="127.0.0.1:{one}",kind="stream"\}}'
        assert await client.metric(f"feed_series{target}") > 10
        assert await client.metric(f"feed_samples_total{target}") > 10
        assert await client.metric(f"feed_last_sample_timestamp_seconds{target}") > 1.7e9
        assert await client.metric("store_samples") > 10
        assert await client.metric(r'questions_total\{how="asked"\}') > 0
        status, text = await client.get("/readyz?verbose")
        assert (status, "feeds ok: 1 of 1 targets answer" in text) == (200, True)
        path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/agents_up"
        await until(lambda: client.value(path), "1")
