"""An open benchmark of replica policies: settings from the first half of public traces, scored on the rest.

    python benchmarks/bench_policies.py --traces FOLDER [--policy my_policy.py]... [--tries 64]

Each policy runs over the whole trace, so that one that learns has the first half to learn from. The second
half is scored: which share of the clairvoyant oracle's saving over a fixed number of replicas it saves
(`lab.plan.bounds`), which share of the steps is short of capacity, how often it changes replicas, and what
its nodes cost. The settings of a policy that has any are the best of `--tries` on the second quarter, after a
first quarter to begin with. A file of `--policy` names a policy as `POLICY`, and is scored beside ours.

Threads share the traces and policies out: compiled replays let go of the interpreter's lock.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import harness
import policy_traces
from gpuscale.base.errors import UsageError
from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.bounds import GpuHourBounds, bounds
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import Nodes, Score, score
from gpuscale.lab.plan.search import best_settings
from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.hpa import HPA, HPA_ON_DEMAND
from gpuscale.triggers.policies.ours.calibrated import CALIBRATED
from gpuscale.triggers.policies.policy import Numbers, Policy
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import ReplaySettings

PROMISE = 0.005
PROMISED = Promise((PromiseTerm("short", PROMISE),))
"""Share of the steps that may be short of capacity."""
SEARCHED_WITH = 0.8
"""Settings are chosen to keep this share of the promise, because the scored days are others."""
FOLDER = Path(__file__).parents[2] / "shared" / "data" / "traces"
PRICE_OF = "8 GPUs at 4 USD an hour each"
NODES = Nodes(gpus_per_replica=1, gpus_per_node=8, price_per_hour=32.0, currency="USD")
SIMPLE_RULE = "best simple rule in hindsight"
STILL, STILL_S = "calibrated, still", 28_800.0
"""What fewer changes cost: a change is reckoned with eight hours of a pod."""
THREADS = 2
LONG_DAYS, ONE_DAY = 7.0, 0.9
"""Traces of a week and more make one mean, those of a day another, since half of a day is little more than
noise. Shorter ones have no days to learn from, and are in neither."""


def policy_of(path: Path) -> Policy:
    """Return the policy that a file names as POLICY."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: found no Python module, expected a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - it is somebody's own program
        raise SystemExit(f"{path}: {type(error).__name__}: {error}") from None
    policy = getattr(module, "POLICY", None)
    if not isinstance(policy, Policy):
        raise SystemExit(f"{path}: found no Policy named POLICY")
    return policy


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one trace."""

    trace: str
    policy: str
    saved_percent: float
    """Share of the oracle's saving over static."""
    short_percent: float
    changes: int
    gpu_hours: float
    cost: float
    days: float
    """Length of the trace."""


