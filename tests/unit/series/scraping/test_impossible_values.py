"""Values that a series can't have, at each way into a store: absent, counted, and there to be asked for."""

import json

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.series.otlp.message import JSON, read_request
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.limits import ScrapeLimits
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.wanted import WantedSeries
from gpuscale.server.sources.otlp.receiver import OtlpReceiver
from gpuscale.server.sources.otlp.settings import OtlpSettings
from gpuscale.signals import range_of
from impossible import CORRUPTIONS, POSSIBLE, SERIES

T = 1_700_000_000_000
Values = dict[tuple[str, str], float]
"""By the names of series and pod."""


class Scraped:
    """A page, with or without times of its own."""

    time = ""

    def __init__(self, store: SeriesStore) -> None:
        self._target = ScrapeTarget(store, {"job": "j"}, honor_labels=True)

    async def bring(self, values: Values, t_ms: int) -> None:
        time = self.time and f" {t_ms}"
        lines = [f'{name}{{pod="{pod}"}} {value}{time}' for (name, pod), value in values.items()]
        result = self._target.ingest("\n".join(lines) + "\n", t_ms)
        assert (result.problem, result.samples) == (None, len(values))


class ScrapedWithTimes(Scraped):
    time = "own"


class Streamed:
    """An agent that sends what has changed; relayed or not, lines are the same."""

    is_relayed = False

    def __init__(self, store: SeriesStore) -> None:
        series = TargetSeries(store, {"job": "j"}, honor_labels=True)
        self._agent = StreamedTarget(store, series)
        self._agent.connected(is_relayed=self.is_relayed)
        self._sent: Values = {}

    async def bring(self, values: Values, t_ms: int) -> None:
        ids = {key: str(number) for number, key in enumerate(values)}
        if not self._sent:
            series = [
                [int(ids[name, pod]), name, {"pod": pod}, value]
                for (name, pod), value in values.items()
            ]
            line = {"kind": "snapshot", "version": 1, "ms": t_ms, "series": series}
        else:
            changed = {ids[key]: value for key, value in values.items() if value != self._sent[key]}
            line = {"kind": "change", "ms": t_ms, "values": changed}
        self._sent = values
        self._agent.feed(json.dumps(line).encode(), t_ms)


class Relayed(Streamed):
    is_relayed = True


class Pushed:
    """OTLP."""

    def __init__(self, store: SeriesStore) -> None:
        self._clock = ManualClock(T)
        self._receiver = OtlpReceiver(
            OtlpSettings(), store, WantedSeries(), ScrapeLimits(), self._clock
        )

    async def bring(self, values: Values, t_ms: int) -> None:
        self._clock.advance((t_ms - self._clock.now_ms()) / 1000)
        metrics = [
            {
                "name": name,
                "gauge": {
                    "dataPoints": [
                        {
                            "timeUnixNano": str(t_ms * 1_000_000),
                            "asDouble": value,
                            "attributes": [{"key": "pod", "value": {"stringValue": pod}}],
                        }
                    ]
                },
            }
            for (name, pod), value in values.items()
        ]
        body = {"resourceMetrics": [{"resource": {}, "scopeMetrics": [{"metrics": metrics}]}]}
        await self._receiver.take("c", read_request(json.dumps(body).encode(), JSON))


def seen(store: SeriesStore, name: str, at_ms: int) -> dict[str, float]:
    rows = instant(store, f'{{__name__="{name}",pod!=""}}', at_ms).samples
    return {row.labels["pod"]: row.value for row in rows}


@pytest.mark.parametrize("way", [Scraped, ScrapedWithTimes, Streamed, Relayed, Pushed])
@pytest.mark.parametrize("corruption", CORRUPTIONS)
async def test_none_of_forty_series_has_an_impossible_value(way, corruption: str) -> None:
    store = SeriesStore(range_of=range_of)
    entry = way(store)
    right = {(name, pod): POSSIBLE for name in SERIES for pod in ("good", "bad")}
    wrong = right | {(name, "bad"): CORRUPTIONS[corruption] for name in SERIES}
    refused = store.stats().refused["impossible_value"]
    for second, values in enumerate((right, wrong, wrong, right)):
        at_ms = T + second * 1_500
        await entry.bring(values, at_ms)
        pods = {"good", "bad"} if values is right else {"good"}
        for name in SERIES:
            assert seen(store, name, at_ms + 1) == dict.fromkeys(pods, POSSIBLE), (name, second)
        if values is wrong:
            now = store.stats().refused["impossible_value"]
            assert now >= refused + len(SERIES)
            refused = now
            kept = instant(store, "gpuscale_impossible_value", at_ms + 1).samples
            assert {row.labels["series"]: row.value for row in kept} == dict.fromkeys(
                SERIES, CORRUPTIONS[corruption]
            )


async def test_what_begins_with_an_impossible_value_is_not_there() -> None:
    store = SeriesStore(range_of=range_of)
    await Scraped(store).bring({("DCGM_FI_DEV_GPU_UTIL", "bad"): 4294967295.0}, T)
    assert seen(store, "DCGM_FI_DEV_GPU_UTIL", T) == {}
    assert store.stats().refused["impossible_value"] == 1


async def test_a_stream_that_says_nothing_new_still_names_what_it_has() -> None:
    store = SeriesStore(range_of=range_of)
    entry = Streamed(store)
    values = {("DCGM_FI_DEV_GPU_UTIL", "bad"): -1.0, ("DCGM_FI_DEV_GPU_UTIL", "good"): 7.0}
    for minute in range(10):
        await entry.bring(values, T + minute * 60_000)
    at_ms = T + 9 * 60_000
    (row,) = instant(store, 'gpuscale_impossible_value{pod="bad"}', at_ms).samples
    assert (row.value, row.measured_ms) == (-1.0, at_ms)


async def test_series_that_nothing_is_known_of_keep_any_value() -> None:
    store = SeriesStore(range_of=range_of)
    for corruption in CORRUPTIONS.values():
        await Scraped(store).bring({("my_gauge", "p"): corruption}, T)
    assert store.stats().refused["impossible_value"] == 0
