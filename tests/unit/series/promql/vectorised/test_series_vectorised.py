# mypy: disable-error-code="call-arg, truthy-bool"
import subprocess
import sys

import numpy as np
import pytest

from gpuscale.base.errors import QueryError, UncoveredError
from gpuscale.series.promql import budget
from gpuscale.series.promql.budget import QueryTimeoutError
from gpuscale.series.promql.evaluate import LOOKBACK_MS, instant, range_covered, range_query
from gpuscale.series.promql.functions.ranges import RANGE_FUNCTIONS
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.promql.vectorised import axis, queries, samples
from gpuscale.series.promql.vectorised.samples import QuerySamples
from gpuscale.series.promql.vectorised.sums import Sums, exact_cuts
from gpuscale.series.promql.vectorised.support import RowWiseError, is_vectorised
from gpuscale.series.storage.store import SeriesStore

T = 1_700_000_000_000


def columns(store, query, *times_ms):
    covered = (
        range_covered(*times_ms) if len(times_ms) == 3 else QueryRange(*times_ms, *times_ms, 0)
    )
    taken = QuerySamples(store, parse_query(query).root, covered, LOOKBACK_MS)
    for _ in taken.fill():
        pass
    return taken


def counters(count, scrapes=61):
    store = SeriesStore(retention_ms=10**12)
    refs = [store.ref({"__name__": "c", "pod": f"p{i % 7}", "gpu": str(i)}) for i in range(count)]
    for scrape in range(scrapes):
        store.append_many(
            refs, [float(scrape * (i % 5)) for i in range(count)], T + 15_000 * scrape
        )
    return store, T + 15_000 * (scrapes - 1)


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(c[5m]))",
        "avg by (pod) (c)",
        "max without (gpu) (2 * -increase(c[2m]))",
        "count(c > 30)",
        "sum by (pod) (c) / sum(rate(c[1m]))",
        "sum by (pod) (max_over_time((c * 2)[2m:30s]))",
        "max_over_time(sum by (pod) (rate(c[1m]))[2m:30s])",
        "avg(quantile_over_time(0.5, c[1m]))",
    ],
)
def test_series_taken_some_at_a_time_give_the_same(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, end_ms = counters(50)
    times = end_ms - 300_000, end_ms, 15_000
    expected = range_query(store, query, *times)
    monkeypatch.setattr(samples, "SLICE_CELLS", 100)
    taken = columns(store, query, *times)
    assert all(each.is_gradual for each in taken.selections.values()) == ("/" not in query)
    assert range_query(taken, query, *times) == expected
    assert instant(columns(store, query, end_ms), query, end_ms) == instant(store, query, end_ms)


PARAMETERS = {
    "quantile_over_time": "0.9, {}",
    "predict_linear": "{}, 60",
    "holt_winters": "{}, 0.3, 0.2",
    "double_exponential_smoothing": "{}, 0.3, 0.2",
}
NEED_TWO = {
    *("rate", "increase", "delta", "irate", "idelta", "deriv"),
    *(PARAMETERS.keys() - {"quantile_over_time"}),
}
SAMPLED: dict[str, tuple[list[float], list[float]]] = {
    # Seconds after T of the samples of two targets, which share none; one minute from 60 on is looked at.
    "one sample each": ([67.001], [71]),
    "one sample of one": ([67.001], [500, 515]),
    "two here, one there": ([67, 82.5], [71]),
    "sparse": ([61, 89.999, 119], [0, 100, 120]),
    "dense and not aligned": (
        [60.5 + 5 * i for i in range(12)],
        [60.007 + 7 * i for i in range(9)],
    ),
}


@pytest.mark.parametrize("function", sorted(RANGE_FUNCTIONS))
@pytest.mark.parametrize("sampled", SAMPLED)
def test_one_window_for_all_steps_is_answered_at_each(function: str, sampled: str) -> None:
    store = SeriesStore(retention_ms=10**12)
    expected = 0
    for target, seconds in enumerate(SAMPLED[sampled]):
        for each in seconds:
            labels = {"__name__": "x", "target": str(target)}
            store.append_ref(store.ref(labels), T + round(1000 * each), 2.0 + each % 9)
        inside = sum(60 < each <= 120 for each in seconds)
        expected += inside >= (2 if function in NEED_TWO else 1)
    end = (T + 120_000) // 1000
    steps = T + 120_000, T + 420_000, 60_000
    for moment in (f"@ {end}", f"@ {end + 30} offset 30s", "@ start()", "@ end() offset 5m"):
        query = f"{function}({PARAMETERS.get(function, '{}').format(f'x[1m] {moment}')})"
        by_rows = range_query(store, query, *steps)
        assert [len(each.points) for each in by_rows.series] == [6] * expected, query
        assert repr(range_query(columns(store, query, *steps), query, *steps)) == repr(by_rows)


def test_a_variance_does_not_depend_on_the_order_of_the_series() -> None:
    # Numbers far from zero beside their spread, with a gap in one: ranks differ from step to step.
    store = SeriesStore(retention_ms=10**12)
    for pod, value in enumerate([1e9 + 0.1, 1e9 + 7.3, 1e9 - 3.7, 1e9 + 0.9, 1e9 + 5.5]):
        for step in range(pod % 3, 6):
            ref = store.ref({"__name__": "x", "pod": str(pod)})
            store.append_ref(ref, T + step * 400_000, value + step * (pod % 2))
    times = T, T + 2_000_000, 400_000
    for operator in ("stdvar", "stddev"):
        queries = [f"{operator}({inner})" for inner in ("x", "topk(9, x)", "bottomk(9, x)", "-x")]
        answers = [
            [
                repr(range_query(store, query, *times)),
                repr(range_query(columns(store, query, *times), query, *times)),
            ]
            for query in queries
        ]
        assert len({answer for pair in answers for answer in pair}) == 1, answers


def test_what_is_read_in_two_places_is_copied_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SLICE_CELLS", 100)
    store, end_ms = counters(50)
    (selection,) = columns(
        store, "sum(c) + max(c)", end_ms - 300_000, end_ms, 15_000
    ).selections.values()
    assert not selection.is_gradual


def test_a_sum_over_many_series_holds_few_samples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # 20 of the 61 samples of each of 1 000 series are in one window, and all in that of the whole query.
    store, end_ms = counters(1_000)
    times = end_ms - 600_000, end_ms, 15_000
    monkeypatch.setattr(samples, "SLICE_CELLS", 5_000)
    # A slice of 5 000 samples and what it makes; all 61 000 samples are 488 000 bytes.
    monkeypatch.setattr(budget, "MAX_BYTES", 200_000)
    assert range_query(columns(store, "sum(rate(c[5m]))", *times), "sum(rate(c[5m]))", *times)
    with pytest.raises(QueryError, match="too many samples"):
        columns(store, "rate(c[5m])", *times)


def test_what_is_remembered_of_label_sets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store, end_ms = counters(100)
    monkeypatch.setattr(axis, "MEMORY_BYTES", 300_000)
    memory = samples._memory(store)
    most = 0
    for number in range(100):
        text = "x" * 100 * (number % 7)
        query = f'count by (l) (label_replace(c{{gpu!="{number}"}}, "l", "${{1}}{text}", "gpu", "(.*)"))'
        for _ in range(2):
            assert len(instant(columns(store, query, end_ms), query, end_ms).samples) >= 99
        texts = {
            id(labels.key[-1]): len(labels.value("l"))
            for key, made in memory.made._entries.items()
            for each in [made[0]]
            if isinstance(each, axis.Axis)
            for labels in each
        }
        most = max(most, sum(texts.values()))
        assert memory.made.bytes <= 300_000
    assert 0 < most <= 300_000
    # A series that comes makes all of it outdated.
    store.append({"__name__": "c", "gpu": "new"}, end_ms, 1.0)
    assert samples._memory(store) is not memory
    assert not len(memory.made)


def test_results_count_as_held(monkeypatch: pytest.MonkeyPatch) -> None:
    store, end_ms = counters(100, scrapes=2)
    times = end_ms - 15_000, end_ms + 150_000, 1_000
    taken = columns(store, "c", *times)
    # 100 series of 166 results, 8 bytes each, twice.
    monkeypatch.setattr(budget, "MAX_BYTES", 200_000)
    with pytest.raises(QueryError, match="too many samples"):
        range_query(taken, "c", *times)


@pytest.mark.parametrize(
    "query", ["sum(rate(c[5m]))", "rate(c[5m])", "stddev(c)", "ln(c)", "holt_winters(c[5m],.5,.5)"]
)
def test_a_deadline_ends_the_evaluation(query: str) -> None:
    store, end_ms = counters(300)
    times = end_ms - 300_000, end_ms, 15_000
    asked = []

    def check() -> None:
        asked.append(None)
        if len(asked) == 3:
            raise QueryTimeoutError("query timed out in expression evaluation")

    with pytest.raises(QueryTimeoutError):
        range_query(columns(store, query, *times), query, *times, check=check)
    assert len(asked) == 3


def test_what_has_been_dropped_is_left_to_the_rows() -> None:
    store, end_ms = counters(3)
    (series, *_) = store.select(parse_query("c").root.matchers)
    series.cut(end_ms - 100_000)
    for query in ("rate(c[5m])", "c offset 4m", "max_over_time(c[1m:15s] offset 4m)"):
        with pytest.raises(RowWiseError):
            instant(columns(store, query, end_ms), query, end_ms)
        with pytest.raises(UncoveredError):
            instant(store, query, end_ms)
    assert len(instant(columns(store, "c", end_ms), "c", end_ms).samples) == 3


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("c", True),
        ("topk(3, sum by (pod) (rate(c[5m])))", True),
        ("histogram_quantile(0.9, c)", True),
        ("1 + scalar(c)", True),
        ("1 + 1", False),
        ("vector(1)", False),
        ("c[5m]", False),
        ("max_over_time(c[5m:1m])", True),
        ("c[5m:1m]", False),
        ('"a"', False),
    ],
)
def test_queries_that_numpy_is_of_use_for(query: str, expected: bool) -> None:
    assert is_vectorised(parse_query(query).root) == expected


