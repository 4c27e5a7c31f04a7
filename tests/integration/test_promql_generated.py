# mypy: disable-error-code="arg-type"
"""Some thousands of generated PromQL queries to a real Prometheus and to our store: the answers agree.

The queries come from a grammar with a fixed seed. Each function, aggregation, operator, matching mode and
modifier has its own share of them; the rest nest freely. A few are wrong on purpose: both sides refuse them.

Compared are result type, label sets, times and values, to a relative 1e-9: sums are added up in different
orders. That is also why functions that jump, such as `floor`, and comparisons get only operands that both
sides know exactly ("exact" below: small multiples of 1/8); elsewhere a difference in the last bit would
become a different answer. For the same reason a counter here restarts either at zero or well above:
Prometheus 2 and 3 extrapolate differently what starts in between (docs/promql.md).
"""

import importlib.util
import math
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from gpuscale.core.errors import QueryError
from gpuscale.series.promql.evaluate import LOOKBACK_MS, instant, range_covered, range_query
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.snapshot import Snapshot
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import STALE, is_stale
from gpuscale.testing import vectorised
from gpuscale.testing.prometheus import major_release, points_by_labels, query_data, serve

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("prometheus")]


def _load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


grammar = _load("promql_grammar")
START, STEP, COUNT, END = grammar.START, grammar.STEP, grammar.COUNT, grammar.END
SEED = 20_240_601
TIMES = [
    *[END] * 5,
    END - 7,
    END - 600,
    START + 40 * STEP,
    START + 1203.5,
    END + 200,
    END + 500,
    START - 60,
]
RANGES = [(START, END, 120), (START - 7, END + 400, 131), (END - 300, END, 15), (END, END, 60)]
RELATIVE_TOLERANCE = 1e-9


# What is stored


def gauge(rng):
    return [rng.randrange(-400, 4000) / 8 for _ in range(COUNT)]


def counter(rng, restart):
    """A counter that restarts twice, at zero or well above."""
    values, value = [], 5000.0
    for i in range(COUNT):
        value += rng.randrange(1, 40) / 8
        if i in {57, 118}:
            value = restart
        values.append(value)
    return values


def dense(name, values, shift_s=0, **labels):
    for i, value in enumerate(values):
        if value is not None:
            yield {"__name__": name, **labels}, (START + i * STEP + shift_s) * 1000, float(value)


def samples():
    """Yield labels, milliseconds and value of every sample."""
    rng = random.Random(1)
    for node in "ab":
        for gpu in range(3):
            labels = {"node": node, "gpu": str(gpu), "pod": f"p{gpu % 2}", "zone": f"z{gpu // 2}"}
            yield from dense("util", gauge(rng), **labels)
            half = [value if i % 2 else None for i, value in enumerate(gauge(rng))]
            yield from dense("mem", half, 3, node=node, gpu=str(gpu), kind="used")
    yield from dense("util_total", gauge(rng), node="a")
    for path, restart in (("/chat", 0), ("/embed", 700), ("/health", 0)):
        yield from dense("req_total", counter(rng, restart), 2, path=path, code="200")
        late = [value if i > 70 else None for i, value in enumerate(counter(rng, 900))]
        yield from dense("req_total", late, 2, path=path, code="500")
    yield from dense("slow", [i if i % 30 == 0 else None for i in range(COUNT)], kind="gap")
    ended = [
        STALE if i in {50, 90, 159} else i if i < 50 or 70 < i < 90 or i > 100 else None
        for i in range(COUNT)
    ]
    yield from dense("ended", ended, kind="stale", node="a")
    yield from dense("ended", [i if i < 100 else None for i in range(COUNT)], node="b")
    odd = [
        (math.nan, math.inf, -math.inf, 1.5, -2.5, 0.0, -0.0, 1e150)[i % 8] for i in range(COUNT)
    ]
    yield from dense("odd", odd, kind="special")
    yield from dense("odd", [-1.5 + i / 8 for i in range(COUNT)], kind="plain")
    yield from dense("flat", [3] * COUNT, kind="same")
    yield from dense("one", [i / 8 for i in range(COUNT)])
    for node in "ab":
        for pod in ("p0", "p1"):
            yield from dense("info", [1] * COUNT, node=node, pod=pod, app=f"app-{pod}", team="ml")
    yield from histograms(rng)


def histograms(rng):
    bounds = {
        "chat": ["0.1", "0.5", "1", "2.5", "+Inf"],
        "embed": ["-1", "0", "1.0", "+Inf"],
        "twice": ["1", "1.0", "2", "+Inf"],
        "open": ["1", "2"],
        "empty": ["1", "+Inf"],
    }
    for job, les in bounds.items():
        counts = [500 * (i + 1) if job != "empty" else 0 for i in range(len(les))]
        rows = []
        for _ in range(COUNT):
            grown = 0
            for position in range(len(les)):
                grown += rng.randrange(8) if job != "empty" else 0
                counts[position] += grown
            rows.append(list(counts))
        for position, le in enumerate(les):
            yield from dense("lat_bucket", [row[position] for row in rows], job=job, le=le)
    yield from dense("lat_bucket", [9] * COUNT, job="chat", le="bad")


