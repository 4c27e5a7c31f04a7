"""Search for the cheapest settings that keep the promise, on other days than those scored."""

from collections.abc import Iterator

import numpy

from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import DEFAULT_REQUESTS, pod_hours
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies import Numbers, Policy, ReplaySettings, policy_function, replay


def candidates(policy: Policy, count: int) -> Iterator[Numbers]:
    """Yield the default settings, then points spread evenly over the ranges, always the same.

    The points are an additive recurrence with the generalised golden ratio (Roberts 2018, "The unreasonable
    effectiveness of quasirandom sequences"), which fills a box evenly whatever their number.
    """
    yield policy.settings()
    dimensions = len(policy.parameters)
    if not dimensions:
        return
    ratio = 2.0
    for _ in range(40):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    steps = numpy.array([ratio ** -(at + 1) for at in range(dimensions)])
    for number in range(1, count):
        point = (0.5 + number * steps) % 1
        yield numpy.array(
            [
                each.least * (each.most / each.least) ** share
                if each.is_log
                else each.least + (each.most - each.least) * share
                for each, share in zip(policy.parameters, point, strict=True)
            ]
        )


def best_settings(
    policy: Policy,
    demand: Numbers,
    service: ReplaySettings,
    *,
    first_step: int,
    promise: Promise,
    requests: Requests = DEFAULT_REQUESTS,
    count: int = 64,
) -> list[Numbers]:
    """Return, for each term of a promise alone, the settings with the fewest GPU-hours of those that keep it.

    Where none keeps it, those that break it least.

    Args:
        policy: whose settings.
        demand: of the days to choose on.
        service: that is replayed.
        first_step: where scoring begins; what lies before lets a policy that learns begin.
        promise: to users.
        requests: what one takes.
        count: settings that are tried.
    """
    desired = policy_function(policy.desired)
    terms = [Promise((each,)) for each in promise.terms]
    best = [(numpy.inf, numpy.inf, policy.settings()) for _ in terms]
    for settings in candidates(policy, count):
        found = replay(desired, settings, policy.memory, demand, service)
        hours = pod_hours(found, first_step)
        shares = promise.missed_shares(found, requests, first_step)
        for at, (term, share) in enumerate(zip(terms, shares, strict=True)):
            excess = max(0.0, term.used([share]) - 1)
            if (excess, hours) < best[at][:2]:
                best[at] = excess, hours, settings
    return [settings for _, _, settings in best]
