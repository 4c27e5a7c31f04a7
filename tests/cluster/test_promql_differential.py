# mypy: disable-error-code="arg-type"
"""20 000 generated PromQL queries to the engine of Prometheus 3.16, compiled, and to ours: no difference.

As many again with letters and words lost, added and exchanged: both refuse the same, in the same words.

The program `promql-engine` is Prometheus' engine and parser over samples that the test gives it, with its
experimental functions on. Ours answers three times: row by row over the store, and over a copy of what the
query reads, and with numpy. Queries come from `promql_grammar`, series from `promql_samples`. Each function,
aggregation, operator, matching mode and modifier has its own share of them; the rest nest freely. A few are
wrong on purpose: both sides refuse them. $GPUSCALE_PROMQL_QUERIES asks for another number of queries,
$GPUSCALE_PROMQL_SEED for others.

Compared are result type, label sets, times and values, to a relative 1e-9: sums are added up in another
order. So functions that jump, such as `floor`, and comparisons get only operands that both sides know exactly
("exact" in the grammar: small multiples of 1/8). Where ours is meant to differ, `KNOWN` says why.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.series.promql.evaluate import LOOKBACK_MS, instant, range_covered, range_query
from gpuscale.series.promql.parse import parse_once, parse_query
from gpuscale.series.promql.snapshot import SampleCopies
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, Scalar, StringValue, Vector, is_stale
from gpuscale.testing import vectorised

sys.path.insert(0, str(Path(__file__).parent))
from promql_grammar import Grammar
from promql_samples import COUNT, END, START, STEP, samples

PROGRAM = "promql-engine"
QUERIES = int(os.environ.get("GPUSCALE_PROMQL_QUERIES", "20000"))
SEED = int(os.environ.get("GPUSCALE_PROMQL_SEED", "0"))
PARTS = 4
RELATIVE_TOLERANCE = 1e-9

pytestmark = pytest.mark.cluster


class Known(NamedTuple):
    """A difference that is meant, or that is open in Prometheus, too."""

    reason: str
    query: str
    """An example."""
    pattern: str = ""
    """Which generated queries may differ by it; empty where the grammar makes none."""
    tolerance: float = 0.0
    """By how much, as a share; infinite where labels and times may differ, too."""
    error: str = ""
    """Or Prometheus refuses them, and we do not, with words like these."""


KNOWN = (
    Known(
        "a subquery fails here where a step inside a window does; there also where one between windows does",
        "changes(clamp_min(typed, 3)[7s:15s] offset -13s)",
        r":\w*\]",
        error="^(vector cannot contain metrics with|found duplicate series for|multiple matches for)",
    ),
    Known(
        "a variance over series is rounded once here; there it has no error term",
        "stdvar(util + 1e12)",
        r"std(dev|var)\b",
        1e-3,
    ),
    Known(
        "the time of a sample at @ with an offset: Prometheus takes the offset twice",
        f"timestamp(util @ {END - 600} offset 1m)",
    ),
    Known(
        "an aggregation of a constant takes its parameter at each step; there once",
        f"quantile(time() - {END - 100}, vector(1))",
        r"quantile [^@]*\(scalar\(flat\)/10, .*@",
        math.inf,
    ),
    Known(
        "an @ inside a subquery stays where it is; there the subquery's offset moves it where the first step "
        "inside is the time of the query",
        f"first_over_time((util @ {END - 600})[15s:15s] offset -13s)",
        r"@.*\[\w+:\w*\].* offset -",
        math.inf,
    ),
    Known(
        "two buckets of one bound count once for each quantile; there again for each further one",
        'histogram_quantiles(lat_bucket{job="twice"}, "q", 0.5, 0.7)',
    ),
    Known(
        "a date beyond the year 9999 has no parts; there it is that of an overflowed number",
        "hour(huge)",
    ),
)


class Engine:
    """Prometheus' engine: a line in, its answer out."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line: dict) -> dict:
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def load(self, given) -> None:
        series: dict[tuple, list] = {}
        for labels, t_ms, value in given:
            text = "stale" if is_stale(value) else repr(value)
            series.setdefault(tuple(labels.items()), []).append([t_ms, text])
        told = [{"labels": dict(key), "samples": each} for key, each in series.items()]
        assert self.ask({"series": told}) == {"type": "stored", "series": []}

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def engine(built) -> Iterator[Engine]:
    running = Engine(built(PROGRAM))
    yield running
    running.close()


