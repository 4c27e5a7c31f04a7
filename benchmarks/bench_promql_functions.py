"""What each function, aggregation and operator of PromQL costs over a range, beside its newest engine.

    python benchmarks/bench_promql_functions.py                  # all; writes results/promql_functions.json
    python benchmarks/bench_promql_functions.py rate deriv       # some, at all sizes; printed alone

A range query of 21 steps, the usual width of an HPA's chart, over 1 000 to 30 000 series of one name. Ours is
the CPU time from the copy of the samples to the matrix that answers; theirs that of the process
`promql-engine`, which is Prometheus 3.16's engine over samples in memory. It reads the query inside
`absent(...)`, so that it evaluates all of it and writes nothing: that favours theirs a little.
"""

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import harness
import series_queries
from gpuscale.base.errors import QueryError
from gpuscale.series.promql.elementwise import ELEMENTWISE
from gpuscale.series.promql.functions.aggregate import AGGREGATORS
from gpuscale.series.promql.functions.functions import DATE_FUNCTIONS, FUNCTIONS
from gpuscale.series.promql.functions.ranges import RANGE_FUNCTIONS
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing import vectorised
from gpuscale_testing.programs.toolset import find

SIZES = (1_000, 3_000, 10_000, 30_000)
JUDGED = 10_000
"""The size that the budget is for; above it, ours is measured alone, for its growth."""
MOST = 2.0
"""Of the engine's CPU time."""
SCRAPES = 41
"""Ten minutes: five of steps, and the five that the first one looks back on."""
STEPS = 21
BUCKETS = 16
"""Of each histogram; as many as vLLM's of latencies."""
ROUNDS = 2
"""After one that fills caches."""

_OF_ONE = (*ELEMENTWISE, *DATE_FUNCTIONS, "round", "timestamp", "sort", "sort_desc", "absent")
_OF_RANGE = (*RANGE_FUNCTIONS, "absent_over_time")
CASES: dict[str, str] = {
    **{name: f"{name}(u)" for name in _OF_ONE},
    **{name: f"{name}(u[5m])" for name in _OF_RANGE},
    "quantile_over_time": "quantile_over_time(0.9, u[5m])",
    "predict_linear": "predict_linear(u[5m], 600)",
    "double_exponential_smoothing": "double_exponential_smoothing(u[5m], 0.5, 0.3)",
    "holt_winters": "double_exponential_smoothing(u[5m], 0.5, 0.3)",
    "clamp": "clamp(u, 20, 80)",
    "clamp_min": "clamp_min(u, 20)",
    "clamp_max": "clamp_max(u, 80)",
    "label_replace": 'label_replace(u, "n", "$1", "pod", "infer-(.*)")',
    "label_join": 'label_join(u, "n", "/", "pod", "gpu")',
    "sort_by_label": 'sort_by_label(u, "pod", "gpu")',
    "sort_by_label_desc": 'sort_by_label_desc(u, "pod", "gpu")',
    "histogram_quantile": "histogram_quantile(0.9, h)",
    "histogram_quantile of rates": "histogram_quantile(0.9, rate(h[5m]))",
    "histogram_quantile of a sum": "histogram_quantile(0.9, sum by (le, model) (rate(h[5m])))",
    "histogram_quantiles": 'histogram_quantiles(h, "q", 0.5, 0.9, 0.99)',
    "histogram_fraction": "histogram_fraction(0, 0.2, h)",
    "scalar": "vector(scalar(sum(u)))",
    "vector": "vector(time())",
    "time, pi, start, end, range, step, min_of, max_of": (
        "vector(min_of(time(), pi()) + max_of(start(), end()) + range() + step())"
    ),
    **{name: f"{name} by (pod) (u)" for name in sorted(AGGREGATORS)},
    "topk": "topk by (pod) (3, u)",
    "bottomk": "bottomk by (pod) (3, u)",
    "topk of all": "topk(10, u)",
    "limitk": "limitk by (pod) (3, u)",
    "limit_ratio": "limit_ratio(0.5, u)",
    "quantile": "quantile by (pod) (0.9, u)",
    "count_values": 'count_values("v", floor(u / 50))',
    "count_values of many": 'count_values("v", u)',
    "u": "u",
    "-": "-u",
    **{f"{name} number": f"u {name} 40" for name in ("+", "-", "*", "/", "%", "^", "atan2")},
    **{f"{name} number": f"u {name} 40" for name in (">", "==", "!= bool")},
    "/ on": "u / on (UUID) u",
    "/ ignoring": "u / ignoring (gpu) u",
    "* group_left": "u * on (pod) group_left () sum by (pod) (u)",
    "> group_left": "u > on (pod) group_left () avg by (pod) (u)",
    "+ fill": "u + fill (0) u",
    "and": "u and on (pod) (sum by (pod) (u) > 100)",
    "or": "(u > 100) or u",
    "unless": "u unless on (pod) (sum by (pod) (u) > 100)",
    **{
        f"{name}, subquery": f"{name}((u * 2)[5m:15s])"
        for name in ("max_over_time", "avg_over_time", "rate", "deriv", "absent_over_time")
    },
    "quantile_over_time, subquery": "quantile_over_time(0.9, (u * 2)[5m:15s])",
    "subquery of a rate": "max_over_time(rate(u[2m])[5m:30s])",
    "subquery of a sum": "max_over_time(sum by (pod) (u)[5m:15s])",
    "subquery in a subquery": "max_over_time(avg_over_time((u * 2)[2m:30s])[5m:1m])",
}
_TOGETHER = {"time", "pi", "start", "end", "range", "step", "min_of", "max_of", "holt_winters"}
"""Numbers, which have no series; and the older name of another function."""
assert {*FUNCTIONS, *AGGREGATORS} <= {*CASES, *_TOGETHER}, {*FUNCTIONS, *AGGREGATORS} - {*CASES}
END_MS = series_queries.end_ms(SCRAPES)
TIMES = END_MS - (STEPS - 1) * series_queries.STEP_MS, END_MS, series_queries.STEP_MS


