"""What an expression can give, by its text."""

import pytest

from gpuscale.series.promql.parse import parse_matchers, parse_query
from gpuscale.server.rules.queries.facts import (
    Interval,
    carries,
    contradiction,
    divides_vectors,
    is_one_row,
    reads,
    summed_share,
    values_of,
)

UTIL = "DCGM_FI_DEV_GPU_UTIL"
RATIO = "DCGM_FI_PROF_SM_ACTIVE"


def node(text):
    return parse_query(text).root


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (UTIL, 0, 100),
        (f"avg by (pod) ({UTIL})", 0, 100),
        (f"max by (pod) ({UTIL}) / 100", 0, 1),
        (f"100 * {RATIO}", 0, 100),
        (f"{RATIO} * 100 + 5", 5, 105),
        (f"100 - {UTIL}", 0, 100),
        (f"-{UTIL}", -100, 0),
        (f"quantile_over_time(0.9, {UTIL}[5m])", 0, 100),
        (f"max_over_time(avg({UTIL})[5m:1m])", 0, 100),
        (f"clamp_max({UTIL}, 50)", 0, 50),
        ("clamp_min(clamp_max(queue, 7), 2)", 2, 7),
        (f"{UTIL} > bool 50", 0, 1),
        (f"{UTIL} > 50", 0, 100),
        (f"{UTIL} or {RATIO}", 0, 100),
        (f"{UTIL} and queue", 0, 100),
        (f"group by (pod) ({UTIL})", 1, 1),
        ("vector(3)", 3, 3),
    ],
)
def test_bounds(text, low: int, high: int) -> None:
    assert values_of(node(text)) == Interval(low, high)


@pytest.mark.parametrize(
    "text",
    [
        "queue",
        f"count({UTIL})",
        f"rate({UTIL}[5m])",
        f"{UTIL} / queue",
        f"{UTIL} * queue",
        f"{UTIL} / 0",
        f"sum({UTIL}) / sum(queue)",
        f"{UTIL} ^ 2",
        f"clamp_max({UTIL}, scalar(queue))",
    ],
)
def test_no_bounds(text: str) -> None:
    assert values_of(node(text)) is None


def test_a_sum_has_no_highest_value() -> None:
    found = values_of(node(f"sum({UTIL})"))
    assert found is not None
    assert (found.low, found.is_bounded) == (0, False)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (f"sum by (pod) ({UTIL})", 100),
        (f"sum by (pod) ({RATIO}) * 100", 100),
        (f"100 * sum by (pod) ({RATIO})", 100),
        (f"sum by (pod) ({UTIL}) / 100", 1),
        (f"round(sum by (pod) ({UTIL}))", 100),
        (f"max(sum by (pod) ({UTIL}))", 100),
        (f"avg by (pod) ({UTIL})", None),
        (f"sum by (pod) ({UTIL}) / count by (pod) ({UTIL})", None),
        ("sum by (pod) (DCGM_FI_DEV_FB_USED)", None),
        ("sum by (pod) (queue)", None),
    ],
)
def test_sums_of_shares(text: str, share: int | None) -> None:
    assert summed_share(node(text)) == share


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("avg(queue)", True),
        ("avg by () (queue)", True),
        ("avg(queue) / 100", True),
        ("avg(queue) / avg(other)", True),
        ("scalar(queue)", True),
        ("-sum(queue)", True),
        ("round(sum(queue))", True),
        ("histogram_quantile(0.9, sum by (le) (rate(wait_bucket[3m])))", True),
        ("histogram_quantile(0.9, sum by (le, pod) (rate(wait_bucket[3m])))", False),
        ("histogram_quantile(0.9, rate(wait_bucket[3m]))", False),
        ("avg by (pod) (queue)", False),
        ("avg without (pod) (queue)", False),
        ("topk(1, queue)", False),
        ("count_values('v', queue)", False),
        ("avg(queue) or avg(other)", False),
        ("queue", False),
    ],
)
def test_one_row(text: str, expected: bool) -> None:
    assert is_one_row(node(text)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue", True),
        ('queue{pod=""}', False),
        ("rate(queue[5m])", True),
        ("avg(queue)", False),
        ("avg by (pod) (queue)", True),
        ("avg by (node) (queue)", False),
        ("avg without (node) (queue)", True),
        ("avg without (pod) (queue)", False),
        ("avg by (pod) (avg by (node) (queue))", False),
        ("topk(1, queue)", True),
        ("topk(1, avg(queue))", False),
        ("count_values('pod', queue)", True),
        ("avg by (pod) (queue) * 2", True),
        ("2 * avg by (pod) (queue)", True),
        ("avg by (pod) (a) / avg by (pod) (b)", True),
        ("a / on (pod) b", True),
        ("a / on (node) b", False),
        ("a / ignoring (pod) b", False),
        ("a * on (node) group_left avg by (node) (b)", True),
        ("avg by (node) (a) * on (node) group_left (pod) b", True),
        ("avg by (node) (a) * on (node) group_right b", True),
        ("avg(a) or b", True),
        ("avg(a) and b", False),
        ("label_replace(avg(a), 'pod', '$1', 'x', '(.*)')", True),
        ("label_replace(a, 'x', '$1', 'pod', '(.*)')", True),
        ("histogram_quantile(0.9, sum by (le, pod) (b))", True),
        ("histogram_quantile(0.9, sum by (le) (b))", False),
        ("vector(1)", False),
        ("1", False),
    ],
)
def test_labels_of_rows(text: str, expected: bool) -> None:
    assert carries(node(text), "pod") is expected


def test_reads_tell_the_function_around_a_range() -> None:
    found = [(r.series, r.function, r.range_ms) for r in reads(node("rate(a[5m]) / b + {x='y'}"))]
    assert found == [("a", "rate", 300_000), ("b", None, None), (None, None, None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(a_total) / sum(b_total)", True),
        ("100 * (sum(a_total) / sum(b_total))", True),
        ("sum(a_total) / 100", False),
        ("sum(a_total / b) + 1", True),
        ("sum(a_total)", False),
    ],
)
def test_ratios_of_vectors(text: str, expected: bool) -> None:
    assert divides_vectors(node(text)) is expected


def test_a_subquery_passes_its_function_on() -> None:
    (read,) = reads(node("max_over_time(a[5m:1m])"))
    assert (read.series, read.function) == ("a", "max_over_time")


@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        ('{a="1",a="2"}', 'a="1" and a="2"'),
        ('{a="",a!=""}', 'a="" and a!=""'),
        ('{a=~"x|y",a="z"}', 'a=~"x|y" and a="z"'),
        ('{a="1",a!~"2"}', None),
        ('{a=~"x",a=~"y"}', None),
        ('{a="1",b="2"}', None),
    ],
)
def test_contradictions(matchers: str, expected: str | None) -> None:
    found = contradiction(parse_matchers(matchers))
    assert (found and f"{found[0]} and {found[1]}") == expected
