"""Services that share node pools, tuned together: their pools' bill is what is saved.

Each service comes with a ladder of settings, the strictest first, that a search of its own has found. The
whole fleet is replayed, pod by pod on nodes: a pod on a node that others left or keep warm starts sooner, so
settings do that would be short of pods on their own. First all services climb down at once, each as far as
it keeps its promise; then the pools' settings are moved one by one, and the services settle anew; then single
services move.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy

from gpuscale.lab.plan.comparing import ReplayedWorkload
from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetRun, FleetService, replay_fleet
from gpuscale.lab.plan.fleet.nodes import nodes_for
from gpuscale.lab.plan.fleet.state import Table
from gpuscale.lab.plan.promise import Promise, Rows
from gpuscale.lab.plan.tuning.contender import Contender, kept, moved
from gpuscale.lab.plan.tuning.outcomes import SettingOutcome, by_day
from gpuscale.lab.plan.tuning.pooled import (
    least_parameter,
    nodes_of,
    replayed_of,
    time_parameters,
    with_values,
)
from gpuscale.lab.plan.tuning.search import DAY_S, Allowance, Each, ReplayCase, Search
from gpuscale.triggers.policies import Numbers, Parameter, Replayed

_RUNGS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0)
"""Of a ladder: what its settings use up at the most of the promise, on nodes that are there."""
_FIRST_ROUNDS, _ROUNDS = 32, 2
"""In which services settle: from where the search begins, and after a pool's move."""
_FIRST_MOVE, _LAST_MOVE = 1.0, 0.05
"""Of a pool's settings, as a share of their ranges."""
_SWEEPS = 2
"""Of moves of single services, at the most."""


@dataclass(frozen=True, slots=True)
class FleetMember:
    """A service of a fleet."""

    workload: ReplayedWorkload
    contender: Contender
    place: FleetService
    """Its pool and pods; policy, settings and bounds of the replicas are the contender's."""
    ladder: tuple[Numbers, ...]
    """Settings to choose from, the strictest first."""
    begin: int = 0
    """The rung that it was tuned to on its own."""

    is_tuned: bool = True
    """Whether its promise counts; otherwise it stays as it is, and takes room."""

    def service(self, values: Numbers) -> FleetService:
        """Return the service with settings, for a replay."""
        settings, service = self.contender.settled(values, self.workload.service)
        return replace(
            self.place,
            policy=self.contender.policy,
            settings=settings,
            least=int(service.least),
            most=int(service.most),
            lag_s=service.lag_s,
            patience_s=service.patience_s,
        )


@dataclass(frozen=True, slots=True)
class SharedPool:
    """A pool that services share, as it is today."""

    nodes: FleetPool
    price_per_hour: float | None = None
    """Of a node beyond those that are reserved."""
    reserved: int = 0
    """Nodes that are paid for whether they are there or not."""


