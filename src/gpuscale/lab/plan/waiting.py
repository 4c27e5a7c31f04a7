"""Waiting times of requests: from queueing theory while pods keep up, from the backlog otherwise.

Below saturation a workload is a queue with as many servers as its ready pods have slots. Its waits are those
of Erlang's C formula, scaled for the spread of service times (Allen and Cunneen's approximation), with an
exponential tail. Where work is left over at a step, what waits comes on top. Percentiles are over requests:
of all steps together, each counted by its work.

Source: Allen, "Probability, statistics and queueing theory", 2nd edition, chapter 5; Sakasegawa 1977.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import cast

import numpy

from gpuscale.base import compiling
from gpuscale.lab.queueing.theory import MAX_SERVERS, erlang_c
from gpuscale.triggers.policies import Numbers, Replayed


@dataclass(frozen=True, slots=True)
class Requests:
    """The service times of requests."""

    service_s: float
    """Time in a slot of a pod, in the mean."""
    slots: int = 1
    """Requests that a pod works on at once."""
    spread: float = 1.0
    """Coefficient of variation of the service time: 0 constant, 1 exponential."""


def waits_at_all(servers: Numbers, offered: Numbers) -> Numbers:
    """Return the probability that a request has to wait (Erlang C).

    Args:
        servers: how many, whole numbers from 1 on.
        offered: work that comes in, in servers; where it is not less than `servers`, all wait.
    """
    chances = numpy.zeros(len(servers))
    _filler()(servers, offered, chances)
    return chances


def _fill(servers: Numbers, offered: Numbers, chances: Numbers) -> None:
    for at in range(len(servers)):
        chances[at] = erlang_c(int(servers[at]), offered[at])


@cache
def _filler() -> Callable[[Numbers, Numbers, Numbers], None]:
    """Return `_fill`, compiled if numba is installed."""
    numba = compiling.numba()
    if numba is None:
        return _fill
    column = numba.float64[::1]
    signature = numba.void(column, column, column)
    return compiling.compiled(cast("FunctionType", _fill), signature, lambda line: None)


@dataclass(frozen=True, slots=True)
class Waits:
    """The distribution of waiting times over a replay's requests.

    A request of step i has a backlog of `backlog_s[i]` before it and waits, beyond that, with the probability
    `chance[i]` a time that is exponential with the mean `mean_s[i]`.
    """

    backlog_s: Numbers
    chance: Numbers
    mean_s: Numbers
    weight: Numbers
    """Of each step; together 1."""

    def exceeding(self, wait_s: float) -> float:
        """Return the share of requests that wait longer than this."""
        beyond = wait_s - self.backlog_s
        with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
            tail = self.chance * numpy.exp(-numpy.maximum(beyond, 0.0) / self.mean_s)
        tail = numpy.where(self.mean_s > 0, tail, 0.0)
        return float((numpy.where(beyond < 0, 1.0, tail) * self.weight).sum())

    def mean(self) -> float:
        """Return the mean wait in seconds."""
        return float(((self.backlog_s + self.chance * self.mean_s) * self.weight).sum())

    def percentile(self, percent: float) -> float:
        """Return the wait in seconds that only `100 - percent` per cent of the requests exceed."""
        allowed = 1 - percent / 100
        high = float(self.backlog_s.max(initial=0.0)) + 60 * float(self.mean_s.max(initial=0.0))
        low = 0.0
        if self.exceeding(low) <= allowed:
            return 0.0
        for _ in range(60):
            middle = (low + high) / 2
            if self.exceeding(middle) <= allowed:
                high = middle
            else:
                low = middle
        return high


def waits(replayed: Replayed, requests: Requests, first_step: int = 0) -> Waits:
    """Return the waiting times of a replay's requests, from a step on.

    What came while nothing was ready waits the clients' patience; what was given up is counted so too.
    """
    scored = slice(first_step, None)
    demand, ready = replayed.demand[scored], replayed.ready[scored]
    queue, patience_s = replayed.queue[scored], replayed.service.patience_s
    total = float(demand.sum())
    weight = demand / total if total else numpy.zeros(len(demand))
    pods = numpy.maximum(ready, 1.0)
    backlog_s = numpy.where(ready > 0, queue / pods, patience_s)
    servers = numpy.minimum(pods * requests.slots, MAX_SERVERS)
    offered = numpy.minimum(demand / pods, 1.0) * servers
    keeps_up = (ready > 0) & (queue <= 0) & (offered < servers * (1 - 1e-9))
    chance = numpy.where(keeps_up, waits_at_all(servers, numpy.where(keeps_up, offered, 0.0)), 0.0)
    free = numpy.where(keeps_up, servers - offered, 1.0)
    # Exponential service: the mean wait of those that wait is 1 / (service rate - arrival rate).
    mean_s = numpy.where(keeps_up, requests.service_s / free * (1 + requests.spread**2) / 2, 0.0)
    return Waits(backlog_s, chance, mean_s, weight)
