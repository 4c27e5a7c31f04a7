# mypy: disable-error-code="arg-type, assignment, attr-defined"
"""Feeds over real HTTP: agents and exporters that come, change, break off, come back and go."""

import asyncio
import importlib.util
import json
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from background import until
from gpuscale.base.clock import WallClock
from gpuscale.base.errors import UsageError
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.storage.limits import ScrapeLimits
from gpuscale.series.wanted import WantedNames
from gpuscale.server.collector.metrics import feed_families
from gpuscale.server.sources.feeds import stream
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.feeds.targets import static_agent, static_scrape


def _load(folder, name):
    path = Path(__file__).parents[1] / "unit" / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


API = _load("kube", "fake_api_server")
CERTIFICATES = _load("metricsapi", "certificates_for_tests")
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"


class Agent:
    """Streams one value, ten times a second; what it does can be changed while it runs."""

    def __init__(self, pod="a", value=1.0) -> None:
        self.pod, self.value = pod, value
        self.port = unused_port()
        self.streams = 0
        self.is_silent = False
        self.first = None
        self.authorization = []
        self._runner = None
        self._open = set()

    async def start(self, tls=None):
        app = web.Application()
        app.router.add_get("/stream", self._stream)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls).start()
        return self

    async def stop(self) -> None:
        """Break all connections off, as a machine does that fails."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            for transport in tuple(self._open):
                transport.abort()
            await runner.cleanup()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def _metrics(self, request):
        self.authorization.append(request.headers.get("Authorization"))
        return web.Response(text=f"util {self.value}\n")

    async def _stream(self, request):
        self.streams += 1
        self.authorization.append(request.headers.get("Authorization"))
        response = web.StreamResponse()
        await response.prepare(request)
        transport = request.transport
        self._open.add(transport)
        try:
            await response.write(self._line("snapshot") if self.first is None else self.first)
            while True:
                await asyncio.sleep(0.1)
                if not self.is_silent:
                    await response.write(self._line("change"))
        except ConnectionError:
            return response
        finally:
            self._open.discard(transport)

    def _line(self, kind):
        now_ms = CLOCK.now_ms()
        labels = {"gpu": "0", "namespace": "ml", "pod": self.pod}
        message = {"kind": kind, "ms": now_ms}
        if kind == "snapshot":
            message |= {"version": 1, "series": [[1, "util", labels, self.value]]}
        else:
            message["values"] = {"1": self.value}
        return json.dumps(message).encode() + b"\n"


CLOCK = WallClock()


@asynccontextmanager
async def running(settings, kubeconfig=None):
    kube = settings_of_kube = None
    if kubeconfig is not None:
        settings_of_kube = KubeSettings(kubeconfig=kubeconfig, retry_s=0.05)
        kube = KubeClient(settings_of_kube)
    collector = FeedCollector(settings, CLOCK, kube, settings_of_kube)
    task = asyncio.create_task(collector.run())
    try:
        yield collector
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if kube is not None:
            await kube.close()


def values(collector, query="util"):
    rows = instant(collector.store, query, CLOCK.now_ms()).samples
    return {row.labels.get("pod", row.labels.get("instance")): row.value for row in rows}


@pytest.fixture
async def agents():
    started = []

    async def start(*arguments):
        started.append(await Agent(*arguments).start())
        return started[-1]

    yield start
    for agent in started:
        await agent.stop()


def following(*agents, **options):
    return FeedSettings(static=tuple(static_agent(each.address) for each in agents), **options)


async def test_a_change_on_the_agent_is_in_the_store(agents) -> None:
    agent = await agents()
    async with running(following(agent)) as collector:
        await until(lambda: values(collector) == {"a": 1.0})
        agent.value = 7.0
        await until(lambda: values(collector) == {"a": 7.0})
        (state,) = collector.states()
        assert (state.kind, state.up, state.error, state.series) == ("stream", True, None, 1)
        assert state.measured_ms <= CLOCK.now_ms()
    # A collector that stops says nothing of its targets: after a restart their series go on.
    assert values(collector) == {"a": 7.0}


async def test_a_broken_stream_keeps_its_series_for_a_grace_and_then_ends_them(agents) -> None:
    agent = await agents()
    async with running(following(agent)) as collector:
        await until(lambda: values(collector) == {"a": 1.0})
        await agent.stop()
        await until(lambda: not collector.states()[0].up)
        assert values(collector) == {"a": 1.0}
        await until(lambda: values(collector) == {})
        assert values(collector, "up") == {agent.address: 0.0}
        assert collector.states()[0].error
        agent.value = 3.0
        await agent.start()
        await until(lambda: values(collector) == {"a": 3.0})
        await until(lambda: values(collector, "up") == {agent.address: 1.0})
        assert collector.states()[0].failures > 0


async def test_an_agent_that_comes_back_within_the_grace_leaves_no_gap(
    agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stream.StreamFollower.__init__.__kwdefaults__, "grace_s", 60.0)
    agent = await agents()
    async with running(following(agent)) as collector:
        await until(lambda: values(collector) == {"a": 1.0})
        await agent.stop()
        agent.value = 2.0
        await agent.start()
        gaps = 0
        async with asyncio.timeout(30):
            while values(collector) != {"a": 2.0}:
                gaps += values(collector) == {}
                await asyncio.sleep(0.02)
        assert gaps == 0


async def test_a_silent_connection_counts_as_broken(
    agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_SILENCE_S", (0.5, 1.0))
    agent = await agents()
    async with running(following(agent)) as collector:
        await until(lambda: values(collector) == {"a": 1.0})
        agent.is_silent = True
        await until(lambda: agent.streams > 1)
        assert collector.states()[0].failures > 0


@pytest.mark.parametrize("first", [b"<html>\n", b"{}\n", b'{"kind":"heartbeat","ms":1}\n'])
async def test_what_is_no_stream_is_told_and_tried_again(agents, first: bytes) -> None:
    agent = await agents()
    agent.first = first
    async with running(following(agent)) as collector:
        await until(lambda: agent.streams > 2)
        state = collector.states()[0]
        assert not state.up
        assert "found" in state.error
        agent.first = None
        await until(lambda: values(collector) == {"a": 1.0})


async def test_agents_get_a_password_and_scraped_targets_dont(agents, tmp_path: Path) -> None:
    agent, other = await agents(), await agents()
    (tmp_path / "password").write_text("sesame\n")
    settings = FeedSettings(
        static=(static_agent(agent.address), static_scrape(f"{other.address}/metrics")),
        agent_username="ali",
        agent_password_file=tmp_path / "password",
    )
    async with running(settings) as collector:
        await until(lambda: len(values(collector)) == 2)
    assert agent.authorization[0] == "Basic YWxpOnNlc2FtZQ=="  # ali:sesame
    assert set(other.authorization) == {None}


async def test_agents_are_come_to_with_certificates(tmp_path: Path) -> None:
    ca = CERTIFICATES.Ca("agents")
    (tmp_path / "ca.crt").write_text(ca.pem)
    for name, pair in (("server", ca.server("localhost")), ("client", ca.client("gpuscale"))):
        (tmp_path / f"{name}.crt").write_text(pair[0])
        (tmp_path / f"{name}.key").write_text(pair[1])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    agent = await Agent().start(tls)
    target = static_agent(f"https://localhost:{agent.port}")
    settings = FeedSettings(
        static=(target,),
        agent_ca_file=tmp_path / "ca.crt",
        agent_client_files=(tmp_path / "client.crt", tmp_path / "client.key"),
    )
    try:
        async with running(settings) as collector:
            await until(lambda: values(collector) == {"a": 1.0})
        async with running(replace(settings, agent_client_files=None)) as collector:
            await until(lambda: collector.states() and collector.states()[0].failures)
            assert values(collector) == {}
    finally:
        await agent.stop()
    with pytest.raises(
        UsageError, match=r"none, .*client\.key: can't be used to reach node agents: "
    ):
        FeedCollector(replace(settings, agent_ca_file=tmp_path / "none"), CLOCK)


async def test_other_exporters_are_scraped_and_end_when_they_fail(agents) -> None:
    exporter = await agents("a", 5.0)
    target = static_scrape(f"{exporter.address}/metrics")
    async with running(FeedSettings(static=(target,), scrape_interval_s=0.1)) as collector:
        await until(lambda: values(collector) == {exporter.address: 5.0})
        exporter.value = "broken text"
        await until(lambda: values(collector) == {})
        assert values(collector, "up") == {exporter.address: 0.0}
        exporter.value = 6.0
        await until(lambda: values(collector) == {exporter.address: 6.0})


async def test_dashboards_of_model_servers_have_data_of_a_target_that_is_named(agents) -> None:
    exporter = await agents("a", "5\nvllm:kv_cache_usage_perc 0.4\nsglang:token_usage 0.3\nother 1")
    target = static_scrape(f"{exporter.address}/metrics")
    async with running(FeedSettings(static=(target,), scrape_interval_s=0.1)) as collector:
        collector.want(WantedNames(frozenset({"util"})))
        kept = {"util": 5.0, "vllm:kv_cache_usage_perc": 0.4, "sglang:token_usage": 0.3}
        for name, value in kept.items():
            await until(lambda: values(collector, name) == {exporter.address: value})  # noqa: B023
        (state,) = collector.states()
        await until(lambda: state.unwanted == 1)
        assert values(collector, "other") == {}


@pytest.mark.parametrize(
    ("limits", "limit", "reason"),
    [
        (ScrapeLimits(samples=1), "samples", "found 2, expected at most 1 samples"),
        (ScrapeLimits(body_bytes=20), "body_size", "more than 20 bytes"),
    ],
)
async def test_a_target_beyond_a_limit_fails_alone_and_is_counted(
    agents, limits, limit: str, reason: str
) -> None:
    good, bad = await agents("a", 5.0), await agents("b", "6\nmore_and_more 1")
    targets = tuple(static_scrape(f"{each.address}/metrics") for each in (good, bad))
    settings = FeedSettings(static=targets, scrape_interval_s=0.1, limits=limits)
    async with running(settings) as collector:
        await until(lambda: values(collector, "up") == {good.address: 1.0, bad.address: 0.0})
        assert values(collector) == {good.address: 5.0}
        states = {state.instance: state for state in collector.states()}
        assert reason in states[bad.address].error
        assert states[bad.address].limited.keys() == {limit}
        assert states[good.address].limited == {}
        (counted,) = [
            each
            for each in feed_families(collector)
            if each.name.endswith("feed_limit_exceeded_total")
        ]
        assert dict(counted.samples[0].labels)["limit"] == limit


class Exporter:
    """Answers scrapes in the format that a case sets."""

    def __init__(self) -> None:
        self.port = unused_port()
        self.headers = []
        self.kind, self.body = "text/plain", b""

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def answer(self, request):
        self.headers.append(request.headers)
        return web.Response(body=self.body, headers={"Content-Type": self.kind})


@pytest.fixture
async def exporter():
    exporter = Exporter()
    app = web.Application()
    app.router.add_get("/metrics", exporter.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", exporter.port).start()
    yield exporter
    await runner.cleanup()


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4"


@pytest.mark.parametrize(
    ("kind", "body", "query"),
    [
        (OPENMETRICS, b'# TYPE util gauge\nutil 5 # {a="b"} 1\n# EOF\n', "util"),
        (OPENMETRICS, b'{"gpu.util","k8s.pod"="p"} 5\n# EOF\n', '{"gpu.util","k8s.pod"="p"}'),
        (TEXT + "; escaping=allow-utf-8", b'{"gpu.util"} 5\n', '{"gpu.util"}'),
        (TEXT, b"# a comment \xff\nutil 5\n", "util"),
        (TEXT, b'util{gpu="0"slot="a\nb"} 5\n', 'util{gpu="0",slot="a\\nb"}'),
        ("", b"util 5\n", "util"),
    ],
    ids=["openmetrics", "openmetrics-utf8", "text-utf8", "comment", "lax", "no-type"],
)
async def test_an_exporter_may_answer_in_each_format(
    exporter, kind, body: bytes, query: str
) -> None:
    exporter.kind, exporter.body = kind, body
    target = static_scrape(f"{exporter.address}/metrics")
    async with running(FeedSettings(static=(target,), scrape_interval_s=0.1)) as collector:
        await until(lambda: values(collector, query) == {exporter.address: 5.0})
    # What Prometheus 3 sends by default.
    assert exporter.headers[0]["Accept"] == (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "application/openmetrics-text;version=0.0.1;q=0.4,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
        "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
    )
    assert exporter.headers[0]["X-Prometheus-Scrape-Timeout-Seconds"] == "0.1"


@pytest.mark.parametrize(
    ("kind", "body", "limit", "reason"),
    [
        ("application/vnd.google.protobuf", b"\x00", "format", "answered in protobuf"),
        (
            "application/openmetrics-text; version=2.0.0",
            b"# EOF\n",
            "format",
            "answered in OpenMetrics 2.0",
        ),
        (TEXT, b"h {count:1,sum:2}\n", "native_histograms", "native histograms are not supported"),
    ],
)
async def test_what_is_not_supported_is_refused_and_counted(
    exporter, kind, body: bytes, limit: str, reason: str
) -> None:
    exporter.kind, exporter.body = kind, body
    target = static_scrape(f"{exporter.address}/metrics")
    async with running(FeedSettings(static=(target,), scrape_interval_s=0.1)) as collector:
        await until(lambda: values(collector, "up") == {exporter.address: 0.0})
        (state,) = collector.states()
        assert reason in state.error
        assert state.limited.keys() == {limit}


def slice_of(name, *ports, node="n1"):
    return {
        "metadata": {
            "namespace": "gpu",
            "name": name,
            "labels": {"kubernetes.io/service-name": "gpuscale-exporter"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": ports[0]}],
        "endpoints": [{"addresses": ["127.0.0.1"], "nodeName": node}],
    }


def pod_of(name, port):
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}
    return {
        "metadata": {"namespace": "ml", "name": name, "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    }


@pytest.fixture
async def api(tmp_path: Path):
    server = API.FakeApiServer()
    server.objects[SLICES], server.events[SLICES] = {}, []
    await server.start()
    server.path = server.kubeconfig(tmp_path)
    yield server
    await server.stop()


async def test_agents_and_pods_come_and_go_with_the_cluster(agents, api) -> None:
    one, two, vllm = await agents("a", 1.0), await agents("b", 2.0), await agents("-", 9.0)
    await api.put(SLICES, slice_of("s1", one.port))
    async with running(FeedSettings(scrape_interval_s=0.1), api.path) as collector:
        await until(lambda: values(collector) == {"a": 1.0})
        await api.put(SLICES, slice_of("s2", two.port))
        await api.put(API.POD, pod_of("vllm-0", vllm.port))
        await until(lambda: values(collector) == {"a": 1.0, "b": 2.0, "vllm-0": 9.0})
        # An agent that is annotated too is not scraped beside its stream.
        await api.put(API.POD, pod_of("agent-one", one.port))
        await api.put(SLICES, slice_of("s2", two.port, node="n2"))
        await until(lambda: len(values(collector, 'util{node="n2"}')) == 1)
        assert len(collector.states()) == 3
        await api.delete(SLICES, slice_of("s1", one.port))
        await api.delete(API.POD, pod_of("agent-one", one.port))
        await until(lambda: values(collector) == {"b": 2.0, "vllm-0": 9.0})
        assert all(state.error is None for state in collector.watches().values())
    selectors = {query.get("labelSelector") for path, query, _ in api.requests if path == SLICES}
    assert selectors == {"kubernetes.io/service-name=gpuscale-exporter"}


async def test_an_agent_with_two_addresses_is_followed_once(agents, api) -> None:
    agent = await agents()
    by_ipv4 = slice_of("s1", agent.port)
    reference = {"kind": "Pod", "namespace": "gpu", "name": "agent-x"}
    by_ipv4["endpoints"][0]["targetRef"] = reference
    by_ipv6 = {**slice_of("s2", agent.port), "addressType": "IPv6"}
    by_ipv6["endpoints"] = [{"addresses": ["::1"], "targetRef": reference}]
    await api.put(SLICES, by_ipv6)
    await api.put(SLICES, by_ipv4)
    async with running(FeedSettings(), api.path) as collector:
        # A second copy of a GPU's series would double every sum.
        await until(lambda: values(collector) == {"a": 1.0})
        assert [state.instance for state in collector.states()] == [agent.address]


async def test_while_the_api_server_is_away_known_agents_are_followed(agents, api) -> None:
    agent = await agents()
    await api.put(SLICES, slice_of("s1", agent.port))
    async with running(FeedSettings(), api.path) as collector:
        await until(lambda: values(collector) == {"a": 1.0})
        await api.stop()
        await until(lambda: collector.watches()["endpointslices"].error is not None)
        agent.value = 4.0
        await until(lambda: values(collector) == {"a": 4.0})


async def test_a_full_store_keeps_less_of_the_past_and_says_so(
    agents, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpuscale.server.sources.feeds.collector._TIDY_S", 0.1)
    agent = await agents()
    settings = following(agent, retention_ms=25_600, max_samples=20, resolution_ms=100)
    async with running(settings) as collector:
        await until(lambda: "the store is full" in caplog.text)
        assert collector.store.stats().covered_ms < 25_600
        assert values(collector) == {"a": 1.0}
        agent.value = 2.0
        await until(lambda: values(collector) == {"a": 2.0})
