"""Waiting times in a queue with several servers, from theory.

Erlang's formula is in the part of Python that numba compiles, for columns of them (`lab.plan.waiting`).
Source: Allen, "Probability, statistics and queueing theory", 2nd edition, chapter 5 (Erlang's C formula, and
Allen and Cunneen's approximation for service times that are not exponential).
"""

from dataclasses import dataclass
from functools import lru_cache

MAX_SERVERS = 20_000
"""Beyond, a queue below saturation waits for nothing that matters."""


@dataclass(frozen=True, slots=True)
class QueueWait:
    """A wait that occurs with some probability and is then exponential."""

    chance: float
    mean_s: float
    """Of those that wait at all."""

    @property
    def overall_s(self) -> float:
        """Return the mean wait over all requests, those without a wait included."""
        return self.chance * self.mean_s


NO_WAIT = QueueWait(0.0, 0.0)


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that an arrival waits, for Poisson arrivals and exponential service times.

    Args:
        servers: how many, at least 1.
        offered: work that comes in, in servers; where it is not less than `servers`, all wait.
    """
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = offered * blocked / (server + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def steady_wait(servers: int, rate: float, service_s: float, spread: float) -> QueueWait:
    """Return the wait in a stationary queue below saturation.

    Args:
        servers: how many; more than MAX_SERVERS wait for nothing.
        rate: Poisson arrivals per second; less than the servers can do.
        service_s: mean time of service.
        spread: its coefficient of variation.
    """
    offered = rate * service_s
    if servers > MAX_SERVERS or not offered or offered >= servers:
        return NO_WAIT
    mean_s = service_s / (servers - offered) * (1 + spread * spread) / 2
    return QueueWait(_erlang_c(servers, offered), mean_s)


_erlang_c = lru_cache(maxsize=4096)(erlang_c)
