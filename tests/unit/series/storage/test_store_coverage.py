"""A range that the store no longer holds whole has no value: neither part of the truth nor a wrong number."""

import pytest

from gpuscale.base.errors import UncoveredError
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing import vectorised

MINUTE = 60_000
KEPT = 60 * MINUTE
START = 1_700_000_040_000  # a whole minute


def filled(minutes, *, alone=False):
    """Return a store whose counter rises by 60 a minute, sampled every 10 seconds."""
    store = SeriesStore(KEPT)
    group = None if alone else store.group()
    refs = [store.ref({"__name__": "c"})]
    for t_ms in range(0, minutes * MINUTE + 1, 10_000):
        store.append_many(refs, [t_ms / 1000], START + t_ms, group=group)
    return store


def at(minutes):
    return START + minutes * MINUTE


@pytest.fixture(params=[False, True], ids=["in a group", "alone"])
def long_run(request: pytest.FixtureRequest):
    return filled(180, alone=request.param)


@pytest.mark.parametrize(
    "query",
    [
        "increase(c[2h])",
        "increase(c[1h] offset 30m)",
        "max_over_time(c[2h:1m])",
        "max_over_time(increase(c[5m])[1h:1m])",
        "increase(c[30m] @ 1700007840)",
    ],
)
def test_a_range_longer_than_what_is_kept_has_no_value_and_says_why(long_run, query: str) -> None:
    with pytest.raises(UncoveredError, match="too old"):
        instant(long_run, query, at(180))


@pytest.mark.parametrize("query", ["increase(c[30m])", "max_over_time(c[30m:1m])"])
def test_a_range_within_it_has_one(long_run, query: str) -> None:
    assert instant(long_run, query, at(180)).samples


def test_a_store_that_has_just_begun_answers_from_what_is_there() -> None:
    store = filled(20)
    # Prometheus extrapolates by half an interval at most: 1200 s of samples, 5 s before them.
    (row,) = instant(store, "increase(c[2h])", at(20)).samples
    assert row.value == pytest.approx(1200, abs=5)


def test_a_series_that_has_just_begun_in_an_old_store_does_too(long_run) -> None:
    store = long_run
    ref = store.ref({"__name__": "young"})
    for t_ms in range(at(180) + 1, at(181), 10_000):
        store.append_ref(ref, t_ms, 5)
    (row,) = instant(store, "max_over_time(young[2h])", at(181)).samples
    assert row.value == 5


@pytest.mark.parametrize("query", ["c", "increase(c[5m])", "increase(c[5m] offset 2h)"])
def test_long_before_what_is_kept_there_is_nothing_as_in_prometheus(long_run, query: str) -> None:
    assert instant(long_run, query, at(60)).samples == ()


def test_nor_in_a_store_that_was_cut() -> None:
    store = SeriesStore(KEPT, max_samples=500)
    for t_ms in range(0, 60 * MINUTE, 1_000):
        store.append({"__name__": "c"}, START + t_ms, 1)
    assert store.stats().cut
    for query in ("c", "increase(c[5m])"):
        assert instant(store, query, START - 2 * KEPT).samples == ()
        with pytest.raises(UncoveredError):
            instant(store, query, at(20))


@pytest.mark.parametrize("query", ["increase(c[30m])", "sum(increase(c[30m]))"])
def test_a_range_query_begins_where_it_is_covered(long_run, query: str) -> None:
    def answered(evaluate, *times_ms):
        (series,) = evaluate(long_run, query, *times_ms).series
        return series.points

    step_ms = 5 * MINUTE
    found = answered(range_query, at(0), at(180), step_ms)
    # From 120 min on samples are kept, so 30 min are there for sure from 150 min on. What is a little too
    # old goes in steps of a 16th of an hour.
    assert at(145) <= found[0][0] <= at(150)
    assert found[-1][0] == at(180)
    assert all(value == pytest.approx(1800, abs=5) for _, value in found)
    before = vectorised.ways["rows"]
    assert answered(vectorised.range_query, at(0), at(180), step_ms) == found
    assert vectorised.ways["rows"] == before


def test_a_range_query_of_a_young_store_shows_all_of_it() -> None:
    store = filled(20)
    (series,) = range_query(store, "increase(c[30m])", at(-60), at(20), 5 * MINUTE).series
    assert [t_ms for t_ms, _ in series.points] == [at(5), at(10), at(15), at(20)]
