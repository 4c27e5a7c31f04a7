"""What one target may bring, and that nobody else pays for it. Names and order are Prometheus' limits."""

import gc
import weakref

import pytest

from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.limits import ScrapeLimits
from gpuscale.series.storage.store import SeriesStore

T = 1_700_000_000_000
FIRST = 'util{gpu="0"} 1\n'


def values(store, query, at_ms):
    return {each.labels["job"]: each.value for each in instant(store, query, at_ms).samples}


def names(count, prefix="f"):
    return "".join(f'{prefix}{{id="{number}"}} 1\n' for number in range(count))


@pytest.mark.parametrize(
    ("limits", "text", "limit", "said"),
    [
        (ScrapeLimits(samples=2), names(3), "samples", "found 3, expected at most 2 samples"),
        (ScrapeLimits(samples=1), "a 1 1700000000000\nb 2\n", "samples", "found 2, expected at most 1"),
        (ScrapeLimits(series=2), names(3), "series", "<scrape>:3: found over 2 new series"),
        # The name, job and three of its own are five.
        (ScrapeLimits(labels=4), 'a{b="1",c="2",d="3"} 1\n', "labels", "found 5, expected at most 4"),
        (ScrapeLimits(labels=4), 'a{ b="1",c="2",d="3"} 1\n', "labels", "found 5, expected at most 4"),
        (ScrapeLimits(label_name_chars=8), 'a{ninechars="1"} 1\n', "label_name_length", "found 9, "),
        (ScrapeLimits(label_value_chars=8), 'a{b="ninechars"} 1\n', "label_value_length", "found 9, "),
        (ScrapeLimits(label_value_chars=8), "ninechars 1\n", "label_value_length", "found 9, "),
        (ScrapeLimits(body_bytes=15), FIRST, "body_size", "found 16, expected at most 15 bytes"),
    ],
)  # fmt: skip
def test_a_scrape_beyond_a_limit_fails_alone_and_as_a_whole(
    limits, text, limit: str, said: str
) -> None:
    store = SeriesStore()
    good = ScrapeTarget(store, {"job": "good"})
    bad = ScrapeTarget(store, {"job": "bad"}, limits=ScrapeLimits())
    for target in (good, bad):
        target.ingest(FIRST, T)
    bad = ScrapeTarget(store, {"job": "bad"}, limits=limits)
    good.ingest(FIRST, T + 5000)
    result = bad.ingest(text, T + 5000)
    assert (result.samples, result.added, result.limit) == (0, 0, limit)
    assert said in str(result.problem)
    assert values(store, "up", T + 5000) == {"good": 1, "bad": 0}
    assert values(store, '{__name__=~"a|b|f|ninechars"}', T + 5000) == {}


@pytest.mark.parametrize(
    "limits",
    [
        ScrapeLimits(2, 2, 3, 8, 8, 16),
        ScrapeLimits(0, 0, 0, 0, 0, 0),
        ScrapeLimits(0, 2, 0, 8, 0, 0),
    ],
)
def test_what_is_just_within_a_limit_is_taken(limits) -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "good"}, limits=limits)
    for scrape in range(3):
        result = target.ingest(FIRST, T + scrape * 5000)
        assert (result.added, result.problem) == (1, None)


def test_series_that_a_failed_scrape_had_before_end() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "bad"}, limits=ScrapeLimits(samples=2))
    target.ingest(FIRST, T)
    assert target.ingest(names(3), T + 5000).limit == "samples"
    assert values(store, "util", T + 5000) == {}
    assert target.ingest(FIRST, T + 10_000).problem is None
    assert values(store, "util", T + 10_000) == {"bad": 1}


@pytest.mark.parametrize("flooding", [1, 2, 5, 20])
def test_whoever_comes_finds_room_beside_targets_that_want_all(flooding: int) -> None:
    store = SeriesStore(retention_ms=900_000, max_series=2_000)
    floods = [ScrapeTarget(store, {"job": f"flood-{number}"}) for number in range(flooding)]
    for scrape in range(40):
        for number, target in enumerate(floods):
            target.ingest(names(50, f"f{number}_{scrape}"), T + scrape * 5000)
    good = ScrapeTarget(store, {"job": "good"})
    for scrape in range(40, 50):
        for number, target in enumerate(floods):
            target.ingest(names(50, f"f{number}_{scrape}"), T + scrape * 5000)
        assert good.ingest(f'util{{pod="p{scrape}"}} 1\n', T + scrape * 5000).added == 1
        assert values(store, "util", T + scrape * 5000) == {"good": 1}
        assert values(store, 'up{job="good"}', T + scrape * 5000) == {"good": 1}


def test_one_target_alone_gets_half_of_the_store_and_again_once_its_past_is_over() -> None:
    store = SeriesStore(retention_ms=60_000, max_series=1_000)
    target = ScrapeTarget(store, {"job": "a"})
    assert target.ingest(names(501), T).limit == "series"
    # Half of 1 000; up and scrape_samples_scraped are the server's own.
    assert target.ingest(names(499), T + 5000).added == 499
    assert target.ingest(names(499, "g"), T + 10_000).limit == "series"
    assert target.ingest(names(499, "g"), T + 90_000).added == 499


def test_targets_may_have_equal_parts_where_little_is_free() -> None:
    store = SeriesStore(max_series=1_020)
    for number in range(9):
        # With up and scrape_samples_scraped, 102 each.
        target = ScrapeTarget(store, {"job": f"t{number}"})
        assert target.ingest(names(100), T).added == 100
    # Of 102 that are free, half would be 51; an equal part of ten targets and one more is 92.
    last = ScrapeTarget(store, {"job": "last"})
    assert last.ingest(names(93), T).limit == "series"
    assert last.ingest(names(92), T + 5000).added == 92


def test_a_target_that_is_streamed_has_its_share_too() -> None:
    store = SeriesStore(max_series=100)
    target = TargetSeries(store, {"job": "agent"}, honor_labels=True)
    refs = [target.ref({METRIC_NAME: "m", "id": str(number)}) for number in range(100)]
    assert store.append_many(refs, [1.0] * 100, T) == 50
    assert store.stats().refused["too_many_of_target"] == 50


def test_handles_that_were_refused_are_not_kept_without_bound() -> None:
    store = SeriesStore(max_series=0)
    kept = []
    for number in range(100_000):
        ref = store.ref({METRIC_NAME: "m", "id": str(number)})
        assert not store.append_ref(ref, T, 1)
        kept.append(weakref.ref(ref))
    del ref
    gc.collect()
    assert sum(each() is not None for each in kept) <= 20_000
