"""A fleet: from services, pools and demand to columns of results."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from types import FunctionType
from typing import Any, cast

import numpy

from gpuscale.base import compiling
from gpuscale.base.errors import UsageError
from gpuscale.lab.plan.fleet.loop import run, write_down_the_rest
from gpuscale.lab.plan.fleet.nodes import NONE_TAKEN, add_node
from gpuscale.lab.plan.fleet.pods import order
from gpuscale.lab.plan.fleet.state import (
    NOWHERE,
    Counts,
    FleetColumns,
    Lists,
    PodRows,
    Pods,
    Pools,
    Progress,
    Services,
    Table,
)
from gpuscale.triggers.policies import Desired, Numbers, Policy, policy_function, policy_signature

MOST_PODS = 20_000_000
"""Places that a replay may need for pods; memory is taken for those that are used."""
MOST_CELLS = 1_000_000_000
"""Steps x services, and steps x pools."""
MOST_GPUS = 1024
"""Of one node."""
_POLICIES = 16
"""Policies that one compiled loop takes; fewer are repeated."""


@dataclass(frozen=True, slots=True)
class FleetService:
    """A workload of a fleet, without its demand."""

    name: str
    pool: str
    policy: Policy
    settings: Numbers
    most: int
    """Replicas at the most."""
    least: int = 1
    first: int | None = None
    """Replicas at the start; None takes what the first demand needs."""
    gpus: int = 1
    """GPUs of one pod."""
    start_up_s: float = 180.0
    """From GPUs to a ready pod."""
    lag_s: float = 30.0
    patience_s: float = 60.0
    """For how long a client waits; infinite where `most_waiting_s` alone says what is turned away."""
    most_waiting_s: float = math.inf
    """Work that may wait, in seconds of one pod, however many there are."""
    share: float = 1.0
    """What one pod asks for of its node's CPU and memory, where those say which node it goes to."""


@dataclass(frozen=True, slots=True)
class FleetPool:
    """A pool of equal nodes; each costs from its arrival to its removal."""

    name: str
    gpus: int
    most: int
    least: int = 0
    first: int | None = None
    """Nodes at the start; None takes the least."""
    coming_s: float = 180.0
    """From a node's order to its first pod."""
    unneeded_s: float = 600.0
    """How long an empty node stays."""
    delay_after_add_s: float = 0.0
    """How long empty nodes stay after a node was ordered, for whichever pool."""
    spreads: bool = False
    """Whether a pod goes where the most CPU and memory is left, and not where the fewest GPUs are."""


@dataclass(frozen=True, slots=True)
class FleetRun:
    """The result of a fleet replay: columns by step and service, or step and pool, in input order."""

    services: tuple[FleetService, ...]
    pools: tuple[FleetPool, ...]
    step_s: float
    columns: FleetColumns
    details: PodRows
    pods: int
    """That there were, in all."""

    def gpu_hours(self) -> Numbers:
        """Return the GPU-hours that pods held, by service."""
        hours: Numbers = self._hours(self.columns.placed) * _floats(
            each.gpus for each in self.services
        )
        return hours

    def node_hours(self) -> Numbers:
        """Return the node-hours, by pool."""
        return self._hours(self.columns.nodes)

    def waiting_hours(self) -> Numbers:
        """Return the pod-hours of waiting for GPUs, by service."""
        return self._hours(self.columns.waiting)

    def _hours(self, column: Table) -> Numbers:
        sums: Numbers = numpy.sum(column, axis=0, dtype=numpy.float64)
        hours: Numbers = sums * (self.step_s / 3600)
        return hours


