"""Queries that are refused, in the words of Prometheus and at the place that it names.

query_faults.jsonl holds made-up queries and mutations of them, each with what the parser of Prometheus
3.16.0 says (promql/parser, experimental functions and fill modifiers on).
"""

import json
import time
from pathlib import Path

import pytest

from gpuscale.base.errors import QueryError
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
    assert len(FAULTS) > 400
    assert found == dict(FAULTS)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"a + on({','.join(f'l{i}' for i in range(5_000))}) group_left(l7) b",
            '1:3: parse error: label "l7" must not occur in ON and GROUP clause at once',
        ),
        ('"' + "x" * 60_000, "1:1: parse error: unterminated quoted string"),
        ("1" * 60_000 + "x", f'1:1: parse error: bad number or duration syntax: "{"1" * 60_000}"'),
        (
            "{" + "a," * 30_000,
            '1:3: parse error: unexpected "," in label matching, expected label matching operator',
        ),
    ],
    ids=["labels", "string", "digits", "names"],
)
def test_long_texts_are_refused_in_bounded_time(text: str, message: str) -> None:
    started_s = time.process_time()
    assert refusal(text) == message
    assert time.process_time() - started_s < 2
