"""Signals of `gpuscale calibrate` from a real Prometheus and from the page that it scrapes."""

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession
from aiohttp.test_utils import unused_port

from gpuscale.load.calibrate.measuring.reading import (
    PageReader,
    PrometheusSignals,
    SignalCandidate,
    SignalReader,
)

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("prometheus")]

SERVER = Path(__file__).parents[1] / "support" / "queue_server.py"
REQUESTS = 7
SIGNALS = (
    SignalCandidate("handled", "requests_handled_total"),
    SignalCandidate("twice", "2 * requests_handled_total"),
    SignalCandidate("none", "requests_of_another_service"),
)


@pytest.fixture
def replica() -> Iterator[str]:
    """A server that has handled some requests."""
    with subprocess.Popen(
        [sys.executable, str(SERVER), "--service-ms=1"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            for _ in range(REQUESTS):
                with urllib.request.urlopen(url, timeout=30) as response:
                    assert response.status == 200
            yield url
        finally:
            server.kill()


@pytest.fixture
async def prometheus(replica: str, tmp_path: Path) -> AsyncIterator[str]:
    """A Prometheus that scrapes it each second."""
    place = replica.removeprefix("http://")
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: replica, static_configs: [{{targets: ['{place}']}}]}}]\n"
    )
    port = unused_port()
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with ClientSession() as session, asyncio.timeout(60):
            while not await is_ready(session, url):
                assert process.returncode is None, "prometheus ended"
                await asyncio.sleep(0.05)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def is_ready(session: ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/-/ready") as response:
            return response.status == 200
    except ClientError:
        return False


async def values(reader: SignalReader) -> dict[str, float]:
    """Return what a reader has once it has something."""
    async with asyncio.timeout(60):
        while True:
            if found := await reader.read():
                return dict(found)
            await asyncio.sleep(0.1)


async def test_prometheus_and_the_page_have_the_same_values(replica: str, prometheus: str) -> None:
    expected = {"handled": REQUESTS, "twice": 2 * REQUESTS}
    async with PrometheusSignals(prometheus, SIGNALS) as reader:
        assert await values(reader) == expected  # a signal without a value is absent, not 0
        assert reader.problem == ""
    async with PageReader(f"{replica}/metrics", SIGNALS) as page:
        assert await values(page) == expected


async def test_what_prometheus_refuses_is_the_problem(prometheus: str) -> None:
    two = 'vector(1) or label_replace(vector(2), "which", "second", "", "")'
    async with PrometheusSignals(prometheus, (SignalCandidate("sum", two),)) as reader:
        assert await reader.read() == {"sum": 3}
    wrong = SignalCandidate("wrong", f"vector(1) + on () ({two})")
    async with PrometheusSignals(
        prometheus, (wrong, SignalCandidate("right", "vector(4)"))
    ) as reader:
        assert await reader.read() == {"right": 4}
        assert "duplicate series" in reader.problem


async def test_a_prometheus_that_is_not_there_is_the_problem() -> None:
    async with PrometheusSignals(f"http://127.0.0.1:{unused_port()}", SIGNALS) as reader:
        assert await reader.read() == {}
        assert reader.problem
