"""Whatever text comes in, PromQL answers or says what is wrong; and laws that hold for all data."""

import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.base.errors import QueryError
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.promql.parse import MAX_OPERATIONS, MAX_QUERY_CHARS, parse_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import STALE, Vector, is_stale

WORDS = st.sampled_from(
    [
        *"()[]{}+-*/%^<>=!,:@.0123456789\"'`\\ \n#",
        *[
            "m",
            "up",
            "a{b=~",
            '"x.*"',
            "[5m]",
            "[1h:1m]",
            "[5m:]",
            " offset ",
            "1m",
            " @ ",
            "start()",
        ],
        *[
            "sum",
            "topk",
            "quantile",
            "count_values",
            " by ",
            " without ",
            "(pod)",
            "rate",
            "avg_over_time",
        ],
        *[
            " and ",
            " or ",
            " unless ",
            " on(",
            " ignoring(",
            " group_left",
            " bool ",
            "==",
            "=~",
            "!~",
        ],
        *[
            "label_replace(",
            "histogram_quantile(",
            "absent(",
            "vector(",
            "scalar(",
            "time()",
            "1e400",
        ],
        *[
            "NaN",
            "Inf",
            "-5",
            "1e9",
            "99999999y",
            "0x1f",
            "predict_linear",
            "holt_winters",
            "é",
            "\x00",
        ],
    ]
)
QUERIES = st.lists(WORDS, max_size=25).map("".join)


def small_store():
    store = SeriesStore()
    for t_ms in range(0, 600_000, 15_000):
        for pod in "ab":
            store.append({"__name__": "m", "pod": pod}, t_ms, t_ms / 1000)
            store.append({"__name__": "up", "pod": pod}, t_ms, 1)
    return store


STORE = small_store()


@given(QUERIES)
def test_any_text_is_answered_or_refused_with_a_query_error(text) -> None:
    with suppress(QueryError):
        instant(STORE, text, 600_000)


FUNCTIONS = st.sampled_from(
    ["rate", "increase", "delta", "irate", "deriv", "max_over_time", "changes", "stddev_over_time"]
)
AGGREGATIONS = st.sampled_from(["sum", "avg", "min", "max", "count", "stddev", "group"])
VECTORS = st.recursive(
    st.sampled_from(["m", "up", 'm{pod="a"}', "vector(2)", "m offset 1m", "nosuch"]),
    lambda inner: st.one_of(
        st.builds("{}({}[5m:30s])".format, FUNCTIONS, inner),
        st.builds("{} by (pod) ({})".format, AGGREGATIONS, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or", "unless"]), inner),
        st.builds("({} {} on(pod) {})".format, inner, st.sampled_from([*"+-*/%^>"]), inner),
        st.builds("(-{})".format, inner),
        st.builds("abs({})".format, inner),
        st.builds("topk(1, {})".format, inner),
        st.builds("({} > bool 100)".format, inner),
    ),
    max_leaves=5,
)


@given(VECTORS)
def test_a_step_of_a_range_query_is_the_instant_query_of_that_time(query) -> None:
    times = [300_000, 420_000, 540_000]
    try:
        matrix = range_query(STORE, query, times[0], times[-1], 120_000)
    except QueryError:
        return
    for t_ms in times:
        vector = instant(STORE, query, t_ms)
        assert isinstance(vector, Vector)
        got = {str(each.labels): dict(each.points).get(t_ms) for each in matrix.series}
        got = {labels: value for labels, value in got.items() if value is not None}
        want = {str(sample.labels): sample.value for sample in vector.samples}
        assert got.keys() == want.keys()
        assert all(_same(got[labels], want[labels]) for labels in got)


@given(VECTORS)
def test_no_value_is_newer_than_the_question_or_older_than_it_may_be(query) -> None:
    try:
        vector = instant(STORE, query, 580_000)
    except QueryError:
        return
    assert isinstance(vector, Vector)
    for sample in vector.samples:
        assert sample.measured_ms <= 580_000


NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(NUMBERS)
@settings(deadline=None)
def test_aggregations_agree_with_each_other(numbers) -> None:
    store = SeriesStore()
    for i, number in enumerate(numbers):
        store.append({"__name__": "m", "i": str(i)}, 0, number)

    def of(query):
        vector = instant(store, query, 0)
        assert isinstance(vector, Vector)
        return vector.samples[0].value

    assert of("sum(m)") == pytest.approx(of("avg(m)") * of("count(m)"), abs=1e-6)
    assert of("min(m)") <= of("quantile(0.5, m)") <= of("max(m)")
    assert of("quantile(0, m)") == of("min(m)")
    assert of("topk(1, m)") == of("quantile(1, m)") == of("max(m)")
    assert of("stdvar(m)") == pytest.approx(of("stddev(m)") ** 2, rel=1e-9, abs=1e-6)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20))
@settings(deadline=None)
def test_increase_of_a_counter_is_never_negative_and_rate_is_its_share(steps) -> None:
    store, value = SeriesStore(), 0.0
    for i, step in enumerate(steps):
        value += step
        store.append({"__name__": "c"}, i * 1000, value)
    end_ms = (len(steps) - 1) * 1000
    increase = instant(store, "increase(c[1m])", end_ms)
    rate = instant(store, "rate(c[1m])", end_ms)
    assert isinstance(increase, Vector)
    assert isinstance(rate, Vector)
    assert increase.samples[0].value >= 0
    assert rate.samples[0].value == pytest.approx(increase.samples[0].value / 60)


@given(
    st.floats()
    | st.integers(0, 2**64 - 1).map(lambda i: struct.unpack("<d", struct.pack("<Q", i))[0])
)
def test_only_the_marker_is_stale(value) -> None:
    assert is_stale(value) == (struct.pack("<d", value) == struct.pack("<d", STALE))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 60_000 + "1",
        "1" + "+1" * 30_000,
        "sum(" * 10_000 + "m" + ")" * 10_000,
        "m" + "[5m:]" * 5_000,
        "1" + " or 1" * 5_000,
        "m{" + 'a="b",' * 9_000 + "}",
        "a" * (MAX_QUERY_CHARS + 1),
    ],
    ids=lambda text: text[:12],
)
def test_deep_or_long_texts_are_answered_quickly(text) -> None:
    with suppress(QueryError):
        parse_query(text)


def test_the_deepest_allowed_nesting_is_evaluated() -> None:
    depth = MAX_OPERATIONS // 2
    query = "abs(" * depth + "m" + ")" * depth
    vector = instant(STORE, query, 585_000)
    assert isinstance(vector, Vector)
    assert [sample.value for sample in vector.samples] == [585.0, 585.0]
    assert instant(STORE, "1" + "+1" * MAX_OPERATIONS, 0).value == MAX_OPERATIONS + 1


def _same(left, right):
    return left == right or (math.isnan(left) and math.isnan(right))
