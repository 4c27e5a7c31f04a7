"""Values that a series can't have, in a real Prometheus: none of them comes back, whatever is computed."""

import asyncio
import math
import time
from pathlib import Path

import pytest

from gpuscale.lab.sim.history.questions import DeploymentQueries
from gpuscale.series.values import Vector
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource
from gpuscale.server.sources.prometheus.possible import PossibleSource
from gpuscale.server.sources.prometheus.ranges import columns
from gpuscale.testing.prometheus import serve
from impossible import CORRUPTIONS, POSSIBLE, SERIES

pytestmark = pytest.mark.prometheus
STEP_MS, STEPS = 15_000, 5
QUERIES = (
    'X{pod="P"}',
    'avg(X{pod="P"}) by (pod)',
    'sum(X{pod="P"}) by (pod)',
    'max_over_time(X{pod="P"}[2m])',
    'avg(avg_over_time(X{pod="P"}[2m])) by (pod)',
    'max_over_time(sum by (pod) (X{pod="P"})[2m:15s])',
    'sum(X{pod="P"}) by (pod) / on () group_left () sum(X{pod="good"})',
    'sum(steady{pod="P"}) by (pod) / on (pod) sum(X{pod="P"}) by (pod)',
    '{__name__=~"X.?",pod="P"}',
)
"""What rules ask, for a series X and a pod P."""
RIGHT = dict(zip(QUERIES, [POSSIBLE] * 6 + [1.0, 1 / POSSIBLE, POSSIBLE], strict=True))
"""Of a pod that has the possible value and nothing else, by arithmetic."""


def pod_of(corruption: str) -> str:
    return corruption.replace(" ", "-")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory):
    now_ms = int(time.time() * 1000) - 10_000
    values = {"good": POSSIBLE, **{pod_of(name): value for name, value in CORRUPTIONS.items()}}
    samples = [
        ({"__name__": name, "pod": pod}, now_ms - step * STEP_MS, value)
        for name in (*SERIES, "steady", "unknown")
        for pod, corrupt in values.items()
        # Only the newest sample is impossible.
        for step in reversed(range(STEPS))
        for value in [1.0 if name == "steady" else corrupt if step == 0 else POSSIBLE]
    ]
    with serve(samples, tmp_path_factory.mktemp("prometheus")) as running:
        yield running.url, now_ms


async def ask(asked, queries):
    url, now_ms = asked
    source = PossibleSource(PrometheusSource(PrometheusSettings(url)))
    try:
        return [await source.query(each, now_ms) for each in queries], source
    finally:
        await asyncio.sleep(0.2)
        await source.close()


def filled(query: str, name: str, pod: str) -> str:
    return query.replace('"P"', f'"{pod}"').replace("X", name)


@pytest.mark.parametrize("query", QUERIES)
async def test_nothing_is_computed_from_an_impossible_value(asked, query: str) -> None:
    pods = ["good", *map(pod_of, CORRUPTIONS)]
    keys = [(name, pod) for name in SERIES for pod in pods]
    values, _ = await ask(asked, [filled(query, name, pod) for name, pod in keys])
    for (name, pod), value in zip(keys, values, strict=True):
        found = [row.value for row in value.samples if not math.isnan(row.value)]
        if pod == "good":
            assert found == pytest.approx([RIGHT[query]]), (name, pod)
        elif ":15s]" in query:
            # What was possible a step ago is still the highest.
            assert found == pytest.approx([POSSIBLE]), (name, pod)
        else:
            assert found == [], (name, pod)


async def test_series_that_nothing_is_known_of_are_answered_as_they_are(asked) -> None:
    (value,), _ = await ask(asked, ["sum by (pod) (unknown)"])
    assert {row.labels["pod"]: row.value for row in value.samples} == {
        "good": POSSIBLE,
        **{pod_of(name): corrupt for name, corrupt in CORRUPTIONS.items()},
    }


async def test_what_was_left_out_can_be_asked_for_and_is_counted(asked, caplog) -> None:
    name = SERIES[0]
    (_, value), source = await ask(
        asked, [f"avg({name})", f'gpuscale_impossible_value{{series="{name}"}}']
    )
    assert isinstance(value, Vector)
    assert {row.labels["pod"]: row.value for row in value.samples} == {
        pod_of(each): corrupt for each, corrupt in CORRUPTIONS.items()
    }
    assert source.left_out == {name: len(CORRUPTIONS)}
    (record,) = [each for each in caplog.records if "can't have" in each.message]
    assert f"6 series of {name} have a value that it can't have (it is 0 to 100)" in record.message


@pytest.mark.parametrize("corruption", CORRUPTIONS)
async def test_a_replay_leaves_out_what_is_no_percentage_and_knows_how_much(
    tmp_path: Path, corruption: str
) -> None:
    start_ms = int(time.time() * 1000) - 600_000
    samples = [
        (
            {"__name__": SERIES[0], "namespace": "ml", "pod": "web-6d4cf56db6-abcde", "gpu": gpu},
            start_ms + step * STEP_MS,
            CORRUPTIONS[corruption] if (step, gpu) == (2, "1") else 40.0,
        )
        for gpu in "01"
        for step in range(STEPS)
    ]
    with serve(samples, tmp_path) as running:
        async with PrometheusSource(PrometheusSettings(running.url)) as source:
            queries = {
                name: promql
                for name, promql in DeploymentQueries("ml", "web").columns.items()
                if name in {"busy", "seen", "impossible"}
            }
            found = await columns(source, queries, start_ms, STEP_MS, STEPS)
    # Two GPUs of 40 %; at the third moment one of them has no reading.
    assert found == {
        "busy": (80.0, 80.0, 40.0, 80.0, 80.0),
        "seen": (2.0, 2.0, 1.0, 2.0, 2.0),
        "impossible": (None, None, 1.0, None, None),
    }
