"""Scenarios in virtual time against their budgets.

The shipped scenarios as a user runs them, process start included, and 24 hours of ack-bert under a sine load
at 15 s HPA syncs. The alternative, in the same run: a rule that names no series, so that every field of every
GPU has to be rendered, parsed and stored as a live node agent would.
"""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import harness
from gpuscale.base.loads import SineLoad
from gpuscale.lab.scenarios import find_setup, shipped_names
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.server.rules.config import load_rules

DAY_MS = 86_400_000
RUNS = 5
MEAN, AMPLITUDE = 8.0, 7.0
"""Requests/s of 0.05 GPU-seconds each: 0.05 to 0.75 GPUs against a target of 20 %, so 1 to 4 pods."""
ANY_SERIES = """\
rules:
- seriesQuery: '{__name__=~"^DCGM_.*",PodName!=""}'
  resources: {overrides: {NamespaceName: {resource: namespace}, PodName: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def shipped(name: str) -> None:
    """Run a scenario as a process of its own."""
    command = [str(Path(sys.executable).parent / "gpuscale"), "simulate", name, "-o", "json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def day() -> Setup:
    """Return 24 hours of ack-bert under a sine load."""
    setup = find_setup("ack-bert")
    load = SineLoad(MEAN, AMPLITUDE, DAY_MS / 1000)
    return replace(setup, duration_ms=DAY_MS, workloads=(replace(setup.workloads[0], load=load),))


def main() -> int:
    """Measure, and return the exit code."""
    figures = [
        harness.figure(
            f"simulate {name}, whole process",
            "s",
            harness.timed(partial(shipped, name), runs=RUNS),
            at_most=2.0,
        )
        for name in shipped_names()
    ]
    setup = day()
    figures.append(
        harness.figure(
            "24 h of ack-bert under a sine",
            "s",
            harness.timed(lambda: simulate(setup), runs=RUNS, warm_up=0),
            at_most=5.0,
        )
    )
    everything = replace(setup, rules=load_rules(ANY_SERIES, "any"))
    figures.append(
        harness.figure(
            "the same, every field stored",
            "s",
            harness.timed(lambda: simulate(everything), runs=3, warm_up=0),
            note="the alternative: nothing is left out of the store",
        )
    )
    settings = {"mean": MEAN, "amplitude": AMPLITUDE, "hpa_sync_s": 15, "scrape_s": 15}
    return harness.write("simulate", figures, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