# The comparison


@pytest.fixture(scope="module")
def release():
    return major_release()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory):
    with serve(samples(), tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture(scope="module")
def store():
    store = SeriesStore(retention_ms=10**12)
    for labels, t_ms, value in samples():
        if is_stale(value):
            assert store.mark_stale(store.ref(labels), t_ms)
        else:
            assert store.append(labels, t_ms, value)
    return store


class Comparison:
    """Asks both sides and keeps what differs."""

    def __init__(self, prometheus, store, release) -> None:
        self.prometheus = prometheus
        self.store = store
        self.left_open = release >= 3
        self.kinds = Counter()
        self.differences = []

    def instant(self, query, at) -> None:
        theirs = self.prometheus.get("/api/v1/query", query=query, time=at)
        at_ms = round(at * 1000)
        self.compare(
            f"{query}  at {at}",
            theirs,
            lambda: query_data(self.answer(instant, query, at_ms), at_ms),
            ordered=query.startswith("sort"),
        )

    def range(self, query, start, end, step) -> None:
        theirs = self.prometheus.get(
            "/api/v1/query_range", query=query, start=start, end=end, step=step
        )
        ms = [1000 * each for each in (start, end, step)]
        self.compare(
            f"{query}  from {start} to {end} step {step}",
            theirs,
            lambda: query_data(self.answer(range_query, query, *ms), ms[1]),
        )

    def answer(self, evaluate, query, *times_ms):
        """Evaluate over the store; over a copy of what the query reads, and with numpy, it is the same."""
        value = evaluate(self.store, query, *times_ms, left_open=self.left_open)
        start_ms, end_ms, step_ms = times_ms if len(times_ms) == 3 else (*times_ms, *times_ms, 0)
        covered = range_covered(start_ms, end_ms, step_ms)
        copy = Snapshot(self.store.oldest_kept_ms())
        for _ in copy.fill(self.store, parse_query(query).root, covered, LOOKBACK_MS):
            pass
        again = evaluate(copy, query, *times_ms, left_open=self.left_open)
        assert repr(again) == repr(value), query
        other = getattr(vectorised, evaluate.__name__)
        again = other(self.store, query, *times_ms, left_open=self.left_open)
        assert repr(again) == repr(value), query
        return value

    def compare(self, asked, theirs, answer, *, ordered=False) -> None:
        try:
            ours, problem = answer(), None
        except QueryError as error:
            ours, problem = None, str(error)
        if theirs["status"] == "error":
            self.kinds["error"] += 1
            if problem is None:
                self.differences.append(f"{asked}: ours {ours}, theirs {theirs['error']}")
        elif problem is not None:
            self.differences.append(f"{asked}: ours {problem}, theirs {theirs['data']}")
        else:
            self.kinds["answer" if theirs["data"]["result"] else "empty"] += 1
            difference = first_difference(ours, theirs["data"], ordered=ordered)
            if difference:
                self.differences.append(f"{asked}: {difference}")


def first_difference(ours, theirs, *, ordered):
    """Return what differs first, or None."""
    if ours["resultType"] != theirs["resultType"]:
        return f"ours is a {ours['resultType']}, theirs a {theirs['resultType']}"
    left, right = points_by_labels(ours), points_by_labels(theirs)
    if (list(left) != list(right)) if ordered else (left.keys() != right.keys()):
        return f"ours has {list(left)}, theirs {list(right)}"
    for labels, theirs_points in right.items():
        if [t for t, _ in left[labels]] != [t for t, _ in theirs_points]:
            return f"{labels}: ours {left[labels]}, theirs {theirs_points}"
        for mine, other in zip(left[labels], theirs_points, strict=True):
            if not same(mine[1], other[1]):
                return f"{labels}: ours {mine}, theirs {other}"
    return None


def same(mine, other):
    return mine == other or math.isclose(
        float(mine), float(other), rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12
    )


@pytest.mark.timeout(300)
def test_generated_queries_agree_with_prometheus(prometheus, store, release) -> None:
    rng = random.Random(SEED)
    comparison = Comparison(prometheus, store, release)
    asked = list(grammar.Grammar(rng, release).all())
    for position, (_, query) in enumerate(asked):
        comparison.instant(query, rng.choice(TIMES))
        if position % 3 == 0:
            comparison.range(query, *rng.choice(RANGES))
    shown = "\n".join(comparison.differences[:40])
    assert not comparison.differences, f"{len(comparison.differences)} differ:\n{shown}"
    # A comparison of nothing with nothing would say nothing.
    assert len(asked) > 5_000
    assert comparison.kinds["answer"] > comparison.kinds.total() / 2, comparison.kinds
    assert comparison.kinds["error"] > 200, comparison.kinds
    assert vectorised.ways["columns"] > vectorised.ways["rows"]
