"""An open benchmark of replica policies: settings from the first half of public traces, scored on the rest.

    python benchmarks/bench_policies.py --traces FOLDER [--policy my_policy.py]... [--tries 64] [--draws 3]

Each policy runs over the whole trace, so that one that learns has the first half to learn from. The second
half is scored, once for each promise: short of capacity in at most 0.5 % of the steps, or 99.5 % of requests
wait at most 1, 5, 15 or 30 s. What is saved over the fewest standing replicas that keep the promise is
compared with two others that know the scored half (`lab.plan.bounds`): the oracle, which serves all work as
it comes, and the best simple rule in hindsight. Neither is a limit: a promise that lets requests wait can be
kept for less than the oracle, and a rule outside of the family may save more.

The settings of a policy that has any are the best of `--tries` on the second quarter, after a first quarter
to begin with. Of drawn traces there are `--draws`. A file of `--policy` names a policy as `POLICY`.

Threads share the traces and policies out: compiled replays let go of the interpreter's lock.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

import harness
import policy_traces
from gpuscale.base.errors import UsageError
from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.bounds import GpuHourBounds, bounds, fewest_standing
from gpuscale.lab.plan.promise import Promise, promised
from gpuscale.lab.plan.saving import MONTH_HOURS, month_interval
from gpuscale.lab.plan.score import DEFAULT_REQUESTS, Nodes, Score, score
from gpuscale.lab.plan.search import best_settings
from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.hpa import HPA, HPA_ON_DEMAND
from gpuscale.triggers.policies.ours.calibrated import CALIBRATED
from gpuscale.triggers.policies.policy import Numbers, Policy
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import ReplaySettings

ALLOWED = 0.005
"""Share of the steps, or of the requests, that may miss the promise."""
WAITS_S = (1.0, 5.0, 15.0, 30.0)
PROMISED = Promise(
    (PromiseTerm("short", ALLOWED), *(PromiseTerm("wait", ALLOWED, each) for each in WAITS_S))
)
"""Each term is a promise by itself."""
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
PER_DAY = round(86_400 / policy_traces.STEP_S)


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
    """One policy on one trace, by one promise."""

    trace: str
    draw: int
    days: float
    """Length of the trace."""
    promise: str
    policy: str
    saved_percent: float
    """Share of the oracle's saving over the standing replicas."""
    interval: tuple[float, float] | None
    """Of it, in 90 of 100 draws of the scored days; None where there are fewer than three."""
    best_percent: float
    """The same share of the best simple rule in hindsight."""
    missed_percent: float
    changes: int
    gpu_hours: float
    cost: float

    @property
    def is_kept(self) -> bool:
        """Return whether the promise was kept."""
        return self.missed_percent <= 100 * ALLOWED