def test_sums_are_rounded_once() -> None:
    numbers = np.array([1e16, 1.0, -1e16, 1e-20, 3.0, 0.1, 0.2, -0.3, 1e200, -1e200])
    total = Sums((1,))
    for cut in exact_cuts(numbers, len(numbers)):
        total.add(np.array([cut.sum()]))
    # 4 + 1e-20 + the error of 0.1 + 0.2 - 0.3 in binary, 2.7755575615628914e-17: all below half an ulp of 4.
    assert total.rounded()[0] == 4.0


def test_sums_that_may_overflow_are_left_to_the_rows() -> None:
    with pytest.raises(RowWiseError):
        list(exact_cuts(np.array([1e308, 1e308]), 2))


def test_no_part_that_others_need_imports_numpy() -> None:
    program = """
import sys
sys.modules["numpy"] = None
import asyncio
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.promapi.query_pool import QueryPool
import gpuscale.series.promapi.app, gpuscale.server.sources.embedded, gpuscale.lab.sim

store = SeriesStore()
for i in range(5000):
    store.append({"__name__": "c", "i": str(i)}, 1000, 1.0)

async def asked():
    query = parse_query("sum(c)")
    work = lambda samples, check: instant(samples, query, 1000, check=check)
    return await QueryPool().evaluate(store, query, QueryRange(1000, 1000, 0), work)

print(asyncio.run(asked()).samples[0].value)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "5000.0\n"


@pytest.mark.parametrize(
    "query",
    [
        'count_values("v", c)',
        'count_values by (pod) ("v", c) + 1',
        'sum by (v) (count_values without (gpu) ("v", c))',
        'histogram_quantiles(label_replace(c, "le", "$1", "gpu", "(.*)"), "q", scalar(max(c)))',
    ],
)
def test_columns_that_depend_on_values_are_found_by_their_labels(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are evaluated some at a time; these have other label sets in each part."""
    store, end_ms = counters(50)
    times = end_ms - 300_000, end_ms, 15_000
    monkeypatch.setattr(queries, "_CHUNK_CELLS", 100)
    assert repr(range_query(columns(store, query, *times), query, *times)) == repr(
        range_query(store, query, *times)
    )


