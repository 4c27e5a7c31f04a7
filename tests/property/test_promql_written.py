"""Queries that are written out and read back are the same; a matcher that is added is in every selector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import QueryError
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql.parse import parse_query, selectors
from gpuscale.series.promql.tree import Select
from gpuscale.series.promql.write import promql_text
from gpuscale.server.rules.confine import confined_query

QUERIES = (
    "up",
    '{__name__=~"a|b",x!="y",z!~"\\\\d+"}',
    "rate(a_total{b='c'}[5m] offset 1m)",
    "a offset -250ms @ 1700000000.125",
    "a @ start() + b @ end()",
    "sum(a)",
    "sum by (x) (a) / on (x) group_left (y, z) sum without (q) (b)",
    "a * on () group_right () b",
    "a and ignoring (x) b or c unless on (y) d",
    "topk by (x) (3, a) > bool 2 ^ -1",
    "quantile(0.9, a) - (-b)",
    'count_values("v", a)',
    "max_over_time(rate(a[1m])[1h:30s] offset 5m)",
    "avg_over_time((a + b)[10m:])",
    'label_replace(a, "x", "$1-\\"q\\"\\n", "y", "(.*)")',
    "1e6 + Inf - NaN",
    "a == bool 0.1",
    "histogram_quantile(0.99, sum by (le) (rate(b_bucket[5m])))",
    "scalar(a) + time()",
)
NAMES = st.sampled_from(["a", "b:c", "x_total"])
LABELS = st.sampled_from(["x", "y", "namespace"])
VALUES = st.text(alphabet="ab\"\\\n|.é{}'", max_size=5)
MATCHERS = st.builds(
    lambda name, op, value: str(Matcher(name, op, value)),
    LABELS,
    st.sampled_from([MatchOp.EQUAL, MatchOp.NOT_EQUAL]),
    VALUES,
)
SELECTORS = st.builds(
    lambda name, inside: f"{name}{{{','.join(inside)}}}", NAMES, st.lists(MATCHERS, max_size=3)
)
TEXTS = st.recursive(
    SELECTORS,
    lambda inner: (
        st.builds(
            "({}) {} {}".format,
            inner,
            st.sampled_from(["+", "/ on (x)", "and", "unless", "> bool"]),
            inner,
        )
        | st.builds("sum by (x) ({})".format, inner)
        | st.builds("max_over_time(({})[5m:1m])".format, inner)
        | st.builds("-{}".format, inner)
        | st.builds("abs({})".format, inner)
    ),
    max_leaves=6,
)
TEAM = Matcher("namespace", MatchOp.EQUAL, "team-a")


@pytest.mark.parametrize("text", QUERIES)
def test_what_is_written_is_read_back_as_it_was(text) -> None:
    root = parse_query(text).root
    # What is negative is read as a number or as an operator, depending on where it stands.
    assert promql_text(parse_query(promql_text(root)).root) == promql_text(root)
    if "-" not in text:
        assert parse_query(promql_text(root)).root == root


@given(TEXTS)
def test_generated_queries_are_read_back_as_they_were(text) -> None:
    root = parse_query(text).root
    assert parse_query(promql_text(root)).root == root


@given(TEXTS)
def test_every_selector_of_a_confined_query_has_the_matcher_and_all_it_had(text) -> None:
    before = list(selectors(parse_query(text).root))
    after = list(selectors(parse_query(confined_query(text, TEAM)).root))
    assert after == [Select((*each.matchers, TEAM), each.moment) for each in before]


@given(st.text(max_size=40))
def test_any_text_is_confined_or_refused(text) -> None:
    try:
        confined = confined_query(text, TEAM)
    except QueryError:
        return
    assert all(TEAM in each.matchers for each in selectors(parse_query(confined).root))


@pytest.mark.parametrize("text", ["info(a)", 'a{"b.c"="d"}', "sum by (a", 'a{x="y" or z="w"}'])
def test_what_reads_more_than_its_selectors_or_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        confined_query(text, TEAM)
