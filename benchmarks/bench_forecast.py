"""How far forecasts of `gpuscale money --forecast` are from what came, on public traces.

    python benchmarks/bench_forecast.py [--traces FOLDER]

The first half of a trace is the past, and up to two weeks of the second are forecast. GPU-hours are those
that were held: GPUs that ran of Helios, nodes in use of Philly, all of it and before the cluster was resized;
of ServeGen and GenTD26 the work, in pods. Traces whose halves have two weeks are held to the goal of 10 %.
The method was picked with a look at these halves, which flatters it. Beside each is what the mean of the
past and its last week repeated would have said.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import harness
import policy_traces
from gpuscale.ops.money.forecast import HORIZON_DAYS, LEAST_DAYS, Forecast, look_ahead
from gpuscale.triggers.policies.policy import Numbers

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "traces"
LONG_DAYS = HORIZON_DAYS
"""Of a half, from which on the goal counts."""
GOAL = 0.1


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A trace's forecast, and what came."""

    name: str
    days: int
    """That were forecast."""
    found: Forecast
    came: float
    mean: float
    """Error of the mean of the past."""
    last_week: float
    """Error of its last week."""

    @property
    def error(self) -> float:
        return self.found.total / self.came - 1


def by_hour(folder: Path) -> Iterator[tuple[str, Numbers]]:
    """Yield what each trace held in each hour."""
    for name in ("vc3sl", "vchbv", "vcvlY"):
        path = folder / "helios-earth-2020" / f"{name}_cluster_sequence.csv.gz"
        if path.exists():
            yield f"helios-{name}", hours_of(policy_traces.running_gpus(path), 60)
    philly = folder / "philly-nodes-2017" / "philly_node_sequence.csv.gz"
    if philly.exists():
        yield "philly-whole", hours_of(policy_traces.nodes_in_use(philly), 60)
    for trace in policy_traces.traces(folder):
        if not trace.name.startswith("helios"):
            yield trace.name, hours_of(trace.demand, policy_traces.STEP_S)


def hours_of(values: Numbers, period_s: float) -> Numbers:
    """Return means of hours."""
    each = round(3600 / period_s)
    means: Numbers = values[: len(values) // each * each].reshape(-1, each).mean(axis=1)
    return means


def held_back(folder: Path) -> Iterator[HeldBack]:
    """Yield the forecast of each trace whose first half has enough days."""
    for name, hours in by_hour(folder):
        half = len(hours) // 2
        days = min(HORIZON_DAYS, (len(hours) - half) // 24)
        if half < LEAST_DAYS * 24:
            print(f"too short: {name}, {len(hours)} hours")
            continue
        past, came = hours[:half], float(hours[half : half + days * 24].sum())
        found = look_ahead(past.tolist(), days)
        mean, week = (float(each.mean()) * days * 24 / came - 1 for each in (past, past[-168:]))
        yield HeldBack(name, days, found, came, mean, week)


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--traces", type=Path, default=FOLDER)
    figures = []
    for each in held_back(parser.parse_args().traces):
        found, came = each.found, each.came
        is_inside = found.low <= came <= found.high
        figures.append(
            harness.figure(
                f"{each.name}, {each.days} days: distance",
                "%",
                [abs(100 * each.error)],
                at_most=100 * GOAL if each.days >= LONG_DAYS else None,
                note=f"{each.error:+.1%}; interval {found.low / came:.2f} to {found.high / came:.2f} of what "
                f"came, {'which is inside' if is_inside else 'which is OUTSIDE'}; pattern {found.season}; "
                f"mean of the past {each.mean:+.1%}, its last week {each.last_week:+.1%}",
            )
        )
    return harness.write("forecast", figures, packages=("numpy",))


if __name__ == "__main__":
    sys.exit(main())