def store_of(given) -> SeriesStore:
    """Return a store with the engine's order of series: which of equal values stays hangs on it."""
    store = SeriesStore(retention_ms=10**12)
    for labels, t_ms, value in sorted(given, key=lambda sample: sorted(sample[0].items())):
        if is_stale(value):
            assert store.mark_stale(store.ref(labels), t_ms)
        else:
            assert store.append(labels, t_ms, value)
    return store


class Comparison:
    """Asks both sides and keeps what differs."""

    def __init__(self, engine: Engine, seed: int) -> None:
        given = list(samples(seed))
        self.engine, self.store = engine, store_of(given)
        engine.load(given)
        self.kinds: Counter[str] = Counter()
        self.differences: list[str] = []

    def ask(self, query: str, *times_ms: int) -> None:
        line = {"query": query, **dict(zip(("start", "end", "step"), times_ms, strict=False))}
        try:
            ours, problem = self.answer(query, *times_ms), ""
        except QueryError as error:
            ours, problem = None, str(error)
        difference = ""
        # Over a range what Prometheus computes is in random order, and which of equal values it keeps, too.
        for attempt in range(16):
            theirs = self.engine.ask(line)
            if not attempt:
                self.kinds[kind_of(theirs)] += 1
            if problem or "error" in theirs:
                difference = different_error(query, problem, theirs, is_range=len(times_ms) > 1)
            else:
                difference = first_difference(
                    shaped(ours, times_ms[0]), theirs, tolerance_of(query), order_of(query)
                )
            if not difference:
                return
        self.differences.append(f"{query}  at {times_ms}: {difference}")

    def answer(self, query, *times_ms):
        """Evaluate over the store; over a copy of what the query reads, and with numpy, it is the same."""
        evaluate = instant if len(times_ms) == 1 else range_query
        value = evaluate(self.store, query, *times_ms)
        start_ms, end_ms, step_ms = times_ms if len(times_ms) == 3 else (*times_ms, *times_ms, 0)
        copy = SampleCopies(self.store.oldest_kept_ms())
        covered = range_covered(start_ms, end_ms, step_ms)
        for _ in copy.fill(self.store, parse_query(query).root, covered, LOOKBACK_MS):
            pass
        assert repr(evaluate(copy, query, *times_ms)) == repr(value), query
        again = getattr(vectorised, evaluate.__name__)(self.store, query, *times_ms)
        assert repr(again) == repr(value), query
        return value


def kind_of(theirs: dict) -> str:
    if "error" in theirs:
        return "error"
    return "answer" if theirs["series"] or "text" in theirs else "empty"


def different_error(query: str, problem: str, theirs: dict, *, is_range: bool) -> str:
    """Return what differs where at least one side refuses, or nothing."""
    error = theirs.get("error", "")
    refused = [each for each in KNOWN if each.error and re.search(each.error, error)]
    if not problem and any(re.search(each.pattern, query) for each in refused):
        return ""
    # Which of many groups and pairs is named is open; and so is, over a range, which of two errors.
    words = [re.sub(r"match group \{.*?\}|\[.*\]", "", each) for each in (problem, error)]
    if problem and error and (words[0] == words[1] or (is_range and "parse error" not in error)):
        return ""
    return f"ours {problem!r}, theirs {error!r}"


def order_of(query: str) -> str:
    """Return what a query sorts by; which of equal values comes first is open."""
    found = re.match(r"sort(_by_label)?(_desc)?\(", query)
    return "" if found is None else "labels" if found[1] else "values"


def tolerance_of(query: str) -> float:
    """Return how far values may be apart, as a share."""
    more = [each.tolerance for each in KNOWN if each.tolerance and re.search(each.pattern, query)]
    return max([RELATIVE_TOLERANCE, *more])


