# mypy: disable-error-code="arg-type"
"""The documents that clients discover the API by.

Shapes: k8s.io/apimachinery pkg/apis/meta/v1 (APIGroupList, APIGroup, APIResourceList), as
custom-metrics-apiserver v1.30.0 fills them in.
"""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

BOTH = """
rules:
- {seriesQuery: http_requests, resources: {template: <<.Resource>>}, metricsQuery: http_requests}
externalRules:
- {seriesQuery: queue_depth, resources: {namespaced: false}, metricsQuery: queue_depth}
"""
CUSTOM_GROUP = {
    "name": "custom.metrics.k8s.io",
    "versions": [
        {"groupVersion": "custom.metrics.k8s.io/v1beta1", "version": "v1beta1"},
        {"groupVersion": "custom.metrics.k8s.io/v1beta2", "version": "v1beta2"},
    ],
    "preferredVersion": {"groupVersion": "custom.metrics.k8s.io/v1beta1", "version": "v1beta1"},
}
EXTERNAL_GROUP = {
    "name": "external.metrics.k8s.io",
    "versions": [{"groupVersion": "external.metrics.k8s.io/v1beta1", "version": "v1beta1"}],
    "preferredVersion": {"groupVersion": "external.metrics.k8s.io/v1beta1", "version": "v1beta1"},
}


def resource(name: str, kind: str, *, namespaced: bool) -> dict[str, object]:
    return {
        "name": name,
        "singularName": "",
        "namespaced": namespaced,
        "kind": kind,
        "verbs": ["get"],
    }


def app(rules: str) -> tuple[web.Application, MetricsProvider]:
    store = SeriesStore()
    labels = {"pod": "p", "namespace": "n", "job": "j"}
    store.append({"__name__": "http_requests", **labels}, 1_000, 1.0)
    store.append({"__name__": "queue_depth"}, 1_000, 1.0)
    provider = MetricsProvider(
        load_rules(rules, "rules.yaml"), EmbeddedSource(store), None, ManualClock(2_000)
    )
    application = web.Application()
    add_routes(application, provider)
    return application, provider


async def documents(rules: str, *paths: str, discovered: bool = True) -> list[tuple[int, object]]:
    application, provider = app(rules)
    if discovered:
        await provider.relist()
    found = []
    async with TestClient(TestServer(application)) as client:
        for path in paths:
            async with client.get(path) as response:
                assert response.headers["Content-Type"] == "application/json"
                found.append((response.status, await response.json()))
    return found


@pytest.mark.parametrize("path", ["/apis", "/apis/"])
async def test_the_group_list_names_what_has_rules(path: str) -> None:
    body = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [CUSTOM_GROUP, EXTERNAL_GROUP]}
    assert await documents(BOTH, path) == [(200, body)]


async def test_each_group_tells_its_versions() -> None:
    paths = ("/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io")
    assert await documents(BOTH, *paths) == [
        (200, {"kind": "APIGroup", "apiVersion": "v1", **CUSTOM_GROUP}),
        (200, {"kind": "APIGroup", "apiVersion": "v1", **EXTERNAL_GROUP}),
    ]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_custom_metrics_are_listed_by_resource(version: str) -> None:
    assert await documents(BOTH, f"/apis/custom.metrics.k8s.io/{version}") == [
        (
            200,
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"custom.metrics.k8s.io/{version}",
                "resources": [
                    resource("jobs.batch/http_requests", "MetricValueList", namespaced=True),
                    resource("namespaces/http_requests", "MetricValueList", namespaced=False),
                    resource("pods/http_requests", "MetricValueList", namespaced=True),
                ],
            },
        )
    ]


async def test_external_metrics_are_listed_by_name_and_always_namespaced() -> None:
    assert await documents(BOTH, "/apis/external.metrics.k8s.io/v1beta1") == [
        (
            200,
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": "external.metrics.k8s.io/v1beta1",
                "resources": [resource("queue_depth", "ExternalMetricValueList", namespaced=True)],
            },
        )
    ]


async def test_before_discovery_no_list_is_given() -> None:
    """An empty one would say that no metric exists."""
    ((status, body),) = await documents(
        BOTH, "/apis/custom.metrics.k8s.io/v1beta1", discovered=False
    )
    assert (status, body["kind"], body["reason"]) == (503, "Status", "ServiceUnavailable")


async def test_a_group_without_rules_is_not_served() -> None:
    rules = "rules: [{seriesQuery: m, metricsQuery: m}]"
    answers = await documents(
        rules, "/apis", "/apis/external.metrics.k8s.io", "/apis/external.metrics.k8s.io/v1beta1"
    )
    assert answers[0] == (
        200,
        {"kind": "APIGroupList", "apiVersion": "v1", "groups": [CUSTOM_GROUP]},
    )
    assert [status for status, _ in answers[1:]] == [404, 404]
