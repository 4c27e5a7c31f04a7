# mypy: disable-error-code="method-assign"
"""The API over HTTP, from the embedded series."""

import asyncio
import json
import math

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import FIRST_DISCOVERY_S, MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.sources.asking.single_flight import SharedSource
from gpuscale.server.sources.embedded import EmbeddedSource

# 2026-01-02T03:04:05Z
NOW_MS = (20_455 * 86_400 + 11_045) * 1000
RULES = load_rules(
    """
rules:
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- {seriesQuery: text, resources: {template: <<.Resource>>}, metricsQuery: '"a"'}
externalRules:
- {seriesQuery: queue_depth, resources: {namespaced: false}, metricsQuery: 'queue_depth{<<.LabelMatchers>>}'}
- {seriesQuery: text, resources: {namespaced: false}, metricsQuery: 'text[1m]'}
""",
    "rules.yaml",
)
PODS = {"web-0": {"app": "web"}, "web-1": {"app": "web"}, "web-2": {"app": "web"}, "db-0": {}}
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


class Directory:
    def names(self, resource, namespace, selector):
        if resource.name == "pods" and namespace == "prod":
            return tuple(name for name, labels in PODS.items() if selector.matches(labels))
        return ("prod",) if resource.name == "namespaces" else ()


def source() -> EmbeddedSource:
    store = SeriesStore()

    def add(name, value, **labels) -> None:
        store.append({"__name__": name, **labels}, NOW_MS - 2_500, value)

    add("gpu_util", 23.5, namespace="prod", pod="web-0", gpu="0", node="n1")
    add("gpu_util", 60.0, namespace="prod", pod="web-1", gpu="0", node="n1")
    add("gpu_util", 20.0, namespace="prod", pod="web-1", gpu="1", node="n1")
    add("gpu_util", math.nan, namespace="prod", pod="web-2", gpu="0", node="n1")
    add("text", 1.0, namespace="prod", pod="web-0")
    add("queue_depth", 42.0, queue="a")
    add("queue_depth", math.inf, queue="b")
    return EmbeddedSource(store)


class StillClock(ManualClock):
    """Never comes to the end of a wait."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def provider(config: AdapterConfig = RULES, metric_source=None, clock=None) -> MetricsProvider:
    clock = clock or StillClock(NOW_MS)
    return MetricsProvider(config, metric_source or source(), Directory(), clock)


@pytest.fixture
async def client():
    served = provider()
    await served.relist()
    app = web.Application()
    add_routes(app, served)
    async with TestClient(TestServer(app)) as client:
        yield client


async def get(client: TestClient, path: str, status: int = 200, **options):
    async with client.get(path, **options) as response:
        text = await response.text()
        assert (response.status, response.headers["Content-Type"]) == (status, "application/json")
        return json.loads(text)


def values(body) -> dict[str, str]:
    return {item["describedObject"]["name"]: item["value"] for item in body["items"]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/namespaces/prod/pods/*/gpu_util", {"web-0": "23500m", "web-1": "40"}),
        pytest.param("/namespaces/prod/pods/%2A/gpu_util", {"web-0": "23500m", "web-1": "40"}),
        pytest.param("/namespaces/prod/pod/web-0/gpu_util", {"web-0": "23500m"}),
        pytest.param(
            "/namespaces/prod/pods/web-0/gpu_util?labelSelector=app=no", {"web-0": "23500m"}
        ),
        pytest.param("/namespaces/prod/pods/*/gpu_util?labelSelector=!app", {}),
        pytest.param(
            "/namespaces/prod/pods/*/gpu_util?metricLabelSelector=gpu%3D1", {"web-1": "20"}
        ),
        pytest.param("/nodes/n1/gpu_util?metricLabelSelector=pod=web-0", {"n1": "23500m"}),
        pytest.param("/namespaces/prod/metrics/gpu_util?metricLabelSelector=gpu=1", {"prod": "20"}),
        pytest.param("/namespaces/*/metrics/gpu_util?metricLabelSelector=gpu=1", {"prod": "20"}),
    ],
)
async def test_custom_metrics(client, path: str, expected) -> None:
    assert values(await get(client, CUSTOM + path)) == expected


async def test_a_rule_may_have_nan_as_zero() -> None:
    """As prometheus-adapter has it: web-2 is NaN; +Inf stays no number."""
    text = """