def shaped(value, at_ms: int) -> dict:
    """Return our answer in the program's shape."""
    match value:
        case Scalar():
            return {"type": "scalar", "series": [((), [(at_ms, value.value)])]}
        case StringValue():
            return {"type": "string", "text": value.value, "series": []}
        case Vector():
            rows = [(each.labels, [(at_ms, each.value)]) for each in value.samples]
            return {"type": "vector", "series": [(tuple(x.items()), points) for x, points in rows]}
        case Matrix():
            found = [(tuple(each.labels.items()), list(each.points)) for each in value.series]
            return {"type": "matrix", "series": found}
    raise AssertionError(value)


def first_difference(ours: dict, theirs: dict, tolerance: float, order: str = "") -> str:
    """Return what differs first, or nothing."""
    if ours["type"] != theirs["type"] or ours.get("text") != theirs.get("text"):
        return f"ours is {ours['type']} {ours.get('text')}, theirs {theirs['type']} {theirs.get('text')}"
    if math.isinf(tolerance):
        return ""
    left = dict(ours["series"])
    right = {
        tuple(sorted(each["labels"].items())): each["points"]
        for each in theirs["series"]
        # An aggregation whose operand is empty at every step may leave a series without a point.
        if each["points"]
    }
    # Between a label that is empty and one that is not, natsort gives both answers.
    is_ordered = order == "labels" and len({tuple(dict(each)) for each in left}) == 1
    if (list(left) != list(right)) if is_ordered else (left.keys() != right.keys()):
        return f"ours has {list(left)}, theirs {list(right)}"
    if order == "values" and ours["type"] == "vector":
        values = [points[0][1] for points in left.values()]
        if repr(values) != repr([float(points[0][1]) for points in right.values()]):
            return f"ours are in the order {values}, theirs {list(right.values())}"
    for labels, points in right.items():
        if [t for t, _ in left[labels]] != [t for t, _ in points]:
            return f"{labels}: ours {left[labels]}, theirs {points}"
        for (t_ms, mine), (_, text) in zip(left[labels], points, strict=True):
            if not same(mine, float(text), tolerance):
                return f"{labels}: ours {mine!r}, theirs {text} at {t_ms}"
    return ""


def same(mine: float, other: float, tolerance: float) -> bool:
    if math.isnan(mine) or math.isnan(other):
        return math.isnan(mine) and math.isnan(other)
    if math.isinf(other) and mine * math.copysign(1, other) >= 2.0**1022:
        return True  # Go's exp on amd64 overflows at 1023.5 ln 2
    return mine == other or math.isclose(mine, other, rel_tol=tolerance, abs_tol=1e-12)


def moments(rng: random.Random) -> int:
    """Return a time to ask at: often on a sample, or between samples."""
    steps = START + STEP * rng.randrange(-4, COUNT + 24)
    return rng.choice([END, END, END - 7, steps, END - rng.randrange(400)]) * 1000 + rng.choice(
        [0, 0, 0, 1, rng.randrange(1000)]
    )


def ranges(rng: random.Random) -> tuple[int, int, int]:
    end_ms, step_ms = moments(rng), rng.choice([1_000, 15_000, 60_000, 7_300, 120_000, 131_000])
    return end_ms - step_ms * rng.randrange(25), end_ms + rng.randrange(step_ms), step_ms


