"""Discovery in front of a real Prometheus: series are listed where their metrics changed, and not else."""

import asyncio
import time
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.server.metricsapi.cluster import NoObjects
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource
from gpuscale.testing.prometheus import serve

pytestmark = pytest.mark.prometheus
RULES = """
rules:
- seriesQuery: '{__name__=~"gpu_.*",namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}
  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
MANY = 400
NOW_MS = int(time.time() * 1000)


class Counting:
    """Counts lists of a Prometheus."""

    def __init__(self, source: PrometheusSource) -> None:
        self.source = source
        self.lists = 0
        self.query = source.query
        self.names = source.names

    async def series(self, selector: str, start_ms: int):
        self.lists += 1
        return await self.source.series(selector, start_ms)


def sample(name: str, number: int = 0, at_ms: int = NOW_MS, **labels: str):
    return {"__name__": name, "namespace": "ml", "pod": f"p{number}", **labels}, at_ms, 1.0


def many(name: str = "gpu_use", count: int = MANY):
    return [sample(name, number) for number in range(count)]


@pytest.fixture
def prometheus(tmp_path: Path):
    with serve(many(), tmp_path) as running:
        yield running


@pytest.fixture
async def counting(prometheus):
    async with PrometheusSource(PrometheusSettings(prometheus.url)) as source:
        yield Counting(source)


def provider_of(source, max_age_s: float = 600.0) -> MetricsProvider:
    config = load_rules(RULES, "rules")
    return MetricsProvider(config, source, NoObjects(), WallClock(), 0.001, max_age_s)


def metrics(provider: MetricsProvider) -> set[str]:
    return {each.name for each in provider.catalogue.custom_resources()}


USE = {"namespaces/gpu_use", "pods/gpu_use"}


async def test_series_that_give_the_same_are_not_listed_again(counting, prometheus) -> None:
    provider = provider_of(counting)
    for _ in range(3):
        await provider.relist()
        prometheus.write(many("gpu_use", MANY + 5))
        assert metrics(provider) == USE
        assert not provider.catalogue.failures
    assert counting.lists == 1


@pytest.mark.parametrize(
    ("more", "found"),
    [
        pytest.param(sample("gpu_heat"), {"namespaces/gpu_heat", "pods/gpu_heat"}, id="a name"),
        pytest.param(sample("gpu_use", 1, node="n"), {"nodes/gpu_use"}, id="a label of one series"),
    ],
)
async def test_what_is_new_is_found_by_the_next_discovery(
    counting, prometheus, more, found
) -> None:
    provider = provider_of(counting)
    await provider.relist()
    prometheus.write([more])
    await provider.relist()
    assert metrics(provider) == USE | found
    assert counting.lists == 2


async def test_all_are_listed_again_after_the_age_that_series_may_have(counting) -> None:
    provider = provider_of(counting, max_age_s=0.001)
    for _ in range(3):
        await asyncio.sleep(0.002)
        await provider.relist()
    assert counting.lists == 3


async def test_a_few_series_are_listed_each_time(tmp_path: Path) -> None:
    with serve(many(count=5), tmp_path) as running:
        async with PrometheusSource(PrometheusSettings(running.url)) as source:
            counting = Counting(source)
            provider = provider_of(counting)
            for _ in range(3):
                await provider.relist()
    assert counting.lists == 3


async def test_a_source_that_knows_no_names_lists_each_time(counting) -> None:
    del counting.names
    provider = provider_of(counting)
    for _ in range(3):
        await provider.relist()
    assert (counting.lists, metrics(provider)) == (3, USE)
