"""The HPA controller's client against the API, from series to readings."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import NotFoundError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.server.sources.http.metrics_client import HttpMetricsClient

SERVICE = CrossVersionObjectReference("Service", "web", "v1")
NAMESPACE = CrossVersionObjectReference("Namespace", "any", "v1")
NOW_MS = 1_700_000_000_000
RULES = """
rules:
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- {seriesQuery: depth, resources: {namespaced: false}, metricsQuery: 'sum(depth{<<.LabelMatchers>>}) by (q)'}
"""


class Directory:
    def names(self, resource, namespace, selector):
        return ("web-0", "web-1", "web-2") if selector.matches({"app": "web"}) else ()


@pytest.fixture
async def url():
    store = SeriesStore()
    for pod, value in (("web-0", 10.5), ("web-1", 20.0)):
        labels = {"pod": pod, "namespace": "ml", "service": "web", "app": "x"}
        store.append({"__name__": "gpu_util", **labels}, NOW_MS, value)
    for queue, value in (("a", 3.0), ("b", 4.0)):
        store.append({"__name__": "depth", "q": queue}, NOW_MS, value)
    clock = ManualClock(NOW_MS + 4_000)
    provider = MetricsProvider(
        load_rules(RULES, "rules.yaml"), EmbeddedSource(store), Directory(), clock
    )
    await provider.relist()
    app = web.Application()
    add_routes(app, provider)
    async with TestServer(app) as server:
        yield str(server.make_url(""))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_readings_carry_value_and_time_of_measurement(url, version: str) -> None:
    async with HttpMetricsClient(url, version=version) as client:
        pods = await client.pod_values("ml", "app=web", "gpu_util", parse_selector("app in (x,y)"))
        service = await client.object_value("ml", SERVICE, "gpu_util", None)
        namespace = await client.object_value("ml", NAMESPACE, "gpu_util", None)
    assert pods == (
        MetricValue("web-0", 10_500, NOW_MS, 60_000),
        MetricValue("web-1", 20_000, NOW_MS, 60_000),
    )
    # The mean of 10.5 and 20 is 15.25.
    assert service == MetricValue("web", 15_250, NOW_MS)
    assert namespace == MetricValue("ml", 15_250, NOW_MS)


async def test_external_readings_are_one_per_row(url) -> None:
    async with HttpMetricsClient(url) as client:
        every = await client.external_values("ml", "depth", None)
        one = await client.external_values("ml", "depth", parse_selector("q=b"))
    assert every == (
        ExternalValue({"q": "a"}, 3_000, NOW_MS),
        ExternalValue({"q": "b"}, 4_000, NOW_MS),
    )
    assert one == every[1:]


async def test_what_an_hpa_would_show_in_its_conditions(url) -> None:
    async with HttpMetricsClient(url) as client:
        with pytest.raises(NotFoundError) as unknown:
            await client.pod_values("ml", "app=web", "none", None)
        empty = await client.pod_values("ml", "app=web", "gpu_util", parse_selector("app=none"))
    assert str(unknown.value) == "the server could not find the metric none for pods"
    assert empty == ()
