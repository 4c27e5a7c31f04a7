"""What the choice of the signal is worth: the same HPA on GPU utilisation and on demand, over public traces.

    python benchmarks/bench_signals.py --traces FOLDER [--days 14]

Every step is decided by `gpuscale.hpa.deciding`, Kubernetes' own algorithm with its defaults, on a fluid
service with start-up time: work comes at the trace's rate, a ready pod does one second of work a second, what
is not done waits. Signals are 30 s old. The second half of each trace is scored between two bounds
(`lab.plan.bounds`): a fixed number of replicas is 0 %, an oracle that knows the load to come 100 %. What
leaves more than 0.5 % of the steps short of capacity saves nothing, it takes from the users: so each signal
gets the best of its targets that keeps this promise, chosen in hindsight.

    utilisation       of a GPU whose work adds up, as of a classifier: it ends at 100 %
    llm utilisation   of a server that batches: the GPU is busy while any request is in a batch of up to 32,
                      which is 1 - exp(-32 x load) of the time for requests that come by chance
    demand            work that comes and waits, by what the ready pods can do: in-flight requests, rate, or
                      the queue beside what runs; it has no highest value
"""

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import harness
import policy_traces
from gpuscale.base.documents.documents import Document
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, read_hpa
from gpuscale.base.promises import PromiseTerm
from gpuscale.hpa.deciding import decide
from gpuscale.hpa.types import HpaState, ObjectValue, PodInfo, Scale
from gpuscale.lab.plan.bounds import GpuHourBounds, bounds
from gpuscale.lab.plan.promise import Promise
from gpuscale.triggers.policies.policy import Numbers
from gpuscale.triggers.policies.replaying import ReplaySettings

PROMISE = 0.005
PROMISED = Promise((PromiseTerm("short", PROMISE),))
FOLDER = Path(__file__).parents[2] / "shared" / "data" / "traces"
TARGETS = (0.6, 0.7, 0.8, 0.9, 1.0)
USUAL = 0.6
LAG_STEPS = 2
BATCH = 32
PATIENCE_S = 60.0
LONG_DAYS = 0.9
START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """One signal with one target on one trace, second half."""

    trace: str
    signal: str
    target: float
    saved_percent: float
    """Share of the oracle's saving over a fixed number of replicas."""
    short_percent: float
    changes: int
    gpu_hours: float
    static_hours: float
    oracle_hours: float
    is_long: bool


Reading = Callable[[float, float, float], float]
"""Takes the step's load by capacity, work that was done and work that waits by capacity; gives the signal."""
SIGNALS: dict[str, Reading] = {
    "utilisation": lambda load, done, waits: done,
    "llm utilisation": lambda load, done, waits: 1 - math.exp(-BATCH * done),
    "demand": lambda load, done, waits: load + waits,
}


def hpa_of(target: float, most: int) -> HorizontalPodAutoscaler:
    """Return an HPA on a Service's metric, held against a value."""
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "chat", "namespace": "ml"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Object",
                    "object": {
                        "metric": {"name": "load"},
                        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "chat"},
                        "target": {"type": "Value", "value": f"{round(target * 1000)}m"},
                    },
                }
            ],
        },
    }
    fields = Fields(Document("hpa", 0, manifest, {}), manifest)
    found = read_hpa(fields)
    if fields.problems:
        raise SystemExit(f"found an HPA with problems: {fields.problems}")
    return found


def replayed(
    demand: Numbers, signal: Reading, target: float, start_up: int, most: int
) -> Iterator[tuple[int, int, bool]]:
    """Yield for each step the ready pods, the pods that are paid for, and whether there were too few."""
    hpa, state = hpa_of(target, most), HpaState()
    pods = tuple(PodInfo(f"chat-{index}") for index in range(most))
    step_ms = round(policy_traces.STEP_S * 1000)
    due = [0] * (len(demand) + start_up + 1)
    ready = replicas = min(most, max(1, math.ceil(demand[0])))
    waiting = 0.0
    seen: list[float] = []
    for step, load in enumerate(map(float, demand)):
        ready += due[step]
        work = waiting + load
        done = min(work, ready)
        waiting = min(work - done, ready * PATIENCE_S / policy_traces.STEP_S)
        seen.append(signal(load / ready, done / ready, waiting / ready))
        yield ready, replicas, load > ready + 1e-9
        value = ObjectValue(round(1000 * seen[max(0, step - LAG_STEPS)]))
        scale = Scale(replicas, replicas, "app=chat")
        decision = decide(hpa, scale, pods[:ready], (value,), state, START_MS + step * step_ms)
        state = decision.next_state
        wanted = decision.desired_replicas
        if wanted > replicas:
            due[step + start_up] += wanted - replicas
        gone = max(0, replicas - wanted)
        for at in range(step + start_up, step, -1):
            cut = min(gone, due[at])
            due[at] -= cut
            gone -= cut
        ready -= gone
        replicas = wanted


