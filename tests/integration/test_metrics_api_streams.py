# mypy: disable-error-code="assignment, attr-defined"
"""`gpuscale exporter` and `gpuscale metrics-api --source streams` as processes, and nothing between them."""

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

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

    def __init__(self, folder, name, *arguments) -> None:
        self._log = folder / f"{name}.log"
        self._arguments = arguments
        self._process = None

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                GPUSCALE, *self._arguments, stdout=log, stderr=log
            )

    async def stop(self, number=signal.SIGTERM):
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    @property
    def pid(self):
        return self._process.pid

    @property
    def log(self):
        return self._log.read_text()

    def collector(self):
        """Return the process id of the collector that it started; None where there is none now."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == self.pid and b"gpuscale.cli.servers.collector" in (
                    stat.with_name("cmdline").read_bytes()
                ):
                    return int(stat.parent.name)
        return None


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


def metrics_api(folder, port, *agents, flags=()):
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
        *flags,
    )


class Client:
    """Asks the metrics API."""

    def __init__(self, session, port) -> None:
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

    async def post(self, path, body):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        async with self._session.post(self._url + path, data=body, headers=form) as answer:
            return answer.status, await answer.text()

    async def says(self, path, words):
        status, text = await self.get(path)
        return status == 200 and words in text

    async def metric(self, name):
        (_, text) = await self.get("/metrics")
        found = re.findall(rf"^gpuscale_metrics_api_{name} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))


@pytest.fixture
async def ask():
    port = unused_port()
    async with aiohttp.ClientSession() as session:
        yield Client(session, port), port


async def until(ask, expected, limit_s=60) -> None:
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


async def test_agents_come_vanish_and_return(tmp_path: Path, ask) -> None:
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


async def test_what_feeds_do_is_reported(tmp_path: Path, ask) -> None:
    client, port = ask
    one = unused_port()
    async with agent(tmp_path, one), metrics_api(tmp_path, port, one):
        await until(lambda: client.status(one), 200)
        target = rf'\{{instance="127.0.0.1:{one}",kind="stream"\}}'
        # Of 25 fields of two GPUs the rules ask for one.
        assert await client.metric(f"feed_series{target}") == 2
        assert await client.metric(f"feed_unwanted_series{target}") >= 40
        assert await client.metric(f"feed_samples_total{target}") >= 2
        assert await client.metric(f"feed_last_sample_timestamp_seconds{target}") > 1.7e9
        assert await client.metric("store_samples") >= 2
        assert await client.metric(r'questions_total\{how="asked"\}') > 0
        await until(lambda: client.says("/readyz?verbose", "feeds ok: 1 of 1 targets answer"), True)
        path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/agents_up"
        await until(lambda: client.value(path), "1")


async def test_a_collector_that_is_killed_comes_back_while_the_server_answers(
    tmp_path: Path, ask
) -> None:
    client, port = ask
    one = unused_port()
    async with agent(tmp_path, one), metrics_api(tmp_path, port, one) as api:
        await until(lambda: client.status(one), 200)
        first = api.collector()
        answers = []

        async def look() -> None:
            while True:
                answers.append((await client.get("/livez"))[0])
                await asyncio.sleep(0.02)

        async def ask_on() -> None:
            while True:
                await asyncio.gather(*(client.status(one) for _ in range(8)))

        looking, asking = asyncio.create_task(look()), asyncio.create_task(ask_on())
        os.kill(first, signal.SIGKILL)
        await until(lambda: client.metric("collector_restarts_total"), 1)
        await until(lambda: client.metric("collector_up"), 1)
        await until(lambda: client.status(one), 200)
        looking.cancel()
        asking.cancel()
        assert set(answers) == {200}
        assert api.collector() not in {first, None}
        assert "the collector process ended: killed by SIGKILL; starting it again" in api.log
    assert "Traceback" not in api.log
    assert "Unclosed" not in api.log


async def test_the_prometheus_api_is_what_tools_know(tmp_path: Path, ask) -> None:
    client, port = ask
    one = unused_port()
    url = f"http://127.0.0.1:{port}/prometheus"
    async with agent(tmp_path, one), metrics_api(tmp_path, port, one) as api:
        await until(lambda: client.status(one), 200)
        # promtool posts queries, as Grafana does.
        text = await output("promtool", "query", "instant", url, "count(DCGM_FI_DEV_GPU_UTIL)")
        assert re.fullmatch(r"\{\} => 2 @\[[\d.]+\]\n", text)
        names = await output("promtool", "query", "labels", url, "__name__")
        assert "DCGM_FI_DEV_GPU_UTIL" in names.split()
        status, text = await client.get("/prometheus/api/v1/query?query=up%7B")
        assert (status, json.loads(text)["errorType"]) == (400, "bad_data")
        status, text = await client.get("/prometheus/api/v1/nothing")
        assert (status, json.loads(text)["status"]) == (404, "error")
        # What the collector serves besides is not for others.
        assert (await client.get("/prometheus/measured/api/v1/query?query=up"))[0] == 404
        assert (await client.get("/prometheus/api/v1/%2e%2e/%2e%2e/metrics"))[0] == 404
        assert (await client.post("/prometheus/api/v1/query", BytesIO(bytes((1 << 20) + 1))))[
            0
        ] == 413
        os.kill(api.collector(), signal.SIGSTOP)
        path = "/prometheus/api/v1/query?query=up"
        asking = {asyncio.create_task(client.get(path)) for _ in range(21)}
        (refused,), waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        status, text = refused.result()
        assert (status, "too many requests at once" in json.loads(text)["error"]) == (503, True)
        os.kill(api.collector(), signal.SIGCONT)
        assert {status for status, _ in await asyncio.gather(*waiting)} == {200}
        os.kill(api.collector(), signal.SIGKILL)
        await until(lambda: client.metric("collector_restarts_total"), 1)
    assert "Traceback" not in api.log


async def test_rules_that_come_later_get_their_series_soon(tmp_path: Path, ask) -> None:
    client, port = ask
    one = unused_port()
    async with agent(tmp_path, one), metrics_api(tmp_path, port, one) as api:
        await until(lambda: client.status(one), 200)
        assert await client.status(one, "power") == 404
        power = RULES.split("- ")[1].replace("GPU_UTIL", "POWER_USAGE").replace("gpu_util", "power")
        (tmp_path / "rules.yaml").write_text(RULES.replace("rules:\n", f"rules:\n- {power}", 1))
        await until(lambda: client.status(one, "power"), 200)
        assert await client.status(one) == 200
    assert "broke off" not in api.log
    kept_all = ["--keep-all-series"]
    async with agent(tmp_path, one), metrics_api(tmp_path, port, one, flags=kept_all):
        await until(lambda: client.status(one), 200)
        assert await client.metric(r"feed_series\{[^}]*\}") >= 42
        assert await client.metric(r"feed_unwanted_series\{[^}]*\}") == 0


async def test_the_prometheus_api_can_be_off(tmp_path: Path, ask) -> None:
    client, port = ask
    async with metrics_api(tmp_path, port, flags=["--serve-prometheus-api=false"]):
        await until(lambda: client.metric("collector_up"), 1)
        assert (await client.get("/prometheus/api/v1/query?query=up"))[0] == 404


async def output(*command):
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text, _ = await process.communicate()
    assert process.returncode == 0
    return text.decode()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_collector_ends_with_the_server_and_leaves_nothing(
    tmp_path: Path, ask, monkeypatch: pytest.MonkeyPatch, number
) -> None:
    client, port = ask
    with TemporaryDirectory() as name:  # of a length that a socket's path may have
        sockets = Path(name)
        monkeypatch.setenv("TMPDIR", name)
        async with metrics_api(tmp_path, port, unused_port()) as api:
            await until(lambda: client.metric("collector_up"), 1)
            (folder,) = await _listed(sockets)
            assert folder.stat().st_mode & 0o777 == 0o700
            collector = api.collector()
            # Whoever ends a service may signal all of its processes; this one waits for the server.
            os.kill(collector, signal.SIGTERM)
            assert await client.metric("collector_up") == 1
            await api.stop(number)
            await until(lambda: _is_gone(collector), True)
            await until(lambda: _listed(sockets), [])
    assert "Traceback" not in api.log


async def _is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def _listed(folder):
    return list(folder.iterdir())