@dataclass(frozen=True, slots=True)
class SharedFleet:
    """Services on the pools that they share."""

    members: tuple[FleetMember, ...]
    pools: tuple[SharedPool, ...]
    promise: Promise
    has_times: bool
    """Whether the node autoscaler lets one say how long empty nodes stay."""
    kept: tuple[str, ...] = ()
    """Pools' settings that stay as they are."""

    @property
    def step_s(self) -> float:
        """Return the step's length, which all services have in common."""
        return self.members[0].workload.service.step_s

    def demand(self, steps: int | None = None) -> Table:
        """Return the first steps of the demand, a column for each service; all steps for None."""
        columns = [each.workload.demand[:steps] for each in self.members]
        return numpy.stack(columns, axis=1)

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the pools' parameters: each one's minimum, and the times that all have in common."""
        needed = [0.0] * len(self.pools)
        names = [each.nodes.name for each in self.pools]
        for each in self.members:
            pool = names.index(each.place.pool)
            pods = math.ceil(float(each.workload.demand.max()))
            needed[pool] += pods * each.place.gpus / self.pools[pool].nodes.gpus
        found = [
            least_parameter(each.nodes, math.ceil(most))
            for each, most in zip(self.pools, needed, strict=True)
        ]
        found += time_parameters(self.pools[0].nodes, is_searched=self.has_times)
        return kept(found, self.kept)

    def begin(self) -> Numbers:
        """Return where a search begins: each service as tuned on its own, on the pools as they are."""
        own = [float(each.begin) for each in self.members]
        return numpy.array([*own, *(each.default for each in self.parameters())])

    def settings(self, values: Numbers) -> list[Numbers]:
        """Return each service's settings: those of the rungs that values begin with."""
        return [
            each.ladder[int(rung)]
            for each, rung in zip(self.members, values[: len(self.members)], strict=True)
        ]

    def pools_with(self, values: Numbers) -> list[FleetPool]:
        """Return the pools with the settings that values end with."""
        *least, unneeded, delay = values[len(self.members) :]
        return [
            with_values(each.nodes, (own, unneeded, delay))
            for each, own in zip(self.pools, least, strict=True)
        ]

    def replay(
        self, settings: Sequence[Numbers], pools: Sequence[FleetPool], demand: Table
    ) -> FleetRun:
        """Replay a demand, from enough nodes on for the pods that are there at the start."""
        services = [
            each.service(values) for each, values in zip(self.members, settings, strict=True)
        ]
        begun = []
        for pool in pools:
            waiting = numpy.zeros(pool.gpus + 1, dtype=numpy.int64)
            for column, each in enumerate(services):
                if each.pool == pool.name:
                    wanted = each.first or max(each.least, math.ceil(float(demand[0, column])))
                    waiting[each.gpus] += min(each.most, wanted)
            first = min(pool.most, max(pool.least, nodes_for(waiting, pool.gpus)))
            begun.append(replace(pool, first=first))
        return replay_fleet(services, begun, demand, self.step_s)

    def replayed(self, run: FleetRun) -> list[Replayed]:
        """Return each service's part of a replay."""
        return [
            replayed_of(run, column, each.workload.demand[: len(run.columns.ready)], service)
            for column, each in enumerate(self.members)
            for service in [each.workload.service]
        ]

    def bill(self, run: FleetRun, first_step: int = 0) -> float:
        """Return what nodes cost from a step on, beyond those that are paid for anyway.

        Without a price for each pool, GPU-hours of their nodes are counted in place of money.
        """
        has_prices = all(each.price_per_hour is not None for each in self.pools)
        return sum(
            float(numpy.maximum(nodes_of(run, at)[first_step:] - each.reserved, 0.0).sum())
            * (each.price_per_hour or 0.0 if has_prices else each.nodes.gpus)
            for at, each in enumerate(self.pools)
        ) * (self.step_s / 3600)


@dataclass(frozen=True, slots=True)
class FleetTrial:
    """Replays a fleet under rungs and pools' settings, and lets services settle to other rungs.

    It can be sent to another process, as the trials of a single service can.
    """

    fleet: SharedFleet
    demand: Table
    allowances: tuple[Allowance, ...]
    per_day: int
    rounds: int
    """Replays at the most in which services settle; 0 leaves them where they are."""

    def __call__(self, settings: Sequence[Numbers]) -> list[SettingOutcome]:
        """Return the best outcome on the way from each of these values."""
        return [self._settled(values) for values in settings]

    def rank(self, outcome: SettingOutcome) -> tuple[float, float]:
        """Return a sort key: excess over the promises of all services, then the bill."""
        return sum(max(0.0, each - 1) for each in self.used(outcome)), outcome.paid_steps

    def used(self, outcome: SettingOutcome) -> list[float]:
        """Return what each service uses up of its promise; nothing where it stays as it is."""
        terms = len(self.fleet.promise.terms)
        return [
            allowance.used(outcome.missed_by_day[terms * at : terms * (at + 1)])
            if self.fleet.members[at].is_tuned
            else 0.0
            for at, allowance in enumerate(self.allowances)
        ]

    def _settled(self, values: Numbers) -> SettingOutcome:
        fleet = self.fleet
        best = outcome = self._outcome(values)
        # A rung at which a service broke its promise, and those below, are tried no more.
        barred = [len(each.ladder) for each in fleet.members]
        for _ in range(self.rounds):
            values = outcome.values.copy()
            for at, used in enumerate(self.used(outcome)):
                rung = int(values[at])
                if used > 1 and rung > 0:
                    barred[at] = min(barred[at], rung)
                    values[at] = rung - 1
                elif used <= 1 and rung + 1 < barred[at]:
                    values[at] = rung + 1
            if values.tobytes() == outcome.values.tobytes():
                break
            outcome = self._outcome(values)
            best = min(best, outcome, key=self.rank)
        return best

    def _outcome(self, values: Numbers) -> SettingOutcome:
        fleet = self.fleet
        # Arrays from another process are read-only, and compiled replays need writable ones.
        demand = numpy.require(self.demand, requirements="W")
        run = fleet.replay(fleet.settings(values), fleet.pools_with(values), demand)
        missed: list[Rows] = [
            by_day(fleet.promise.missed(replayed, each.workload.requests), self.per_day)
            for each, replayed in zip(fleet.members, fleet.replayed(run), strict=True)
        ]
        return SettingOutcome(values, fleet.bill(run), numpy.concatenate(missed))


