# mypy: disable-error-code="arg-type, has-type, misc"
"""Which discovery document a client gets, and what is in it."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.metricsapi.wire.aggregated import aggregated_list, aggregated_version
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = V2.replace("v2", "v2beta1")
RULES = """
rules: [{seriesQuery: gpu, resources: {template: <<.Resource>>}, metricsQuery: gpu}]
externalRules: [{seriesQuery: queue, resources: {namespaced: false}, metricsQuery: queue}]
"""


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("", None),
        ("*/*", None),
        ("application/json", None),
        (V2, "v2"),
        (V2BETA1, "v2beta1"),
        (f"{V2},{V2BETA1},application/json", "v2"),
        (f"{V2BETA1}, {V2}", "v2beta1"),
        (f"application/json,{V2}", None),
        (f"application/json;q=0.5,{V2};q=0.9", "v2"),
        (f"{V2};q=0", None),
        (V2.replace("v=v2", "v=v3"), None),
        (f"{V2.replace('v=v2', 'v=v3')},{V2BETA1}", "v2beta1"),
        ("application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=X", None),
        (f"application/vnd.kubernetes.protobuf,{V2}", "v2"),
        (";;,=,q", None),
    ],
)
def test_a_client_gets_what_it_likes_best(accept, version: str | None) -> None:
    assert aggregated_version(accept) == version


def test_metrics_of_objects_are_subresources_of_a_parent_without_verbs() -> None:
    listed = [
        {"name": "pods/a", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]},
        {"name": "pods/b", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]},
        {"name": "nodes/a", "namespaced": False, "kind": "MetricValueList", "verbs": ["get"]},
    ]
    group = "custom.metrics.k8s.io"
    body = aggregated_list("v2", {(group, "v1beta1"): listed, (group, "v1beta2"): []}, [group])
    kind = {"group": group, "version": "v1beta1", "kind": "MetricValueList"}
    none = {"group": "", "version": "", "kind": ""}
    (item,) = body["items"]
    assert item["metadata"] == {"name": group, "creationTimestamp": None}
    assert item["versions"] == [
        {
            "version": "v1beta1",
            "resources": [
                {
                    "resource": "pods",
                    "responseKind": none,
                    "scope": "Namespaced",
                    "singularResource": "",
                    "verbs": [],
                    "subresources": [
                        {"subresource": "a", "responseKind": kind, "verbs": ["get"]},
                        {"subresource": "b", "responseKind": kind, "verbs": ["get"]},
                    ],
                },
                {
                    "resource": "nodes",
                    "responseKind": none,
                    "scope": "Cluster",
                    "singularResource": "",
                    "verbs": [],
                    "subresources": [{"subresource": "a", "responseKind": kind, "verbs": ["get"]}],
                },
            ],
            "freshness": "Current",
        },
        {"version": "v1beta2", "resources": [], "freshness": "Current"},
    ]


@pytest.fixture
async def served():
    store = SeriesStore()
    store.append({"__name__": "gpu", "pod": "p", "namespace": "n"}, 1_000, 1.0)
    store.append({"__name__": "queue"}, 1_000, 1.0)
    rules = load_rules(RULES, "rules.yaml")
    provider = MetricsProvider(rules, EmbeddedSource(store), None, ManualClock(2_000))
    await provider.relist()
    app = web.Application()
    add_routes(app, provider)
    async with TestClient(TestServer(app)) as client:
        yield client, provider


async def test_all_groups_are_in_it_and_it_is_sent_once(served) -> None:
    client, provider = served
    async with client.get("/apis", headers={"Accept": V2}) as response:
        body, tag = await response.json(), response.headers["ETag"]
        assert response.headers["Content-Type"] == V2
        assert response.headers["Vary"] == "Accept"
    assert (body["kind"], body["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    assert [item["metadata"]["name"] for item in body["items"]] == [
        "custom.metrics.k8s.io",
        "external.metrics.k8s.io",
    ]
    (external,) = body["items"][1]["versions"]
    assert [each["resource"] for each in external["resources"]] == ["queue"]
    headers = {"Accept": V2, "If-None-Match": tag}
    async with client.get("/apis", headers=headers) as response:
        assert (response.status, await response.read()) == (304, b"")
        assert response.headers["ETag"] == tag
    await provider.replace_config(load_rules("externalRules: []\n" + RULES.split("\n")[1], "r"))
    async with client.get("/apis", headers=headers) as response:
        assert response.status == 200
        assert response.headers["ETag"] != tag


async def test_old_clients_get_the_plain_list(served) -> None:
    client, _ = served
    for accept in ("application/json", "application/vnd.kubernetes.protobuf, */*"):
        async with client.get("/apis", headers={"Accept": accept}) as response:
            assert (await response.json())["kind"] == "APIGroupList"
            assert response.headers["Content-Type"] == "application/json"


async def test_openapi_is_valid_in_itself_and_sent_once(served) -> None:
    client, _ = served
    async with client.get("/openapi/v2") as response:
        body, tag = await response.json(), response.headers["ETag"]
    assert body["swagger"] == "2.0"
    assert set(references(body)) <= {f"#/definitions/{name}" for name in body["definitions"]}
    async with client.get("/openapi/v2", headers={"If-None-Match": f'W/{tag}, "x"'}) as response:
        assert response.status == 304
    async with client.get("/openapi/v3") as response:
        index = await response.json()
    assert set(index["paths"]) == {
        "apis/custom.metrics.k8s.io/v1beta1",
        "apis/custom.metrics.k8s.io/v1beta2",
        "apis/external.metrics.k8s.io/v1beta1",
    }
    identities = []
    for place, found in index["paths"].items():
        async with client.get(found["serverRelativeURL"]) as response:
            document = await response.json()
        assert document["openapi"] == "3.0.0"
        assert all(path.startswith(f"/{place}/") for path in document["paths"])
        schemas = document["components"]["schemas"]
        assert set(references(document)) <= {f"#/components/schemas/{name}" for name in schemas}
        identities += [path["get"]["operationId"] for path in document["paths"].values()]
        for path, operations in document["paths"].items():
            inside = [
                each["name"] for each in operations["get"]["parameters"] if each["in"] == "path"
            ]
            assert all(f"{{{name}}}" in path for name in inside)
            assert path.count("{") == len(inside)
    assert len(set(identities)) == len(identities)


async def test_openapi_of_what_is_not_served_is_not_there(served) -> None:
    client, _ = served
    for place in ("apis/apps/v1", "apis/custom.metrics.k8s.io/v1", "x"):
        async with client.get(f"/openapi/v3/{place}") as response:
            assert (response.status, (await response.json())["reason"]) == (404, "NotFound")


def references(body):
    if isinstance(body, dict):
        for key, value in body.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(body, list):
        for value in body:
            yield from references(value)
