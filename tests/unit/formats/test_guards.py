"""Queries that pass over impossible values: which parts of a query change, and which must not."""

from dataclasses import fields, replace
from typing import Any

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.base.ranges import Range
from gpuscale.series.promql import tree
from gpuscale.series.promql.parse import parse_query
from gpuscale.server.sources.prometheus.guards import count_query, guarded, impossible_query

UTIL = "DCGM_FI_DEV_GPU_UTIL"


@pytest.mark.parametrize(
    ("asked", "same_as"),
    [
        (f"avg({UTIL}{{pod=~'a|b'}}) by (pod)", f"avg({UTIL}{{pod=~'a|b'}} <= 100 >= 0) by (pod)"),
        (f"sum({UTIL} offset 5m)", f"sum({UTIL} offset 5m <= 100 >= 0)"),
        (f"{UTIL} / on (pod) limit", f"({UTIL} <= 100 >= 0) / on (pod) limit"),
        (f"topk(scalar({UTIL}), x)", f"topk(scalar({UTIL} <= 100 >= 0), x)"),
        (
            f"max_over_time({UTIL}[1m])",
            f"max_over_time({UTIL}[1m]) and (max_over_time({UTIL}[1m]) <= 100)"
            f" and (min_over_time({UTIL}[1m]) >= 0)",
        ),
        (
            f"quantile_over_time(0.9, {UTIL}[1m] @ 5)",
            f"quantile_over_time(0.9, {UTIL}[1m] @ 5) and (max_over_time({UTIL}[1m] @ 5) <= 100)"
            f" and (min_over_time({UTIL}[1m] @ 5) >= 0)",
        ),
        # A subquery's inside is filtered where it is evaluated.
        (f"max_over_time({UTIL}[5m:1m])", f"max_over_time(({UTIL} <= 100 >= 0)[5m:1m])"),
        # A counter that goes down was reset; only the codes of 64 bits are looked for.
        (
            "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1m])",
            "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1m]) and "
            "(max_over_time(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1m]) <= 9.214148664817921e+18)",
        ),
        # Of a queue nothing is known but that it isn't negative.
        ("sum(vllm:num_requests_waiting)", "sum(vllm:num_requests_waiting >= 0)"),
        # Several names at once: what any of them can have.
        (
            '{__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_FAN_SPEED"}',
            '{__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_FAN_SPEED"} <= 255 >= 0',
        ),
        # What was left out, where nobody wrote it down.
        (
            f'gpuscale_impossible_value{{series="{UTIL}",pod="a"}}',
            f'label_replace(max_over_time({UTIL}{{pod="a"}}[5m]) > 100 or '
            f'min_over_time({UTIL}{{pod="a"}}[5m]) < 0, "series", "{UTIL}", "", "")',
        ),
    ],
)
def test_a_query_is_judged_by_what_goes_in(asked: str, same_as: str) -> None:
    assert _sorted(guarded(asked).promql) == _sorted(same_as)


def _sorted(promql: str) -> tree.Node:
    """Return a query as a tree in which the order of matchers says nothing."""

    def ordered(node: tree.Node) -> tree.Node:
        if isinstance(node, tree.Select):
            return replace(node, matchers=tuple(sorted(node.matchers, key=str)))
        changed: dict[str, Any] = {}
        for part in fields(node):
            value = getattr(node, part.name)
            if isinstance(value, tree.Node):
                changed[part.name] = ordered(value)
            elif isinstance(value, tuple):
                changed[part.name] = tuple(
                    ordered(each) if isinstance(each, tree.Node) else each for each in value
                )
        return replace(node, **changed)

    return ordered(parse_query(promql).root)


@pytest.mark.parametrize(
    "asked",
    [
        "sum(rate(vllm:generation_tokens_total{pod='a'}[1m])) by (pod)",
        'sum(my_util{pod="DCGM_"})',
        f"timestamp({UTIL}{{pod='a'}})",
        f"count_over_time({UTIL}[5m])",
        f"absent({UTIL}{{pod='a'}})",
        f"sum({UTIL}_OF_MINE)",
        "not promql, and of nothing known",
    ],
)
def test_what_has_no_range_or_reads_no_value_stays(asked: str) -> None:
    found = guarded(asked).promql
    assert found == asked or parse_query(found).root == parse_query(asked).root


def test_texts_of_any_kind_come_back_as_they_were() -> None:
    texts = ('"a\\"b"', "'it \\'is\\''", "`c\\d`", '"' + "p|" * 300 + '"', '"gpuscale0."')
    asked = f"avg({UTIL}{{{','.join(f'l{i}=~{each}' for i, each in enumerate(texts))}}})"
    found = guarded(asked).promql
    assert all(each in found for each in texts)


def test_a_name_that_is_left_open_is_looked_at_in_the_rows() -> None:
    assert guarded('{__name__=~"DCGM_.*",pod="a"}').is_open
    assert not guarded(f"avg({UTIL})").is_open


def test_a_query_that_is_not_understood_says_so() -> None:
    with pytest.raises(QueryError):
        guarded(f"avg({UTIL}) keep_metric_names")


def test_what_a_query_passes_over_can_be_asked_for_with_its_own_matchers() -> None:
    asked = impossible_query(f"sum({UTIL}{{pod='a'}}) / sum(x{{pod='a'}} or {UTIL}{{pod='a'}})")
    assert asked == f'{{__name__="gpuscale_impossible_value",series="{UTIL}",pod="a"}}'
    assert impossible_query("sum(x)") is None


def test_how_many_are_outside() -> None:
    both = f"count(max_over_time({UTIL}[60s]) > 100 or min_over_time({UTIL}[60s]) < 0)"
    for limits, same_as in (
        (Range(0, 100), both),
        (Range(0), f"count(min_over_time({UTIL}[60s]) < 0)"),
    ):
        assert parse_query(count_query(UTIL, limits, 60_000)).root == parse_query(same_as).root
