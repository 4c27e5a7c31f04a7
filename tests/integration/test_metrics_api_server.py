# mypy: disable-error-code="arg-type"
"""The whole server over real TLS, before an API server over real HTTPS and a Prometheus over HTTP."""

import asyncio
import importlib.util
import json
import os
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port
from yarl import URL

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import ConfigError, UnavailableError
from gpuscale.series.promapi.app import add_routes as add_prometheus_api
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.process import MetricsApiServer
from gpuscale.server.metricsapi.settings import read_settings

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
PODS = f"{CUSTOM}/namespaces/ml/pods/%2A/gpu_util"
HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
RULES = """
rules:
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- {seriesQuery: queue, resources: {namespaced: false}, metricsQuery: 'queue{<<.LabelMatchers>>}'}
"""
BAD_RULES = "rules: [{seriesQuery: 1 2}]\n"
SERVICE = "gpuscale-metrics-api.default.svc"


def _load(name):
    path = Path(__file__).parents[1] / "unit" / "metricsapi" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CERTIFICATES, CLUSTER = _load("certificates_for_tests"), _load("fake_cluster")


class World:
    """A cluster, a Prometheus, and what clients come with."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.cas = {
            name: CERTIFICATES.Ca(name) for name in ("clients", "proxies", "strangers", "api")
        }
        self.cluster = CLUSTER.FakeCluster(self.cas["api"], folder)
        self.store = SeriesStore()
        self.clock = WallClock()
        self.prometheus = ""
        self.rules = folder / "rules.yaml"
        self.rules.write_text(RULES)

    async def put(self, *pods) -> None:
        now_ms = self.clock.now_ms()
        for name in pods:
            labels = {"__name__": "gpu_util", "namespace": "ml", "pod": name}
            self.store.append(labels, now_ms, 23.5)
            await self.cluster.put("/api/v1/pods", name, "ml", {"app": "web"})
        self.store.append({"__name__": "queue", "q": "a"}, now_ms, 42.0)

    def context(self, pair=None):
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        if pair is not None:
            path = self.folder / "client.pem"
            path.write_text("".join(pair))
            context.load_cert_chain(path)
        return context

    def proxy(self):
        return self.cas["proxies"].client("front-proxy-client")


@pytest.fixture
async def world(tmp_path: Path):
    world = World(tmp_path)
    await world.cluster.start()
    await world.cluster.trust(world.cas["clients"], world.cas["proxies"], "front-proxy-client")
    await world.put("web-0", "web-1")
    app = web.Application()
    add_prometheus_api(app, world.store, world.clock)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    world.prometheus = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield world
    await world.cluster.stop()
    await runner.cleanup()


class Server:
    """A running server, as its clients see it."""

    def __init__(self, world, port, guard, stop) -> None:
        self.world, self.port, self.guard, self.stop = world, port, guard, stop

    async def get(self, path, *, pair=None, headers=(), session=None):
        """Return the status and the text of the answer."""
        if session is None:
            async with self.session(pair) as opened:
                return await self.get(path, headers=headers, session=opened)
        url = URL(f"https://localhost:{self.port}{path}", encoded=True)
        async with session.get(url, headers=headers) as response:
            self.headers = response.headers
            return response.status, await response.text()

    async def reasons(self):
        """Return what /readyz says to somebody who may read metrics."""
        return (await self.get("/readyz?verbose", headers={"Authorization": "Bearer good"}))[1]

    async def answer(self, path, **how):
        """Return the status and the body of an answer in JSON."""
        status, text = await self.get(path, **how)
        return status, json.loads(text)

    def session(self, pair=None):
        connector = aiohttp.TCPConnector(ssl=self.world.context(pair), limit=0)
        return aiohttp.ClientSession(connector=connector)

    async def as_hpa(self, path=PODS, **more):
        """Ask as the HPA controller does through the API server."""
        headers = {
            "Accept": "application/vnd.kubernetes.protobuf, */*",
            "X-Remote-User": HPA,
            "X-Remote-Group": "system:serviceaccounts",
        }
        return await self.answer(path, pair=self.world.proxy(), headers=headers, **more)


@asynccontextmanager
async def running(world, clock=None, drain_s=0.0, **flags):
    port = unused_port()
    given = {
        "config": [str(world.rules)],
        "prometheus-url": [world.prometheus],
        "lister-kubeconfig": [str(world.cluster.kubeconfig())],
        "bind-address": ["localhost"],
        "secure-port": [str(port)],
        "cert-dir": [str(world.folder / "certificates")],
        "ca-bundle-file": [str(world.folder / "ca.crt")],
        **{name.replace("_", "-"): [value] for name, value in flags.items()},
    }
    server = MetricsApiServer(read_settings(given), clock, drain_s)
    stop, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(server.run(stop, lambda _: started.set()))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()

    async def discovered():
        return bool(server._backend.provider.catalogue.custom)

    try:
        await until(discovered)
        yield Server(world, port, server._protection.guard, stop)
    finally:
        stop.set()
        await task


async def until(is_so) -> None:
    """Return once a coroutine function says so."""
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110 - another process, or a file, has no event
            await asyncio.sleep(0.02)


@pytest.fixture
async def server(world):
    async with running(world) as server:
        yield server


async def test_an_hpas_request_through_the_front_proxy(world, server) -> None:
    status, body = await server.as_hpa(f"{PODS}?labelSelector=app%3Dweb")
    assert (status, server.headers["Content-Type"]) == (200, "application/json")
    assert "Server" not in server.headers  # which would name Python and aiohttp with their versions
    items = {item["describedObject"]["name"]: item["value"] for item in body["items"]}
    assert items == {"web-0": "23500m", "web-1": "23500m"}
    assert world.cluster.access_reviews == [
        {
            "user": HPA,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "namespace": "ml",
                "verb": "get",
                "group": "custom.metrics.k8s.io",
                "version": "v1beta2",
                "resource": "pods",
                "subresource": "gpu_util",
                "name": "*",
            },
        }
    ]
    for watching in (False, True):
        accept = world.cluster.accepts["/api/v1/pods", watching]
        kind = "PartialObjectMetadata" if watching else "PartialObjectMetadataList"
        assert accept == f"application/json;as={kind};g=meta.k8s.io;v=v1,application/json"


async def test_external_metrics_are_asked_for_as_lists(world, server) -> None:
    status, body = await server.as_hpa(f"{EXTERNAL}/namespaces/ml/queue")
    assert (status, body["items"][0]["value"]) == (200, "42")
    (spec,) = world.cluster.access_reviews
    assert spec["resourceAttributes"] == {
        "namespace": "ml",
        "verb": "list",
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "resource": "queue",
    }


async def test_the_availability_probe_needs_no_question(world, server) -> None:
    headers = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
    probes = [server.get(CUSTOM, pair=world.proxy(), headers=headers) for _ in range(5)]
    assert {status for status, _ in await asyncio.gather(*probes)} == {200}
    assert world.cluster.access_reviews == []


async def test_spoofed_headers_without_a_certificate_are_anonymous(world, server) -> None:
    world.cluster.allowed = lambda spec: spec["user"] != "system:anonymous"
    headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    status, body = await server.answer(PODS, headers=headers)
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["message"] == (
        'pods.custom.metrics.k8s.io "*" is forbidden: User "system:anonymous" cannot get resource '
        '"pods/gpu_util" in API group "custom.metrics.k8s.io" in the namespace "ml"'
    )
    assert body["details"] == {"name": "*", "group": "custom.metrics.k8s.io", "kind": "pods"}


@pytest.mark.parametrize(
    ("ca", "name", "days"),
    [
        pytest.param("strangers", "front-proxy-client", (-1, 1), id="stranger"),
        pytest.param("proxies", "someone-else", (-1, 1), id="name not allowed"),
        pytest.param("proxies", "front-proxy-client", (-3, -1), id="expired"),
    ],
)
async def test_a_bad_certificate_gets_through_the_handshake_and_is_refused(
    world, server, ca: str, name: str, days: tuple[int, ...]
) -> None:
    pair = world.cas[ca].client(name, days=days)
    headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    status, body = await server.answer(PODS, pair=pair, headers=headers)
    assert (status, body["message"], body["reason"]) == (401, "Unauthorized", "Unauthorized")
    assert world.cluster.access_reviews == []


async def test_a_clients_certificate_names_user_and_groups(world, server) -> None:
    pair = world.cas["clients"].client("joe", ["dev"])
    headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    status, _ = await server.get("/metrics", pair=pair, headers=headers)
    assert status == 200
    assert world.cluster.access_reviews == [
        {
            "user": "joe",
            "groups": ["dev", "system:authenticated"],
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
    ]


async def test_a_token_is_reviewed(world, server) -> None:
    good, bad = ({"Authorization": f"Bearer {token}"} for token in ("good", "bad"))
    assert (await server.get(PODS, headers=good))[0] == 200
    assert (await server.get(PODS, headers=bad))[0] == 401
    stranger = world.cas["strangers"].client("joe")
    assert (await server.get(PODS, pair=stranger, headers=good))[0] == 200
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert world.cluster.requests["POST", path, False] == 2
    assert {spec["user"] for spec in world.cluster.access_reviews} == {"robot"}


async def test_health_needs_no_permission_and_its_parts_do(world, server) -> None:
    world.cluster.allowed = lambda spec: False
    for path in ("/healthz", "/livez", "/readyz"):
        assert await server.get(path) == (200, "ok")
    for path in ("/readyz/ping", "/metrics", "/version", "/apis", "/openapi/v2", "/nothing"):
        status, body = await server.answer(path)
        assert status == 403
        assert body["message"] == f'forbidden: User "system:anonymous" cannot get path "{path}"'
    _, verbose = await server.get("/readyz?verbose")
    assert verbose.endswith(
        "[+]rules ok\n[+]authentication ok\n[+]certificate ok\n[+]shutdown ok\nreadyz check passed\n"
    )


async def test_nobody_is_let_in_while_the_api_server_is_away(world) -> None:
    async with running(world, authorization_webhook_cache_authorized_ttl="5s") as server:
        assert (await server.as_hpa())[0] == 200
        await world.cluster.stop()
        assert (await server.as_hpa())[0] == 200  # the permission still holds

        async def refused():
            return (await server.as_hpa())[0] != 200

        await until(refused)
        status, body = await server.as_hpa()
        assert (status, body["reason"], body["message"]) == (
            500,
            "InternalError",
            "Internal error occurred: unable to ask the API server whether this is allowed",
        )
        token = {"Authorization": "Bearer good"}
        assert (await server.get(PODS, headers=token))[0] == 401
        assert (await server.get("/readyz"))[0] == 200
        probe = {"X-Remote-User": "a", "X-Remote-Group": "system:masters"}
        assert (await server.get(PODS, pair=world.proxy(), headers=probe))[0] == 200


async def test_three_hundred_parallel_requests_cost_one_list(world, server) -> None:
    await world.put(*(f"web-{number}" for number in range(50)))
    headers = {"X-Remote-User": HPA}
    async with server.session(world.proxy()) as session:
        asking = [server.answer(PODS, headers=headers, session=session) for _ in range(300)]
        answers = await asyncio.gather(*asking)
    assert {(status, len(body["items"])) for status, body in answers} == {(200, 50)}
    assert world.cluster.requests["GET", "/api/v1/pods", False] == 1
    assert len(world.cluster.access_reviews) == 1


async def test_more_requests_than_are_answered_at_a_time_are_turned_away(world, server) -> None:
    world.cluster.gate = asyncio.Event()
    headers = {"X-Remote-User": HPA}
    async with server.session(world.proxy()) as session:

        async def ask(number):
            path = f"{EXTERNAL}/namespaces/n{number}/queue"
            return await server.get(path, headers=headers, session=session)

        asking = [asyncio.create_task(ask(number)) for number in range(410)]

        async def ten_are_answered():
            return sum(task.done() for task in asking) >= 10

        await until(ten_are_answered)
        assert {task.result()[0] for task in asking if task.done()} == {429}
        world.cluster.gate.set()
        statuses = [status for status, _ in await asyncio.gather(*asking)]
        assert (statuses.count(200), statuses.count(429)) == (400, 10)
        headers["X-Remote-Group"] = "system:masters"
        assert (await ask(0))[0] == 200


async def test_a_request_that_takes_too_long_ends_with_a_timeout(
    world, server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.guard, "_timeout_s", 0.05)
    world.cluster.gate = asyncio.Event()
    status, body = await server.as_hpa()
    world.cluster.gate.set()
    assert (status, body["reason"]) == (504, "Timeout")
    _, text = await server.get(
        "/metrics", pair=world.cas["clients"].client("a", ["system:masters"])
    )
    assert 'gpuscale_metrics_api_rejected_requests_total{reason="timeout"} 1\n' in text


async def test_objects_that_cant_be_listed_are_an_error_and_never_an_empty_answer(
    world, server
) -> None:
    world.cluster.forbidden.add("/api/v1/pods")
    status, body = await server.as_hpa()
    assert (status, body["message"]) == (
        500,
        "Internal error occurred: unable to list matching resources",
    )
    one = f"{CUSTOM}/namespaces/ml/pods/web-0/gpu_util"
    assert (await server.as_hpa(one))[1]["items"][0]["value"] == "23500m"
    verbose = await server.reasons()
    assert (
        "[+]watch-pods ok: nothing is answered from it: the API server at https://localhost:"
        in verbose
    )
    assert "/api/v1/pods is forbidden" in verbose
    _, strangers = await server.get("/readyz?verbose")
    assert "[+]watch-pods ok\n" in strangers
    world.cluster.allowed = lambda spec: "nonResourceAttributes" not in spec
    other = {"Authorization": "Bearer other"}
    world.cluster.tokens["other"] = {"username": "other", "groups": []}
    assert (await server.get("/readyz?verbose", headers=other))[1] == strangers


async def test_a_new_pod_is_seen_without_another_list(world, server) -> None:
    await server.as_hpa()
    await world.put("web-2")

    async def seen():
        _, body = await server.as_hpa()
        return len(body["items"]) == 3

    await until(seen)
    assert world.cluster.requests["GET", "/api/v1/pods", False] == 1


async def test_what_the_cluster_trusts_is_followed(world, server) -> None:
    assert (await server.as_hpa())[0] == 200
    await world.cluster.trust(world.cas["clients"], world.cas["strangers"])

    async def refused():
        return (await server.as_hpa())[0] == 401

    await until(refused)


async def test_a_renewed_certificate_counts_for_new_connections(world) -> None:
    pem, key = world.cas["clients"].server("localhost")
    crt, private = world.folder / "tls.crt", world.folder / "tls.key"
    crt.write_text(pem)
    private.write_text(key)
    (world.folder / "ca.crt").write_text(world.cas["clients"].pem)
    files = {"tls_cert_file": str(crt), "tls_private_key_file": str(private)}
    async with running(world, WallClock(speed=50.0), **files) as server, server.session() as old:
        assert (await server.get("/readyz", session=old))[0] == 200
        pem, key = world.cas["strangers"].server("localhost")
        crt.write_text(pem)
        private.write_text(key)
        (world.folder / "ca.crt").write_text(world.cas["strangers"].pem)

        async def renewed():
            try:
                return (await server.get("/readyz"))[0] == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

        await until(renewed)
        assert (await server.get("/readyz", session=old))[0] == 200


async def test_the_ca_that_is_made_is_for_the_services_name(world, server) -> None:
    context = world.context()
    reader, writer = await asyncio.open_connection(
        "localhost", server.port, ssl=context, server_hostname=SERVICE
    )
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    writer.close()
    await writer.wait_closed()
    assert reader.at_eof()


async def test_a_pair_for_single_names_is_shown_to_who_asks_for_them(world) -> None:
    pem, key = world.cas["strangers"].server("metrics.example.com")
    (world.folder / "named.crt").write_text(pem)
    (world.folder / "named.key").write_text(key)
    given = f"{world.folder / 'named.crt'},{world.folder / 'named.key'}:*.example.com,localhost"
    async with running(world, tls_sni_cert_key=given) as server:
        context = ssl.create_default_context(cadata=world.cas["strangers"].pem)
        name = {"host": "localhost", "port": server.port, "ssl": context}
        _, writer = await asyncio.open_connection(**name, server_hostname="metrics.example.com")
        writer.close()
        await writer.wait_closed()
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
            await asyncio.open_connection(**name, server_hostname=SERVICE)
        # Who calls localhost is shown the named pair too, and is known by the client's certificate still.
        (world.folder / "ca.crt").write_text(world.cas["strangers"].pem)
        context = world.context(world.proxy())
        context.check_hostname = False
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            headers = {"X-Remote-User": HPA}
            status, _ = await server.get(PODS, headers=headers, session=session)
        assert status == 200
        assert world.cluster.access_reviews[0]["user"] == HPA


async def test_rules_are_replaced_without_a_failed_request(world) -> None:
    statuses = set()
    probe = {"X-Remote-User": "a", "X-Remote-Group": "system:masters"}
    async with (
        running(world, WallClock(speed=50.0)) as server,
        server.session(world.proxy()) as session,
    ):

        async def ask(path):
            statuses.add((await server.get(PODS, headers=probe, session=session))[0])
            _, text = await server.get(path, headers=probe, session=session)
            return text

        async def has_new_rule():
            return "waiting" in await ask(EXTERNAL)

        async def tells_of_bad_rules():
            return "the last good rules stay" in await ask("/readyz?verbose")

        async def tells_nothing():
            return not await tells_of_bad_rules()

        world.rules.write_text(RULES.replace(": queue,", ": queue, name: {as: waiting},"))
        await until(has_new_rule)
        world.rules.write_text(BAD_RULES)
        await until(tells_of_bad_rules)
        text = await ask("/metrics")
        assert "gpuscale_metrics_api_config_last_reload_successful 0\n" in text
        assert "waiting" in await ask(EXTERNAL)
        world.rules.write_text(RULES)
        await until(tells_nothing)
    assert statuses == {200}


async def test_a_new_kind_of_the_cluster_is_learned(world) -> None:
    async with running(world, WallClock(speed=100.0)) as server:
        labels = {"__name__": "gpu_util", "namespace": "ml", "training": "t"}
        world.cluster.objects["/api/v1/trainings"] = {}
        await world.cluster.put("/api/v1/trainings", "t", "ml")
        world.cluster.resources.append(("trainings", "Training", "Namespaced"))
        path = f"{CUSTOM}/namespaces/ml/trainings/%2A/gpu_util"

        async def learned():
            world.store.append(labels, server.world.clock.now_ms(), 7.0)
            status, _ = await server.as_hpa(path)
            return status == 200

        await until(learned)


async def test_without_the_clusters_trust_it_does_not_start(world) -> None:
    world.cluster.forbidden.add(CLUSTER.CONFIG_MAPS)
    with pytest.raises(UnavailableError) as caught:
        async with running(world):
            pass
    assert str(caught.value).startswith("it is not known whom to trust: the API server at https://")
    assert str(caught.value).endswith(
        "bind the Role extension-apiserver-authentication-reader in kube-system, or give "
        "--authentication-tolerate-lookup-failure to start without it"
    )


async def test_it_may_start_without_the_clusters_trust(world) -> None:
    world.cluster.forbidden.add(CLUSTER.CONFIG_MAPS)
    async with running(world, authentication_tolerate_lookup_failure="true") as server:
        world.cluster.allowed = lambda spec: spec["user"] != "system:anonymous"
        assert (await server.as_hpa())[0] == 403
        world.cluster.allowed = lambda spec: True
        assert "forbidden" in await server.reasons()


async def test_cas_of_flags_come_before_the_clusters(world) -> None:
    path = world.folder / "proxy-ca.crt"
    path.write_text(world.cas["strangers"].pem)
    async with running(world, requestheader_client_ca_file=str(path)) as server:
        assert (await server.as_hpa())[0] == 401
        pair = world.cas["strangers"].client("any name")
        headers = {"X-Remote-User": HPA}
        assert (await server.get(PODS, pair=pair, headers=headers))[0] == 200


@pytest.mark.parametrize("text", ["rules: [", "rules: 5"])
async def test_a_file_that_is_no_rule_file_does_not_start(world, text) -> None:
    world.rules.write_text(text)
    with pytest.raises(ConfigError, match=r"rules\.yaml:[12]"):
        async with running(world):
            pass


async def test_a_rule_that_never_works_keeps_no_other_from_being_served(world) -> None:
    world.rules.write_text(RULES.replace("rules:\n", "rules:\n- {seriesQuery: 1 2}\n", 1))
    async with running(world) as server:
        status, _ = await server.get(PODS, headers={"Authorization": "Bearer good"})
    assert status == 200


async def test_a_port_that_is_taken_is_reported(world, server) -> None:
    with pytest.raises(UnavailableError) as caught:
        async with running(world, secure_port=str(server.port)):
            pass
    assert str(caught.value) == f"can't listen on localhost:{server.port}: Address already in use"


PROGRAM = "from gpuscale.cli import main; main.main()"


async def run_program(*arguments, stop_when=None):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        "metrics-api",
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "200"},
    )
    text = ""
    async with asyncio.timeout(60):
        async for line in process.stdout:
            text += line.decode()
            if stop_when is not None and stop_when in text:
                process.terminate()
                stop_when = None
        return await process.wait(), text


TEAM_RULES = """
- seriesQuery: gpu_util
  name: {as: team_util}
  resources: {template: <<.Resource>>}
  metricsQuery: 2 * sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