def histogram_labels(i: int) -> dict[str, str]:
    """Return the labels of one bucket."""
    server, bucket = divmod(i, BUCKETS)
    bound = "+Inf" if bucket == BUCKETS - 1 else f"{0.01 * 2**bucket:g}"
    node = {"instance": f"10.0.{server >> 8}.{server & 255}:8000", "pod": f"vllm-{server}"}
    return {"__name__": "h", "le": bound, "model": f"m-{server % 20}", "job": "vllm", **node}


def histogram_values(series: int, scrape: int) -> list[float]:
    """Return the counts of all buckets at a scrape; they rise from bucket to bucket and over time."""
    return [float((i % BUCKETS + 1) * (scrape + 1) * (1 + i // BUCKETS % 7)) for i in range(series)]


def filled(series: int) -> SeriesStore:
    """Return a store with so many gauges `u`, and as many buckets `h`."""
    store = SeriesStore(2 * 3_600_000, 2 * series + 2, 2 * series * (SCRAPES + 100) * 2)
    for labels, values in (
        (series_queries.labels, series_queries.values),
        (histogram_labels, histogram_values),
    ):
        size = series_queries.SERIES_A_TARGET * BUCKETS
        targets = [range(first, min(series, first + size)) for first in range(0, series, size)]
        parts = [([store.ref(labels(i)) for i in target], store.group()) for target in targets]
        for scrape in range(SCRAPES):
            t_ms = series_queries.START_MS + scrape * series_queries.STEP_MS
            row = values(series, scrape)
            for target, (refs, group) in zip(targets, parts, strict=True):
                store.append_many(refs, row[target.start : target.stop], t_ms, t_ms, group)
    return store


class Engine:
    """A process with Prometheus' engine over the same samples."""

    def __init__(self, program: Path, series: int) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._server = series_queries.Server("", self._process.pid)
        times = [series_queries.START_MS + i * series_queries.STEP_MS for i in range(SCRAPES)]
        told = []
        for labels, values in (
            (series_queries.labels, series_queries.values),
            (histogram_labels, histogram_values),
        ):
            columns = zip(*(values(series, scrape) for scrape in range(SCRAPES)), strict=True)
            for i, column in enumerate(columns):
                samples = [[t_ms, repr(value)] for t_ms, value in zip(times, column, strict=True)]
                told.append({"labels": labels(i), "samples": samples})
        self._ask({"series": told})

    def _ask(self, line: dict[str, object]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ValueError(f"found {answer['error']!r} for {line}, expected an answer")

    def costs_ms(self, query: str) -> list[float]:
        """Return the CPU time of a query, several times; garbage collection is part of it."""
        found = []
        for _ in range(ROUNDS + 1):
            before = self._server.cpu_s()
            start, end, step = TIMES
            self._ask({"query": f"absent({query})", "start": start, "end": end, "step": step})
            found.append((self._server.cpu_s() - before) * 1000)
        return found[1:]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def our_costs_ms(store: SeriesStore, query: str) -> tuple[list[float], bool]:
    """Return the CPU time of a query, several times, and whether all of it was columns."""
    found: list[float] = []
    vectorised.ways.clear()
    while len(found) <= ROUNDS:
        began = time.process_time()
        vectorised.range_query(store, query, *TIMES)
        found.append((time.process_time() - began) * 1000)
        if sum(found) > 6_000:
            break
    return found[1:] or found, not vectorised.ways["rows"]


def exponent(costs: Sequence[tuple[int, float]]) -> float:
    """Return how cost grows with the number of series: 1 is linear; by the least squares of logarithms."""
    return statistics.linear_regression(
        [math.log(series) for series, _ in costs], [math.log(cost) for _, cost in costs]
    ).slope


def figures(cases: dict[str, str]) -> Iterator[harness.Figure]:
    """Yield the figures of some cases, from the smallest size to the largest."""
    program = find("promql-engine")
    costs: dict[str, list[tuple[int, float]]] = {name: [] for name in cases}
    for series in SIZES:
        store = filled(series)
        engine = Engine(program, series) if series <= JUDGED else None
        for name, query in cases.items():
            what = f"{name}, {series:,} series"
            try:
                ours, is_columns = our_costs_ms(store, query)
            except QueryError as error:
                # What a query may hold is bounded.
                yield harness.figure(f"refused, {what}", "queries", [1], note=str(error)[:160])
                continue
            note = query if is_columns else f"{query} (row by row)"
            costs[name].append((series, statistics.median(ours)))
            yield harness.figure(what, "CPU ms", ours, note=note)
            if engine is None:
                continue
            theirs = engine.costs_ms(query)
            yield harness.figure(f"alternative: Prometheus 3.16, {what}", "CPU ms", theirs)
            ratio = statistics.median(ours) / max(statistics.median(theirs), 1.0)
            budget = MOST if series == JUDGED else None
            yield harness.figure(f"ours / Prometheus, {what}", "ratio", [ratio], at_most=budget)
        if engine is not None:
            engine.close()
        del store
    for name, found in costs.items():
        # Below some milliseconds it is the query itself that costs, not its series.
        large = [(series, cost) for series, cost in found if series >= SIZES[1]]
        if len(large) > 1:
            slope = exponent(large)
            yield harness.figure(f"growth, {name}", "exponent", [slope], note="1 is linear")


def main() -> int:
    """Measure what is named, or all of it."""
    named = {name: CASES[name] for name in sys.argv[1:]}
    found = []
    for each in figures(named or CASES):
        found.append(each)
        if named or each.name.startswith("ours /"):
            print(harness.line(each), flush=True)
    if named:
        return 0
    return harness.write(
        "promql_functions",
        found,
        packages=("numpy",),
        settings={"series": SIZES, "scrapes": SCRAPES, "steps": STEPS},
    )


if __name__ == "__main__":
    sys.exit(main())