def chosen(policy: Policy, demand: Numbers, service: ReplaySettings, tries: int) -> Numbers:
    """Return the settings that the first half of a trace gives a policy."""
    half = demand[: len(demand) // 2]
    if policy.name == "static":
        return policy.settings(replicas=bounds(half, service, PROMISED).static_replicas)
    if policy.learns:
        return policy.settings()
    return best_settings(
        policy,
        half,
        service,
        first_step=len(half) // 2,
        promise=PROMISED.scaled(SEARCHED_WITH),
        count=tries,
    )


def scored(policy: Policy, demand: Numbers, service: ReplaySettings, tries: int) -> Score:
    """Return a policy's figures on the second half of a trace."""
    settings = chosen(policy, demand, service, tries)
    desired = policy_function(policy.desired)
    replayed = replay(desired, settings, policy.memory, demand, service)
    return score(replayed, len(demand) // 2, NODES, PROMISED)


@dataclass(frozen=True, slots=True)
class Running:
    """A trace whose policies are being scored."""

    trace: policy_traces.Trace
    limits: Future[GpuHourBounds]
    scores: list[tuple[str, Future[Score]]]


def begin(
    trace: policy_traces.Trace, policies: list[Policy], tries: int, pool: ThreadPoolExecutor
) -> Running:
    """Have a trace's policies scored."""
    demand = trace.demand
    most = 2 * float(demand.max()) + 10
    service = ReplaySettings(step_s=policy_traces.STEP_S, start_up_s=trace.start_up_s, most=most)
    return Running(
        trace,
        pool.submit(bounds, demand[len(demand) // 2 :], service, PROMISED),
        [(each.name, pool.submit(scored, each, demand, service, tries)) for each in policies],
    )


def rows_of(running: Running) -> Iterator[Row]:
    """Yield each policy's row on a trace, and print it."""
    name, limits = running.trace.name, running.limits.result()
    days = len(running.trace.demand) * policy_traces.STEP_S / 86_400
    simple = limits.share(limits.simple_rule_hours) or 0.0
    print(
        f"\n{name}: {days:.2f} days; GPU-hours: static {limits.static_hours:,.0f},"
        f" oracle {limits.oracle_hours:,.0f}, {SIMPLE_RULE} {limits.simple_rule_hours:,.0f}"
    )
    hours = limits.simple_rule_hours
    yield Row(name, SIMPLE_RULE, 100 * simple, 100 * PROMISE, 0, hours, 0.0, days)
    for policy, soon in running.scores:
        result = soon.result()
        row = Row(
            name,
            policy,
            100 * (limits.share(result.gpu_hours) or 0.0),
            100 * result.short_share,
            result.events,
            result.gpu_hours,
            result.cost or 0.0,
            days,
        )
        print(
            f"  {row.policy:<17} {row.saved_percent:>6.0f} % saved, {row.short_percent:>5.2f} % short,"
            f" {row.changes:>6} changes, {row.gpu_hours:>8,.0f} GPU-hours, {row.cost:>10,.0f} USD",
            flush=True,
        )
        yield row


def summaries(name: str, rows: list[Row]) -> Iterator[harness.Figure]:
    """Yield one policy's figure over the long traces, and that over those of a day."""
    own = [row for row in rows if row.policy == name]
    long = [row for row in own if row.days >= LONG_DAYS]
    of_a_day = [row for row in own if ONE_DAY <= row.days < LONG_DAYS]
    for which, those in (("long traces", long), ("traces of a day", of_a_day)):
        if not those:
            continue
        kept = sum(row.short_percent <= 100 * PROMISE for row in those)
        changes = sum(row.changes for row in those)
        # The best simple rule keeps the promise by how it is chosen, so that is no result.
        note = f"promise kept on {kept} of {len(those)}, {changes:,} changes"
        yield harness.figure(
            f"{name}: share of the oracle's saving, mean of the {which}",
            "%",
            [sum(row.saved_percent for row in those) / len(those)],
            note="chosen in hindsight" if name == SIMPLE_RULE else note,
        )


def main() -> int:
    """Score the policies, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--traces", type=Path, default=FOLDER)
    parser.add_argument("--policy", type=Path, action="append", default=[])
    parser.add_argument("--tries", type=int, default=64)
    given = parser.parse_args()
    untuned = [replace(each.fixed(), name=f"{each.name} 60 %") for each in (HPA, HPA_ON_DEMAND)]
    still = replace(CALIBRATED.fixed(change_cost_s=STILL_S), name=STILL)
    policies = [*untuned, still, *POLICIES.values(), *map(policy_of, given.policy)]
    found = list(policy_traces.traces(given.traces))
    if not found:
        print(f"{given.traces}: found no trace", file=sys.stderr)
        return 2
    started = time.perf_counter()
    try:
        for policy in policies:
            # Compiles all that is needed, which threads must not do at the same time.
            scored(replace(policy, learns=True), found[0].demand[:8], ReplaySettings(), 1)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    pool = ThreadPoolExecutor(THREADS)
    try:
        running = [begin(trace, policies, given.tries, pool) for trace in found]
        rows = [row for each in running for row in rows_of(each)]
    finally:
        pool.shutdown(cancel_futures=True)
    print()
    names = (SIMPLE_RULE, *(policy.name for policy in policies))
    figures = [each for name in names for each in summaries(name, rows)]
    for each in figures:
        print(f"{each.name:<80} {each.median:>6.0f} %, {each.note}")
    settings = {
        "promise": PROMISE,
        "tries": given.tries,
        "nodes": PRICE_OF,
        "seconds": round(time.perf_counter() - started),
        "rows": [asdict(row) for row in rows],
    }
    return harness.write("policies", figures, packages=["numba", "numpy"], settings=settings)


if __name__ == "__main__":
    sys.exit(main())