rules:
- seriesQuery: gpu_util
  nan: zero
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- {seriesQuery: queue_depth, nan: zero, resources: {namespaced: false}, metricsQuery: 'queue_depth * NaN'}
"""
    served = provider(load_rules(text, "rules.yaml"))
    await served.relist()
    app = web.Application()
    add_routes(app, served)
    async with TestClient(TestServer(app)) as client:
        body = await get(client, f"{CUSTOM}/namespaces/prod/pods/*/gpu_util")
        assert values(body) == {"web-0": "23500m", "web-1": "40", "web-2": "0"}
        external = await get(client, f"{EXTERNAL}/namespaces/any/queue_depth")
        assert [item["value"] for item in external["items"]] == ["0", "0"]
        async with client.get(f"{CUSTOM}/namespaces/prod/pods/web-2/gpu_util?why") as response:
            assert "there is a value" in await response.text()


async def test_both_versions_agree_and_carry_the_time_of_measurement(client) -> None:
    path = "namespaces/prod/pods/*/gpu_util?metricLabelSelector=gpu=0"
    old = await get(client, f"{CUSTOM}/{path}")
    new = await get(client, f"/apis/custom.metrics.k8s.io/v1beta2/{path}")
    assert values(old) == values(new)
    # 2.5 s before 03:04:05 is 03:04:02.5; the API gives whole seconds.
    assert {item["timestamp"] for item in [*old["items"], *new["items"]]} == {
        "2026-01-02T03:04:02Z"
    }
    assert old["items"][0]["selector"] == {"matchLabels": {"gpu": "0"}}
    assert new["items"][0]["metric"]["selector"] == {"matchLabels": {"gpu": "0"}}


async def test_external_metrics_leave_out_what_is_no_number(client) -> None:
    body = await get(client, f"{EXTERNAL}/namespaces/any/queue_depth")
    assert body == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "queue_depth",
                "metricLabels": {"__name__": "queue_depth", "queue": "a"},
                "timestamp": "2026-01-02T03:04:02Z",
                "value": "42",
            }
        ],
    }
    none = await get(client, f"{EXTERNAL}/namespaces/any/queue_depth?labelSelector=queue=z")
    assert none["items"] == []


@pytest.mark.parametrize(
    ("path", "code", "reason", "message"),
    [
        (
            f"{CUSTOM}/namespaces/prod/pods/*/none",
            404,
            "NotFound",
            "the server could not find the metric none for pods",
        ),
        (
            f"{CUSTOM}/namespaces/prod/pods/web-2/gpu_util",
            404,
            "NotFound",
            "the server could not find the metric gpu_util for pods web-2",
        ),
        (
            f"{CUSTOM}/namespaces/empty/pods/*/gpu_util",
            404,
            "NotFound",
            "the server could not find the metric gpu_util for pods",
        ),
        (
            f"{CUSTOM}/namespaces/prod/pods/*/text",
            500,
            "InternalError",
            "Internal error occurred: unable to fetch metrics",
        ),
        (f"{CUSTOM}/namespaces/prod/foo", 400, "BadRequest", "invalid request path"),
        (
            f"{CUSTOM}/namespaces/prod/pods/*/gpu_util?labelSelector=a b",
            400,
            "BadRequest",
            "unable to parse requirement: found 'a b'",
        ),
        (
            f"{CUSTOM}/namespaces/prod/pods/*/gpu_util?metricLabelSelector=,",
            400,
            "BadRequest",
            "unable to parse requirement: found ','",
        ),
        (
            f"{CUSTOM}/namespaces/prod/pods/*/gpu_util?labelSelector={'a' * 6145}",
            400,
            "BadRequest",
            "labelSelector: found 6145 characters, expected at most 6144",
        ),
        (
            f"{EXTERNAL}/namespaces/prod/none",
            404,
            "NotFound",
            "the server could not find the metric none for ",
        ),
        (
            f"{EXTERNAL}/namespaces/default/none",
            404,
            "NotFound",
            "the server could not find the metric none for namespaces",
        ),
        (
            f"{EXTERNAL}/namespaces/prod/queue_depth?labelSelector=a>1",
            500,
            "InternalError",
            "Internal error occurred: unable to fetch metrics",
        ),
        (
            f"{EXTERNAL}/namespaces/prod/text",
            500,
            None,
            "encountered an unexpected query result type",
        ),
        (
            f"{EXTERNAL}/namespaces/prod/queue_depth?watch=true",
            405,
            "MethodNotAllowed",
            'watch is not supported on resources of kind "*.external.metrics.k8s.io"',
        ),
        *(
            (path, 404, "NotFound", "the server could not find the requested resource")
            for path in (
                f"{CUSTOM}/blah",
                f"{CUSTOM}/nodes/foo",
                f"{CUSTOM}/namespaces/ns/pods/bar",
                f"{EXTERNAL}/namespaces/foo",
                f"{EXTERNAL}/namespaces/foo/group/metric",
                "/apis/custom.metrics.k8s.io/v1",
                "/apis/metrics.k8s.io/v1beta1",
            )
        ),
    ],
)
async def test_errors_are_statuses(client, path, code, reason, message) -> None:
    body = await get(client, path, code)
    expected = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        **({"reason": reason} if reason else {}),
        **details_of(message, reason),
        "code": code,
    }
    assert body == expected
    assert list(body) == list(expected)


def details_of(message, reason):
    if reason == "InternalError":
        cause = message.removeprefix("Internal error occurred: ")
        return {"details": {"causes": [{"message": cause}]}}
    if reason == "MethodNotAllowed":
        return {"details": {"group": "external.metrics.k8s.io", "kind": "*"}}
    return {"details": {}} if message.endswith("find the requested resource") else {}


async def test_metrics_can_only_be_read(client) -> None:
    async with client.post(f"{CUSTOM}/nodes/n1/gpu_util") as response:
        body = await response.json()
        assert response.status == 405
    assert body["message"] == ("the server does not allow this method on the requested resource")


async def test_an_hpa_controllers_request_is_answered_in_json(client) -> None:
    accept = {"Accept": "application/vnd.kubernetes.protobuf, */*"}
    path = f"{CUSTOM}/namespaces/prod/pods/%2A/gpu_util?labelSelector=app%3Dweb"
    assert values(await get(client, path, headers=accept)) == {"web-0": "23500m", "web-1": "40"}


@pytest.mark.parametrize(
    ("query", "agent", "indented"),
    [
        ("", "kubectl/v1.34", False),
        ("", "curl/8.0", True),
        ("?pretty=true", "kubectl/v1.34", True),
        ("?pretty=1", "x", True),
        ("?pretty=0", "curl/8.0", False),
    ],
)
async def test_answers_are_indented_on_request_and_for_people(
    client, query: str, agent: str, indented: bool
) -> None:
    async with client.get(f"/apis{query}", headers={"User-Agent": agent}) as response:
        text = await response.text()
    assert text.startswith('{\n  "kind"' if indented else '{"kind"')
    assert text.endswith("}\n")


async def test_large_answers_are_compressed_where_allowed() -> None:
    store = SeriesStore()
    for number in range(2_000):
        labels = {"__name__": "gpu_util", "pod": f"p{number}", "namespace": "prod"}
        store.append(labels, NOW_MS, float(number))
    served = provider(metric_source=EmbeddedSource(store))
    served._directory.names = lambda *_: tuple(f"p{number}" for number in range(2_000))
    await served.relist()
    app = web.Application()
    add_routes(app, served)
    async with TestClient(TestServer(app)) as client:
        path = f"{CUSTOM}/namespaces/prod/pods/*/gpu_util"
        async with client.get(path, headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert len((await response.json())["items"]) == 2_000
        async with client.get(path, headers={"Accept-Encoding": "identity"}) as response:
            assert "Content-Encoding" not in response.headers


async def test_health_and_version(client) -> None:
    for check in ("healthz", "livez", "readyz"):
        async with client.get(f"/{check}") as response:
            assert (response.status, await response.text()) == (200, "ok")
            assert response.content_type == "text/plain"
    async with client.get("/readyz?verbose&exclude=ping") as response:
        assert await response.text() == "[+]discovery ok\nreadyz check passed\n"
    assert (await get(client, "/version"))["gitVersion"].startswith("v")


class Down:
    async def series(self, selector, start_ms) -> None:
        raise UnavailableError("no route to host")


FAILURES = (
    "3 of 3 series queries failed; their metrics are kept as they were\n"
    "    gpu_util: no route to host\n"
    "    queue_depth: no route to host\n"
    "    text: no route to host\n"
)


async def ready(client) -> tuple[int, str]:
    async with client.get("/readyz?verbose") as response:
        return response.status, await response.text()


async def test_failing_discovery_is_told_and_does_not_fail_the_check() -> None:
    served = provider()
    app = web.Application()
    add_routes(app, served)
    async with TestClient(TestServer(app)) as client:
        await served.relist()
        served.questions = SharedSource(Down())  # type: ignore[arg-type]
        await served.relist()
        found = await ready(client)
    text = f"[+]ping ok\n[+]discovery ok: {FAILURES}readyz check passed\n"
    assert found == (200, text)


async def test_a_server_is_not_ready_and_denies_no_metric_before_the_first_discovery() -> None:
    """An HPA would read a 404 of a replica that has just started as "there is no such metric"."""
    clock = ManualClock(100_000)
    served = provider(metric_source=Down(), clock=clock)
    app = web.Application()
    add_routes(app, served)
    value = f"{CUSTOM}/namespaces/prod/pods/*/gpu_util"
    external = f"{EXTERNAL}/namespaces/prod/queue_depth"
    of_no_rule = f"{CUSTOM}/namespaces/prod/pods/*/other"
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}

    async def codes(client) -> list[int]:
        found = [(path, {}) for path in (value, external, of_no_rule, CUSTOM, EXTERNAL, "/apis")]
        statuses = []
        for path, headers in (*found, ("/apis", aggregated)):
            async with client.get(path, headers=headers) as response:
                statuses.append(response.status)
        return statuses

    async with TestClient(TestServer(app)) as client:
        assert await ready(client) == (
            500,
            "[+]ping ok\n[-]discovery failed: the first one has not ended yet\n"
            "readyz check failed\n",
        )
        assert await codes(client) == [503, 503, 404, 503, 503, 200, 503]
        for path in ("/livez", "/healthz"):  # to start it again would only make it longer
            async with client.get(path) as response:
                assert (response.status, await response.text()) == (200, "ok")
        async with client.get(value) as response:
            assert (await response.json())["reason"] == "ServiceUnavailable"

        await served.relist()
        waits = f"no series query was answered yet; {FAILURES}"
        text = f"[+]ping ok\n[-]discovery failed: {waits}readyz check failed\n"
        assert await ready(client) == (500, text)

        # What needs no discovery is not held up for ever; a metric of which nothing is known stays so.
        await clock.sleep(FIRST_DISCOVERY_S)
        text = f"[+]ping ok\n[+]discovery ok: {waits}readyz check passed\n"
        assert await ready(client) == (200, text)
        assert await codes(client) == [503, 503, 404, 200, 200, 200, 200]
