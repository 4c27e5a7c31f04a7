"""What it costs to find the series of an HPA's pods, right after a pod came or went.

The selector is what the metrics API asks with, `u{namespace="default",pod=~"web-1|web-2|..."}`, for
100 pods, in a store of one series a pod. Beside it the same names in brackets, which RE2 has to test
against every pod of the namespace. What a store remembers of a selector is forgotten with each new series.
"""

import itertools
import sys
from collections.abc import Iterator

import harness
from gpuscale.series.promql.parse import parse_matchers
from gpuscale.series.storage.index import Selector
from gpuscale.series.storage.store import SeriesStore

PODS = (2_000, 8_000, 32_000, 128_000)
NAMES = [f"web-3-{number}" for number in range(100)]
RUNS = 9


def filled(pods: int) -> SeriesStore:
    """Return a store with one series a pod, all of one namespace."""
    store = SeriesStore()
    for number in range(pods):
        pod = f"web-{number // 100}-{number % 100}"
        store.append({"__name__": "u", "namespace": "default", "pod": pod}, 1_000, 1.0)
    return store


def main() -> int:
    """Measure, write the result, and return 1 where the cost grows with other people's pods."""
    names = "|".join(NAMES)
    asked = {"names": names, "names in brackets": f"({names})"}
    figures, medians = [], []
    for pods in PODS:
        store, numbers = filled(pods), itertools.count()
        for way, expression in asked.items():
            selector = parse_matchers(f'u{{namespace="default",pod=~"{expression}"}}')

            def select(
                store: SeriesStore = store,
                selector: Selector = selector,
                numbers: Iterator[int] = numbers,
            ) -> None:
                new = {"__name__": "other", "n": str(next(numbers))}
                store.append(new, 1_000, 1.0)
                if len(store.select(selector)) != len(NAMES):
                    raise SystemExit("found other series than those of the pods")

            times_ms = [seconds * 1000 for seconds in harness.timed(select, runs=RUNS)]
            found = harness.figure(f"{way}: {pods} pods", "ms", times_ms)
            figures.append(found)
            if way == "names":
                medians.append(found.median)
    figures.append(
        harness.figure(
            f"names: {PODS[-1]} pods against {PODS[0]}",
            "times",
            [medians[-1] / medians[0]],
            at_most=2.0,
        )
    )
    harness.write("selecting", figures)
    return 0 if all(each.is_within_budget() for each in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
