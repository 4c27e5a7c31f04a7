# mypy: disable-error-code="arg-type"
"""How late values come, asked of series as a Prometheus would hold them."""

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Vector, VectorSample
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.telemetry.hop_lag import (
    HopLag,
    scrape_query,
    series_by_metric,
    store_query,
)
from gpuscale.server.metricsapi.telemetry.own_metrics import ServedValues, ServerMetrics
from gpuscale.server.metricsapi.wire.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

NOW_MS = 1_760_000_000_000
AGENT_TIME = "gpuscale_exporter_newest_reading_timestamp_seconds"
RULES = load_rules(
    """
rules:
- {seriesQuery: DCGM_FI_DEV_GPU_UTIL, name: {as: gpu_util}, resources: {template: <<.Resource>>},
   metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}
externalRules:
- {seriesQuery: queue, resources: {namespaced: false}, metricsQuery: 'sum(queue)'}
- {seriesQuery: 'odd', name: {as: 'od"d'}, resources: {namespaced: false}, metricsQuery: 'sum(odd)'}
""",
    "rules.yaml",
)


def store():
    """Two agents and a queue; the second agent's samples are older, and were measured longer before."""
    series = SeriesStore()
    for instance, scraped_ms, measured_ms in (("a:9400", 500, 100), ("b:9400", 1_500, 750)):
        target = {"job": "gpus", "instance": instance}
        at_ms = NOW_MS - scraped_ms
        pod = {"namespace": "ml", "pod": instance[0], **target}
        series.append({"__name__": "DCGM_FI_DEV_GPU_UTIL", **pod}, at_ms, 23.0)
        series.append({"__name__": AGENT_TIME, **target}, at_ms, (at_ms - measured_ms) / 1000)
    series.append({"__name__": "queue", "job": "queues"}, NOW_MS - 3_000, 4.0)
    # An agent whose series no metric is found by, and which is further behind than all others.
    other = {"job": "gpus", "instance": "c:9400"}
    series.append({"__name__": AGENT_TIME, **other}, NOW_MS, NOW_MS / 1000 - 99)
    return series


class Failing:
    def __init__(self, source) -> None:
        self.series = source.series

    async def query(self, promql, at_ms) -> None:
        raise UnavailableError("no route to host")


async def looked(*asked, source=None):
    """Return the hops told of by metric, after these were asked for."""
    clock = ManualClock(NOW_MS)
    source = source or EmbeddedSource(store())
    metrics = ServerMetrics(clock)
    provider = MetricsProvider(RULES, source, None, clock)
    await provider.relist()
    for group, metric in asked:
        metrics.answered(ServedValues(group, metric, NOW_MS, 0.25))
    await HopLag(provider, source, metrics, clock, 30.0).look()
    assert metrics.take_answered(10) == ()
    (family,) = (f for f in metrics.families() if f.name.endswith("hop_lag_seconds"))
    found = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        found.setdefault(labels["metric"], {})[labels["hop"]] = sample.value
    return found


async def test_the_worst_of_all_pods_is_told_hop_by_hop() -> None:
    # Measured 750 ms before the scrape, which was 1500 ms ago; the answer took 250 ms.
    assert await looked((CUSTOM_GROUP, "gpu_util")) == {
        "gpu_util": {
            "scrape": pytest.approx(0.75),
            "store": pytest.approx(1.5),
            "answer": 0.25,
            "total": pytest.approx(2.5),
        }
    }


async def test_without_an_agent_behind_it_the_scrape_is_not_known() -> None:
    found = await looked((EXTERNAL_GROUP, "queue"))
    assert found == {"queue": {"store": pytest.approx(3.0), "answer": 0.25, "total": 3.25}}


@pytest.mark.parametrize("key", [(CUSTOM_GROUP, "gone"), (EXTERNAL_GROUP, "gpu_util")])
async def test_of_a_metric_that_is_served_no_more_only_the_answer_is_known(key) -> None:
    assert await looked(key) == {key[1]: {"answer": 0.25, "total": 0.25}}


async def test_a_source_that_does_not_answer_leaves_its_hops_out() -> None:
    found = await looked((CUSTOM_GROUP, "gpu_util"), source=Failing(EmbeddedSource(store())))
    assert found == {"gpu_util": {"answer": 0.25, "total": 0.25}}


async def test_metrics_that_nobody_asked_for_cost_nothing() -> None:
    assert await looked() == {}


async def test_every_metric_leads_to_its_series() -> None:
    source = EmbeddedSource(store())
    provider = MetricsProvider(RULES, source, None, ManualClock(NOW_MS))
    await provider.relist()
    assert series_by_metric(provider.catalogue) == {
        (CUSTOM_GROUP, "gpu_util"): ("DCGM_FI_DEV_GPU_UTIL",),
        (EXTERNAL_GROUP, "queue"): ("queue",),
    }


def test_questions_are_promql() -> None:
    assert store_query("x") == "time() - min(timestamp(x))"
    assert scrape_query("x") == (
        f"max((timestamp({AGENT_TIME}) - {AGENT_TIME}) and on (job, instance) x)"
    )


@pytest.mark.parametrize(("agents", "again_s"), [(0, 390), (1, 750)])
async def test_a_metric_of_many_series_is_asked_about_less_often(agents: int, again_s: int) -> None:
    """10 000 series: a query of 2.6 ms and 10 000 x 18 us takes 0.1826 s, half a thousandth of 365.2 s.

    Of agents there are two such queries, 730.4 s; the first turn after that, of one each 30 s, counts.
    """
    asked = []

    class Source:
        async def series(self, selector, start_ms):
            return [{"__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": "a", "pod": "p"}] * 10_000

        async def query(self, promql, at_ms):
            asked.append((promql, at_ms))
            is_count = promql == f"count({AGENT_TIME})"
            return Vector((VectorSample({}, 1.0, at_ms),) * agents if is_count else ())

    clock = ManualClock(NOW_MS)
    source, metrics = Source(), ServerMetrics(clock)
    provider = MetricsProvider(RULES, source, None, clock)
    await provider.relist()
    lag = HopLag(provider, source, metrics, clock, 30.0)
    for _ in range(26):
        metrics.answered(ServedValues(CUSTOM_GROUP, "gpu_util", NOW_MS, 0.25))
        await lag.look()
        clock.advance(30)
    times = sorted({at_ms for _, at_ms in asked})
    assert times[:2] == [NOW_MS, NOW_MS + 1000 * again_s]
    selector = '{__name__=~"DCGM_FI_DEV_GPU_UTIL"}'
    of_agents = [scrape_query(selector)] * agents
    first = [promql for promql, at_ms in asked if at_ms == NOW_MS]
    assert first == [f"count({AGENT_TIME})", *of_agents, store_query(selector)]