def replay_fleet(
    services: Sequence[FleetService],
    pools: Sequence[FleetPool],
    demand: Table | Sequence[Sequence[float]],
    step_s: float,
    *,
    details: int = 0,
    say: Callable[[str], None] | None = None,
) -> FleetRun:
    """Replay demand on a fleet.

    Args:
        services: in the order of the demand's columns.
        pools: their nodes.
        demand: work in pods, by step and service.
        step_s: length of a step.
        details: rows for single pods; the first that went are written down.
        say: gets a line before something is compiled, and where numba is not installed.

    Raises:
        UsageError: services, pools and demand do not fit each other, or are too many.
    """
    demand = numpy.require(demand, numpy.float64, ("C", "W"))
    _check(services, pools, demand, step_s)
    say = say or _silent
    functions, places = _functions(services, say)
    columns_of = _services(services, pools, places, step_s)
    pool_columns = _pools(pools, step_s)
    own = _progress(columns_of)
    pods = Pods(*(_counts(sum(each.most for each in services)) for _ in Pods._fields))
    lists = _lists(pool_columns, len(services))
    columns = FleetColumns(
        *(numpy.zeros((len(demand), len(services)), dtype=numpy.float32) for _ in range(5)),
        *(numpy.zeros((len(demand), len(pools)), dtype=numpy.float32) for _ in range(3)),
    )
    rows = PodRows(_counts(2), *(_counts(details) for _ in range(5)))
    for pool, described in enumerate(pools):
        for _ in range(described.least if described.first is None else described.first):
            add_node(pool_columns, lists, pool, 0)
    for index, first in enumerate(columns_of.first):
        # A service below its minimum is raised by the first step's decision, after all other pods
        # have GPUs.
        needed = first
        if math.isnan(first):
            needed = max(math.ceil(demand[0, index]) if len(demand) else 0, columns_of.least[index])
        count = int(min(needed, columns_of.most[index]))
        order(pods, lists, columns_of, index, count, 0)
        own.waiting[index] = count
    arguments = (
        numpy.concatenate([each.settings for each in services]),
        numpy.zeros(int(columns_of.memory_at[-1])),
        demand,
        float(step_s),
        0,
        columns_of,
        pool_columns,
        pods,
        lists,
        own,
        columns,
        rows,
    )
    with warnings.catch_warnings():  # numba reports functions in a tuple as experimental
        warnings.filterwarnings("ignore", "First-class function type feature is experimental")
        _runner(arguments, say)(functions, *arguments)
    write_down_the_rest(pods, lists, rows)
    return FleetRun(tuple(services), tuple(pools), step_s, columns, rows, int(rows.rows[1]))


def _check(
    services: Sequence[FleetService], pools: Sequence[FleetPool], demand: Table, step_s: float
) -> None:
    found = {each.name: each for each in pools}
    if demand.shape != (len(demand), len(services)) or not services:
        raise UsageError(
            f"a fleet: found a demand of shape {demand.shape} for {len(services)} services, expected one"
            " or more services and a column for each"
        )
    if not math.isfinite(step_s) or step_s <= 0:
        raise UsageError(f"a fleet: found steps of {step_s} s, expected more than 0")
    if not numpy.isfinite(demand).all() or (demand < 0).any():
        raise UsageError("a fleet: found a demand below 0 or not finite, expected numbers of pods")
    for pool in pools:
        first = pool.least if pool.first is None else pool.first
        if not (1 <= pool.gpus <= MOST_GPUS and 0 <= pool.least <= first <= pool.most):
            raise UsageError(
                f"pool {pool.name}: found {pool.gpus} GPUs, least {pool.least}, first {first}, most"
                f" {pool.most}; expected 1 to {MOST_GPUS} GPUs and 0 <= least <= first <= most"
            )
    for service in services:
        if service.pool not in found:
            names = ", ".join(found) or "none"
            raise UsageError(
                f"service {service.name}: found pool {service.pool!r}, expected one of: {names}"
            )
        if not 1 <= service.gpus <= found[service.pool].gpus:
            raise UsageError(
                f"service {service.name}: found {service.gpus} GPUs a pod, expected 1 to"
                f" {found[service.pool].gpus}, as a node of pool {service.pool} has"
            )
        if not 0 <= service.least <= service.most:
            raise UsageError(
                f"service {service.name}: found least {service.least}, most {service.most}; expected"
                " 0 <= least <= most"
            )
    for what, count, most in (
        ("pods at the most", sum(each.most for each in services), MOST_PODS),
        ("nodes at the most", sum(each.most for each in pools), MOST_PODS),
        ("steps x services and pools", len(demand) * (len(services) + len(pools)), MOST_CELLS),
    ):
        if count > most:
            raise UsageError(f"a fleet: found {count} {what}, expected {most} or fewer")


def _functions(
    services: Sequence[FleetService], say: Callable[[str], None]
) -> tuple[tuple[Desired, ...], dict[Desired, int]]:
    """Return the policies' functions in the form of the loop, and each one's index."""
    places: dict[Desired, int] = {}
    for each in services:
        places.setdefault(each.policy.desired, len(places))
    if len(places) > _POLICIES:
        raise UsageError(f"a fleet: found {len(places)} policies, expected {_POLICIES} or fewer")
    functions = [policy_function(each, say) for each in places]
    return (*functions, *functions[:1] * (_POLICIES - len(functions))), places


def _services(
    services: Sequence[FleetService],
    pools: Sequence[FleetPool],
    places: dict[Desired, int],
    step_s: float,
) -> Services:
    pool_of = {each.name: index for index, each in enumerate(pools)}
    return Services(
        pool=_whole(pool_of[each.pool] for each in services),
        gpus=_whole(each.gpus for each in services),
        share=_floats(each.share for each in services),
        policy=_whole(places[each.policy.desired] for each in services),
        start_up=_whole(max(1, math.ceil(each.start_up_s / step_s)) for each in services),
        lag=_whole(math.ceil(each.lag_s / step_s) for each in services),
        start_up_s=_floats(each.start_up_s for each in services),
        lag_s=_floats(each.lag_s for each in services),
        patience_s=_floats(each.patience_s for each in services),
        most_waiting_s=_floats(each.most_waiting_s for each in services),
        least=_floats(each.least for each in services),
        most=_floats(each.most for each in services),
        first=_floats(math.nan if each.first is None else each.first for each in services),
        memory_at=_whole(accumulate((each.policy.memory for each in services), initial=0)),
        settings_at=_whole(accumulate((len(each.settings) for each in services), initial=0)),
    )


