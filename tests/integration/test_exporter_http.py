# mypy: disable-error-code="arg-type"
"""The node agent over real HTTP."""

import asyncio
import gzip
import threading

import aiohttp
import pytest

from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.exporter.http.passwords import PasswordCheck
from gpuscale.agent.exporter.routes import ServeOptions
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.clock import WallClock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.exposition.write import CONTENT_TYPE
from gpuscale.signals import load_counters
from gpuscale.testing.nvml import FakeGpu, FakeNvml

COUNTERS = load_counters("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.", "my.csv")
BERT = ContainerRef("ml", "bert-0", "main")


class Gated:
    """A reader that waits at a gate, as a hung driver does."""

    def __init__(self, busy=0.23) -> None:
        self.busy = busy
        work = lambda *_: (GpuWork(101, "python", self.busy, 0.1, 4000),)  # noqa: E731
        self.inner = SimulatedReader("n1", MODELS["Tesla T4"], 1, 1, work)
        self.gate = threading.Event()
        self.gate.set()
        self.failure = None

    def gpus(self):
        return self.inner.gpus()

    def read(self, now_ms):
        self.gate.wait(10)
        if self.failure:
            raise self.failure
        return self.inner.read(now_ms)

    def stats(self):
        return ()

    def close(self) -> None:
        pass


@pytest.fixture
def reader():
    it = Gated()
    yield it
    it.gate.set()


@pytest.fixture
async def serve(reader):
    """Return a function that starts an agent and gives the agent and its address."""
    agents = []

    async def start(**options):
        owners = Attribution({reader.gpus()[0].uuid: (BERT,)}, {101: BERT})
        options = {"interval_s": 0.05, **options}
        agent = NodeAgent(
            reader, lambda _: owners, COUNTERS, FamilyOptions("n1"), WallClock(), **options
        )
        agents.append(agent)
        port = await agent.start("127.0.0.1", 0)
        return agent, f"http://127.0.0.1:{port}"

    yield start
    reader.gate.set()
    for agent in agents:
        await agent.stop()


@pytest.fixture
async def http():
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


async def get(http, url, **headers):
    async with http.get(url, headers=headers or {"Accept-Encoding": "identity"}) as answer:
        return answer.status, answer.headers, await answer.read()


async def until(http, url, wanted):
    """Return the first body that has `wanted` in it."""
    async with asyncio.timeout(30):
        while True:
            body = (await get(http, url))[2].decode()
            if wanted(body):
                return body
            await asyncio.sleep(0.01)


async def test_scrape_brings_the_devices_in_the_text_format(serve, http) -> None:
    _, url = await serve()
    body = await until(http, f"{url}/metrics", lambda body: "DCGM_FI_DEV_GPU_UTIL" in body)
    assert "# TYPE DCGM_FI_DEV_GPU_UTIL gauge" in body
    assert 'container="main",namespace="ml",pod="bert-0"} 23\n' in body
    status, headers, _ = await get(http, f"{url}/metrics")
    assert status == 200
    assert headers["Content-Type"] == CONTENT_TYPE
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Content-Encoding" not in headers


