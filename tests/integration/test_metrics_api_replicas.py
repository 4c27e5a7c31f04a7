# mypy: disable-error-code="arg-type, assignment"
"""Several `gpuscale metrics-api --source streams` that share thirty agents, as processes.

Each agent's value is the time that it was measured at, so every stored sample proves its own time.
"""

import asyncio
import importlib.util
import ipaddress
import json
import re
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

# Three servers with their collectors take both cores: nothing else that is heavy runs beside them.
pytestmark = [pytest.mark.timeout(480), pytest.mark.xdist_group("heavy")]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
AGENTS = 30
FIRST_ADDRESS = int(ipaddress.IPv4Address("127.2.0.1"))
METRIC = "measured_ms"
RULES = f"""
rules:
- seriesQuery: {METRIC}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
SLICES = "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _load(name):
    path = Path(__file__).parents[1] / "unit" / "metricsapi" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CERTIFICATES, CLUSTER = _load("certificates_for_tests"), _load("fake_cluster")


class Agents:
    """Thirty agents of one series each, on an address of its own each."""

    def __init__(self) -> None:
        self.open = [set() for _ in range(AGENTS)]
        self.silent = set()
        self.hosts = [str(ipaddress.IPv4Address(FIRST_ADDRESS + n)) for n in range(AGENTS)]

    async def answer(self, reader, writer) -> None:
        number = self.hosts.index(writer.get_extra_info("sockname")[0])
        try:
            await reader.readuntil(b"\r\n\r\n")
            if number in self.silent:
                return
            labels = {"namespace": "team", "pod": f"pod-{number}", "node": f"gpu-{number}"}
            ms = measured_ms()
            entry = [1, METRIC, labels, ms]
            snapshot = {"kind": "snapshot", "version": 1, "series": [entry], "ms": ms}
            writer.write(HEAD + chunk(snapshot))
            self.open[number].add(writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open[number].discard(writer)
            writer.close()

    async def tick(self) -> None:
        while True:
            for writers in self.open:
                ms = measured_ms()
                for writer in writers:
                    writer.write(chunk({"kind": "change", "ms": ms, "values": {"1": ms}}))
            await asyncio.sleep(0.5)

    @property
    def connections(self):
        return [len(writers) for writers in self.open]

    def stop(self, number) -> None:
        self.silent.add(number)
        for writer in self.open[number]:
            writer.transport.abort()


def measured_ms():
    """Return a time that is past by any clock of this machine; those ahead are cut to the arrival."""
    return time.time_ns() // 1_000_000 - 50


def chunk(message):
    line = json.dumps(message).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


@asynccontextmanager
async def agents_on(port):
    agents = Agents()
    async with await asyncio.start_server(agents.answer, agents.hosts, port):
        ticking = asyncio.create_task(agents.tick())
        try:
            yield agents
        finally:
            ticking.cancel()
            for writer in [each for writers in agents.open for each in writers]:
                writer.transport.abort()


class Replica:
    """One metrics API; its log is kept."""

    def __init__(self, session, folder, port, addresses, *flags) -> None:
        self._session = session
        self._log = folder / f"replica-{port}.log"
        self._url = f"http://127.0.0.1:{port}"
        self._command = (
            *(GPUSCALE, "metrics-api", f"--config={folder / 'rules.yaml'}", "--source=streams"),
            *(f"--agent={each}" for each in addresses),
            f"--insecure-loopback-port={port}",
            *flags,
        )
        self._process = None

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=log
            )

    async def stop(self, number=signal.SIGTERM) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()

    async def get(self, path, **params):
        try:
            async with self._session.get(self._url + path, params=params) as answer:
                return await answer.text() if answer.status == 200 else ""
        except aiohttp.ClientError:
            return ""

    async def samples(self, query):
        """Return the samples of a range by pod; all of them were measured when they say."""
        text = await self.get("/prometheus/api/v1/query", query=query)
        result = json.loads(text)["data"]["result"] if text else []
        found = {}
        for series in result:
            samples = [(round(at * 1000), int(float(value))) for at, value in series["values"]]
            # A second line of one millisecond counts a millisecond later.
            assert {at - value for at, value in samples} <= {0, 1}
            assert series["metric"]["node"] == series["metric"]["pod"].replace("pod", "gpu")
            found[series["metric"]["pod"]] = [at for at, _ in samples]
        return found

    async def number(self, query):
        text = await self.get("/prometheus/api/v1/query", query=query)
        result = json.loads(text)["data"]["result"] if text else []
        return float(result[0]["value"][1]) if result else None

    async def is_current(self, agents):
        """Return whether values of all these agents were measured within three seconds."""
        found = await self.samples(f"{METRIC}[3s]")
        return set(found) == {f"pod-{number}" for number in agents}

    async def labelled(self, name):
        """Return the samples of a metric of the server's own by their labels' text."""
        start, found = f"gpuscale_metrics_api_{name}{{", {}
        for line in (await self.get("/metrics")).splitlines():
            if line.startswith(start):
                labels, _, value = line.removeprefix(start).rpartition("} ")
                found[labels] = float(value)
        return found

    async def metric(self, name):
        text = await self.get("/metrics")
        lines = [
            line for line in text.splitlines() if line.startswith(f"gpuscale_metrics_api_{name} ")
        ]
        return float(lines[0].split()[-1]) if lines else None


async def until(is_so, what, details=lambda: "") -> None:
    deadline = time.monotonic() + 120
    while not await is_so():
        assert time.monotonic() < deadline, f"not within two minutes: {what}; {details()}"
        await asyncio.sleep(0.2)


async def are_shared(agents, replicas, numbers=range(AGENTS)):
    """Return whether each of these agents is followed by one replica, and known to all."""
    once = [int(number in numbers) for number in range(AGENTS)]
    parts = [await replica.metric("peer_agents_own") for replica in replicas]
    return (
        agents.connections == once
        and None not in parts
        and sum(parts) == AGENTS
        and all([await replica.is_current(numbers) for replica in replicas])
    )


async def test_three_replicas_share_agents_and_take_over(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    agents_port, ports = unused_port(), [unused_port() for _ in range(3)]
    everyone = range(AGENTS)
    async with AsyncExitStack() as stack:
        agents = await stack.enter_async_context(agents_on(agents_port))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        addresses = [f"{host}:{agents_port}" for host in agents.hosts]
        # Its own address is among them, and a second address of one of them.
        peers = [f"http://127.0.0.1:{port}" for port in ports] + [f"http://localhost:{ports[0]}"]
        flags = (f"--peers={','.join(peers)}", "--secure-port=0")
        replicas = [Replica(session, tmp_path, port, addresses, *flags) for port in ports]
        for replica in replicas:
            stack.push_async_callback(replica.stop)
            await replica.start()

        def details():
            return agents.connections

        await until(lambda: are_shared(agents, replicas), "each agent has one connection", details)
        first, second, killed = replicas

        async def has_both_peers():
            return "2 of 2 other replicas answer" in await first.get("/readyz", verbose="")

        await until(has_both_peers, "the first is ready, and has the two others", details)
        began_ms = time.time_ns() // 1_000_000

        await killed.stop(signal.SIGKILL)
        await until(lambda: are_shared(agents, replicas[:2]), "the others take over", details)

        await killed.start()
        await until(lambda: are_shared(agents, replicas), "it has its part again", details)

        # All samples of all of this time are those that the agents sent, see `samples`.
        now_ms = time.time_ns() // 1_000_000
        for replica in (first, second):
            found = await replica.samples(f"{METRIC}[2m]")
            assert len(found) == AGENTS
            for times in found.values():
                assert times == sorted(set(times))
                assert any(at > began_ms for at in times)
                assert times[-1] <= now_ms
        # No sample was refused on the way, but for those that an agent's old origin had brought already when
        # a new one took over, as happened to each agent twice at most.
        text = await first.get("/metrics")
        found = re.findall(r'store_refused_samples_total\{reason="(\w+)"\} (\d+)', text)
        refused = {reason: int(count) for reason, count in found}
        assert refused.pop("duplicate_timestamp") <= 2 * AGENTS
        assert refused
        assert set(refused.values()) == {0}, refused

        # An agent that goes ends for all, and the others stay.
        agents.stop(7)
        left = [number for number in everyone if number != 7]

        async def has_ended():
            found = [
                [await replica.number(f"count({METRIC})"), await replica.number("sum(up)")]
                for replica in replicas
            ]
            return all(each == [len(left), len(left)] for each in found)

        await until(has_ended, "the agent's series end everywhere", details)
        assert await are_shared(agents, replicas, left)


def endpoint(host, *, ready=True, terminating=False):
    conditions = {"ready": ready and not terminating, "serving": ready, "terminating": terminating}
    pod = {"kind": "Pod", "name": f"pod-{host}", "namespace": "team"}
    return {"addresses": [host], "conditions": conditions, "targetRef": pod}


def read_log(folder, port):
    return (folder / f"replica-{port}.log").read_text()


async def test_replicas_find_each_other_by_their_service(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    cas = {name: CERTIFICATES.Ca(name) for name in ("api", "clients", "proxies", "replicas")}
    cluster = CLUSTER.FakeCluster(cas["api"], tmp_path)
    cluster.objects[SLICES] = {}
    cluster.objects[SLICES.replace("team", "elsewhere")] = {}
    cluster.resources.append(("namespaces", "Namespace", "Cluster"))
    cluster.allowed = lambda spec: (
        spec["user"] == "robot"
        and spec["nonResourceAttributes"] == {"path": "/peers/stream", "verb": "get"}
    )
    certificate, key = cas["replicas"].server("gpuscale-metrics-api.team.svc")
    files = {"ca.crt": cas["replicas"].pem, "tls.crt": certificate, "tls.key": key, "token": "good"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    agents_port, secure_port = unused_port(), unused_port()
    hosts = [f"127.3.0.{n}" for n in range(1, 4)]
    loopback = [unused_port() for _ in hosts]

    async def listed(*endpoints) -> None:
        ports = [{"name": "https", "port": secure_port, "protocol": "TCP"}]
        more = {"addressType": "IPv4", "ports": ports, "endpoints": list(endpoints)}
        await cluster.put(SLICES, "gpuscale-metrics-api-x", "team", **more)

    async with AsyncExitStack() as stack:
        await cluster.start()
        stack.push_async_callback(cluster.stop)
        await cluster.trust(cas["clients"], cas["proxies"], "front-proxy-client")
        agents = await stack.enter_async_context(agents_on(agents_port))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        addresses = [f"{host}:{agents_port}" for host in agents.hosts]
        flags = (
            "--peers-service=team/gpuscale-metrics-api",
            f"--peers-ca-file={tmp_path / 'ca.crt'}",
            f"--peers-token-file={tmp_path / 'token'}",
            f"--lister-kubeconfig={cluster.kubeconfig()}",
            "--agent-service=elsewhere/agents",
            "--scrape-annotated-pods=false",
            f"--tls-cert-file={tmp_path / 'tls.crt'}",
            f"--tls-private-key-file={tmp_path / 'tls.key'}",
            f"--secure-port={secure_port}",
            "--shutdown-delay-duration=1s",
        )
        first, second, third = [
            Replica(session, tmp_path, port, addresses, *flags, f"--bind-address={host}")
            for port, host in zip(loopback, hosts, strict=True)
        ]
        for replica in (first, second, third):
            stack.push_async_callback(replica.stop)

        def details():
            return agents.connections, [read_log(tmp_path, port)[-2000:] for port in loopback[:2]]

        await listed(*map(endpoint, hosts[:2]))
        await first.start()
        await second.start()
        await until(lambda: are_shared(agents, [first, second]), "two share", details)

        # One more comes, as in a rolling update: it has its part before it is ready.
        await third.start()
        await listed(*map(endpoint, hosts[:2]), endpoint(hosts[2], ready=False))
        await until(lambda: are_shared(agents, [first, second, third]), "three share", details)
        assert await second.labelled("peers") == {
            'state="connecting"': 0,
            'state="up"': 2,
            'state="down"': 0,
            'state="self"': 1,
        }

        # An old one goes: while it still serves it has its part, and then it leaves the list.
        await listed(endpoint(hosts[0], terminating=True), *map(endpoint, hosts[1:]))
        await until(
            lambda: are_shared(agents, [first, second, third]), "three still share", details
        )
        await first.stop()
        await listed(*map(endpoint, hosts[1:]))
        await until(lambda: are_shared(agents, [second, third]), "two are left", details)
        assert sum((await second.labelled("peers")).values()) == 2

        # Without the API server the last list stays, and all values too.
        await cluster.stop()

        async def is_away():
            return (await second.labelled("feed_watch_up")).get('resource="peers"') == 0

        await until(is_away, "the watch is down", details)
        assert sum((await second.labelled("peers")).values()) == 2
        assert await second.is_current(range(AGENTS))

        # What came meanwhile is found once it is back.
        await first.start()
        await listed(*map(endpoint, hosts))
        await cluster.start()
        await until(lambda: are_shared(agents, [first, second, third]), "all share", details)
