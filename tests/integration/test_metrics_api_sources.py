"""One contract for every metric source: the series in memory, and a real Prometheus with the same samples."""

import asyncio
import math
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession
from aiohttp.test_utils import unused_port

from gpuscale.base.errors import QueryError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, Scalar, StringValue, Vector
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import plan_custom
from gpuscale.server.rules.resources import KUBERNETES
from gpuscale.server.sources.asking.single_flight import AnswerSharing, SharedSource
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource
from gpuscale.server.sources.source import MetricSource

NOW_MS = 1_700_000_000_000
SAMPLES = (
    (
        "gpu_util",
        {"pod": "a", "namespace": "ml", "gpu": "0"},
        ((-60, 10.0), (-30, 20.0), (0, 30.0)),
    ),
    (
        "gpu_util",
        {"pod": "a", "namespace": "ml", "gpu": "1"},
        ((-60, 50.0), (-30, 50.0), (0, 50.0)),
    ),
    ("gpu_util", {"pod": "b", "namespace": "ml", "gpu": "0"}, ((-30, math.nan), (0, math.nan))),
    ("gpu_util", {"pod": "c", "namespace": "web", "gpu": "0"}, ((-30, 1.5), (0, math.inf))),
    ("requests_total", {"pod": "a", "namespace": "ml"}, ((-60, 0.0), (-30, 60.0), (0, 120.0))),
)


def embedded() -> EmbeddedSource:
    store = SeriesStore()
    for name, labels, points in SAMPLES:
        for seconds, value in points:
            store.append({"__name__": name, **labels}, NOW_MS + seconds * 1000, value)
    return EmbeddedSource(store)


def openmetrics() -> str:
    lines = []
    for name, labels, points in SAMPLES:
        inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
        lines += [f"{name}{{{inside}}} {value} {NOW_MS // 1000 + t}" for t, value in points]
    return "\n".join([*lines, "# EOF", ""])


async def wait_until_ready(url: str, process: asyncio.subprocess.Process) -> None:
    async with ClientSession() as session, asyncio.timeout(30):
        while True:
            assert process.returncode is None, "prometheus ended"
            try:
                async with session.get(f"{url}/-/ready") as response:
                    if response.status == 200:
                        return
            except ClientError:
                pass
            await asyncio.sleep(0.05)


def import_samples(folder: Path) -> None:
    (folder / "samples.txt").write_text(openmetrics())
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    import_ = ["promtool", "tsdb", "create-blocks-from", "openmetrics"]
    places = [str(folder / "samples.txt"), str(folder / "data")]
    subprocess.run([*import_, *places], check=True, capture_output=True)


async def prometheus(folder: Path) -> AsyncIterator[PrometheusSource]:
    import_samples(folder)
    port = unused_port()
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await wait_until_ready(url, process)
        async with PrometheusSource(PrometheusSettings(url)) as source:
            yield source
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture(params=["embedded", pytest.param("prometheus", marks=pytest.mark.prometheus)])
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetricSource]:
    if request.param == "embedded":
        yield embedded()
        return
    async for running in prometheus(tmp_path):
        yield running


def rows(value) -> dict[tuple[str, ...], float]:
    assert isinstance(value, Vector)
    return {tuple(sorted(row.labels.values())): row.value for row in value.samples}


async def test_every_source_keeps_the_contract(source: MetricSource) -> None:
    await check_series(source)
    await check_vectors(source)
    await check_other_values(source)
    await check_faults(source)
    await check_shared_questions(source)


async def check_series(source: MetricSource) -> None:
    found = await source.series('gpu_util{namespace="ml"}', NOW_MS - 60_000)
    assert sorted((labels["pod"], labels["gpu"]) for labels in found) == [
        ("a", "0"),
        ("a", "1"),
        ("b", "0"),
    ]
    assert {labels["__name__"] for labels in found} == {"gpu_util"}
    by_expression = await source.series('{__name__=~".*_total",pod!=""}', NOW_MS - 60_000)
    assert [labels["__name__"] for labels in by_expression] == ["requests_total"]
    assert list(await source.series("gpu_util", NOW_MS + 1)) == []
    assert list(await source.series("none", 0)) == []


async def check_vectors(source: MetricSource) -> None:
    # (30 + 50) / 2 for pod a; pod b is NaN and pod c infinite, and both stay what they are.
    averages = rows(await source.query("avg by (pod) (gpu_util)", NOW_MS))
    assert averages[("a",)] == 40.0
    assert math.isnan(averages[("b",)])
    assert averages[("c",)] == math.inf
    # 60 more in the 30 s between the last two samples of the range is 2 a second.
    rates = await source.query('sum(rate(requests_total{pod=~"a|b"}[1m])) by (pod)', NOW_MS)
    assert rows(rates) == {("a",): pytest.approx(2.0)}
    selected = await source.query('gpu_util{pod="a",gpu="0"}', NOW_MS + 10_000)
    (row,) = selected.samples
    assert dict(row.labels) == {
        "__name__": "gpu_util",
        "pod": "a",
        "namespace": "ml",
        "gpu": "0",
    }
    assert NOW_MS <= row.measured_ms <= NOW_MS + 10_000
    assert rows(await source.query("gpu_util", NOW_MS + 400_000)) == {}


async def check_other_values(source: MetricSource) -> None:
    assert await source.query("1.5", NOW_MS) == Scalar(1.5)
    assert await source.query('"text"', NOW_MS) == StringValue("text")
    matrix = await source.query('requests_total{pod="a"}[45s]', NOW_MS)
    assert isinstance(matrix, Matrix)
    assert [each.points for each in matrix.series] == [((NOW_MS - 30_000, 60.0), (NOW_MS, 120.0))]


async def check_faults(source: MetricSource) -> None:
    with pytest.raises(QueryError):
        await source.query("sum(", NOW_MS)
    with pytest.raises(QueryError):
        await source.series("sum(m)", NOW_MS)


RULES = """
rules:
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: requests_total
  resources: {template: <<.Resource>>}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)
"""
REQUESTS = (
    ("ml", ("a",)),
    ("ml", ("a", "b")),
    ("web", ("c",)),
    ("web", ("a", "c")),
    ("none", ("a",)),
    ("ml", ("a", "b", "c")),
)


async def check_shared_questions(source: MetricSource) -> None:
    """What is cut out of a joint query is what each exact one gives, for all of the requests."""
    found = {name: await source.series(name, NOW_MS) for name in ("gpu_util", "requests_total")}
    catalogue = Catalogue.build(load_rules(RULES, "rules.yaml"), found)
    for metric in found:
        plans = [
            plan_custom(catalogue, KUBERNETES, "pods", namespace, names, metric, Selector())
            for namespace, names in REQUESTS
        ]
        sharing = SharedSource(source, AnswerSharing(freshness_ms=1000))
        values = await asyncio.gather(*(sharing.custom(each, NOW_MS) for each in plans))
        shared = [each.answer(value) for each, value in zip(plans, values, strict=True)]
        exact = [each.answer(await source.query(each.promql, NOW_MS)) for each in plans]
        assert shared == exact
        assert any(shared)
        assert (sharing.counts.asked, sharing.counts.cut) == (1, len(plans))