async def test_rules_of_teams_come_when_the_cluster_lets_them(world) -> None:
    path = "/api/v1/configmaps"
    world.cluster.objects[path] = {}
    world.cluster.forbidden.add(path)
    for namespace in ("ml", "other"):
        await world.cluster.put(path, "rules", namespace, data={"rules.yaml": TEAM_RULES})
    flag = {"rules_configmaps": "gpuscale.dev/rules=true"}
    async with running(world, **flag) as server:

        async def is_told():
            text = await server.reasons()
            return "the ConfigMaps are not followed" in text and f"{path} is forbidden" in text

        await until(is_told)
        team_path = PODS.replace("gpu_util", "team_util")
        assert (await server.as_hpa(team_path))[0] == 404
        world.cluster.forbidden.clear()

        async def is_served():
            return (await server.as_hpa(team_path))[0] == 200

        await until(is_served)
        _, body = await server.as_hpa(team_path)
        assert {item["value"] for item in body["items"]} == {"47"}
        elsewhere = team_path.replace("namespaces/ml", "namespaces/default")
        assert (await server.as_hpa(elsewhere))[0] == 404


async def test_the_command_serves_plain_http_on_a_laptop_without_a_cluster(world) -> None:
    port = unused_port()
    arguments = [
        f"--config={world.rules}",
        f"--prometheus-url={world.prometheus}",
        "--secure-port=0",
        f"--insecure-loopback-port={port}",
        "--client-qps=50",
    ]
    code, text = await run_program(*arguments, stop_when="listening")
    assert (code, f"listening on http://127.0.0.1:{port}" in text) == (0, True)
    assert "--client-qps changes nothing: objects come from watches" in text
    assert "there is no API server: single objects can be asked for, * can't" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--config=",), 2, "gpuscale: --config: found nothing, expected a rule file"),
        ((), 2, "gpuscale: no service account to reach the API server with"),
        (("--no-such-flag=1",), 2, "No such option: --no-such-flag"),
        (("--logtostderr=true",), 2, "No such option: --logtostderr"),
        (
            ("--config=/none", "--secure-port=0", "--insecure-loopback-port=1"),
            2,
            "gpuscale: /none: can't be read: No such file or directory",
        ),
        (("--config=/none",), 2, "gpuscale: no service account to reach the API server with"),
    ],
)
async def test_the_command_tells_what_is_wrong(arguments, code: int, message: str) -> None:
    found, text = await run_program(*arguments)
    assert found == code
    assert message in text


