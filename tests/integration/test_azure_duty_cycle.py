"""Kusto's mean duty cycle by minute, and PromQL that gives the same numbers from the same samples.

Kusto's side is plain arithmetic: `bin(TimeGenerated, 60s)` is the minute that a sample is in, its beginning
included and its end not, and `avg(Val)` weighs every sample equally, whichever container it is of
(Microsoft, Kusto Query Language: bin(), avg(), summarize).
"""

import re
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from gpuscale.agent.attribution.processes.shares import ContainerShare
from gpuscale.agent.exporter.families.azure import AzureCluster, AzureMetrics
from gpuscale.agent.exporter.families.containers import GpuShares
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import ContainerRef, NodeGpuResources
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.agent.gpu.simulated import SimulatedReader
from gpuscale.series.promql.evaluate import range_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing.prometheus import major_release, points_by_labels, query_data, serve

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("prometheus")]

GUIDE = Path(__file__).parents[2] / "docs/guides/aks.md"
START_MS = 1_700_000_040_000
"""The beginning of a minute."""
MINUTE_MS = 60_000
MINUTES = 8
END_MS = START_MS + MINUTES * MINUTE_MS
NAME = "containerGpuDutyCycle"


def queries() -> dict[str, str]:
    """Return the guide's PromQL: of all containers and of each, for Prometheus 3 and 2."""
    blocks = re.findall(r"```promql\n(.*?)\n```", GUIDE.read_text(), re.DOTALL)
    all_, each = (" ".join(block.split()) for block in blocks)
    old = ("[1m]", "[59999ms]")
    return {
        "all 3": all_,
        "each 3": each,
        "all 2": all_.replace(*old),
        "each 2": each.replace(*old),
    }


def agent_samples():
    """Return what scrapes of a simulated agent's /metrics/azure give, a scrape each 15 s less 7 ms."""

    def load(gpu, now_ms):
        return ((now_ms - START_MS) / 1000 * (gpu + 1) * 0.0037) % 1

    reader = SimulatedReader("n1", MODELS["NVIDIA H200"], 2, 7, lambda *_: ())
    metrics = AzureMetrics(AzureCluster("/subscriptions/s/aks", "aks"))
    found = []
    for now_ms in range(START_MS - MINUTE_MS, END_MS, 1000):
        readings = reader.read(now_ms)
        metrics.observe([_shares(each, load(n, now_ms)) for n, each in enumerate(readings)], now_ms)
        if now_ms % 15_000 == 0:
            for family in metrics.families(NodeGpuResources()):
                if family.name == NAME:
                    found += [
                        (dict(each.labels), now_ms - 7, each.value) for each in family.samples
                    ]
    return found


def _shares(reading: GpuReading, load: float) -> GpuShares:
    """Two containers on the first GPU, one on the others, which have none for two minutes."""
    shares = [ContainerShare(ContainerRef("ml", "a", "main", "uid-a"), round(60 * load), 100)]
    if reading.gpu.index == 0:
        shares.append(
            ContainerShare(ContainerRef("ml", "b", "main", "uid-b"), round(40 * load), 100)
        )
    elif START_MS + 2 * MINUTE_MS <= reading.measured_ms < START_MS + 4 * MINUTE_MS:
        shares = []
    return GpuShares(reading, tuple(shares))


def edge_samples():
    """Return samples on the edges of minutes, a minute that has none, and series that have unequally many."""
    minute = START_MS + 5 * MINUTE_MS
    times = {
        "edge": [
            *(START_MS, START_MS + MINUTE_MS - 1, START_MS + MINUTE_MS, START_MS + MINUTE_MS + 1),
            *(minute - 1, minute, minute + 59_999, END_MS - 1),
        ],
        "often": range(minute, minute + MINUTE_MS, 500),
        "once": [minute + 31],
    }
    return [
        ({"containerName": name, "gpuId": "GPU-e"}, t_ms, (7 * index + len(name)) % 101)
        for name, found in times.items()
        for index, t_ms in enumerate(found)
    ]


