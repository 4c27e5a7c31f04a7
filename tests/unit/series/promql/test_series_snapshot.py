# mypy: disable-error-code="truthy-bool"
import pytest

from gpuscale.base.errors import QueryError, UncoveredError
from gpuscale.series.promql.evaluate import LOOKBACK_MS, instant, range_query
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.promql.snapshot import Need, SampleCopies, needs
from gpuscale.series.storage.store import SeriesStore

RANGE = QueryRange(1_000_000, 1_060_000, 15_000)


def needed(query, covered=RANGE):
    (need,) = needs(parse_query(query).root, covered, LOOKBACK_MS).values()
    return need


@pytest.mark.parametrize(
    ("query", "start_ms", "end_ms"),
    [
        ("c", 700_000, 1_060_000),
        ("c offset 10s", 690_000, 1_050_000),
        ("c @ start()", 700_000, 1_000_000),
        ("c @ 500", 200_000, 500_000),
        ("rate(c[1m])", 940_000, 1_060_000),
        ("rate(c[1m] @ end() offset -5s)", 1_005_000, 1_065_000),
        # 10 s before the first step, each looking 1 minute back.
        ("max_over_time(rate(c[1m])[10s:1s])", 930_000, 1_060_000),
        ("max_over_time(c[10s:1s] offset 20s)", 670_000, 1_040_000),
        # Both uses of a selector.
        ("c / delta(c[10m])", 400_000, 1_060_000),
    ],
)
def test_what_a_query_reads_follows_from_its_text_and_times(
    query: str, start_ms: int, end_ms: int
) -> None:
    need = needed(query)
    assert (need.start_ms, need.end_ms) == (start_ms, end_ms)


def test_an_instant_selector_needs_one_sample_a_step() -> None:
    assert needed("c").moments == range(1_000_000, 1_060_001, 15_000)
    assert needed("c @ 500").moments == range(500_000, 500_001)
    assert needed("rate(c[1m])").moments is None
    assert needed("max_over_time(c[10s:1s])").moments is None
    store = SeriesStore()
    for t_ms in range(0, 1_100_000, 100):
        store.append({"__name__": "c"}, t_ms, t_ms)
    copy = taken(store, "c", RANGE)
    (series,) = copy.select(parse_query("c").root.matchers)
    assert list(series.times_ms) == [1_000_000, 1_015_000, 1_030_000, 1_045_000, 1_060_000]
    assert range_query(copy, "c", *RANGE) == range_query(store, "c", *RANGE)


def taken(store, query, covered):
    snapshot = SampleCopies(store.oldest_kept_ms())
    for _ in snapshot.fill(store, parse_query(query).root, covered, LOOKBACK_MS):
        pass
    return snapshot


def test_needs_that_differ_are_joined() -> None:
    first, second = Need(0, 10, range(1)), Need(5, 20, None)
    assert first.joined(second) == Need(0, 20, None)
    assert first.joined(first) is first


def test_too_many_samples_are_refused_before_they_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 50 of the 100 samples, 16 bytes each in arrays, as a copy and in a window; 250 bytes hold a series.
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_BYTES", 100 * 16 + 200)
    store = SeriesStore()
    for t_ms in range(0, 100_000, 1_000):
        store.append({"__name__": "c"}, t_ms, 1)
    at = QueryRange(99_000, 99_000, 0)
    assert instant(taken(store, "sum_over_time(c[50s])", at), "sum_over_time(c[50s])", 99_000)
    with pytest.raises(QueryError, match="too many samples"):
        taken(store, "sum_over_time(c[1h])", at)


@pytest.mark.parametrize("query", ["increase(c[1m])", "c @ 1"])
def test_samples_that_made_room_are_missed_in_a_copy_too(query: str) -> None:
    store = SeriesStore()
    for t_ms in range(0, 100_000, 1_000):
        store.append({"__name__": "c"}, t_ms, 1)
    (series,) = store.select(parse_query("c").root.matchers)
    series.cut(80_000)
    copy = taken(store, query, QueryRange(99_000, 99_000, 0))
    for samples in (store, copy):
        with pytest.raises(UncoveredError):
            instant(samples, query, 99_000)
    assert instant(taken(store, "c", QueryRange(99_000, 99_000, 0)), "c", 99_000).samples