def chosen(policy: Policy, demand: Numbers, service: ReplaySettings, tries: int) -> list[Numbers]:
    """Return settings for each term of the promise, from the first half of a demand."""
    half = demand[: len(demand) // 2]
    terms = [Promise((each,)) for each in PROMISED.terms]
    if policy.name == "static":
        pods = (fewest_standing(half, service, each) for each in terms)
        return [policy.settings(replicas=each) for each in pods]
    if policy.learns:
        return [promised(policy, each, DEFAULT_REQUESTS).settings() for each in terms]
    return best_settings(
        policy,
        half,
        service,
        first_step=len(half) // 2,
        promise=PROMISED.scaled(SEARCHED_WITH),
        count=tries,
    )


def must_not_leak(choose: Callable[[Numbers], list[Numbers]], demand: Numbers) -> None:
    """Choose settings twice, with two second halves.

    Raises:
        SystemExit: they differ, so they are fitted on what is scored.
    """
    other = demand.copy()
    other[len(demand) // 2 :] = 3 * other[len(demand) // 2 :][::-1] + 1
    pairs = zip(choose(demand), choose(other), strict=True)
    if any((one != two).any() for one, two in pairs):
        raise SystemExit("settings change with the scored half: they were fitted on it")


@dataclass(frozen=True, slots=True)
class Scored:
    """A policy on one trace."""

    scores: list[Score]
    """One by each term of the promise."""
    replicas: list[Numbers]
    """Of the scored steps."""


def scored(policy: Policy, demand: Numbers, service: ReplaySettings, tries: int) -> Scored:
    """Return a policy's figures on the second half of a trace."""
    first = len(demand) // 2
    desired = policy_function(policy.desired)
    found = Scored([], [])
    for settings, term in zip(chosen(policy, demand, service, tries), PROMISED.terms, strict=True):
        replayed = replay(desired, settings, policy.memory, demand, service)
        found.scores.append(score(replayed, first, NODES, Promise((term,))))
        found.replicas.append(replayed.replicas[first:])
    return found


@dataclass(frozen=True, slots=True)
class Running:
    """A trace whose policies are being scored."""

    trace: policy_traces.Trace
    limits: list[Future[GpuHourBounds]]
    """One for each term of the promise."""
    scores: list[tuple[str, Future[Scored]]]


def begin(
    trace: policy_traces.Trace, policies: list[Policy], tries: int, pool: ThreadPoolExecutor
) -> Running:
    """Have a trace's policies scored."""
    demand = trace.demand
    most = 2 * float(demand.max()) + 10
    service = ReplaySettings(step_s=policy_traces.STEP_S, start_up_s=trace.start_up_s, most=most)
    half = demand[len(demand) // 2 :]
    return Running(
        trace,
        [pool.submit(bounds, half, service, Promise((each,))) for each in PROMISED.terms],
        [(each.name, pool.submit(scored, each, demand, service, tries)) for each in policies],
    )


def rows_of(running: Running) -> Iterator[Row]:
    """Yield each policy's rows on a trace, and print them."""
    trace = running.trace
    print(f"\n{trace.name}, draw {trace.draw}: {trace.days:.2f} days")
    for at, (term, soon) in enumerate(zip(PROMISED.terms, running.limits, strict=True)):
        limits = soon.result()
        best = 100 * (limits.share(limits.simple_rule_hours) or 0.0)
        print(
            f"  {term}: GPU-hours: {limits.static_replicas} standing {limits.static_hours:,.0f},"
            f" oracle {limits.oracle_hours:,.0f}, {SIMPLE_RULE} {limits.simple_rule_hours:,.0f}"
        )
        of = (trace.name, trace.draw, trace.days, str(term))
        hours = limits.simple_rule_hours
        yield Row(*of, SIMPLE_RULE, best, None, best, 100 * ALLOWED, 0, hours, 0.0)
        for name, result in running.scores:
            found, replicas = result.result().scores[at], result.result().replicas[at]
            possible = limits.static_hours - limits.oracle_hours
            spared = (limits.static_replicas - replicas) * policy_traces.STEP_S / 3600
            interval = month_interval(spared, PER_DAY) if possible > 0 else None
            if interval is not None:
                per_month = possible * MONTH_HOURS * 3600 / (len(replicas) * policy_traces.STEP_S)
                interval = (100 * interval[0] / per_month, 100 * interval[1] / per_month)
            row = Row(
                *of,
                name,
                100 * (limits.share(found.gpu_hours) or 0.0),
                interval,
                best,
                100 * found.missed[0],
                found.events,
                found.gpu_hours,
                found.cost or 0.0,
            )
            print(
                f"    {name:<17} {row.saved_percent:>6.0f} % saved, {row.missed_percent:>5.2f} % missed,"
                f" {row.changes:>6} changes, {row.gpu_hours:>8,.0f} GPU-hours",
                flush=True,
            )
            yield row


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy by one promise, over traces of a kind; each trace counts once, whatever its draws."""

    traces: str
    promise: str
    policy: str
    saved_percent: float
    interval: tuple[float, float]
    """Of it in 90 of 100 draws: of the scored days on long traces, of the arrivals on those of a day."""
    of_best_percent: float
    """Share of what the best simple rule in hindsight saves."""
    kept: int
    answers: int
    changes: float
    """In the mean of a trace's draws, all traces together."""


def summaries(rows: Iterable[Row]) -> Iterator[Summary]:
    """Yield what the rows come to."""
    grouped: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        if row.days >= ONE_DAY:
            kind = "long" if row.days >= LONG_DAYS else "a day"
            of_trace = grouped.setdefault((kind, row.promise, row.policy), {})
            of_trace.setdefault(row.trace, []).append(row)
    for (kind, promise, policy), by_trace in grouped.items():
        draws = list(by_trace.values())
        saved = [mean(each.saved_percent for each in those) for those in draws]
        best = mean(mean(each.best_percent for each in those) for those in draws)
        # Traces are independent: the squares of their intervals add up.
        half = sum(_half_width(those) ** 2 for those in draws) ** 0.5 / len(draws)
        all_rows = [each for those in draws for each in those]
        yield Summary(
            kind,
            promise,
            policy,
            mean(saved),
            (mean(saved) - half, mean(saved) + half),
            100 * mean(saved) / best if best else 0.0,
            sum(each.is_kept for each in all_rows),
            len(all_rows),
            sum(mean(each.changes for each in those) for those in draws),
        )


def _half_width(draws: list[Row]) -> float:
    """Return half the interval of a trace's share: of its days, or else of its draws."""
    of_days = [each.interval[1] - each.interval[0] for each in draws if each.interval is not None]
    of_draws = [each.saved_percent for each in draws]
    return max(mean(of_days) if of_days else 0.0, max(of_draws) - min(of_draws)) / 2


def table(summed: Iterable[Summary]) -> Iterator[str]:
    """Yield the rows of a table in Markdown: of each promise the share, its interval, and where it held."""
    by_policy: dict[str, list[Summary]] = {}
    for each in summed:
        by_policy.setdefault(each.policy, []).append(each)
    for policy, those in by_policy.items():
        is_rule = policy == SIMPLE_RULE
        cells = [
            f"{each.saved_percent:.0f} ± {(each.interval[1] - each.interval[0]) / 2:.0f} %"
            f"{'' if is_rule else f', {each.kept}/{each.answers}'}"
            for each in those
        ]
        kept, answers = sum(each.kept for each in those), sum(each.answers for each in those)
        of_best = mean(each.of_best_percent for each in those)
        last = ["-", "-"] if is_rule else [f"{of_best:.0f} %", f"{kept} of {answers}"]
        yield f"| {' | '.join([policy, *cells, *last])} |"


def main() -> int:
    """Score the policies, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--traces", type=Path, default=FOLDER)
    parser.add_argument("--policy", type=Path, action="append", default=[])
    parser.add_argument("--tries", type=int, default=64)
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    untuned = [replace(each.fixed(), name=f"{each.name} 60 %") for each in (HPA, HPA_ON_DEMAND)]
    still = replace(CALIBRATED.fixed(change_cost_s=STILL_S), name=STILL)
    policies = [*untuned, still, *POLICIES.values(), *map(policy_of, given.policy)]
    found = list(policy_traces.traces(given.traces, given.draws))
    if not found:
        print(f"{given.traces}: found no trace", file=sys.stderr)
        return 2
    try:
        for policy in policies:
            # Compiles all that is needed, which threads must not do at the same time.
            demand, service = found[0].demand[:80], ReplaySettings()
            scored(policy, demand, service, 1)
            must_not_leak(partial(chosen, policy, service=service, tries=8), demand)
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
    summed = list(summaries(rows))
    for kind in ("long", "a day"):
        print(f"\n{kind}:", *table(each for each in summed if each.traces == kind), sep="\n")
    figures = [
        harness.figure(
            f"{each.policy}, {each.promise}: share of the oracle's saving, traces of"
            f" {'a week and more' if each.traces == 'long' else 'a day'}",
            "%",
            [each.saved_percent],
            note="chosen in hindsight"
            if each.policy == SIMPLE_RULE
            else f"promise kept on {each.kept} of {each.answers} answers",
        )
        for each in summed
    ]
    settings = {
        "promises": [str(each) for each in PROMISED.terms],
        "tries": given.tries,
        "draws": given.draws,
        "nodes": PRICE_OF,
        "summaries": [asdict(each) for each in summed],
        "rows": [asdict(row) for row in rows],
    }
    return harness.write("policies", figures, packages=["numba", "numpy"], settings=settings)


if __name__ == "__main__":
    sys.exit(main())