class FleetSearch:
    """The search for a fleet.

    Args:
        fleet: services and pools.
        searched: steps from the beginning on.
        seed: of the days that are drawn.
        each: applies trials to batches of values, as for a single service.
        is_held_back: whether other days are scored.
    """

    def __init__(
        self, fleet: SharedFleet, searched: int, seed: int, each: Each, *, is_held_back: bool
    ) -> None:
        per_day = max(1, round(DAY_S / fleet.step_s))
        allowances = tuple(
            Allowance(
                ReplayCase(
                    member.workload.demand[:searched],
                    member.workload.service,
                    fleet.promise,
                    member.workload.requests,
                    seed,
                    is_held_back=is_held_back,
                ),
                per_day,
            )
            for member in fleet.members
        )
        self._fleet = fleet
        self._parameters = fleet.parameters()
        self._each = each
        demand = fleet.demand(searched)
        self._trial = FleetTrial(fleet, demand, allowances, per_day, _ROUNDS)
        self.best = self._tried([fleet.begin()], 0)[0]

    def run(self) -> Iterator[int]:
        """Search, and yield the number of values tried since the last yield; `best` is always valid."""
        self._keep(self._tried([self.best.values], _FIRST_ROUNDS))
        yield _FIRST_ROUNDS
        first, move = len(self._fleet.members), _FIRST_MOVE
        while move >= _LAST_MOVE:
            around = []
            for at, parameter in enumerate(self._parameters, first):
                # One node, or one minute, at the least.
                share = max(move, 1 / max(1.0, parameter.most - parameter.least))
                for sign in (-1.0, 1.0):
                    near = self.best.values.copy()
                    near[at] = moved(parameter, near[at], sign * share)
                    if near[at] != self.best.values[at]:
                        around.append(near)
            before = self.best
            self._keep(self._tried(around, _ROUNDS))
            yield len(around)
            if self.best is before:
                move /= 2
        for _ in range(_SWEEPS):
            before = self.best
            yield from self._sweep()
            if self.best is before:
                break

    def _sweep(self) -> Iterator[int]:
        """Move each service by a rung, then all those at once whose move was a gain."""
        around = []
        for at, member in enumerate(self._fleet.members):
            for near in (self.best.values[at] - 1, self.best.values[at] + 1):
                if 0 <= near < len(member.ladder):
                    values = self.best.values.copy()
                    values[at] = near
                    around.append(values)
        found = self._tried(around, 0)
        yield len(around)
        rank = self._trial.rank
        gains = sorted((each for each in found if rank(each) < rank(self.best)), key=rank)
        together, before = self.best.values.copy(), self.best.values
        for each in gains:
            changed = each.values != before
            # Of two moves of one service the better came first.
            if (together[changed] == before[changed]).all():
                together[changed] = each.values[changed]
        self._keep(gains)
        if len(gains) > 1:
            self._keep(self._tried([together], 0))
            yield 1

    def _tried(self, settings: Sequence[Numbers], rounds: int) -> list[SettingOutcome]:
        trial = replace(self._trial, rounds=rounds)
        return [each for found in self._each(trial, [[one] for one in settings]) for each in found]

    def _keep(self, found: Sequence[SettingOutcome]) -> None:
        self.best = min([self.best, *found], key=self._trial.rank)


def ladder_of(
    search: Search, own: Numbers, others: Sequence[Numbers]
) -> tuple[tuple[Numbers, ...], int]:
    """Return a service's ladder, and the rung of the settings that it was tuned to on its own.

    Args:
        search: on nodes that are there, at its end.
        own: those settings.
        others: that are on the ladder too, such as today's and stricter ones.
    """
    found = {each.tobytes(): search.tried(each) for each in (own, *others)}
    for share in _RUNGS:
        keeping = [each for each in search.whole if search.used(each) <= share]
        if keeping:
            best = min(keeping, key=lambda each: each.paid_steps)
            found.setdefault(best.values.tobytes(), best)
    # The strictest first; of equal ones the dearest, which has the most to spare.
    rungs = sorted(found.values(), key=lambda each: (search.used(each), -each.paid_steps))
    begin = next(at for at, each in enumerate(rungs) if each.values.tobytes() == own.tobytes())
    return tuple(each.values for each in rungs), begin
