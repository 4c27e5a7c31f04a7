"""Servers that get a twentieth and a fiftieth of a core, as under a container's CPU limit of 50m and 20m.

Each gets ready with a bounded amount of CPU, nothing in it is started twice, and what it answers on the way
there is an error or the right value.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import grpc
import pytest
from aiohttp.test_utils import unused_port

from cpu_limit import CpuGroup, limited, unusable
from gpuscale.testing.prometheus import serve
from scaler_client import Client, own_channel, ref

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(unusable()), reason=unusable()),
]

GPUSCALE = str(Path(sys.executable).parent / "gpuscale")
RULES = """
externalRules:
- seriesQuery: queue_length
  resources: {namespaced: false}
  metricsQuery: sum(last_over_time(<<.Series>>[1h]))
- seriesQuery: up
  resources: {namespaced: false}
  name: {as: agents_up}
  metricsQuery: sum(up)
"""
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
LIMITS = (50, 20)
POLL_S = 2.0
"""Between two looks; they cost CPU that the server does not have."""
MOST_CPU_S = {"exporter": 1.5, "prometheus": 4.0, "streams": 6.0, "scaler": 4.0}
"""Until it is ready: about three times what it takes without a limit. A restart takes it all again."""


class Starved:
    """A server in a control group, whose log is kept."""

    def __init__(self, group: CpuGroup, log: Path, port: int) -> None:
        self.group, self._log, self._port = group, log, port

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text; 0 while it does not answer."""
        limit = aiohttp.ClientTimeout(60)
        url = f"http://127.0.0.1:{self._port}{path}"
        try:
            async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, str(error)

    async def external(self, metric: str, right: str) -> str | None:
        """Return the value of an external metric, which is right, or None while there is an error."""
        status, text = await self.get(f"{EXTERNAL}/{metric}")
        # Neither "there is no such metric" nor "it has no values": nothing is known yet.
        assert status in {0, 200, 500, 503}, text
        if status != 200:
            return None
        assert [each["value"] for each in json.loads(text)["items"]] == [right], text
        return right


@asynccontextmanager
async def starved(folder: Path, millicores: int, *flags: str, port: int) -> AsyncIterator[Starved]:
    log = folder / f"{flags[0]}-{port}.log"
    with limited(millicores) as group:
        with log.open("w") as output:
            process = await asyncio.create_subprocess_exec(
                *group.command(GPUSCALE, *flags), stdout=output, stderr=output
            )
        try:
            yield Starved(group, log, port)
        finally:
            # To say goodbye takes long without CPU; a second kill meets what was started in between.
            while pids := group.pids():
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.1)
            await process.wait()


async def get_ready(
    kind: str, server: Starved, look: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Wait until it is ready and `look` finds a value, which it does then; nothing was started twice."""
    while (await server.get("/readyz"))[0] != 200:
        assert server.group.pids(), server.log
        if look is not None:
            await look()
        await asyncio.sleep(POLL_S)
    if look is not None:
        while await look() is None:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(POLL_S)
    assert server.group.cpu_s() <= MOST_CPU_S[kind]
    assert "starting it again" not in server.log


async def exporter(folder: Path, millicores: int) -> None:
    port = unused_port()
    flags = ("--gpu=simulated:NVIDIA H200:2", f"--address=127.0.0.1:{port}")
    async with starved(folder, millicores, "exporter", *flags, port=port) as server:
        await get_ready("exporter", server)
        _, text = await server.get("/metrics")
        assert text.count("\nDCGM_FI_DEV_GPU_UTIL{") == 2


def metrics_api_flags(folder: Path, port: int, *more: str) -> tuple[str, ...]:
    (folder / "rules.yaml").write_text(RULES)
    loopback = ("--secure-port=0", f"--insecure-loopback-port={port}")
    return ("metrics-api", f"--config={folder / 'rules.yaml'}", *loopback, *more)


async def over_prometheus(folder: Path, millicores: int, url: str) -> None:
    port = unused_port()
    more = (f"--prometheus-url={url}", "--metrics-max-age=1h")
    flags = metrics_api_flags(folder, port, *more)
    async with starved(folder, millicores, *flags, port=port) as server:
        await get_ready("prometheus", server, lambda: server.external("queue_length", "7"))


async def over_streams(folder: Path, millicores: int, agent_port: int) -> None:
    port = unused_port()
    more = ("--source=streams", f"--agent=127.0.0.1:{agent_port}")
    flags = metrics_api_flags(folder, port, *more)
    async with starved(folder, millicores, *flags, port=port) as server:
        await get_ready("streams", server, lambda: server.external("agents_up", "1"))


async def scaler(folder: Path, millicores: int, url: str) -> None:
    port, http = unused_port(), unused_port()
    addresses = ("--bind-address=127.0.0.1", f"--port={port}", f"--metrics-port={http}")
    flags = ("scaler", f"--prometheus-url={url}", *addresses)
    asked = ref(query="sum(last_over_time(queue_length[1h]))", metricName="queue")
    del asked.scalerMetadata["workload"]
    async with (
        starved(folder, millicores, *flags, port=http) as server,
        own_channel(port) as channel,
    ):

        async def look() -> float | None:
            try:
                (found,) = (await Client(channel).metrics(asked)).metricValues
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return None
            assert found.metricValueFloat == 7.0
            return 7.0

        await get_ready("scaler", server, look)


async def test_each_server_gets_ready_on_its_crumbs_of_cpu(tmp_path: Path) -> None:
    agent_port = unused_port()
    (tmp_path / "prometheus").mkdir()
    samples = [({"__name__": "queue_length"}, round(time.time() * 1000), 7.0)]
    agent = await asyncio.create_subprocess_exec(
        GPUSCALE,
        *("exporter", "--gpu=simulated:NVIDIA H200:2", f"--address=127.0.0.1:{agent_port}"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        with serve(samples, tmp_path / "prometheus") as prometheus:
            async with asyncio.TaskGroup() as group:
                for millicores in LIMITS:
                    group.create_task(exporter(tmp_path, millicores))
                    group.create_task(over_prometheus(tmp_path, millicores, prometheus.url))
                    group.create_task(over_streams(tmp_path, millicores, agent_port))
                    group.create_task(scaler(tmp_path, millicores, prometheus.url))
    finally:
        agent.terminate()
        await agent.wait()
