# mypy: disable-error-code="truthy-bool"
import pytest

from gpuscale.base.errors import QueryError
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql.parse import (
    BadQueryError,
    metric_names,
    parse_matchers,
    parse_query,
    prettified,
)


def test_a_query_is_parsed_once() -> None:
    assert parse_query("sum(up)") is parse_query("sum(up)")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("up", {"up"}),
        ('avg by (pod) (rate(a_total[5m])) / on(pod) {__name__="b"} offset 1m', {"a_total", "b"}),
        ("max_over_time(sum(c)[5m:])", {"c"}),
        ('label_replace(d, "a", "b", "c", "e")', {"d"}),
        ("quantile(scalar(f), g) or vector(1)", {"f", "g"}),
        ("1 + time()", set()),
        ('{pod="a"}', None),
        ('up + {__name__=~"a.*"}', None),
    ],
)
def test_metric_names_of_a_query(query: str, names) -> None:
    assert metric_names(parse_query(query)) == names


def test_matchers_of_a_selector() -> None:
    assert parse_matchers('up{job=~"a.*",pod!=""}') == (
        Matcher("job", MatchOp.REGEX, "a.*"),
        Matcher("pod", MatchOp.NOT_EQUAL, ""),
        Matcher("__name__", MatchOp.EQUAL, "up"),
    )


@pytest.mark.parametrize("text", ["sum(up)", "up[5m]", "up offset 5m", "up @ 5", "1"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(BadQueryError) as caught:
        parse_matchers(text)
    assert str(caught.value) == f"parse error: found {text!r}, expected only a series selector"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown position: parse error: no expression found in input"),
        ("sum(", "1:5: parse error: unclosed left parenthesis"),
        ("{}", "1:1: parse error: vector selector must contain at least one non-empty matcher"),
        (
            "up[5m] + 1",
            "1:1: parse error: binary expression must contain only scalar and instant vector types",
        ),
        ("x" * 70_000, "parse error: found 70000 characters, expected at most 65536"),
        (
            "1" + "+1" * 201,
            "parse error: found 201 operators and parentheses, expected at most 200; split the query "
            "with recording rules",
        ),
        ("up[0s]", "1:4: parse error: duration must be greater than 0"),
        ("up[5m:1e-9]", "parse error: a range or step is shorter than a millisecond"),
        ("up offset 1e30", "1:11: parse error: duration out of range"),
        ("up offset 300y", "1:11: parse error: duration out of range"),
        (
            "limitk(a, b)",
            "1:8: parse error: expected type scalar in aggregation parameter, got instant vector",
        ),
        (
            "limit_ratio(a - 1, b)",
            "1:13: parse error: expected type scalar in aggregation parameter, got instant vector",
        ),
        (
            "limitk(a[5m], b)",
            "1:8: parse error: expected type scalar in aggregation parameter, got range vector",
        ),
        (
            "limitk('x', b)",
            "1:8: parse error: expected type scalar in aggregation parameter, got string",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_bad_texts_are_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(text)
    assert str(caught.value) == message


def test_braces_and_strings_do_not_count_as_nesting() -> None:
    labels = ",".join(f'l{i}=~"a|(b)+"' for i in range(300))
    assert parse_query(f"up{{{labels}}}")


@pytest.mark.parametrize(
    ("text", "pretty"),
    [
        # By promql/parser/printer.go and prettier.go of Prometheus 3.16.
        ("sum(up)by(job,instance)", "sum by (job, instance) (up)"),
        (
            "foo{bar='baz',a=~`x`}[300] offset -60 @ 5",
            'foo{a=~"x",bar="baz"}[5m] @ 5.000 offset -1m',
        ),
        ("- (1+2.50)", "-(1 + 2.5)"),
        ("{__name__='a'} or on() b", '{__name__="a"} or on () b'),
        ("a + fill_left(1) fill_right(-2) b", "a + fill_left (1) fill_right (-2) b"),
        ("avg_over_time((a)[1d90m:])", "avg_over_time((a)[1d1h30m:])"),
        ("1e3 + 0x10 - 90m", "1000 + 16 - 1h30m"),
        (
            "max(foo_metric_for_register_set_with_a_long_name{a='b'}) / ignoring(x) "
            "rate(another_metric_with_a_long_name{c='d'}[5m])",
            '  max(foo_metric_for_register_set_with_a_long_name{a="b"})\n'
            "/ ignoring (x)\n"
            '  rate(another_metric_with_a_long_name{c="d"}[5m])',
        ),
    ],
)
def test_a_query_is_written_in_the_style_of_prometheus(text: str, pretty: str) -> None:
    assert prettified(parse_query(text)) == pretty
