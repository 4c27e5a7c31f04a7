# mypy: disable-error-code="arg-type, call-arg"
"""Subqueries as arrays; that they answer as rows do is a property test's, and the compiled engine's."""

import numpy as np
import pytest

from gpuscale.series.promql.budget import Budget, TooManyBytesError
from gpuscale.series.promql.evaluate import LOOKBACK_MS, instant, range_covered, range_query
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.promql.vectorised.samples import QuerySamples
from gpuscale.series.promql.vectorised.subqueries import inner_steps
from gpuscale.series.storage.store import SeriesStore

T = 1_700_000_040_000  # a whole minute
STEP_MS = 15_000


def columns(store, query, *times_ms):
    covered = (
        range_covered(*times_ms) if len(times_ms) == 3 else QueryRange(*times_ms, *times_ms, 0)
    )
    taken = QuerySamples(store, parse_query(query).root, covered, LOOKBACK_MS)
    for _ in taken.fill():
        pass
    return taken


def filled(scrapes, **options):
    """A series that is always there, one that begins after 10 scrapes, one that ends before the last 10."""
    store = SeriesStore(**options)
    spans = {"a": (0, scrapes), "late": (10, scrapes), "gone": (0, scrapes - 10)}
    for name, span in spans.items():
        ref = store.ref({"__name__": "x", "name": name})
        for scrape in range(*span):
            store.append_ref(ref, T + STEP_MS * scrape, float(scrape))
        if span[1] < scrapes:
            store.mark_stale(ref, T + STEP_MS * span[1])
    return store


@pytest.mark.parametrize(
    ("text", "moments", "left_open", "expected"),
    [
        ("x[1m:15s]", [60], True, [15, 30, 45, 60]),
        ("x[1m:15s]", [60], False, [0, 15, 30, 45, 60]),
        ("x[1m:20s]", [70], True, [20, 40, 60]),
        ("x[1m:]", [90], True, [60]),
        ("x[10s:1m]", [70], True, []),
        # Windows that overlap, and windows with steps between them that belong to none.
        ("x[30s:15s]", [60, 75, 90], True, [45, 60, 75, 90]),
        ("x[30s:15s]", [60, 180], True, [45, 60, 165, 180]),
        ("x[30s:15s]", [60, 60], True, [45, 60]),
        ("x[1m:15s]", [0], True, [-45, -30, -15, 0]),
    ],
)
def test_steps_are_multiples_inside_the_windows(
    text: str, moments: list[int], left_open: bool, expected: list[int]
) -> None:
    node = parse_query(f"max_over_time({text})").root.arguments[0]
    found = inner_steps(node, 1000 * np.array(moments), Budget(), left_open=left_open)
    assert found.tolist() == [1000 * each for each in expected]


def test_a_row_is_as_old_as_the_newest_sample_that_the_last_step_saw() -> None:
    """And rows come in the order of the first step that has them."""
    store, at_ms = filled(40), T + STEP_MS * 39 + 7_000
    query = "count_over_time((x + 0)[8m:1m])"
    found = instant(columns(store, query, at_ms), query, at_ms)
    assert found == instant(store, query, at_ms)
    # Steps at minutes 2 to 9; scrape 4n is minute n. `late` begins at 2:30, `gone` has its marker at 7:30.
    assert [
        (each.labels["name"], each.value, (each.measured_ms - T) / 60_000) for each in found.samples
    ] == [("a", 8.0, 9.0), ("gone", 6.0, 7.0), ("late", 7.0, 9.0)]


@pytest.mark.parametrize(
    "query",
    [
        "sum_over_time((x * 2)[5m:1m])",
        "sum_over_time(x[5m:1m] offset 30s)",
        "max_over_time(rate(x[2m])[3m:30s])",
        "max_over_time(avg_over_time((x * 2)[2m:30s])[5m:1m])",
    ],
)
def test_steps_of_a_range_that_are_no_longer_covered_have_no_value(query: str) -> None:
    store = filled(80, retention_ms=15 * 60_000)
    end_ms = T + 79 * STEP_MS
    times = end_ms - 18 * 60_000, end_ms, 30_000
    found = range_query(columns(store, query, *times), query, *times)
    assert repr(found) == repr(range_query(store, query, *times))
    (first, *_) = (each for each in found.series if each.labels["name"] == "a")
    assert times[0] < next(iter(first.points))[0] < end_ms


@pytest.mark.parametrize(
    "query",
    [
        "max_over_time(x[500d:1s])",
        "sum(max_over_time(x[30d:100ms]))",
        "absent_over_time(x[300d:1s])",
    ],
)
def test_what_steps_take_is_counted_before_it_is_there(query: str) -> None:
    store, at_ms = filled(40), T + STEP_MS * 39
    with pytest.raises(TooManyBytesError, match="expected at most"):
        instant(columns(store, query, at_ms), query, at_ms)
