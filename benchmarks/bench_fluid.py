"""How far `simulate --fidelity fluid` is from the exact run, on the shipped scenarios that it takes.

    python benchmarks/bench_fluid.py

GPU-hours and largest replicas are those of the summaries. Replicas are compared at each HPA sync, as the HPA
ordered them.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import harness
from gpuscale.cli.scenarios import find_setup, shipped_names
from gpuscale.core.errors import UsageError
from gpuscale.sim.scenario.fluid import simulate_fluid
from gpuscale.sim.scenario.setup import Setup
from gpuscale.sim.simulate import simulate


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


def main() -> int:
    """Compare, and return the exit code."""
    figures: list[harness.Figure] = []
    refused: dict[str, str] = {}
    for name in shipped_names():
        try:
            figures += figures_of(find_setup(name))
        except UsageError as error:
            refused[name] = str(error)
    return harness.write(
        "fluid", figures, packages=["numba", "numpy"], settings={"refused": refused}
    )


if __name__ == "__main__":
    sys.exit(main())
