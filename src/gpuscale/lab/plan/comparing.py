"""Today's settings, the search's result and other policies, compared on the same steps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.words import counted
from gpuscale.lab.plan.bounds import GpuHourBounds, bounds
from gpuscale.lab.plan.promise import Promise, percent_text
from gpuscale.lab.plan.score import Nodes, Score, score
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.outcomes import by_day
from gpuscale.lab.plan.tuning.pooled import DedicatedPool, OnNodes
from gpuscale.lab.plan.tuning.search import DAY_S, Allowance, ReplayCase
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies import HPA_ON_DEMAND, Numbers, Replayed, ReplaySettings

LEAST_DAYS = 2.0
"""Fewer hold no day that could be held back for a day that was searched."""


@dataclass(frozen=True, slots=True)
class ReplayedWorkload:
    """A workload's demand and settings, for replaying."""

    name: str
    demand: Numbers
    service: ReplaySettings
    requests: Requests
    nodes: Nodes
    pool: DedicatedPool | None = None
    """That the workload has for itself, so that it may be searched."""
    without_pool: str = ""
    """Why there is none, in a sentence; empty where there is nothing to search."""
    knows_requests: bool = True
    """Whether what a request takes was said, and is no guess."""

    @property
    def days(self) -> float:
        """Return the demand's length in days."""
        return len(self.demand) * self.service.step_s / DAY_S


@dataclass(frozen=True, slots=True)
class Split:
    """Which steps are searched, and which are scored."""

    searched: int
    """Steps from the beginning on."""
    first_scored: int
    """All from here on."""

    @property
    def is_held_back(self) -> bool:
        """Return whether the scored steps were kept out of the search."""
        return self.first_scored == self.searched


@dataclass(frozen=True, slots=True)
class ScoredPolicy:
    """A policy with its settings and score."""

    name: str
    title: str
    settings: dict[str, float]
    score: Score
    chance: float | None = None
    """Share of draws of the scored days, whole ones with replacement, in which the promise holds; None where
    there is one day alone."""


def split_of(workload: ReplayedWorkload, held_back: float) -> Split:
    """Return the split of a demand: if it has two days or more, whole days at its end are held back.

    Args:
        workload: with the demand.
        held_back: share of the demand that is held back, as far as whole days go.
    """
    steps = len(workload.demand)
    if workload.days < LEAST_DAYS:
        return Split(steps, 0)
    per_day = round(DAY_S / workload.service.step_s)
    days = max(1, round(workload.days * held_back))
    searched = max(per_day, steps - days * per_day)
    return Split(searched, searched)


def question_of(
    workload: ReplayedWorkload, split: Split, promise: Promise, seed: int
) -> ReplayCase:
    """Return the replay case of a search."""
    demand = workload.demand[: split.searched]
    return ReplayCase(
        demand, workload.service, promise, workload.requests, seed, is_held_back=split.is_held_back
    )


def row_of(
    workload: ReplayedWorkload,
    split: Split,
    contender: Contender,
    values: Numbers,
    promise: Promise,
    name: str,
    title: str,
) -> ScoredPolicy:
    """Return a policy's row; a learning policy learns from the searched days."""
    replayed = contender.replay(values, workload.demand, workload.service)
    found = score(replayed, split.first_scored, workload.nodes, promise, workload.requests)
    return ScoredPolicy(
        name, title, contender.named(values), found, chance_of(workload, split, replayed, promise)
    )


def chance_of(
    workload: ReplayedWorkload, split: Split, replayed: Replayed, promise: Promise
) -> float | None:
    """Return the share of draws of the scored days in which a replay keeps the promise."""
    first, per_day = split.first_scored, max(1, round(DAY_S / workload.service.step_s))
    demand = workload.demand[first:]
    case = ReplayCase(demand, workload.service, promise, workload.requests)
    missed = promise.missed(replayed, workload.requests, first)
    return Allowance(case, per_day).chance(by_day(missed, per_day))


