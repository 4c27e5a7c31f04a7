"""Waiting times of requests: from queueing theory while pods keep up, from the backlog otherwise.

Below saturation a workload is a queue with as many servers as its ready pods have slots. Its waits are those
of Erlang's C formula, scaled for the spread of service times (Allen and Cunneen's approximation), with an
exponential tail. Where work is left over, a request waits for what is before it: from a step's beginning to
its end that rises or falls evenly. Percentiles are over requests: of all steps together, each counted by its
work.

Source: Allen, "Probability, statistics and queueing theory", 2nd edition, chapter 5; Sakasegawa 1977.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import cast

import numpy

from gpuscale.base import compiling
from gpuscale.lab.queueing.theory import MAX_SERVERS, erlang_c
from gpuscale.triggers.policies import Numbers, Replayed

_SMALLEST_S = 1e-6
"""Difference of two backlogs that is worth a mean over what lies between them."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The service times of requests."""

    service_s: float
    """Time in a slot of a pod, in the mean."""
    slots: int = 1
    """Requests that a pod works on at once."""
    spread: float = 1.0
    """Coefficient of variation of the service time: 0 constant, 1 exponential."""


def _fill(
    servers: Numbers,
    offered: Numbers,
    behind_s: Numbers,
    step_s: float,
    service_s: float,
    variance: float,
    chance: Numbers,
    mean_s: Numbers,
) -> None:
    """Fill the chance to wait, and the mean of those that do, of steps in which servers keep up.

    A queue that is nearly full takes hours to get as long as it is at rest. From a free queue, work that is
    out of balance by chance alone grows with the root of time, as the mean of a Brownian motion's size does.

    Args:
        servers: of each step; 0 where they don't keep up.
        offered: work that comes in, in servers.
        behind_s: what waits at the end of other steps.
        step_s: of the replay.
        service_s: of a request, in the mean.
        variance: of arrivals and service together, as a share of exponential ones: (1 + spread²) / 2.
        chance: is filled.
        mean_s: is filled.
    """
    reached_s = 0.0
    for at in range(len(servers)):
        if servers[at] <= 0:
            reached_s = behind_s[at]
            continue
        chance[at] = erlang_c(int(servers[at]), offered[at])
        # Exponential service: the mean wait of those that wait is 1 / (service rate - arrival rate).
        free = max(servers[at] - offered[at], 1e-9)
        grown = 4 * variance / math.pi * offered[at] * service_s * step_s / servers[at] ** 2
        reached_s = min(service_s / free * variance, math.sqrt(reached_s**2 + grown))
        mean_s[at] = reached_s


@cache
def _filler() -> Callable[..., None]:
    """Return `_fill`, compiled if numba is installed."""
    numba = compiling.numba()
    if numba is None:
        return _fill
    column, number = numba.float64[::1], numba.float64
    signature = numba.void(column, column, column, number, number, number, column, column)
    return compiling.compiled(cast("FunctionType", _fill), signature, lambda line: None)


@dataclass(frozen=True, slots=True)
class Waits:
    """The distribution of waiting times over a replay's requests.

    A request of step i has a backlog before it, anything between `least_s[i]` and `most_s[i]`, and waits,
    beyond that, with the probability `chance[i]` a time that is exponential with the mean `mean_s[i]`.
    """

    least_s: Numbers
    most_s: Numbers
    chance: Numbers
    mean_s: Numbers
    weight: Numbers
    """Of each step; together 1."""

    def late(self, limit_s: float, requests: Requests | None = None) -> Numbers:
        """Return, for each step, the share of its requests that wait longer than this.

        Args:
            limit_s: longer than this.
            requests: given where the time that they take counts too.
        """
        constant_s, varying_s = 0.0, 0.0
        if requests is not None:
            # A constant and an exponential part: together they have the mean and the spread.
            varying_s = requests.service_s * min(requests.spread, 1.0)
            constant_s = requests.service_s - varying_s
        left_s = limit_s - constant_s
        if left_s < 0:
            return numpy.ones(len(self.most_s))
        found = _beyond(left_s, self.chance, self.mean_s, varying_s)
        rises_s = numpy.maximum(self.most_s - self.least_s, _SMALLEST_S)
        if not varying_s:
            behind = numpy.clip((self.most_s - left_s) / rises_s, 0.0, 1.0)
        else:
            # The mean over the backlogs of an exponential time's tail beyond what is left of the limit.
            near, far = left_s - self.most_s, left_s - (self.most_s - rises_s)
            area = varying_s * (
                numpy.exp(-numpy.maximum(near, 0.0) / varying_s)
                - numpy.exp(-numpy.maximum(far, 0.0) / varying_s)
            )
            behind = (area + numpy.maximum(-near, 0.0) - numpy.maximum(-far, 0.0)) / rises_s
        return numpy.where(self.most_s > 0, behind, found)

    def exceeding(self, wait_s: float) -> float:
        """Return the share of requests that wait longer than this."""
        return float((self.late(wait_s) * self.weight).sum())

    def mean(self) -> float:
        """Return the mean wait in seconds."""
        backlog_s = (self.least_s + self.most_s) / 2
        return float(((backlog_s + self.chance * self.mean_s) * self.weight).sum())

    def percentile(self, percent: float) -> float:
        """Return the wait in seconds that only `100 - percent` per cent of the requests exceed."""
        allowed = 1 - percent / 100
        high = float(self.most_s.max(initial=0.0)) + 60 * float(self.mean_s.max(initial=0.0))
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