def queries(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield queries, and what each was made for, without an end."""
    while True:
        found = list(Grammar(rng).all())
        rng.shuffle(found)
        yield from found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(PARTS))
def test_generated_queries_agree_with_the_engine(engine, part: int) -> None:
    rng = random.Random(f"{SEED} {part}")
    comparison = Comparison(engine, rng.randrange(1 << 32))
    vectorised.ways.clear()
    for position, (_, query) in enumerate(islice(queries(rng), QUERIES // PARTS)):
        times_ms = ranges(rng) if position % 3 == 0 else (moments(rng),)
        comparison.ask(query, *times_ms)
    shown = "\n".join(comparison.differences[:40])
    assert not comparison.differences, f"{len(comparison.differences)} differ:\n{shown}"
    # A comparison of nothing with nothing would say nothing.
    kinds = comparison.kinds
    assert kinds["answer"] > kinds.total() / 2, kinds
    assert kinds["error"] > kinds.total() / 50, kinds
    assert vectorised.ways["columns"] > vectorised.ways["rows"]


WORDS = [
    *["sum", "by", "without", "on", "ignoring", "group_left", "bool", "offset", "anchored", "@"],
    *[
        "start()",
        "step",
        "range",
        "max_of",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "5m",
        "1h",
        "300",
    ],
    *[
        "0",
        "0x1f",
        "1e3",
        "1_0",
        "010",
        "inf",
        "NaN",
        "-1",
        "+",
        "-",
        "*",
        "/",
        "%",
        "^",
        "==",
        "!=",
        "<",
    ],
    *[
        ">=",
        "</",
        "=~",
        "!~",
        "=",
        "and",
        "or",
        "atan2",
        "'y'",
        "`z`",
        "a",
        "up:x",
        "rate",
        "abs",
        "topk",
    ],
    *[
        "quantile",
        "count_values",
        "fill",
        "fill_left(1)",
        "fill_right(-2)",
        "[5m]",
        "[5m:1m]",
        "[5m:]",
    ],
    *[
        '{a="b"}',
        '{"m"}',
        "#",
        "$",
        "!",
        "~",
        "é",
        "\\\\",
        ".",
        "5hs",
        "1m1h",
        "300y",
        "label_replace",
    ],
    *["time()", "info", "histogram_quantiles"],
]
SIGNS = "()[]{},:\"'` \n.5e_x-+=!~@#\\"


def mutated(rng: random.Random, query: str) -> str:
    """Return a query with one to three faults."""
    for _ in range(rng.randrange(1, 4)):
        parts = re.findall(r"\w+|\s+|[^\w\s]", query) or ["up"]
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(5):
            case 0 if len(parts) > 1:
                del parts[at]
            case 1:
                parts.insert(at, rng.choice(WORDS))
            case 2:
                parts[at] = rng.choice(WORDS)
            case 3:
                parts[at], parts[other] = parts[other], parts[at]
            case _:
                parts.insert(at, rng.choice(SIGNS))
        query = "".join(parts)
    return query


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(PARTS))
def test_faulty_queries_are_refused_in_the_same_words(engine, part: int) -> None:
    rng = random.Random(f"faults {SEED} {part}")
    assert engine.ask({"series": []})["type"] == "stored"
    differences, refused = [], 0
    for _, query in islice(queries(rng), QUERIES // PARTS):
        text = mutated(rng, query)
        theirs = engine.ask({"query": text, "start": 0}).get("error", "")
        ours = ""
        try:
            parse_once(text)
        except QueryError as error:
            ours = str(error)
        refused += bool(ours)
        if "is not supported" in ours or "are not supported" in ours:
            continue
        if "nan" in text.lower() and ours.endswith("duration out of range"):
            continue  # What Go makes of this length depends on the processor.
        if ours != (theirs if "parse error" in theirs else ""):
            differences.append(f"{text!r}: ours {ours!r}, theirs {theirs!r}")
    assert not differences, f"{len(differences)} differ:\n" + "\n".join(differences[:40])
    assert refused > QUERIES / PARTS / 2


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.query)
def test_known_differences_are_there(engine, known: Known) -> None:
    """One that is gone goes from the table, too."""
    comparison = Comparison(engine, 0)
    times_ms = END * 1000 - 300_000, END * 1000, 60_000
    theirs = engine.ask(
        {"query": known.query, **dict(zip(("start", "end", "step"), times_ms, strict=True))}
    )
    ours = shaped(range_query(comparison.store, known.query, *times_ms), times_ms[0])
    if known.error:
        assert re.search(known.error, theirs["error"])
    else:
        assert first_difference(ours, theirs, RELATIVE_TOLERANCE)
