# mypy: disable-error-code="attr-defined"
"""Runs the scripts beside this file: load series, ask, compare.

A script is read line by line:

    # a comment, such as the arithmetic behind a number
    clear
    load STEP
      SERIES VALUES              VALUES: 1 2 _ stale 3+1x4 (3 4 5 6 7) 3x4 (3 3 3 3 3) _x3
    eval instant at TIME QUERY
      SERIES VALUE               or only VALUE for a scalar, or only "TEXT"
    eval range from TIME to TIME step STEP QUERY
      SERIES VALUES
    eval fail instant at TIME QUERY
      TEXT                       the whole message
    eval ordered instant at TIME QUERY

The shape is that of Prometheus' promqltest, so that a reader of one can read the other.
"""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, line_entry
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.series.labels import METRIC_NAME, LabelSet
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, Scalar, StringValue, Vector
from gpuscale.testing import vectorised

SCRIPTS = sorted(Path(__file__).parent.glob("*.test"))
EVAL = re.compile(
    r"eval(?P<mode> fail| ordered)? (?:instant at (?P<at>\S+)"
    r"|range from (?P<start>\S+) to (?P<end>\S+) step (?P<step>\S+)) +(?P<query>.+)"
)
SERIES = re.compile(r'((?:[^"\s]|"(?:\\.|[^"\\])*"|(?<=,) )*(?:\{.*?\}(?=\s|$))?)\s*(.*)')
RUN = re.compile(r"(?P<first>[^x]+?)(?:(?P<sign>[+-])(?P<delta>[\d.e]+))?x(?P<count>\d+)")
TOLERANCE = 1e-9


@dataclass
class Load:
    step_ms: int
    series: list = field(default_factory=list)


@dataclass
class Case:
    line: int
    loads: tuple
    match: re.Match
    expected: list = field(default_factory=list)


def read(script):
    loads, cases, block = [], [], None
    for number, raw in enumerate(script.read_text().splitlines(), start=1):
        line = raw.partition("#")[0].rstrip() if '"' not in raw else raw.rstrip()
        if not line or line.lstrip().startswith("#"):
            continue
        if line[0] in " \t":
            block.append(line.strip())
        elif line == "clear":
            loads = []
        elif line.startswith("load "):
            load = Load(parse_duration_ms(line.split()[1]))
            loads, block = [*loads, load], load.series
        else:
            match = EVAL.fullmatch(line)
            assert match, f"{script.name}:{number}: {line}"
            case = Case(number, tuple(loads), match)
            cases.append(case)
            block = case.expected
    return cases


def split_series(text):
    """Return the label set and the rest of `name{a="b"} 1 2 3`."""
    name = re.match(r"[a-zA-Z_:][\w:]*", text)
    end = name.end() if name else 0
    if text[end : end + 1] == "{":
        end = re.compile(r'\{(?:[^"}]|"(?:\\.|[^"\\])*")*\}').match(text, end).end()
    line = line_entry((text[:end] if name else "x" + text[:end]) + " 0", PROMETHEUS_TEXT)
    named = {METRIC_NAME: line.name} if name else {}
    return LabelSet({**dict(line.labels), **named}.items()), text[end:].strip()


def values_of(text):
    """Return one entry per step: a number, None for nothing, or "stale"."""
    found = []
    for word in text.split():
        match = RUN.fullmatch(word)
        if match is None:
            found.append(one(word))
        elif match["first"] == "_":
            found.extend([None] * int(match["count"]))
        else:
            delta = float((match["sign"] or "") + (match["delta"] or "0"))
            first = float(match["first"])
            found.extend(first + delta * i for i in range(int(match["count"]) + 1))
    return found


def one(word):
    if word == "_":
        return None
    return word if word == "stale" else float(word)


def store_of(loads):
    # Script times begin at 0; a long retention keeps all of them.
    store = SeriesStore(retention_ms=10**12)
    for load in loads:
        for text in load.series:
            labels, rest = split_series(text)
            ref = store.ref(labels)
            for position, value in enumerate(values_of(rest)):
                if value == "stale":
                    store.mark_stale(ref, position * load.step_ms)
                elif value is not None:
                    store.append_ref(ref, position * load.step_ms, value)
    return store


def time_ms(text):
    return -time_ms(text[1:]) if text[0] == "-" else parse_duration_ms(text)


def answer(case):
    match, store = case.match, store_of(case.loads)
    if match["at"]:
        return instant(store, match["query"], time_ms(match["at"]))
    start, end, step = (time_ms(match[name]) for name in ("start", "end", "step"))
    return range_query(store, match["query"], start, end, step)


def check(case) -> None:
    mode = (case.match["mode"] or "").strip()
    if mode == "fail":
        with pytest.raises(QueryError) as caught:
            answer(case)
        assert str(caught.value) == " ".join(case.expected)
        return
    result = answer(case)
    match result:
        case Vector():
            got = [(sample.labels, sample.value) for sample in result.samples]
            want = [(labels, one(rest)) for labels, rest in map(split_series, case.expected)]
            compare(got, want, ordered=mode == "ordered")
        case Scalar():
            assert same(result.value, one(case.expected[0]))
        case StringValue():
            assert result.value == json.loads(case.expected[0])
        case Matrix():
            check_matrix(result, case)


def check_matrix(result, case) -> None:
    if not case.match["start"]:
        got = [(each.labels, [value for _, value in each.points]) for each in result.series]
        want = [(labels, values_of(rest)) for labels, rest in map(split_series, case.expected)]
        compare(got, want)
        return
    start, end, step = (time_ms(case.match[name]) for name in ("start", "end", "step"))
    times = range(start, end + 1, step)
    got = [(each.labels, [dict(each.points).get(time) for time in times]) for each in result.series]
    want = []
    for labels, rest in map(split_series, case.expected):
        values = values_of(rest)
        want.append((labels, values + [None] * (len(times) - len(values))))
    compare(got, want)


def compare(got, want, *, ordered=False) -> None:
    if not ordered:
        got, want = (sorted(side, key=lambda pair: tuple(pair[0].items())) for side in (got, want))
    assert [str(labels) for labels, _ in got] == [str(labels) for labels, _ in want], (got, want)
    for (labels, left), (_, right) in zip(got, want, strict=True):
        assert same(left, right), f"{labels}: got {left}, want {right}"


def same(left, right):
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if left is None or right is None:
        return left is right
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=1e-15)


@pytest.fixture(params=["rows", "columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate row by row, and with numpy."""
    if request.param == "columns":
        monkeypatch.setattr(request.module, "instant", vectorised.instant)
        monkeypatch.setattr(request.module, "range_query", vectorised.range_query)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{script.stem}:{case.line}")
        for script in SCRIPTS
        for case in read(script)
    ],
)
def test_query_of_script(case) -> None:
    check(case)