LISTS_MODULES = """
import atexit, sys
from gpuscale.cli import main
atexit.register(lambda: print("loaded:", *sorted({name.split(".")[0] for name in sys.modules})))
main.main()
"""
HEAVY = {
    *("typer", "click", "rich", "pydantic", "pydantic_core", "numpy", "cramjam", "google", "grpc"),
    *("jinja2", "requests", "pynvml", "amdsmi", "multiprocessing", "lightkube", "httpx2"),
}
"""What the command line, other commands and the mode without a Prometheus load, some of it 10 MiB each."""


async def test_a_server_with_a_prometheus_loads_no_heavy_library(world) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LISTS_MODULES, "metrics-api", f"--config={world.rules}"),
        *("--prometheus-url", world.prometheus, "--bind-address=localhost"),
        *("--lister-kubeconfig", world.cluster.kubeconfig(), f"--secure-port={unused_port()}"),
        *(f"--cert-dir={world.folder / 'certificates'}", "--shutdown-delay-duration=0s"),
        *("--ca-bundle-file", world.folder / "ca.crt"),
        f"--insecure-loopback-port={(port := unused_port())}",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    async def answers():
        try:
            async with session.get(URL(f"http://127.0.0.1:{port}{PODS}", encoded=True)) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectorError:
            return False

    async with aiohttp.ClientSession() as session:
        await until(answers)
    process.terminate()
    text, _ = await process.communicate()
    (line,) = (each for each in text.decode().splitlines() if each.startswith("loaded:"))
    loaded = set(line.split())
    assert {"gpuscale", "aiohttp", "OpenSSL"} <= loaded
    assert loaded & HEAVY == set()