def kusto(samples, *, by_container: bool):
    """Return the means by label set and by the beginning of the minute, in milliseconds."""
    bins = defaultdict(list)
    for labels, t_ms, value in samples:
        key = (("containerName", labels["containerName"]),) if by_container else ()
        bins[key, t_ms // MINUTE_MS * MINUTE_MS].append(Fraction(value))
    found = defaultdict(dict)
    for (key, t_ms), values in bins.items():
        found[key][t_ms] = float(sum(values) / len(values))
    return dict(found)


def means(data):
    return {
        labels: {round(float(at) * 1000): float(value) for at, value in points}
        for labels, points in points_by_labels(data).items()
    }


def nearly(expected):
    return {key: pytest.approx(points, rel=1e-12) for key, points in expected.items()}


def samples_of(case: str):
    """Return the samples of whole minutes; those before and after are not asked for."""
    found = {
        "agent": agent_samples,
        "edges": edge_samples,
        "both": lambda: [*agent_samples(), *edge_samples()],
    }[case]()
    return [each for each in found if START_MS <= each[1] < END_MS]


@pytest.fixture(scope="module", params=["agent", "edges", "both"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Yield samples, a Prometheus that has them, and a store that has them."""
    samples = samples_of(request.param)
    named = [({"__name__": NAME, **labels}, t_ms, value) for labels, t_ms, value in samples]
    store = SeriesStore(retention_ms=24 * 60 * MINUTE_MS)
    for labels, t_ms, value in sorted(named, key=lambda each: each[1]):
        store.append(labels, t_ms, value)
    with serve(named, tmp_path_factory.mktemp("duty-cycle")) as prometheus:
        yield samples, prometheus, store


@pytest.mark.parametrize("way", ["all", "each"])
def test_prometheus_gives_kustos_numbers(recorded, way: str) -> None:
    samples, prometheus, _ = recorded
    query = queries()[f"{way} {min(major_release(), 3)}"]
    span = {"start": START_MS / 1000, "end": END_MS / 1000 - 60, "step": 60}
    answer = prometheus.get("/api/v1/query_range", query=query, **span)
    expected = kusto(samples, by_container=way == "each")
    assert expected
    assert means(answer["data"]) == nearly(expected)


@pytest.mark.parametrize("release", [2, 3])
@pytest.mark.parametrize("way", ["all", "each"])
def test_our_store_gives_kustos_numbers(recorded, way: str, release: int) -> None:
    samples, _, store = recorded
    value = range_query(
        store,
        queries()[f"{way} {release}"],
        START_MS,
        END_MS - MINUTE_MS,
        MINUTE_MS,
        left_open=release == 3,
    )
    expected = kusto(samples, by_container=way == "each")
    assert means(query_data(value, END_MS)) == nearly(expected)


def test_a_mean_of_means_is_another_question(recorded) -> None:
    """It weighs a container that was there for seconds as one that was there all the time."""
    samples, prometheus, _ = recorded
    query = f"avg(avg_over_time({NAME}[1m] offset -59999ms))"
    span = {"start": START_MS / 1000, "end": END_MS / 1000 - 60, "step": 60}
    (found,) = means(prometheus.get("/api/v1/query_range", query=query, **span)["data"]).values()
    (expected,) = kusto(samples, by_container=False).values()
    minute = START_MS + 5 * MINUTE_MS
    if any(labels["containerName"] == "often" for labels, *_ in samples):
        assert found[minute] != pytest.approx(expected[minute], rel=0.01)


def test_the_samples_have_what_is_hard() -> None:
    times_ms = [t_ms for _, t_ms, _ in samples_of("both")]
    assert {0, 1, 59_999} <= {t_ms % MINUTE_MS for t_ms in times_ms}
    assert len({t_ms // MINUTE_MS for _, t_ms, _ in samples_of("edges")}) < MINUTES
    agents = samples_of("agent")
    assert len({value for _, _, value in agents}) > 20
    series = {(labels["containerName"], labels["gpuId"]) for labels, *_ in agents}
    assert len(series) == 3
