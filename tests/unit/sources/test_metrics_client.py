# mypy: disable-error-code="attr-defined"
"""The HPA controller's side: its requests and how it words what goes wrong."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from gpuscale.base.errors import NotFoundError, UnavailableError, UpstreamError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.server.sources.http.metrics_client import HttpMetricsClient

DEPLOYMENT = CrossVersionObjectReference("Deployment", "s", "apps/v1")
NAMESPACE = CrossVersionObjectReference("Namespace", "other", "v1")
SERVICE = CrossVersionObjectReference("Service", "s", "v1")
CUSTOM = "/apis/custom.metrics.k8s.io"
# 2026-01-02T03:04:05Z
TIME_MS = (20_455 * 86_400 + 11_045) * 1000


class FakeApi:
    def __init__(self) -> None:
        self.status, self.body = 200, {"items": []}
        self.paths: list[str] = []
        self.accept = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.raw_path)
        self.accept = request.headers["Accept"]
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        return web.Response(status=self.status, text=text, content_type="application/json")


@pytest.fixture
async def api():
    fake = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    async with TestServer(app) as server:
        fake.url = str(server.make_url(""))
        yield fake


def item(name: str, value: str, **more) -> dict[str, object]:
    described = {"kind": "Pod", "namespace": "n", "name": name, "apiVersion": "/v1"}
    return {
        "describedObject": described,
        "timestamp": "2026-01-02T03:04:05Z",
        "value": value,
        **more,
    }


async def test_pods_are_asked_for_as_the_controller_does(api) -> None:
    api.body = {"items": [item("p", "23500m"), item("q", "1", windowSeconds=30)]}
    async with HttpMetricsClient(api.url) as client:
        selector = parse_selector("gpu in (0,1),x!=y")
        found = await client.pod_values("n", "app=web,tier in (a,b)", "gpu_util", selector)
    assert api.paths == [
        f"{CUSTOM}/v1beta2/namespaces/n/pods/%2A/gpu_util"
        "?labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29"
        "&metricLabelSelector=gpu+in+%280%2C1%29%2Cx%21%3Dy"
    ]
    assert api.accept == "application/vnd.kubernetes.protobuf, */*"
    assert found == (
        MetricValue("p", 23_500, TIME_MS, 60_000),
        MetricValue("q", 1_000, TIME_MS, 30_000),
    )


async def test_an_object_is_asked_for_by_its_resource(api) -> None:
    api.body = {"items": [item("s", "500m")]}
    async with HttpMetricsClient(api.url, version="v1beta1") as client:
        found = await client.object_value("n", DEPLOYMENT, "vllm:waiting", None)
        await client.object_value("n", NAMESPACE, "m", parse_selector("a=b"))
    assert found == MetricValue("s", 500, TIME_MS)
    assert api.paths == [
        f"{CUSTOM}/v1beta1/namespaces/n/deployments.apps/s/vllm:waiting",
        f"{CUSTOM}/v1beta1/namespaces/n/metrics/m?metricLabelSelector=a%3Db",
    ]


async def test_external_values_keep_their_labels(api) -> None:
    value = {"timestamp": "2026-01-02T03:04:05Z", "value": "2k"}
    api.body = {"items": [{**value, "metricLabels": {"q": "a"}}, {**value, "metricLabels": None}]}
    async with HttpMetricsClient(api.url) as client:
        found = await client.external_values("n", "depth", parse_selector("q=a"))
    assert api.paths == [
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/depth?labelSelector=q%3Da"
    ]
    assert found == (
        ExternalValue({"q": "a"}, 2_000_000, TIME_MS),
        ExternalValue({}, 2_000_000, TIME_MS),
    )


async def test_no_items_are_none_and_an_object_must_have_one(api) -> None:
    async with HttpMetricsClient(api.url) as client:
        assert await client.pod_values("n", "a=b", "m", None) == ()
        assert await client.external_values("n", "m", None) == ()
        with pytest.raises(UpstreamError) as single:
            await client.object_value("n", SERVICE, "m", None)
    assert str(single.value) == (
        "the custom metrics API server returned 0 results when we asked for exactly one"
    )


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (
            404,
            {"kind": "Status", "message": "the server could not find the metric m for pods"},
            NotFoundError,
            "the server could not find the metric m for pods",
        ),
        (404, "404 page", NotFoundError, "the server could not find the requested resource"),
        (
            500,
            {"message": "Internal error occurred: unable to fetch metrics"},
            UpstreamError,
            "Internal error occurred: unable to fetch metrics",
        ),
        (
            503,
            "down",
            UnavailableError,
            "an error on the server (503) has prevented the request",
        ),
        (200, {}, UpstreamError, "the answer is no list of metrics"),
        (200, {"items": [{}]}, UpstreamError, "the answer has an item without a name"),
        (
            200,
            {"items": [item("p", "lots")]},
            UpstreamError,
            None,
        ),
    ],
)
async def test_faults_keep_their_reason(api, status: int, body, kind, reason: str | None) -> None:
    api.status, api.body = status, body
    async with HttpMetricsClient(api.url) as client:
        with pytest.raises(kind) as caught:
            await client.pod_values("n", "a=b", "m", None)
    text = str(caught.value)
    assert reason is None or text == reason


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with HttpMetricsClient(f"http://127.0.0.1:{unused_port()}") as client:
        with pytest.raises(UnavailableError, match="does not answer: connection refused"):
            await client.external_values("n", "m", None)
