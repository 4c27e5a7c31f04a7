"""Queries that are refused, in the words of Prometheus and at the place that it names.

query_faults.jsonl holds made-up queries and mutations of them, each with what the parser of Prometheus
3.16.0 says (promql/parser, experimental functions and fill modifiers on).
"""

import json
from pathlib import Path

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.series.promql.diagnosis.fault import first_fault
from gpuscale.series.promql.parse import parse_query

FAULTS = [
    json.loads(line)
    for line in (Path(__file__).parent / "query_faults.jsonl").read_text().splitlines()
]


def refusal(query):
    with pytest.raises(QueryError) as caught:
        parse_query(query)
    return str(caught.value)


def test_refusals_have_the_words_and_places_of_prometheus() -> None:
    found = {query: refusal(query) for query, _ in FAULTS}
    other = {query: found[query] for query, error in FAULTS if found[query] != error}
    assert len(FAULTS) > 400
    assert len(other) < len(FAULTS) / 40, other
    for query, error in FAULTS:
        place, mark, _ = found[query].partition(": parse error: ")
        # Where the words differ, the place is right or left out.
        assert not mark or error.startswith(f"{place}: "), query


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ('"é" + x y', "1:10"),  # Columns count bytes, and é has two.
        ("sum(\n  x\n  y\n)", "3:3"),
        ("up)", "1:4"),
    ],
)
def test_places_are_lines_and_columns_in_bytes(query: str, place: str) -> None:
    assert refusal(query).startswith(f"{place}: parse error: ")


def test_a_fault_that_only_our_own_checks_find_has_its_place_too() -> None:
    assert refusal("limitk(up, up)") == (
        "1:8: parse error: expected type scalar in aggregation parameter, got instant vector"
    )


def test_what_is_right_or_not_understood_has_no_fault() -> None:
    for query in (
        "",
        'sum by (a) (rate(x{b=~"c.*"}[5m] offset 1m)) / on (d) group_left () y > bool 5',
        "max_over_time(sum(x)[5m:30s] @ end())",
        "x[5m + 1m]",
        "rate(x[5m] smoothed)",
        "up @ 0x",
    ):
        assert first_fault(query) is None


def test_deep_and_long_texts_are_looked_at_in_bounded_time() -> None:
    assert first_fault("(" * 60_000) is None
    many = ",".join(f"l{i}" for i in range(5_000))
    assert first_fault(f"a + on({many}) group_left({many}) b") == (
        "1:3",
        'label "l0" must not occur in ON and GROUP clause at once',
    )
    assert first_fault('"' + "x" * 60_000) == ("1:1", "unterminated quoted string")