async def test_scrape_is_compressed_when_asked(serve, http) -> None:
    agent, url = await serve(interval_s=60)
    await until(http, f"{url}/readyz", lambda body: body == "ok")
    status, headers, body = await get(http, f"{url}/metrics", **{"Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert gzip.decompress(body) == agent.snapshot.text


async def test_compressed_scrape_follows_the_next_collect(serve, reader, http) -> None:
    agent, url = await serve(interval_s=60)
    await until(http, f"{url}/readyz", lambda body: body == "ok")
    await get(http, f"{url}/metrics", **{"Accept-Encoding": "gzip"})
    reader.busy = 0.5
    await agent.collect()
    _, _, body = await get(http, f"{url}/metrics", **{"Accept-Encoding": "gzip"})
    assert b"} 50\n" in gzip.decompress(body)


async def test_health_answers_before_the_driver_does(serve, reader, http) -> None:
    reader.gate.clear()
    _, url = await serve()
    assert (await get(http, f"{url}/health"))[::2] == (200, b"OK")
    assert (await get(http, f"{url}/readyz"))[::2] == (503, b"no good collect yet")
    status, _, body = await get(http, f"{url}/metrics")
    assert status == 200
    assert b"DCGM" not in body
    reader.gate.set()
    assert await until(http, f"{url}/readyz", lambda body: body == "ok")


async def test_verbose_readiness_tells_of_every_gpu(serve, reader, http) -> None:
    _, url = await serve()
    body = await until(http, f"{url}/readyz?verbose", lambda body: "passed" in body)
    collect, *rest = body.splitlines()
    assert collect.startswith("[+]collect ok (last good ")
    uuid = reader.gpus()[0].uuid
    assert rest == ["[+]attribution ok", f"[+]gpu 0 ({uuid}) ok", "readyz check passed"]
    reader.inner.lose(0)
    body = await until(http, f"{url}/readyz?verbose", lambda body: "lost" in body)
    assert f"[-]gpu 0 ({uuid}) failed: the GPU is lost" in body


async def test_failing_reader_takes_the_series_away_until_it_recovers(serve, reader, http) -> None:
    _, url = await serve()
    await until(http, f"{url}/metrics", lambda body: "DCGM_FI" in body)
    reader.failure = UnavailableError("driver not loaded")
    body = await until(http, f"{url}/metrics", lambda body: "DCGM_FI" not in body)
    assert "gpuscale_exporter_collect_up 0" in body
    assert (
        "[-]collect failed: driver not loaded"
        in (await get(http, f"{url}/readyz?verbose"))[2].decode()
    )
    reader.failure = None
    await until(http, f"{url}/metrics", lambda body: "DCGM_FI" in body)


async def test_hung_driver_takes_the_series_away_and_leaves_http_alone(serve, reader, http) -> None:
    _, url = await serve(read_timeout_s=0.05)
    await until(http, f"{url}/metrics", lambda body: "DCGM_FI" in body)
    reader.gate.clear()
    body = await until(http, f"{url}/metrics", lambda body: "DCGM_FI" not in body)
    assert "gpuscale_exporter_collect_up 0" in body
    verbose = (await get(http, f"{url}/readyz?verbose"))[2].decode()
    assert "[-]collect failed: no answer from the driver for 0.05 s" in verbose
    reader.gate.set()
    await until(http, f"{url}/metrics", lambda body: "DCGM_FI" in body)


async def test_page_links_to_metrics_and_state(serve, http) -> None:
    _, url = await serve()
    status, headers, body = await get(http, f"{url}/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert b'href="/metrics"' in body


async def test_reader_on_the_loop_needs_no_thread(serve, http) -> None:
    before = threading.active_count()
    _, url = await serve(reader_blocks=False)
    await until(http, f"{url}/metrics", lambda body: "DCGM_FI" in body)
    assert threading.active_count() <= before


async def test_parallel_scrapes_read_the_gpus_no_more_often(serve, reader, http) -> None:
    agent, url = await serve(interval_s=60)
    await until(http, f"{url}/readyz", lambda body: body == "ok")
    bodies = await asyncio.gather(*(get(http, f"{url}/metrics") for _ in range(20)))
    assert {body for _, _, body in bodies} == {agent.snapshot.text}
    assert agent.snapshot.status.collects == 1


async def test_taken_port_is_told_in_one_line(serve) -> None:
    _, url = await serve()
    port = int(url.rsplit(":", 1)[1])
    other = NodeAgent(Gated(), Attribution, COUNTERS, FamilyOptions("n1"), WallClock(), 1.0)
    with pytest.raises(UnavailableError) as caught:
        await other.start("127.0.0.1", port)
    await other.stop()
    assert str(caught.value).startswith(f"can't listen on 127.0.0.1:{port}: ")


async def test_stopping_twice_is_harmless(serve) -> None:
    agent, _ = await serve()
    await agent.stop()
    await agent.stop()


async def test_one_hung_nvidia_gpu_takes_only_its_own_series_away(http) -> None:
    fake = FakeNvml([FakeGpu(uuid="GPU-a", bus=1), FakeGpu(uuid="GPU-b", bus=2)])
    settings = NvmlSettings(patience_ms=20, deadline_ms=1_000)
    nvml = NvmlReader(settings, fake, fields=frozenset({"DCGM_FI_DEV_GPU_TEMP"}))
    counters = load_counters("DCGM_FI_DEV_GPU_TEMP, gauge, Warm.", "my.csv")
    agent = NodeAgent(nvml, lambda _: None, counters, FamilyOptions("n1"), WallClock(), 0.05)
    url = f"http://127.0.0.1:{await agent.start('127.0.0.1', 0)}"
    try:
        await until(http, f"{url}/metrics", lambda body: body.count("GPU_TEMP{") == 2)
        fake.hang(1)
        body = await until(http, f"{url}/metrics", lambda body: body.count("GPU_TEMP{") == 1)
        assert 'gpuscale_exporter_gpu_up{gpu="0",UUID="GPU-a"} 1' in body
        assert 'gpuscale_exporter_gpu_up{gpu="1",UUID="GPU-b"} 0' in body
        assert 'gpuscale_exporter_reader_calls_total{source="' in body
        verbose = (await get(http, f"{url}/readyz?verbose"))[2].decode()
        assert "[+]gpu 0 (GPU-a) ok" in verbose
        assert "[-]gpu 1 (GPU-b) failed: " in verbose
        assert "[+]attribution off" in verbose
        fake.release(1)
        await until(http, f"{url}/metrics", lambda body: body.count("GPU_TEMP{") == 2)
    finally:
        await agent.stop()
        nvml.close()


async def test_password_is_asked_for_on_every_path(serve, http) -> None:
    auth = PasswordCheck({"alice": "pw"}, lambda password, hashed: password == hashed)
    _, url = await serve(serve=ServeOptions(auth=auth))
    for path in ("/metrics", "/health", "/stream"):
        status, headers, _ = await get(http, url + path)
        assert (status, headers["WWW-Authenticate"]) == (401, "Basic")
    authorization = aiohttp.encode_basic_auth("alice", "pw")
    assert (await get(http, f"{url}/health", Authorization=authorization))[0] == 200


async def test_open_probes_ask_for_no_password_and_say_no_more_than_probes_need(
    serve, http
) -> None:
    auth = PasswordCheck({"alice": "pw"}, lambda password, hashed: password == hashed)
    _, url = await serve(serve=ServeOptions(auth=auth, has_open_probes=True))
    await until(http, f"{url}/readyz", lambda body: body == "ok")
    assert (await get(http, f"{url}/health"))[0] == 200
    for path in (
        "/",
        "/metrics",
        "/stream",
        "/readyz?verbose",
        "/readyz?verbose=1",
        "/healthz",
        "/health/",
    ):
        assert (await get(http, url + path))[0] == 401
    authorization = aiohttp.encode_basic_auth("alice", "pw")
    assert (await get(http, f"{url}/readyz?verbose", Authorization=authorization))[0] == 200


async def test_requests_are_counted_by_path_and_code(serve, http) -> None:
    agent, url = await serve(interval_s=60)
    await until(http, f"{url}/readyz", lambda body: body == "ok")
    await get(http, f"{url}/metrics")
    await get(http, f"{url}/nowhere")
    await agent.collect()
    body = (await get(http, f"{url}/metrics"))[2].decode()
    assert 'gpuscale_exporter_http_requests_total{path="/metrics",code="200"} 1\n' in body
    assert 'gpuscale_exporter_http_requests_total{path="other",code="404"} 1\n' in body


async def test_azures_metrics_are_not_there_without_kubernetes(serve, http) -> None:
    _, url = await serve()
    status, _, body = await get(http, f"{url}/metrics/azure")
    assert (status, body) == (404, b"Azure's metrics need --kubernetes\n")
