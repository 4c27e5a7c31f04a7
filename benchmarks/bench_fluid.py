"""How far `simulate --fidelity fluid` is from the exact run, on the shipped scenarios that it takes.

    python benchmarks/bench_fluid.py [--drawn 100]

GPU-hours and largest replicas are those of the summaries. Replicas are compared at each HPA sync, as the HPA
ordered them. Scenarios that are drawn (`fluid_scenarios`) are held against exact runs too.
"""

import argparse
import math
import sys
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import fluid_scenarios
import harness
from gpuscale.base.errors import UsageError
from gpuscale.lab.scenarios import find_setup, shipped_names
from gpuscale.lab.sim.fluid.run import simulate_fluid
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate


def differing_share(exact: dict[str, Any], fluid: dict[str, Any]) -> float:
    """Return the share of the time in which an HPA's replicas differ, in percent; the mean over HPAs."""
    shares: list[float] = []
    for name in (each for each in fluid["series"] if each.startswith("hpa/")):
        times, known = exact["series"]["t"], exact["series"][name]
        pairs = [
            (replicas, known[bisect_right(times, t) - 1])
            for t, replicas in zip(fluid["series"]["t"], fluid["series"][name], strict=True)
        ]
        shares.append(sum(one != other for one, other in pairs) / len(pairs))
    return 100 * sum(shares) / len(shares)


def figures_of(setup: Setup) -> Iterator[harness.Figure]:
    """Yield the distances of a scenario."""
    fluid: dict[str, Any] = simulate_fluid(setup)
    exact: dict[str, Any] = simulate(setup)
    sums = [each["summary"] for each in (exact, fluid)]
    hours = [each["gpuHours"] for each in sums]
    most = [max(hpa["maxReplicas"] for hpa in each["hpas"].values()) for each in sums]
    yield harness.figure(
        f"{setup.name}: GPU-hours, distance",
        "%",
        [100 * (hours[1] / hours[0] - 1)],
        note=f"exact {hours[0]:g}, fluid {hours[1]:g}",
    )
    yield harness.figure(
        f"{setup.name}: largest replicas, distance",
        "pods",
        [most[1] - most[0]],
        note=f"exact {most[0]}, fluid {most[1]}",
    )
    yield harness.figure(
        f"{setup.name}: time in which replicas differ", "%", [differing_share(exact, fluid)]
    )


def exact_hours(number: int) -> float:
    """Return the GPU-hours of a drawn scenario."""
    summary: Any = simulate(fluid_scenarios.drawn_setup(number))["summary"]
    return float(summary["gpuHours"])


def drawn_figures(count: int) -> Iterator[harness.Figure]:
    """Yield the distances in GPU-hours of drawn scenarios, and the one that 95 of 100 stay within."""
    distances: dict[bool, list[float]] = {False: [], True: []}
    with ProcessPoolExecutor() as pool:
        for number, hours in enumerate(pool.map(exact_hours, range(count))):
            setup = fluid_scenarios.drawn_setup(number)
            fluid: Any = simulate_fluid(setup, series=False)["summary"]
            is_mixed = len({each.model.gpus for each in setup.workloads}) > 1
            distances[is_mixed].append(100 * (fluid["gpuHours"] / hours - 1))
    found = sorted(abs(each) for each in distances[False] + distances[True])
    notes = [
        f"{sum(abs(each) <= 5 for each in of)} of {len(of)} with {sizes} of pods on a node pool"
        for of, sizes in ((distances[False], "one size"), (distances[True], "several sizes"))
    ]
    yield harness.figure(
        "drawn: GPU-hours, distance", "%", distances[False] + distances[True], note=", ".join(notes)
    )
    for most in (2, 5, 10):
        near = sum(each <= most for each in found)
        yield harness.figure(
            f"drawn: within {most} %", "%", [100 * near / count], note=f"{near} of {count}"
        )
    yield harness.figure(
        "drawn: distance of the nearest 95 in 100", "%", [found[math.ceil(0.95 * count) - 1]]
    )


def main() -> int:
    """Compare, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--drawn", type=int, default=100, help="how many scenarios are drawn")
    given = parser.parse_args()
    figures: list[harness.Figure] = []
    refused: dict[str, str] = {}
    for name in shipped_names():
        try:
            figures += figures_of(find_setup(name))
        except UsageError as error:
            refused[name] = str(error)
    figures += drawn_figures(given.drawn)
    return harness.write(
        "fluid", figures, packages=["numba", "numpy"], settings={"refused": refused}
    )


if __name__ == "__main__":
    sys.exit(main())
