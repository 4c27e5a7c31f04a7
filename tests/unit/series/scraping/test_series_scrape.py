import math

import pytest

from gpuscale.base.exposition.reading.formats import OPENMETRICS, PROMETHEUS_TEXT
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeResult, ScrapeTarget
from gpuscale.series.storage.store import SeriesStore

T = 1_700_000_000_000
TARGET = {"job": "gpu", "instance": "10.0.0.1:9400", "pod": "exporter-x", "empty": ""}


def values(store, query, at_ms):
    return {str(each.labels): each.value for each in instant(store, query, at_ms).samples}


def test_a_scrape_stores_samples_with_the_targets_labels() -> None:
    store = SeriesStore()
    result = ScrapeTarget(store, TARGET).ingest('# TYPE a gauge\na{gpu="0"} 1.5\nb 2\n', 1000, 0.25)
    assert result == ScrapeResult(samples=2, added=2, refused=0)
    own = 'instance="10.0.0.1:9400", job="gpu", pod="exporter-x"'
    assert values(store, '{__name__=~".+"}', 1000) == {
        'a{gpu="0", ' + own + "}": 1.5,
        "b{" + own + "}": 2,
        "up{" + own + "}": 1,
        "scrape_samples_scraped{" + own + "}": 2,
        "scrape_duration_seconds{" + own + "}": 0.25,
    }


def test_a_duration_that_is_not_known_is_not_written() -> None:
    store = SeriesStore()
    ScrapeTarget(store, TARGET).ingest("a 1\n", 1000)
    assert values(store, "scrape_duration_seconds", 1000) == {}


# Prometheus' rules, from the documentation of honor_labels and mutateSampleLabels.
@pytest.mark.parametrize(
    ("honor", "exposed", "stored"),
    [
        (False, 'a{pod="p"}', {"pod": "t", "exported_pod": "p"}),
        (True, 'a{pod="p"}', {"pod": "p"}),
        (False, 'a{pod=""}', {"pod": "t"}),
        (True, 'a{pod=""}', {}),
        (
            False,
            'a{pod="p",exported_pod="e"}',
            {"pod": "t", "exported_pod": "e", "exported_exported_pod": "p"},
        ),
        (True, 'a{gpu="0"}', {"pod": "t", "gpu": "0"}),
    ],
)
def test_clashing_labels_are_merged_as_prometheus_does(honor: bool, exposed: str, stored) -> None:
    store = SeriesStore()
    ScrapeTarget(store, {"pod": "t"}, honor_labels=honor).ingest(f"{exposed} 1\n", 1000)
    (sample,) = instant(store, "a", 1000).samples
    assert sample.labels == {"__name__": "a", **stored}


def test_a_series_that_vanishes_ends_at_the_next_scrape() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    target.ingest("a 1\nb 2\n", 1000)
    target.ingest("a 1\n", 2000)
    assert values(store, "b", 1999) == {"b": 2}
    assert values(store, "b", 2000) == {}
    target.ingest("a 1\nb 3\n", 3000)
    assert values(store, "b", 3000) == {"b": 3}


def test_values_of_the_same_series_are_stored_as_their_text_would_be() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "gpu"})
    target.ingest('a 1\nb_bucket{le="10"} 2\n', 1000)
    target.repeat([3.5, 4], 2000)
    shown = 'a{job="gpu"}', 'b_bucket{job="gpu", le="10"}', 'up{job="gpu"}'
    assert values(store, '{__name__=~"a|b_bucket|up"}', 1999) == dict(
        zip(shown, (1, 2, 1), strict=True)
    )
    assert values(store, '{__name__=~"a|b_bucket|up"}', 2000) == dict(
        zip(shown, (3.5, 4, 1), strict=True)
    )
    target.ingest("a 5\n", 3000)
    assert values(store, '{__name__=~"a|b_bucket"}', 3000) == {shown[0]: 5}


def test_a_failed_scrape_ends_all_series_and_says_up_0() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    target.ingest("a 1\n", 1000)
    target.failed(2000)
    assert values(store, '{__name__=~"a|up"}', 2000) == {"up": 0}
    target.ingest("a 2\n", 3000)
    assert values(store, '{__name__=~"a|up"}', 3000) == {"up": 1, "a": 2}


def test_a_target_that_is_gone_leaves_nothing_current() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    target.ingest("a 1\n", 1000)
    target.gone(2000)
    assert values(store, '{__name__=~".+"}', 2000) == {}


@pytest.mark.parametrize("repeat", [False, True], ids=["new-line", "known-line"])
@pytest.mark.parametrize("value", ["x", "1_0", "1e999", "", "\u0663", "1\r"])
def test_a_malformed_line_fails_the_whole_scrape(repeat: bool, value: str) -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {}, source="node-1")
    if repeat:
        target.ingest("a 1\nb 1\n", 1000)
    result = target.ingest(f"a 5\nb {value}\n", 2000)
    assert (result.samples, result.added) == (0, 0)
    assert str(result.problem).startswith("node-1:2: found ")
    assert values(store, '{__name__=~".+"}', 2000) == {"up": 0, "scrape_samples_scraped": 0}


def test_known_lines_may_say_nan_and_inf() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    for t_ms in (1000, 2000):
        assert target.ingest("a +Inf\nb NaN\nc -Inf\nd 0\n", t_ms).added == 4
    found = values(store, '{__name__=~"a|b|c|d"}', 2000)
    assert (found["a"], found["c"], found["d"]) == (math.inf, -math.inf, 0)
    assert math.isnan(found["b"])