def _pools(pools: Sequence[FleetPool], step_s: float) -> Pools:
    return Pools(
        gpus=_whole(each.gpus for each in pools),
        least=_whole(each.least for each in pools),
        most=_whole(each.most for each in pools),
        coming=_whole(max(1, math.ceil(each.coming_s / step_s)) for each in pools),
        unneeded=_whole(math.ceil(each.unneeded_s / step_s) for each in pools),
        delay=_whole(math.ceil(each.delay_after_add_s / step_s) for each in pools),
        spreads=_whole(int(each.spreads) for each in pools),
        first_node=_whole(accumulate((each.most for each in pools), initial=0)),
    )


def _progress(services: Services) -> Progress:
    count = len(services.pool)
    lags = (count, int(services.lag.max()) + 1)
    return Progress(
        ready=numpy.zeros(count),
        starting=numpy.zeros(count),
        waiting=numpy.zeros(count),
        queue=numpy.zeros(count),
        pods_due=numpy.zeros((count, int(services.start_up.max()) + 1)),
        demand=numpy.zeros(lags),
        utilization=numpy.zeros(lags),
        queues=numpy.zeros(lags),
        short=numpy.zeros(lags),
    )


def _lists(pools: Pools, services: int) -> Lists:
    """Return the linked lists without pods; each pool's unused nodes are linked in order."""
    count, buckets = len(pools.gpus), int(pools.gpus.max()) + 1
    nodes = int(pools.first_node[-1])
    after = numpy.arange(1, nodes + 1)
    after[pools.first_node[1:][pools.most > 0] - 1] = NOWHERE
    return Lists(
        youngest=_counts(services, NOWHERE),
        line_first=_counts(count, NOWHERE),
        line_last=_counts(count, NOWHERE),
        waiting=numpy.zeros((count, buckets), dtype=numpy.int64),
        node_first=numpy.full((count, buckets), NOWHERE),
        node_last=numpy.full((count, buckets), NOWHERE),
        node_before=_counts(nodes),
        node_after=after,
        node_free=_counts(nodes, NOWHERE),
        node_share=numpy.zeros(nodes),
        node_number=_counts(nodes),
        node_since=_counts(nodes),
        unused_pod=_whole([NOWHERE, 0]),
        unused_node=numpy.where(pools.most > 0, pools.first_node[:-1], NOWHERE),
        nodes=_counts(count),
        nodes_most=_counts(count),
        nodes_came=_counts(count),
        nodes_coming=_counts(count),
        nodes_due=numpy.zeros((count, int(pools.coming.max()) + 1), dtype=numpy.int64),
        last_order=_counts(1, -int(pools.delay.max()) - 1),
        taken_node=_counts(count),
        taken_share=numpy.zeros(count),
        taken_gpus=_counts(count, NONE_TAKEN),
        used=_counts(count),
    )


def _counts(size: int, value: int = 0) -> Counts:
    return numpy.full(size, value) if value else numpy.zeros(size, dtype=numpy.int64)


def _whole(values: Iterable[int]) -> Counts:
    return numpy.array(list(values), dtype=numpy.int64)


def _floats(values: Iterable[float]) -> Numbers:
    return numpy.array(list(values), dtype=numpy.float64)


def _silent(line: str) -> None:
    """Say nothing."""


def _runner(arguments: tuple[Any, ...], say: Callable[[str], None]) -> Callable[..., None]:
    """Return `lab.plan.fleet.loop.run`, compiled if numba is installed."""
    numba = compiling.numba()
    if numba is None:
        install = "pip install 'gpuscale[plan]'"
        say(f"found no Python package numba: slower; install it with: {install}")
        return run
    return _compiled_run(tuple(map(numba.typeof, arguments)), say)


@cache
def _compiled_run(taken: tuple[Any, ...], say: Callable[[str], None]) -> Callable[..., None]:
    numba = compiling.numba()
    by_pointer = numba.types.FunctionType(policy_signature())
    signature = numba.void(numba.types.UniTuple(by_pointer, _POLICIES), *taken)
    with warnings.catch_warnings():  # numba reports functions passed by a pointer as experimental
        warnings.simplefilter("ignore", numba.core.errors.NumbaExperimentalFeatureWarning)
        return compiling.compiled(cast("FunctionType", run), signature, say)