async def test_the_command_explains_every_flag() -> None:
    code, text = await run_program("--help-all")
    assert code == 0
    for flag in ("--prometheus-url", "--insecure-loopback-port", "--audit-log-path"):
        assert flag in text


async def test_the_prometheus_api_goes_to_whom_its_own_path_is_allowed(world) -> None:
    async def metrics(_request):
        return web.Response(text='gpu_util{namespace="ml",pod="web-0"} 23.5\n')

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    path = "/prometheus/api/v1/query?query=gpu_util"
    target = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with running(world, source="streams", scrape=target) as server:
            joe = world.cas["clients"].client("joe")
            status, body = await server.answer(path, pair=joe)
            (row,) = body["data"]["result"]
            assert (status, row["value"][1], row["metric"]["pod"]) == (200, "23.5", "web-0")
            asked = [
                (spec["user"], spec["nonResourceAttributes"])
                for spec in world.cluster.access_reviews
                if "nonResourceAttributes" in spec
            ]
            assert asked == [("joe", {"path": "/prometheus/api/v1/query", "verb": "get"})]
            # Whatever RBAC grants to strangers, these answers hold everybody's series.
            status, body = await server.answer(path)
            assert (status, body["message"]) == (
                403,
                'forbidden: User "system:anonymous" cannot get path "/prometheus/api/v1/query"',
            )
            world.cluster.allowed = lambda spec: False
            assert (await server.get(path, pair=world.cas["clients"].client("ann")))[0] == 403
            for other in ("/api/v1/query?query=gpu_util", "/prometheus/metrics", "/prometheus/"):
                assert (await server.get(other, pair=joe))[0] in {403, 404}
    finally:
        await runner.cleanup()