def test_a_samples_own_time_is_honoured_and_brings_no_marker() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    assert target.ingest("a 1 500\n", 1000).added == 1
    target.ingest("b 1\n", 2000)
    (sample,) = instant(store, "a", 2000).samples
    assert sample.measured_ms == 500


def test_a_time_far_ahead_is_refused() -> None:
    store = SeriesStore()
    result = ScrapeTarget(store, {}).ingest("a 1 11001\nb 1 11000\n", 1000)
    # Ten seconds and no more.
    assert result == ScrapeResult(samples=2, added=1, refused=1)
    assert store.stats().refused["too_far_ahead"] == 1


@pytest.mark.parametrize("ahead_ms", [10_000, 599_000, 10 * 365 * 86_400_000])
def test_one_targets_clock_changes_nothing_for_others(ahead_ms: int) -> None:
    store = SeriesStore(retention_ms=300_000)
    good, ahead = ScrapeTarget(store, {"job": "good"}), ScrapeTarget(store, {"job": "ahead"})
    for second in range(0, 600, 5):
        now_ms = T + second * 1000
        assert good.ingest(f"c {second * 2}\n", now_ms).refused == 0
        ahead.ingest(f"x 1 {now_ms + ahead_ms}\n", now_ms)
        assert values(store, "c", now_ms) == {'c{job="good"}': second * 2}
    # 2 a second over 4 minutes.
    assert instant(store, "increase(c[4m])", now_ms).samples[0].value == pytest.approx(480)
    assert store.stats().now_ms == now_ms


def test_refused_samples_are_counted() -> None:
    store = SeriesStore(retention_ms=1000)
    ScrapeTarget(store, {}).ingest("a 1\n", 10_000)
    result = ScrapeTarget(store, {}).ingest("b 1 8999\nc 1 9000\n", 10_000)
    assert result == ScrapeResult(samples=2, added=1, refused=1)
    assert store.stats().refused["too_old"] == 1


def test_blanks_around_parts_name_the_same_series() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    for i, text in enumerate(["a 1\n", "a  2\n", "a{} 3\n", " a\t4 \n", "a 5"]):
        assert target.ingest(text, 1000 + i).added == 1
        assert values(store, "a", 1000 + i) == {"a": i + 1}


@pytest.mark.parametrize("time", ["", " 1000"])
def test_what_a_target_remembers_does_not_grow_with_churn(time: str) -> None:
    target = ScrapeTarget(SeriesStore(), {})
    for i in range(100):
        target.ingest(f'a{{pod="{i}"}} 1{time}\nb 1{time}\n', 1000 + i)
    assert len(target._reader._known) == 2


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        # Each is 32 MiB, the largest body that a target may send.
        ("#\n" * (16 << 20), "lines"),
        ("a\n" * (16 << 20), "lines"),
        (' a{b="c"} 1\n' * 300_000, "series"),
        ('a{b="\nc"} 1\n' * 150_000, "series"),
        ('# HELP a b\n{"a","b"="c"} 1\n' * 150_000, "series"),
        ("a 1 5\n" * 150_000, "samples"),
    ],
    ids=["comments", "bare names", "blanks", "line breaks", "quoted", "times"],
)
def test_a_flood_of_lines_fails_by_a_limit(text, limit: str) -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    target.ingest("a 1\n", 1000)
    assert target.ingest(text, 2000).limit == limit


def test_names_in_utf8_and_exemplars_are_scraped_again_and_again() -> None:
    text = (
        '# TYPE "gpu.util" gauge\n{"gpu.util","k8s.pod"="p"} 1\n# TYPE h histogram\n'
        'h_bucket{le="1"} 5 # {trace="a b"} 0.5 1.5\nh_bucket{le="+Inf"} 6\nold 7 0.5\n# EOF\n'
    )
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "x"})
    for t_ms in (1000, 2000, 3000):
        assert target.ingest(text, t_ms, None, OPENMETRICS).problem is None
    assert values(store, '{"gpu.util"}', 3000) == {'{"gpu.util", job="x", "k8s.pod"="p"}': 1}
    assert values(store, 'h_bucket{le="1.0"}', 3000) == {'h_bucket{job="x", le="1.0"}': 5}
    (old,) = instant(store, "old", 3000).samples
    # Times are in seconds there.
    assert (old.value, old.measured_ms) == (7, 500)


def test_the_same_text_means_something_else_in_another_format() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    assert target.ingest("a 1\n", 1000).added == 1
    assert target.ingest("a  1\n", 2000).problem is None
    for _ in range(2):
        result = target.ingest("a  1\n# EOF\n", 3000, None, OPENMETRICS)
        assert str(result.problem) == (
            "<scrape>:1: found '  1', expected a space and a number after the series"
        )


def test_native_histograms_are_refused_by_name() -> None:
    target = ScrapeTarget(SeriesStore(), {})
    for text, format_ in (
        ("h {count:1,sum:2}\n", PROMETHEUS_TEXT),
        ('h{a="b"} {count:1,sum:2}\n', PROMETHEUS_TEXT),
        ('h{a="b"} {count:1,sum:2}\n# EOF\n', OPENMETRICS),
        ("h {count:1,sum:2}\n# EOF\n", OPENMETRICS),
    ):
        result = target.ingest(text, 1000, None, format_)
        assert result.limit == "native_histograms"
        assert "native histograms are not supported" in str(result.problem)
