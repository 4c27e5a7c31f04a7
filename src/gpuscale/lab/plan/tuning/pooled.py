"""An HPA searched together with its node pool: pods wait for nodes, and nodes are paid for.

The replay is that of a fleet of one service and one pool, so a pod on a node that is there starts sooner than
one that brings a node. Times of the node autoscaler are searched in whole minutes, which all of them take.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy

from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetRun, FleetService, replay_fleet
from gpuscale.lab.plan.tuning.contender import Contender, Searched, kept
from gpuscale.triggers.policies import Numbers, Parameter, Replayed, ReplaySettings

MIN_NODES, UNNEEDED, DELAY = "min_nodes", "unneeded_minutes", "delay_after_add_minutes"
_MINUTE_S = 60.0
_MOST_MINUTES = 60.0
"""How long empty nodes may stay, where they don't stay longer today."""


@dataclass(frozen=True, slots=True)
class DedicatedPool:
    """A node pool that one workload has for itself."""

    name: str
    provider: str
    nodes: FleetPool
    """As it is today."""
    gpus_per_replica: int
    start_up_s: float
    """From GPUs to a ready pod."""
    has_times: bool
    """Whether the provider's node autoscaler lets one say how long empty nodes stay."""

    @property
    def pods_per_node(self) -> int:
        """Return how many replicas fit on a node."""
        return self.nodes.gpus // self.gpus_per_replica

    def nodes_for(self, pods: float) -> int:
        """Return how many nodes a number of pods fills."""
        return math.ceil(pods / self.pods_per_node - 1e-9)

    def parameters(self, static: int) -> tuple[Parameter, ...]:
        """Return the pool's parameters, with today's values.

        Args:
            static: pods that keep the promise standing still; the least is searched up to their nodes.
        """
        return (
            least_parameter(self.nodes, self.nodes_for(static)),
            *time_parameters(self.nodes, is_searched=self.has_times),
        )


def least_parameter(nodes: FleetPool, needed: int) -> Parameter:
    """Return a pool's minimum as a parameter: from 0 to the nodes that are needed at the most."""
    least = float(nodes.least)
    return Parameter(MIN_NODES, least, 0.0, max(least, float(min(nodes.most, needed))))


def time_parameters(nodes: FleetPool, *, is_searched: bool) -> Iterator[Parameter]:
    """Yield how long empty nodes stay, in minutes, as parameters; fixed ones where it can't be set."""
    for name, seconds in ((UNNEEDED, nodes.unneeded_s), (DELAY, nodes.delay_after_add_s)):
        own = seconds / _MINUTE_S
        least, most = (min(own, 1.0), max(own, _MOST_MINUTES)) if is_searched else (own, own)
        yield Parameter(name, own, least, most)


def with_values(nodes: FleetPool, values: Iterable[float]) -> FleetPool:
    """Return a pool with the values of these parameters."""
    least, unneeded, delay = map(float, values)
    return replace(
        nodes,
        least=round(least),
        unneeded_s=unneeded * _MINUTE_S,
        delay_after_add_s=delay * _MINUTE_S,
    )


@dataclass(frozen=True, slots=True)
class OnNodes(Searched):
    """An HPA whose pods need nodes; the pool's parameters are searched too."""

    hpa: Contender
    pool: DedicatedPool
    of_nodes: tuple[Parameter, ...]
    """The pool's parameters."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the HPA's parameters, then the pool's."""
        return (*self.hpa.parameters, *self.of_nodes)

    @property
    def first(self) -> tuple[str, ...]:
        """Return the HPA's most important parameters, and the pool's."""
        return (*self.hpa.first, *(each.name for each in self.of_nodes))

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the identities of HPA and pool."""
        return (*self.hpa.identity, repr((self.pool, self.of_nodes)))

    def with_hpa(self, values: Sequence[float]) -> Numbers:
        """Return values for the HPA, with today's for the pool."""
        return numpy.array([*values, *(each.default for each in self.of_nodes)])

    def sensible(self, values: Numbers) -> Numbers:
        """Return values under which the HPA can act."""
        own = len(self.hpa.parameters)
        return numpy.concatenate([self.hpa.sensible(values[:own]), values[own:]])

    def keeping(self, names: Collection[str]) -> "OnNodes":
        """Return the object with some parameters fixed."""
        return replace(self, hpa=self.hpa.keeping(names), of_nodes=kept(self.of_nodes, names))

    def replayed_and_paid(
        self, values: Numbers, demand: Numbers, service: ReplaySettings
    ) -> tuple[Replayed, Numbers]:
        """Replay a demand, and return each step's nodes too, including those on their way."""
        own = len(self.hpa.parameters)
        settings, service = self.hpa.settled(values[:own], service)
        nodes = with_values(self.pool.nodes, values[own:])
        # Pods beyond the pool's capacity would only wait.
        most = int(min(service.most, nodes.most * self.pool.pods_per_node))
        least = min(int(service.least), most)
        first = int(min(max(least, math.ceil(float(demand[0]))), most))
        begun = max(nodes.least, self.pool.nodes_for(first))
        run = replay_fleet(
            [
                FleetService(
                    self.hpa.policy.name,
                    nodes.name,
                    self.hpa.policy,
                    settings,
                    most,
                    least,
                    first,
                    self.pool.gpus_per_replica,
                    self.pool.start_up_s,
                    service.lag_s,
                    service.patience_s,
                )
            ],
            [replace(nodes, first=begun)],
            demand[:, None],
            service.step_s,
        )
        return replayed_of(run, 0, demand, service), nodes_of(run, 0)


def on_nodes(hpa: Contender, pool: DedicatedPool, static: int) -> OnNodes:
    """Return the joint search of an HPA and a node pool.

    Args:
        hpa: that is searched on pods.
        pool: that its pods are on.
        static: pods that keep the promise standing still.
    """
    return OnNodes(hpa, pool, pool.parameters(static))


def replayed_of(run: FleetRun, index: int, demand: Numbers, service: ReplaySettings) -> Replayed:
    """Return a service's part of a fleet's replay."""
    columns = run.columns
    ready, placed, queue, given_up = (
        each[:, index].astype(numpy.float64)
        for each in (columns.ready, columns.placed, columns.queue, columns.given_up)
    )
    return Replayed(service, demand, ready, placed, queue, given_up)


def nodes_of(run: FleetRun, index: int) -> Numbers:
    """Return a pool's nodes at each step, with those on their way, which are paid for too."""
    columns = run.columns
    found: Numbers = (columns.nodes[:, index] + columns.nodes_coming[:, index]).astype(
        numpy.float64
    )
    return found
