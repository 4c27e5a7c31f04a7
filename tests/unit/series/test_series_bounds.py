"""A full store: what goes, what stays, and which questions have no answer any more."""

import pytest

from gpuscale.core.errors import UncoveredError
from gpuscale.series.evaluate import instant, range_query
from gpuscale.series.scrape import ScrapeTarget
from gpuscale.series.store import SeriesStore
from gpuscale.sources.embedded import EmbeddedSource

T = 1_700_000_000_000
RETENTION_MS = 900_000


def values(store, query, at_ms):
    return [each.value for each in instant(store, query, at_ms).samples]


def counting(store, seconds, pods=10):
    """Append counters that rise by 10 a second; return the time of the last samples."""
    refs = [store.ref({"__name__": "c_total", "pod": f"p{pod}"}) for pod in range(pods)]
    for second in range(seconds):
        taken = store.append_many(refs, [second * 10.0] * pods, T + second * 1000)
        assert taken == pods
    return T + (seconds - 1) * 1000


def test_a_full_store_takes_what_is_new_and_stays_within_its_bound():
    store = SeriesStore(RETENTION_MS, max_samples=5_000)
    counting(store, 1_000)
    stats = store.stats()
    # No more than one part in 32, and one step of a 256th of the retention, goes at once.
    assert 5_000 - 5_000 // 32 - 10 * 900 // 256 - 10 <= stats.samples <= 5_000
    assert stats.samples + stats.cut == 10_000
    assert not any(stats.refused.values())


def test_what_is_covered_is_answered_and_what_was_cut_is_refused_with_a_reason():
    store = SeriesStore(RETENTION_MS, max_samples=5_000)
    at_ms = counting(store, 1_000)
    covered_s = store.stats().covered_ms // 1000
    # 5 000 samples of 10 series are 500 s.
    assert 480 <= covered_s <= 500
    assert values(store, "increase(c_total[5m])", at_ms) == pytest.approx([3000] * 10)
    for query in (
        "increase(c_total[10m])",
        "increase(c_total[5m] offset 5m)",
        "max_over_time(rate(c_total[1m])[10m:1m])",
        "c_total offset 10m",
        f"c_total @ {(at_ms - 800_000) / 1000}",
    ):
        with pytest.raises(UncoveredError, match=r"samples of c_total.* since .* store is full"):
            instant(store, query, at_ms)
        with pytest.raises(UncoveredError, match="store is full"):
            EmbeddedSource(store).query_now(query, at_ms)
    with pytest.raises(UncoveredError, match="store is full"):
        range_query(store, "c_total", at_ms - 800_000, at_ms, 60_000)
    assert len(range_query(store, "c_total", at_ms - 120_000, at_ms, 60_000).series) == 10


def test_a_series_that_began_a_short_while_ago_is_answered_as_prometheus_does():
    store = SeriesStore(RETENTION_MS, max_samples=5_000)
    at_ms = counting(store, 1_000)
    for second in range(60):
        store.append({"__name__": "new_total"}, at_ms - 59_000 + second * 1000, second)
    # From 0 to 59; Prometheus does not extrapolate to before a count of 0.
    assert values(store, "increase(new_total[10m])", at_ms) == pytest.approx([59])


def test_what_grew_too_old_is_no_reason_to_refuse():
    store = SeriesStore(RETENTION_MS)
    at_ms = counting(store, 2_000)
    assert store.stats().cut == 0
    assert store.stats().covered_ms == RETENTION_MS
    assert len(values(store, "increase(c_total[30m])", at_ms)) == 10


def test_a_store_covers_its_retention_again_as_soon_as_there_is_room():
    store = SeriesStore(RETENTION_MS, max_samples=12_000)
    burst = [store.ref({"__name__": "burst", "id": str(number)}) for number in range(100)]
    refs = [store.ref({"__name__": "c_total", "pod": f"p{pod}"}) for pod in range(10)]
    least_s, refused = 900, 0
    for second in range(2_400):
        now_ms = T + second * 1000
        store.append_many(refs, [second * 10.0] * 10, now_ms)
        if 900 <= second < 1_000:
            store.append_many(burst, [1.0] * 100, now_ms)
        least_s = min(least_s, store.stats().covered_ms // 1000)
        if second % 50 == 0 and second >= 900:
            try:
                assert values(store, "increase(c_total[10m])", now_ms) == pytest.approx([6000] * 10)
            except UncoveredError:
                refused += 1
    # 9 000 steady samples and 10 000 of the burst are 7 000 too many. Those of the counters are the oldest.
    assert 0 < least_s < 600
    assert 0 < refused < 20
    assert store.stats().covered_ms == RETENTION_MS
    assert values(store, "increase(c_total[10m])", now_ms) == pytest.approx([6000] * 10)


def test_the_newest_sample_of_a_series_is_never_cut():
    store = SeriesStore(RETENTION_MS, max_samples=2_000)
    store.append({"__name__": "steady"}, T + 780_000, 7.0)
    at_ms = counting(store, 1_000)
    assert store.stats().covered_ms < 210_000
    assert values(store, "steady", at_ms) == [7.0]


def test_ends_are_taken_by_a_full_store():
    store = SeriesStore(RETENTION_MS, max_samples=1_000)
    target = ScrapeTarget(store, {})
    pods = "".join(f'u{{pod="a{number}"}} 1\n' for number in range(500))
    for scrape in range(40):
        target.ingest(pods, T + scrape * 5000)
    at_ms = T + 200_000
    target.ingest("", at_ms)
    assert values(store, "u", at_ms) == []
    assert values(store, "u", at_ms + 60_000) == []


@pytest.mark.parametrize("max_samples", [500, 501, 502, 504, 600, 999, 1_000])
def test_ends_are_taken_at_any_bound(max_samples):
    store = SeriesStore(RETENTION_MS, max_samples=max_samples)
    refs = [store.ref({"__name__": "u", "pod": str(number)}) for number in range(500)]
    for second in range(5):
        store.append_many(refs, [1.0] * 500, T + second * 1000)
    for ref in refs:
        assert store.mark_stale(ref, T + 5_000)
    assert values(store, "u", T + 5_000) == []