async def test_replicas_read_each_other_by_tls_with_a_right_of_its_own(world) -> None:
    async def metrics(_request):
        return web.Response(text='gpu_util{namespace="ml",pod="web-0"} 23.5\n')

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (world.folder / "token").write_text("good\n")
    flags = {
        "source": "streams",
        "scrape": f"127.0.0.1:{runner.addresses[0][1]}",
    }
    access = {
        "peers_ca_file": str(world.folder / "ca.crt"),
        "peers_token_file": str(world.folder / "token"),
        "peers_server_name": "localhost",
    }
    try:
        async with running(world, peers="https://127.0.0.1:1", **flags) as first:
            status, body = await first.answer("/peers/stream")
            assert (status, body["message"]) == (
                403,
                'forbidden: User "system:anonymous" cannot get path "/peers/stream"',
            )
            # The address is no name of the certificate, so that --peers-server-name counts.
            peers = f"https://127.0.0.1:{first.port}"
            async with running(world, peers=peers, **flags, **access) as second:

                async def is_up():
                    return "1 of 1 other replicas answer" in await second.reasons()

                await until(is_up)
                asked = [
                    spec["nonResourceAttributes"]
                    for spec in world.cluster.access_reviews
                    if spec.get("nonResourceAttributes", {}).get("path") == "/peers/stream"
                ]
                assert {"path": "/peers/stream", "verb": "get"} in asked
    finally:
        await runner.cleanup()


