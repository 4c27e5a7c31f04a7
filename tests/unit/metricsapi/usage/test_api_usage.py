"""`metrics.k8s.io` over HTTP, from series in memory."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.kube.informers.records import ObjectRecord
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.cluster import NoObjects
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.metricsapi.usage.measured import UsageProvider
from gpuscale.server.metricsapi.wire.field_selectors import parse_field_selector
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.server.sources.freshness import AgeLimit

# 2026-01-02T03:04:05Z
NOW_MS = (20_455 * 86_400 + 11_045) * 1000
RULES = load_rules(
    """
resourceRules:
  cpu:
    containerQuery: sum(cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(node_cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: &labels {template: <<.Resource>>}
    containerLabel: container
  memory:
    containerQuery: sum(memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(node_memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: *labels
    containerLabel: container
  window: 5m
""",
    "rules.yaml",
)
GROUP = "/apis/metrics.k8s.io"
API = f"{GROUP}/v1beta1"
MIB = 1024.0 * 1024.0
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PODS = (
    ObjectRecord("dev", "web-0", {"app": "web"}),
    ObjectRecord("prod", "db-0", {}),
    ObjectRecord("prod", "silent-0", {"app": "web"}),
    ObjectRecord("prod", "web-0", {"app": "web", "a": "b"}),
)
NODES = (ObjectRecord("", "n1", {"gpu": "yes"}), ObjectRecord("", "n2", {}))


class Objects:
    async def running_pods(self, namespace, selector):
        return tuple(
            each
            for each in PODS
            if namespace in (None, each.namespace) and selector.matches(each.labels)
        )

    async def nodes(self, selector):
        return tuple(each for each in NODES if selector.matches(each.labels))


class Source:
    """Series in memory; queries that name a text of `failing` get no answer."""

    def __init__(self, store) -> None:
        self._embedded = EmbeddedSource(store)
        self.failing = ()

    async def query(self, promql, at_ms):
        if any(text in promql for text in self.failing):
            raise UnavailableError("gone")
        return await self._embedded.query(promql, at_ms)


def make_source():
    store = SeriesStore()

    def add(name, value, age_ms=2_000, **labels) -> None:
        store.append({"__name__": name, **labels}, NOW_MS - age_ms, value)

    for namespace, pod, container, cores, mib in (
        ("prod", "web-0", "app", 0.12, 64.0),
        ("prod", "web-0", "proxy", 0.0015, 0.5),
        ("prod", "db-0", "db", 1.5, 2048.0),
        ("dev", "web-0", "app", 2.0, 1.0),
    ):
        labels = {"namespace": namespace, "pod": pod, "container": container}
        add("cpu", cores, 5_000, **labels)
        add("memory", mib * MIB, **labels)
    add("node_cpu", 3.25, node="n1")
    add("node_memory", 1e9, node="n1")
    add("node_cpu", 1.0, node="n2")
    return Source(store)


def application(config=RULES, objects=None, source=None, age_limit=None):
    clock = ManualClock(NOW_MS)
    source = source or make_source()
    app = web.Application()
    usage = UsageProvider(
        lambda: config.resource_rules, source.query, objects or Objects(), clock, age_limit
    )
    add_routes(app, MetricsProvider(config, source, NoObjects(), clock), usage=usage)
    return app


@pytest.fixture
async def client():
    async with TestClient(TestServer(application())) as client:
        yield client


async def get(client, path, status=200, **options):
    async with client.get(path, **options) as response:
        text = await response.text()
        assert (response.status, response.headers["Content-Type"]) == (status, "application/json")
        return json.loads(text)


async def test_the_pods_of_a_namespace(client) -> None:
    body = await get(client, f"{API}/namespaces/prod/pods")
    assert body == {
        "kind": "PodMetricsList",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metadata": {
                    "name": "db-0",
                    "namespace": "prod",
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                },
                "timestamp": "2026-01-02T03:04:00Z",
                "window": "5m0s",
                "containers": [{"name": "db", "usage": {"cpu": "1500m", "memory": "2Gi"}}],
            },
            {
                "metadata": {
                    "name": "web-0",
                    "namespace": "prod",
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                    "labels": {"a": "b", "app": "web"},
                },
                "timestamp": "2026-01-02T03:04:00Z",
                "window": "5m0s",
                "containers": [
                    {"name": "app", "usage": {"cpu": "120m", "memory": "64Mi"}},
                    {"name": "proxy", "usage": {"cpu": "1m", "memory": "512Ki"}},
                ],
            },
        ],
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/pods", ["dev/web-0", "prod/db-0", "prod/web-0"]),
        ("/pods?labelSelector=app%3Dweb", ["dev/web-0", "prod/web-0"]),
        ("/pods?fieldSelector=metadata.name%3Dweb-0", ["dev/web-0", "prod/web-0"]),
        (
            "/pods?fieldSelector=metadata.namespace%3Dprod,metadata.name!%3Ddb-0",
            ["prod/web-0"],
        ),
        ("/namespaces/dev/pods", ["dev/web-0"]),
        ("/namespaces/prod/pods?labelSelector=app%20notin%20(web)", ["prod/db-0"]),
        ("/namespaces/none/pods", []),
    ],
)
async def test_what_is_selected(client, path: str, expected) -> None:
    items = (await get(client, API + path))["items"]
    shown = [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in items]
    assert shown == expected


async def test_nodes_without_one_of_the_two_are_left_out(client) -> None:
    body = await get(client, f"{API}/nodes")
    assert body["kind"] == "NodeMetricsList"
    assert body["items"] == [
        {
            "metadata": {
                "name": "n1",
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"gpu": "yes"},
            },
            "timestamp": "2026-01-02T03:04:03Z",
            "window": "5m0s",
            # 1e9 is no whole number of Ki, so that it stays in bytes.
            "usage": {"cpu": "3250m", "memory": "1000000000"},
        }
    ]
    assert (await get(client, f"{API}/nodes?labelSelector=gpu%3Dno"))["items"] == []


async def test_one_object(client) -> None:
    pod = await get(client, f"{API}/namespaces/prod/pods/db-0")
    node = await get(client, f"{API}/nodes/n1")
    assert (pod["kind"], pod["containers"][0]["usage"]["cpu"]) == ("PodMetrics", "1500m")
    assert (node["kind"], node["usage"]["cpu"]) == ("NodeMetrics", "3250m")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/namespaces/prod/pods/none", 'pods "none" not found'),
        ("/namespaces/prod/pods/silent-0", 'podmetrics.metrics.k8s.io "prod/silent-0" not found'),
        ("/nodes/n9", 'node "n9" not found'),
        ("/nodes/n2", 'nodemetrics.metrics.k8s.io "n2" not found'),
        ("/services", "the server could not find the requested resource"),
        ("/nodes/n1/status", "the server could not find the requested resource"),
        ("/namespaces/prod/nodes", "the server could not find the requested resource"),
    ],
)
async def test_what_is_not_there(client, path: str, message: str) -> None:
    body = await get(client, API + path, 404)
    assert (body["reason"], body["message"]) == ("NotFound", message)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        (
            "fieldSelector=status.phase%3DRunning",
            400,
            '"status.phase" is not a known field selector: '
            'only "metadata.name", "metadata.namespace"',
        ),
        ("fieldSelector=x", 400, "invalid selector: 'x'; can't understand 'x'"),
        ("labelSelector=%3D", 400, "unable to parse requirement: found '='"),
        (
            "watch=true",
            405,
            'watch is not supported on resources of kind "pods.metrics.k8s.io"',
        ),
    ],
)
async def test_requests_that_make_no_sense(client, query: str, status: int, message: str) -> None:
    body = await get(client, f"{API}/pods?{query}", status)
    assert body["message"] == message


async def test_discovery_in_all_its_forms(client) -> None:
    resources = (await get(client, API))["resources"]
    assert [(each["name"], each["namespaced"], each["kind"]) for each in resources] == [
        ("nodes", False, "NodeMetrics"),
        ("pods", True, "PodMetrics"),
    ]
    assert all(each["verbs"] == ["get", "list"] for each in resources)
    version = {"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"}
    assert (await get(client, GROUP))["preferredVersion"] == version
    assert [each["name"] for each in (await get(client, "/apis"))["groups"]] == ["metrics.k8s.io"]
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    async with client.get("/apis", headers={"Accept": accept}) as response:
        (item,) = (await response.json(content_type=None))["items"]
    (served,) = item["versions"]
    assert [(each["resource"], each["scope"]) for each in served["resources"]] == [
        ("nodes", "Cluster"),
        ("pods", "Namespaced"),
    ]
    paths = (await get(client, "/openapi/v3/apis/metrics.k8s.io/v1beta1"))["paths"]
    assert f"{API}/namespaces/{{namespace}}/pods/{{name}}" in paths
    assert f"{API}/nodes" in (await get(client, "/openapi/v2"))["paths"]


async def test_tables_for_kubectl_get(client) -> None:
    body = await get(client, f"{API}/namespaces/prod/pods", headers={"Accept": TABLE})
    assert [column["name"] for column in body["columnDefinitions"]] == [
        "Name",
        "cpu",
        "memory",
        "Window",
    ]
    # 120m and 1m are 121m; 64Mi and 512Ki are 66048Ki.
    assert [row["cells"] for row in body["rows"]] == [
        ["db-0", "1500m", "2Gi", "5m0s"],
        ["web-0", "121m", "66048Ki", "5m0s"],
    ]
    nodes = await get(client, f"{API}/nodes/n1", headers={"Accept": TABLE})
    assert [row["cells"] for row in nodes["rows"]] == [["n1", "3250m", "1000000000", "5m0s"]]


async def test_without_resource_rules_the_group_is_not_there() -> None:
    config = load_rules("rules: [{seriesQuery: m, metricsQuery: m}]", "rules.yaml")
    async with TestClient(TestServer(application(config))) as client:
        assert (await get(client, f"{API}/nodes", 404))["reason"] == "NotFound"
        groups = (await get(client, "/apis"))["groups"]
    assert [each["name"] for each in groups] == ["custom.metrics.k8s.io"]


async def test_a_namespace_that_fails_takes_only_itself_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = make_source()
    source.failing = ('memory{namespace="prod"', "node_cpu")
    async with TestClient(TestServer(application(source=source))) as client:
        items = (await get(client, f"{API}/pods"))["items"]
        assert [each["metadata"]["namespace"] for each in items] == ["dev"]
        assert (await get(client, f"{API}/nodes"))["items"] == []
    assert [record.getMessage() for record in caplog.records] == [
        "unable to fetch the usage of pods in prod: gone",
        "unable to fetch the usage of nodes: gone",
    ]


async def test_what_was_measured_too_long_ago_is_absent_and_counted() -> None:
    # CPU of pods is five seconds old, all else two.
    limit = AgeLimit(4_000)
    async with TestClient(TestServer(application(age_limit=limit))) as client:
        assert (await get(client, f"{API}/pods"))["items"] == []
        assert len((await get(client, f"{API}/nodes"))["items"]) == 1
    assert limit.stale == {("metrics.k8s.io", "pods"): 4}


async def test_unknown_objects_are_an_error_and_no_empty_list() -> None:
    async with TestClient(TestServer(application(objects=NoObjects()))) as client:
        body = await get(client, f"{API}/pods", 500)
    assert body["message"] == "Internal error occurred: unable to list matching resources"


def test_a_field_selector_of_unbounded_size_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 4096"):
        parse_field_selector("metadata.name=a," * 1000)