def _beyond(limit_s: float, chance: Numbers, mean_s: Numbers, varying_s: float) -> Numbers:
    """Return the share beyond a limit of a wait by chance and an exponential time, both from their start."""
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        waiting = numpy.where(mean_s > 0, numpy.exp(-limit_s / mean_s), 0.0)
        if not varying_s:
            return chance * waiting
        serving = numpy.exp(-limit_s / varying_s)
        both = (mean_s * waiting - varying_s * serving) / (mean_s - varying_s)
    # Of two times with the same mean, the limit of that.
    is_same = numpy.abs(mean_s - varying_s) < 1e-6 * varying_s
    both = numpy.where(is_same, (1 + limit_s / varying_s) * serving, both)
    found: Numbers = chance * both + (1 - chance) * serving
    return found


def waits(replayed: Replayed, requests: Requests, first_step: int = 0) -> Waits:
    """Return the waiting times of a replay's requests, from a step on.

    What came while nothing was ready waits the clients' patience; what was given up is counted so too.
    """
    scored = slice(first_step, None)
    demand, ready, queue = replayed.demand, replayed.ready, replayed.queue
    step_s, patience_s = replayed.service.step_s, replayed.service.patience_s
    total = float(demand[scored].sum())
    weight = demand[scored] / total if total else numpy.zeros(len(demand[scored]))
    # What waits at a step's end is done once as much work was: by the pods there are, and those that come.
    ends_s = numpy.arange(1, len(demand) + 1) * step_s
    done = numpy.cumsum(numpy.maximum(ready, _SMALLEST_S) * step_s)
    last = max(float(ready[-1]), 1.0)
    later_s, later = (
        numpy.append(ends_s, ends_s[-1] + 1e9),
        numpy.append(done, done[-1] + last * 1e9),
    )
    last_s = numpy.minimum(numpy.interp(done + queue, later, later_s) - ends_s, patience_s)
    last_s = numpy.where(ready > 0, last_s, patience_s)
    first_s = numpy.where(ready > 0, numpy.concatenate([[0.0], last_s[:-1]]), patience_s)
    before = numpy.concatenate([[0.0], queue[:-1]])
    pods = numpy.maximum(ready, 1.0)
    servers = numpy.minimum(pods * requests.slots, MAX_SERVERS)
    offered = numpy.minimum(demand / pods, 1.0) * servers
    keeps_up = (ready > 0) & (queue <= 0) & (before <= 0)
    chance, mean_s = numpy.zeros(len(demand)), numpy.zeros(len(demand))
    variance = (1 + requests.spread**2) / 2
    kept = numpy.where(keeps_up, servers, 0.0)
    _filler()(kept, offered, last_s, step_s, requests.service_s, variance, chance, mean_s)
    first_s, last_s = numpy.where(keeps_up, 0.0, (first_s, last_s))
    least_s, most_s = numpy.minimum(first_s, last_s), numpy.maximum(first_s, last_s)
    return Waits(least_s[scored], most_s[scored], chance[scored], mean_s[scored], weight)
