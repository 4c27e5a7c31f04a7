"""Simulated queues in batches of a run, and the lengths that theory gives them."""

import math
import random
import statistics
from collections.abc import Sequence

from gpuscale.base.loads import Load, StepsLoad
from gpuscale.lab.queueing.theory import erlang_c
from gpuscale.lab.sim.load.arrivals import Arrivals
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.one_by_one import OneByOne

BATCHES = 40


def one_by_one(
    model: ServiceModel, load: Load, seed: int = 3, *, is_random: bool = True
) -> OneByOne:
    draw = random.Random(seed)
    arrivals = Arrivals(load, random.Random(seed + 1).random if is_random else None)
    return OneByOne(model, load, 0, draw.random, arrivals)


def batch_means(
    model: ServiceModel, rate: float, pods: int, seconds: int
) -> tuple[list[float], OneByOne]:
    """Return the mean queue of each batch of a run, and the run."""
    service = one_by_one(model, StepsLoad(((0.0, rate),)))
    means, before = [], 0.0
    for second in range(1, seconds + 1):
        service.advance(second * 1000, pods)
        if second % (seconds // BATCHES) == 0:
            means.append((service.waiting_s - before) / (seconds // BATCHES))
            before = service.waiting_s
    return means, service


def assert_near(means: Sequence[float], theory: float) -> None:
    error = statistics.stdev(means) / math.sqrt(len(means))
    assert abs(statistics.fmean(means) - theory) < 4 * error, (statistics.fmean(means), error)
    assert error < 0.15 * theory  # else the interval would prove nothing


def m_m_c_queue(pods: int, offered: float) -> float:
    busy = offered / pods
    return erlang_c(pods, offered) * busy / (1 - busy)


def m_d_c_queue(pods: int, offered: float) -> float:
    """Cosmetatos' approximation, within 2 % of M/D/c here."""
    busy = offered / pods
    more = (1 - busy) * (pods - 1) * (math.sqrt(4 + 5 * pods) - 2) / (16 * busy * pods)
    return m_m_c_queue(pods, offered) / 2 * (1 + more)