def rows_of(trace: policy_traces.Trace, days: float) -> Iterator[Row]:
    """Yield the row of each signal and target on a trace."""
    demand = trace.demand[: int(days * 86_400 / policy_traces.STEP_S)]
    half = len(demand) // 2
    service = ReplaySettings(step_s=policy_traces.STEP_S, start_up_s=trace.start_up_s)
    limits: GpuHourBounds = bounds(demand[half:], service, PROMISED)
    most = 2 * limits.static_replicas
    start_up = max(1, math.ceil(trace.start_up_s / policy_traces.STEP_S))
    is_long = len(demand) * policy_traces.STEP_S / 86_400 >= LONG_DAYS
    for name, signal in SIGNALS.items():
        for target in TARGETS:
            steps = [*replayed(demand, signal, target, start_up, most)][half:]
            hours = sum(paid for _, paid, _ in steps) * policy_traces.STEP_S / 3600
            counts = [paid for _, paid, _ in steps]
            row = Row(
                trace.name,
                name,
                target,
                100 * (limits.share(hours) or 0.0),
                100 * sum(short for *_, short in steps) / len(steps),
                sum(a != b for a, b in itertools.pairwise(counts)),
                hours,
                limits.static_hours,
                limits.oracle_hours,
                is_long,
            )
            yield row


def best(rows: list[Row]) -> Row | None:
    """Return the row that saves most and keeps the promise."""
    kept = [row for row in rows if row.short_percent <= 100 * PROMISE]
    return max(kept, key=lambda row: row.saved_percent, default=None)


def main() -> int:
    """Replay the traces, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--traces", type=Path, default=FOLDER)
    parser.add_argument("--days", type=float, default=14.0, help="of each trace, at most")
    given = parser.parse_args()
    started = time.perf_counter()
    rows: list[Row] = []
    for trace in policy_traces.traces(given.traces):
        found = [*rows_of(trace, given.days)]
        rows += found
        print(trace.name)
        for name in SIGNALS:
            usual, chosen = (
                next(row for row in found if row.signal == name and row.target == USUAL),
                best([row for row in found if row.signal == name]),
            )
            tuned = f"best {chosen.saved_percent:.0f} % at {chosen.target:g}" if chosen else "none"
            print(
                f"  {name:<16} at {USUAL:g}: {usual.saved_percent:>5.0f} % saved,"
                f" {usual.short_percent:.2f} % short, {usual.changes} changes; {tuned}",
                flush=True,
            )
    if not rows:
        print(f"{given.traces}: found no trace", file=sys.stderr)
        return 2
    settings = {
        "promise": PROMISE,
        "days": given.days,
        "targets": TARGETS,
        "seconds": round(time.perf_counter() - started),
        "rows": [asdict(row) for row in rows],
    }
    return harness.write("signals", [*_figures(rows)], packages=["numpy"], settings=settings)


def _figures(rows: list[Row]) -> Iterator[harness.Figure]:
    """Yield what each signal saves over all long traces: with one target for all, with the best of each."""
    long = [row for row in rows if row.is_long]
    names = list(dict.fromkeys(row.trace for row in long))
    for name in SIGNALS:
        of_it = [row for row in long if row.signal == name]
        for target in TARGETS:
            found = [row for row in of_it if row.target == target]
            kept = sum(row.short_percent <= 100 * PROMISE for row in found)
            note = f"promise kept on {kept} of {len(names)} traces"
            yield harness.figure(f"{name} at {target:g}: saved", "%", [_saved(found)], note=note)
        chosen = [best([row for row in of_it if row.trace == trace]) for trace in names]
        there = [row for row in chosen if row is not None]
        # Where no target keeps the promise, a fixed number is what is left, and nothing is saved.
        rest = [row for row in of_it if row.trace not in {each.trace for each in there}]
        static = {row.trace: replace(row, gpu_hours=row.static_hours) for row in rest}
        note = f"a target that keeps the promise on {len(there)} of {len(names)} traces"
        label = f"{name}, best target of each trace: saved"
        yield harness.figure(label, "%", [_saved([*there, *static.values()])], note=note)


def _saved(rows: list[Row]) -> float:
    """Return the share of the oracle's saving over all traces together, so that large ones count more."""
    static = sum(row.static_hours for row in rows)
    oracle = sum(row.oracle_hours for row in rows)
    return 100 * (static - sum(row.gpu_hours for row in rows)) / (static - oracle)


if __name__ == "__main__":
    sys.exit(main())