def row_on_nodes(
    workload: ReplayedWorkload,
    split: Split,
    contender: OnNodes,
    values: Numbers,
    promise: Promise,
    name: str,
    title: str,
) -> ScoredPolicy:
    """Return a row whose pods need nodes: a pod on an existing node starts sooner."""
    replayed, rented = contender.replayed_and_paid(values, workload.demand, workload.service)
    found = score(replayed, split.first_scored, workload.nodes, promise, workload.requests)
    node_hours = float(rented[split.first_scored :].sum()) * workload.service.step_s / 3600
    price = workload.nodes.price_per_hour
    cost = None if price is None else node_hours * price
    return ScoredPolicy(
        name,
        title,
        contender.named(values),
        replace(found, node_hours=node_hours, cost=cost),
        chance_of(workload, split, replayed, promise),
    )


def node_verdicts(
    workload: ReplayedWorkload, split: Split, limits: GpuHourBounds, rows: list[ScoredPolicy]
) -> Iterator[str]:
    """Yield sentences on the rows with nodes: as set today, tuned, and tuned with the pool."""
    today, _, best = rows
    pool = workload.pool
    assert pool is not None  # noqa: S101 - its rows are there
    steps = len(workload.demand) - split.first_scored
    scored_hours = steps * workload.service.step_s / 3600
    standing = pool.nodes_for(limits.static_replicas)
    before, after = today.score.node_hours, best.score.node_hours
    yield (
        f"Tuned together with the node pool {pool.name}, {after:,.1f} node-hours are needed; as it is,"
        f" {before:,.1f}."
    )
    if standing > pool.nodes.most:
        yield (
            f"Demand needs {counted(standing, 'node')} and there may be {pool.nodes.most}: no setting of the"
            f" node pool {pool.name} keeps the promise; raise its max."
        )
    elif after > standing * scored_hours:
        yield (
            f"{counted(standing, 'node')} standing still would take {standing * scored_hours:,.1f}"
            " node-hours: autoscaling costs more."
        )
    if not pool.has_times:
        yield (
            f"On {pool.provider} it can't be set how long empty nodes stay: of the node pool, only min was"
            " searched."
        )


def bounds_of(workload: ReplayedWorkload, split: Split, promise: Promise) -> GpuHourBounds:
    """Return the bounds of the scored steps, with one GPU for each replica."""
    demand = workload.demand[split.first_scored :]
    return bounds(demand, workload.service, promise, workload.requests)


def verdicts(
    workload: ReplayedWorkload,
    split: Split,
    limits: GpuHourBounds,
    today: ScoredPolicy,
    tuned: ScoredPolicy,
    others: list[ScoredPolicy],
    promise: Promise,
) -> Iterator[str]:
    """Yield conclusions from the rows, one sentence each."""
    gpus = workload.nodes.gpus_per_replica
    static_hours = limits.static_hours * gpus
    standing = f"{counted(limits.static_replicas, 'pod')} standing still"
    if not split.is_held_back:
        yield (
            f"{length_text(workload.days)} is too short to hold days back: the settings were chosen on what"
            " they are scored on, and may not do for other days. Give two days or more."
        )
    if limits.static_replicas > workload.service.most:
        yield (
            f"Demand needs {limits.static_replicas} pods and there may be {workload.service.most:g}:"
            " no setting below keeps the promise; raise maxReplicas."
        )
    if today.score.gpu_hours > static_hours:
        yield (
            f"As it is, autoscaling costs more than {standing}:"
            f" {today.score.gpu_hours:,.1f} GPU-hours against {static_hours:,.1f}."
        )
    if tuned.score.gpu_hours > static_hours:
        yield f"Tuned, too, it costs more than {standing}."
    keeping = [
        row
        for row in others
        if promise.used(row.score.missed) <= 1 and row.score.gpu_hours < tuned.score.gpu_hours
    ]
    best = min(keeping, key=lambda row: row.score.gpu_hours, default=None)
    for row in keeping:
        if row is best or row.name == HPA_ON_DEMAND.name:
            saved = percent_text(1 - row.score.gpu_hours / tuned.score.gpu_hours)
            yield f"{row.name}, {row.title}, would need {saved} fewer GPU-hours than the tuned HPA."


def length_text(days: float) -> str:
    """Return a duration in words."""
    return f"{days:.3g} days" if days >= LEAST_DAYS else format_duration(round(days * DAY_S * 1000))