@pytest.mark.parametrize(
    "query",
    [
        "x / on (gpu) y",
        "x / ignoring (pod) y",
        "x / y",
        "x >= on (gpu) y",
        "x * on (gpu) group_left (pod) y",
        "x == bool on (gpu) group_left () y",
        "sum by (gpu) (x) - on (gpu) group_left (pod) y",
        "sum by (gpu) (x) + on (gpu) y",
        "y <= on (gpu) group_right (pod) sum by (gpu) (x)",
        "(x > 5) or x",
        "abs(x > 5 or x) + 1",
    ],
)
def test_series_that_follow_each_other_are_matched_step_by_step(query: str) -> None:
    """A GPU that one pod has after the other has two series, of which one is there at a time."""
    store = SeriesStore(retention_ms=10**12)
    for name in "xy":
        for pod, scrapes in (("p", range(20)), ("q", range(20, 40))):
            ref = store.ref({"__name__": name, "gpu": "0", "pod": pod})
            other = store.ref({"__name__": name, "gpu": "1", "pod": "r"})
            for scrape in scrapes:
                store.append_ref(ref, T + 15_000 * scrape, float(scrape % 7))
                store.append_ref(other, T + 15_000 * scrape, 3.0)
            store.mark_stale(ref, T + 15_000 * (scrapes.stop))
    times = T + 150_000, T + 450_000, 15_000
    found = range_query(columns(store, query, *times), query, *times)
    assert repr(found) == repr(range_query(store, query, *times))
    assert len(found.series) > 1


@pytest.mark.parametrize("function", ["min_over_time", "max_over_time"])
@pytest.mark.parametrize("zeros", [(0.0, -0.0, -0.0), (-0.0, 0.0, 0.0, -0.0), (np.nan, -0.0, 0.0)])
def test_of_equal_samples_the_first_is_the_extreme(function: str, zeros: list[float]) -> None:
    """As in promql/functions.go (compareOverTime), which takes another one only if it is beyond."""
    store = SeriesStore(retention_ms=10**12)
    for place, zero in enumerate(zeros):
        store.append({"__name__": "c"}, T + 1_000 * place, zero)
    query, at_ms = f"{function}(c[1m])", T + 10_000
    (found,) = instant(columns(store, query, at_ms), query, at_ms).samples
    (first, *_) = (zero for zero in zeros if zero == zero)
    assert str(found.value) == str(first)
