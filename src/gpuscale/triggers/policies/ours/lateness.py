"""How many pods a step's demand needs so that its requests wait no longer than was promised.

Two things make requests wait. Chance: arrivals and service times are random, so that some wait even where
pods keep up. The chance that all of c pods are busy with a demand of d is about (d/c)^(sqrt(2(c+1)) - 1)
(Sakasegawa 1977), and who waits then waits an exponential time, of mean service / (c - d). A queue takes time
to get that long: out of balance by chance, it grows with the root of time, as a Brownian motion's size does.
And a backlog: whoever comes at the end of a step waits w at the most if, from any earlier step's beginning,
what came until then is less than what pods do until w later (Reich 1958; the max-plus form of Lindley's
recursion).
"""

import math

from gpuscale.triggers.policies.policy import Numbers

REACHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 240)
"""Steps over which a backlog is looked for."""
PLACES = 256
"""Of a ring that holds sums of shortfalls: more than the longest reach."""


def late_by_chance(
    demand: float, pods: float, wait_s: float, service_s: float, steady_s: float
) -> float:
    """Return the share of requests that wait longer than this because of chance alone.

    Args:
        demand: work that comes in, in pods.
        pods: that serve.
        wait_s: the longest that is promised.
        service_s: of a request, in the mean.
        steady_s: for how long demand has been as it is, so that a queue could grow.
    """
    if pods <= 0:
        return 1.0
    mean_s = math.sqrt(4 / math.pi * demand * service_s * steady_s) / pods
    busy = 1.0
    if pods > demand:
        mean_s = min(mean_s, service_s / (pods - demand))
        busy = (demand / pods) ** (math.sqrt(2 * (pods + 1)) - 1)
    return busy * math.exp(-wait_s / mean_s) if mean_s > 0 else 0.0


def pods_for_chance(
    demand: float, wait_s: float, service_s: float, steady_s: float, allowed: float
) -> float:
    """Return the fewest pods with which no more than the allowed share wait longer by chance."""
    low, high = 0.0, demand + service_s / wait_s * math.log(1 / allowed)
    for _ in range(16):
        middle = (low + high) / 2
        if late_by_chance(demand, middle, wait_s, service_s, steady_s) <= allowed:
            high = middle
        else:
            low = middle
    return high


def missing_for_backlog(
    sums: Numbers, first: int, step: int, had: float, wait_s: float, step_s: float
) -> float:
    """Return how many pods more would have let the last request of a step wait no longer than this.

    Args:
        sums: of demand less capacity over all steps until then, in a ring of PLACES from `first` on.
        first: where the ring begins.
        step: that is looked at, whose sum is in the ring already.
        had: pods at that step, and for as long as the request waits.
        wait_s: the longest that is promised.
        step_s: of the replay.
    """
    missing = -math.inf
    for reach in REACHES:
        if reach > step + 1:
            break
        came = (sums[first + step % PLACES] - sums[first + (step - reach) % PLACES]) * step_s
        missing = max(missing, (came - had * wait_s) / (reach * step_s + wait_s))
    return missing
