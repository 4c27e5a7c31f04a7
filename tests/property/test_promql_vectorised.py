"""What numpy evaluates is what is evaluated row by row: for random samples, the same answers and errors."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.errors import QueryError
from gpuscale.series.promql import evaluate
from gpuscale.series.promql.vectorised import evaluation
from gpuscale.series.promql.vectorised import queries as vectorised_queries
from gpuscale.series.promql.vectorised import subqueries as subqueries_of_vectors
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, Scalar
from gpuscale.testing import vectorised

STEP_MS = 15_000
ROWS = 24
END_MS = 1_700_000_000_000
START_MS = END_MS - ROWS * STEP_MS

ABSENT, STALE = "absent", "stale"
CELLS = st.one_of(
    st.integers(-3, 60).map(float),
    st.integers(0, 60).map(float),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(float),
    st.sampled_from([0.1, 1e15, 1e-15, 0.0, 5.0]),
    st.sampled_from([ABSENT, ABSENT, STALE, math.nan, math.inf, -math.inf]),
)
PLAIN = st.integers(0, 40).map(float)
COUNTING = st.integers(0, 9).map(float)


@st.composite
def columns(draw):
    """Draw the cells of one series: anything, counters that restart, or numbers without gaps."""
    kind = draw(st.sampled_from(["odd", "plain", "counter"]))
    if kind == "counter":
        total, found = 0.0, []
        restarts = draw(st.sets(st.integers(1, ROWS - 1), max_size=4))
        for row, step in enumerate(draw(st.lists(COUNTING, min_size=ROWS, max_size=ROWS))):
            total = step if row in restarts else total + step + 0.1
            found.append(total)
        return found
    cells = CELLS if kind == "odd" else PLAIN
    return draw(st.lists(cells, min_size=ROWS, max_size=ROWS))


@st.composite
def stores(draw):
    """Draw a store of targets with times of their own, some of it dropped to make room."""
    store = SeriesStore(retention_ms=draw(st.sampled_from([10**12, (ROWS // 2) * STEP_MS])))
    targets = draw(st.integers(1, 3))
    for target in range(targets):
        shift_ms = draw(st.sampled_from([0, 0, 1, 7_000]))
        names = draw(
            st.lists(
                st.tuples(st.sampled_from("mn"), st.sampled_from("ab"), st.integers(0, 2)),
                min_size=1,
                max_size=5,
                unique=True,
            )
        )
        refs = [
            store.ref({"__name__": name, "job": str(target), "pod": pod, "gpu": str(gpu)})
            for name, pod, gpu in names
        ]
        cells = [draw(columns()) for _ in refs]
        for row in range(ROWS):
            t_ms = START_MS + row * STEP_MS + shift_ms
            there = [(ref, each[row]) for ref, each in zip(refs, cells, strict=True)]
            taken = [pair for pair in there if not isinstance(pair[1], str)]
            store.append_many(
                [ref for ref, _ in taken], [value for _, value in taken], t_ms, END_MS
            )
            for ref, value in there:
                if value == STALE:
                    store.mark_stale(ref, t_ms)
    return store


SELECTORS = st.sampled_from(
    [
        "m",
        "n",
        '{__name__=~"m|n"}',
        'm{pod="a"}',
        "m offset 20s",
        "m @ end()",
        "m @ start()",
        "m offset -15s",
        "nosuch",
    ]
)
RANGE_FUNCTIONS = st.sampled_from(
    [
        *["rate", "increase", "delta", "irate", "idelta", "resets", "changes", "deriv"],
        *["sum_over_time", "avg_over_time", "min_over_time", "max_over_time", "count_over_time"],
        *["last_over_time", "first_over_time", "present_over_time", "absent_over_time"],
        *["stddev_over_time", "stdvar_over_time", "mad_over_time", "ts_of_max_over_time"],
        *["ts_of_last_over_time", "ts_of_first_over_time", "ts_of_min_over_time"],
    ]
)
RANGED = st.builds(
    "{}({}[{}]{})".format,
    RANGE_FUNCTIONS,
    st.sampled_from(["m", "n", '{__name__="m",pod="b"}']),
    st.sampled_from(["15s", "40s", "1m", "3m"]),
    st.sampled_from(["", "", " offset 10s", " @ end()", " @ 1699999900"]),
)
WITH_NUMBERS = st.sampled_from(
    [
        *["quantile_over_time(0.3, m[1m])", "predict_linear(m[1m], 60)"],
        *["quantile_over_time(0.7, m[20s] @ 1699999900)", "holt_winters(m[1m], 0.3, 0.2)"],
        *["quantile_over_time(scalar(n) / 20, m[3m])", "predict_linear(n[3m] offset 1m, 9)"],
        *["double_exponential_smoothing(n[2m], 0.9, 0.1)", "quantile_over_time(NaN, m[1m])"],
        *["holt_winters(m[1m], scalar(n) / 20, 0.2)", "quantile_over_time(2, n[1m])"],
    ]
)
BUCKETS = st.builds(
    # Three of each pod and job, with a bound for each GPU; the last one may be of everything.
    'label_replace(label_replace({}, "le", "$1", "gpu", "(.*)"), "le", "{}", "gpu", "2")'.format,
    st.sampled_from(["m", "n", "rate(m[1m])", "sum without (job) (n)", '{__name__=~"m|n"}']),
    st.sampled_from(["+Inf", "+Inf", "+Inf", "7", "0.0", ""]),
)
HISTOGRAMS = st.builds(
    str.format,
    st.sampled_from(
        [
            *["histogram_quantile(0.9, {})", "histogram_quantile(scalar(n) / 40, {})"],
            *["histogram_fraction(0.2, 1.5, {})", "histogram_fraction(-Inf, scalar(n), {})"],
            *['histogram_quantiles({}, "q", 0.5, 0.9, 0)', "histogram_quantile(2, {})"],
            *[
                'histogram_quantiles({}, "q", scalar(n) / 9)',
                "histogram_quantile(0, sum by (le) ({}))",
            ],
        ]
    ),
    BUCKETS,
)
AGGREGATIONS = st.sampled_from(
    [
        *["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"],
        *["topk(2,", "bottomk(1,", "quantile(0.3,", "limitk(1,", 'count_values("v",'],
        *['count_values("pod",', 'count_values("gpu",', 'count_values("__name__",'],
    ]
)
GROUPINGS = st.sampled_from(["", " by (pod)", " without (gpu)", " by (job, gpu)"])
FUNCTIONS = st.sampled_from(
    [
        *["abs(", "-(", "ceil(", "sgn(", "ln(", "sqrt(", "exp(", "timestamp(", "sort(", "round("],
        *["sort_desc(", "absent(", "hour(", "vector(scalar(", "scalar("],
        *["minute(1e9*", "day_of_week(1e7*", "day_of_month(-1e7*", "day_of_year(1e8*"],
        *["days_in_month(3e6*", "month(1e8*", "year(-1e9*"],
    ]
)


def aggregated(operator, grouping, inner):
    name, parenthesis, parameter = operator.partition("(")
    comma = "" if not parenthesis or parameter.endswith(",") else ", "
    return f"{name}{grouping} ({parameter}{comma}{inner})"


def called(function, inner):
    return f"{function}{inner}{')' * function.count('(')}"


def subqueries(inner):
    function = st.one_of(
        RANGE_FUNCTIONS.map("{}(".format),
        st.sampled_from(["quantile_over_time(0.4, ", "quantile_over_time(scalar(n) / 40, "]),
    )
    return st.builds(
        "{}({})[{}:{}]{})".format,
        function,
        inner,
        st.sampled_from(["20s", "1m", "3m", "7s"]),
        st.sampled_from(["15s", "10s", "35s", "1m"]),
        st.sampled_from(["", "", "", " offset 25s", " @ end()", " @ 1699999900"]),
    )


VECTORS = st.recursive(
    st.one_of(SELECTORS, RANGED, WITH_NUMBERS, HISTOGRAMS),
    lambda inner: st.one_of(
        subqueries(inner),
        st.builds(aggregated, AGGREGATIONS, GROUPINGS, inner),
        st.builds(called, FUNCTIONS, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or", "unless"]), inner),
        st.builds(
            "({} {} {} {})".format,
            inner,
            st.sampled_from(["+", "-", "*", "/", "%", "^", ">", "== bool", "<=", "!="]),
            st.sampled_from(
                [
                    "",
                    "on (pod, gpu)",
                    "ignoring (job)",
                    "on (pod) group_left ()",
                    "on (gpu) group_right (job)",
                    "on (pod) group_left (gpu) fill (2)",
                    "on (pod, gpu, job) fill_left (0)",
                    "ignoring (job) fill_right (-1)",
                    "fill (7)",
                ]
            ),
            inner,
        ),
        st.builds(
            "({} {} {})".format,
            inner,
            st.sampled_from([*"+-*/%^><"]),
            st.sampled_from(["2", "time()", "-0.5"]),
        ),
        st.builds("(3 {} {})".format, st.sampled_from([*"-/^>"]), inner),
        st.builds("clamp({}, 2, 30)".format, inner),
        st.builds('label_replace({}, "pod", "$1", "gpu", "(.*)")'.format, inner),
    ),
    max_leaves=4,
)


def outcome(evaluated, *arguments, **options):
    try:
        return evaluated(*arguments, **options)
    except QueryError as error:
        return str(error)


def same(left, right):
    return left == right or (left != left and right != right)


def assert_alike(found, expected, query) -> None:
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected, query
    elif isinstance(expected, Scalar):
        assert same(found.value, expected.value), query
    elif isinstance(expected, Matrix):
        assert [each.labels for each in found.series] == [
            each.labels for each in expected.series
        ], query
        for mine, other in zip(found.series, expected.series, strict=True):
            assert len(mine.points) == len(other.points), query
            for one, two in zip(mine.points, other.points, strict=True):
                assert one[0] == two[0], query
                assert same(one[1], two[1]), (query, mine, other)
    else:
        rows, wanted = found.samples, expected.samples
        assert [(row.labels, row.measured_ms) for row in rows] == [
            (row.labels, row.measured_ms) for row in wanted
        ], query
        for row, other in zip(rows, wanted, strict=True):
            assert same(row.value, other.value), (query, row, other)


@given(
    store=stores(),
    queries=st.lists(VECTORS, min_size=6, max_size=6),
    left_open=st.booleans(),
    data=st.data(),
)
@settings(
    at_most(40),
    suppress_health_check=[
        *(HealthCheck.too_slow, HealthCheck.data_too_large),
        # It is set for each example.
        HealthCheck.function_scoped_fixture,
    ],
)
def test_both_ways_give_the_same(monkeypatch, store, queries, left_open, data) -> None:
    cut_row = data.draw(st.sampled_from([0, 0, 3, ROWS - 4]))
    for series in store.select(())[::2]:
        series.cut(START_MS + cut_row * STEP_MS)
    # Also with each step evaluated apart from the others, and each series of a subquery.
    cells = data.draw(st.sampled_from([1, 1 << 17]))
    monkeypatch.setattr(vectorised_queries, "_CHUNK_CELLS", cells)
    for module in (evaluation, subqueries_of_vectors):
        monkeypatch.setattr(module, "SLICE_CELLS", cells)
    for query in queries:
        at_ms = END_MS - data.draw(st.sampled_from([0, 3_000, 90_000]))
        expected = outcome(evaluate.instant, store, query, at_ms, left_open=left_open)
        found = outcome(vectorised.instant, store, query, at_ms, left_open=left_open)
        assert_alike(found, expected, query)
        times = at_ms - 200_000, at_ms, data.draw(st.sampled_from([15_000, 40_000, 250_000]))
        expected = outcome(evaluate.range_query, store, query, *times, left_open=left_open)
        found = outcome(vectorised.range_query, store, query, *times, left_open=left_open)
        assert_alike(found, expected, query)


@pytest.fixture(scope="module", autouse=True)
def some_of_both():
    """A comparison of rows with rows would say nothing."""
    vectorised.ways.clear()
    yield
    assert vectorised.ways["columns"] > vectorised.ways["rows"], vectorised.ways
