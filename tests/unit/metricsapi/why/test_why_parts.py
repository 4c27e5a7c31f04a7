# mypy: disable-error-code="arg-type"
"""Combined metrics, served and explained: the fullest of several limits, and what a missing part does."""

import json
import math

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.metricsapi.why.text import text_lines
from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import plan_custom
from gpuscale.server.rules.queries.widen import widen
from gpuscale.server.rules.resources import KUBERNETES
from gpuscale.server.sources.embedded import EmbeddedSource

NOW_MS = 1_700_000_000_000
RULES = """
rules:
- seriesQuery: '{__name__="vllm:num_requests_waiting",pod!=""}'
  name: {as: vllm_fullness}
  resources: {template: <<.Resource>>}
  parts:
  - name: queue
    query: sum(vllm:num_requests_waiting{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    threshold: 5
  - name: kv cache
    query: max(vllm:kv_cache_usage_perc{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    threshold: 800m
externalRules:
- seriesQuery: vllm:num_requests_waiting
  name: {as: vllm_fullness_of_all}
  resources: {template: <<.Resource>>}
  parts:
  - {name: queue, query: 'sum(vllm:num_requests_waiting{<<.LabelMatchers>>})', threshold: 20}
  - {name: kv cache, query: 'avg(vllm:kv_cache_usage_perc{<<.LabelMatchers>>})', threshold: 0.8}
"""
WAITING, CACHE = "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"


class Pods:
    def __init__(self, *names: str) -> None:
        self._names = names

    def names(self, resource, namespace, selector) -> tuple[str, ...]:
        return self._names


async def served(values, *names):
    """Return the provider of a store with these values of pods in `ml`; None leaves a series out."""
    store = SeriesStore(retention_ms=86_400_000)
    for pod, waiting, cache in values:
        labels = {"namespace": "ml", "pod": pod}
        for name, value in ((WAITING, waiting), (CACHE, cache)):
            if value is not None:
                store.append({"__name__": name, **labels}, NOW_MS - 1000, value)
    found = MetricsProvider(
        load_rules(RULES, "rules.yaml"),
        EmbeddedSource(store),
        Pods(*names),
        ManualClock(NOW_MS),
        relist_interval_s=600,
    )
    await found.relist()
    return found


async def why(provider, path) -> str:
    app = web.Application()
    add_routes(app, provider)
    async with TestClient(TestServer(app)) as client, client.get(f"{path}?why=json") as response:
        return "\n".join(text_lines(json.loads(await response.text())))


ALL = CustomTarget("pods", "ml", "*", "vllm_fullness")
PATH = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods"


async def values_of(provider):
    answer = await provider.custom(ALL, Selector(), Selector())
    return {value.object_name: value.value_milli for value in answer.values}


async def test_the_fullest_limit_of_each_pod_counts() -> None:
    # a: 7/5 = 1.4 against 0.2/0.8 = 0.25; b: 1/5 = 0.2 against 0.4/0.8 = 0.5; c is idle.
    pods = (("a", 7, 0.2), ("b", 1, 0.4), ("c", 0, 0))
    provider = await served(pods, "a", "b", "c")
    assert await values_of(provider) == {"a": 1400, "b": 500, "c": 0}
    text = await why(provider, f"{PATH}/*/vllm_fullness")
    assert "a: queue 7 of 5, 1.4 full; kv cache 0.2 of 0.8, 0.25 full: queue counts" in text
    assert "b: queue 1 of 5, 0.2 full; kv cache 0.4 of 0.8, 0.5 full: kv cache counts" in text
    await provider.close()


@pytest.mark.parametrize("cache", [None, math.nan])
async def test_a_pod_without_one_part_has_no_value_and_is_told(cache) -> None:
    provider = await served((("a", 7, 0.2), ("b", 4, cache)), "a", "b")
    assert await values_of(provider) == {"a": 1400}
    text = await why(provider, f"{PATH}/*/vllm_fullness")
    assert "b: queue 4 of 5, 0.8 full; no value of kv cache: so none of the whole" in text
    await provider.close()


async def test_where_no_pod_has_all_parts_the_missing_one_is_named() -> None:
    provider = await served((("a", 7, None), ("b", 4, None)), "a", "b")
    assert await values_of(provider) == {}
    text = await why(provider, f"{PATH}/*/vllm_fullness")
    assert "0 rows. No object has all parts: kv cache has no value." in text
    assert "a: queue 7 of 5, 1.4 full; no value of kv cache: so none of the whole" in text
    await provider.close()


async def test_an_external_one_is_of_all_rows_together() -> None:
    # queue: (7 + 4) / 20 = 0.55; cache: mean of 0.2 and 0.6, 0.4 / 0.8 = 0.5.
    provider = await served((("a", 7, 0.2), ("b", 4, 0.6)))
    target = ExternalTarget("ml", "vllm_fullness_of_all")
    (value,) = await provider.external(target, Selector())
    assert value.value_milli == 550
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ml/vllm_fullness_of_all"
    assert "queue 11 of 20, 0.55 full; kv cache 0.4 of 0.8, 0.5 full: queue counts" in await why(
        provider, path
    )
    without = await served((("a", 7, None),))
    assert await without.external(target, Selector()) == ()
    assert "No object has all parts: kv cache has no value." in await why(without, path)
    await provider.close()
    await without.close()


async def test_one_query_serves_all_pods_of_all_namespaces() -> None:
    provider = await served((("a", 7, 0.2),), "a")
    names = ("a", "b")
    plan = plan_custom(
        provider.catalogue, KUBERNETES, "pods", "ml", names, "vllm_fullness", Selector()
    )
    assert widen(plan) is not None
    await provider.close()


async def test_a_part_that_the_source_does_not_answer_is_unknown_not_empty() -> None:
    provider = await served((("a", 7, 0.2),), "a")
    asked = provider.questions.query

    async def half(promql, at_ms):
        if promql.startswith("max(vllm:kv"):
            raise UnavailableError("the source is away")
        return await asked(promql, at_ms)

    provider.questions.query = half
    text = await why(provider, f"{PATH}/a/vllm_fullness")
    assert "kv cache is unknown: the source is away" in text
    await provider.close()


numbers = st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False), st.just(math.nan))


@at_most(60)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6))
async def test_the_query_is_the_largest_share_of_objects_that_have_all_parts(parts) -> None:
    pods = [(f"p{i}", *each) for i, each in enumerate(parts)]
    store = SeriesStore(retention_ms=86_400_000)
    for pod, waiting, cache in pods:
        for name, value in (("a", waiting), ("b", cache)):
            if value is not None:
                store.append({"__name__": name, "pod": pod}, NOW_MS - 1000, value)
    rule = load_rules(
        "[{seriesQuery: a, parts: [{query: 'a{<<.LabelMatchers>>}', threshold: 3},"
        " {query: 'b{<<.LabelMatchers>>}', threshold: 7}]}]",
        "rules.yaml",
    ).rules[0]
    promql = rule.metrics_query.render(
        {"Series": "a", "LabelMatchers": "", "LabelValuesByName": {}, "GroupBy": "pod"}
        | {"GroupBySlice": ("pod",)}
    )
    found = await EmbeddedSource(store).query(promql, NOW_MS)
    expected = {
        pod: max(waiting / 3, cache / 7)
        for pod, waiting, cache in pods
        if None not in (waiting, cache) and not math.isnan(waiting + cache)
    }
    assert {row.labels["pod"]: row.value for row in found.samples} == expected