async def test_a_server_that_stops_loses_no_request_of_clients_that_keep_connections(world) -> None:
    head = f"GET {PODS} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode()
    answered, last = [], []

    async def client(server, context) -> None:
        """Ask on one connection until the server ends it, then on another, until there is none."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "localhost", server.port, ssl=context
                )
            except ConnectionRefusedError:
                return
            is_last = False
            while not is_last:
                writer.write(head)
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = lines.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length))
                answered.append(lines[9:12])
                is_last = "connection: close" in lines
            last.append(await reader.read())
            writer.close()

    async with running(world, drain_s=1.0) as server:
        clients = [
            asyncio.create_task(client(server, world.context(world.proxy()))) for _ in range(10)
        ]

        async def busy():
            return len(answered) > 200

        await until(busy)
        assert not last
        server.stop.set()
        await asyncio.sleep(0)
        assert (await server.get("/readyz"))[0] == 500
        await asyncio.gather(*clients)
    assert set(answered) == {"200"}
    # Each answer after the order to stop was the last of its connection, and nothing came behind it.
    assert len(last) > 10
    assert set(last) == {b""}


async def test_health_is_answered_when_no_other_request_is(world, server) -> None:
    world.cluster.gate = asyncio.Event()
    server.guard._max_in_flight = 2
    asking = [asyncio.create_task(server.as_hpa(f"{PODS}?a={number}")) for number in range(2)]

    async def full():
        return server.guard._in_flight == 2

    await until(full)
    status, body = await server.as_hpa()
    assert (status, body["reason"]) == (429, "TooManyRequests")
    assert server.headers["Retry-After"] == "1"
    assert (await server.get("/livez"))[0] == 200
    world.cluster.gate.set()
    assert [(await each)[0] for each in asking] == [200, 200]


async def test_requests_are_counted_under_the_names_of_every_api_server(world, server) -> None:
    await server.as_hpa()
    await server.get("/livez")
    good = {"Authorization": "Bearer good"}
    _, text = await server.get("/metrics", headers=good)
    labels = (
        'verb="LIST",group="custom.metrics.k8s.io",version="v1beta2",resource="*",scope="namespace"'
    )
    lines = text.splitlines()
    assert f'apiserver_request_total{{{labels},code="200"}} 1' in lines
    assert f"apiserver_request_duration_seconds_count{{{labels}}} 1" in lines
    assert f'apiserver_request_duration_seconds_bucket{{{labels},le="60.0"}} 1' in lines
    # The one that asks for the metrics.
    assert 'apiserver_current_inflight_requests{request_kind="readOnly"} 1' in lines
    assert 'gpuscale_metrics_api_connections{port="https",state="active"} 1' in lines
    ages = [line for line in lines if line.startswith("gpuscale_metrics_api_watch_age_seconds{")]
    assert ages
    assert all(float(line.rpartition(" ")[2]) < 60 for line in ages)


@pytest.mark.parametrize(
    "path",
    [f"{CUSTOM}/namespaces/%ff/pods/a/gpu_util", f"{PODS}?labelSelector=%c3%28", "/%ed%a0%80"],
)
async def test_what_is_no_utf_8_is_a_bad_request(server, path: str) -> None:
    status, body = await server.as_hpa(path)
    assert (status, body["kind"], body["reason"]) == (400, "Status", "BadRequest")


async def test_the_audit_log_has_what_the_api_server_passed_on_and_who_was_refused(world) -> None:
    path = world.folder / "audit.log"
    async with running(world, audit_log_path=str(path)) as server:
        assert (await server.as_hpa())[0] == 200
        world.cluster.allowed = lambda spec: False
        asked = {"Authorization": "Bearer good", "Audit-ID": "a-1"}
        assert (await server.get(f"{CUSTOM}?x=%0a", headers=asked))[0] == 403
        assert (await server.get(CUSTOM, headers={"Authorization": "Bearer bad"}))[0] == 401
        assert (await server.get("/livez"))[0] == 200
    events = [json.loads(line) for line in path.read_text().splitlines()]
    found = [
        (each["user"].get("username"), each["responseStatus"]["code"], each["requestURI"])
        for each in events
    ]
    assert found == [(HPA, 200, PODS), ("robot", 403, f"{CUSTOM}?x=%0a"), (None, 401, CUSTOM)]
    assert events[0]["objectRef"]["resource"] == "pods"
    assert events[1]["auditID"] == "a-1"
