"""Kubernetes' HPA, by its own kernel: on utilization, which ends at 100 %, or on demand, which does not.

Utilization is a Pods metric, the mean over the pods that are ready; those that start are unready. Demand is
an External metric with an average for each replica, such as requests in flight or a queue's arrivals. A sync
comes every step. Stabilization, tolerances and rates are `behavior` with the defaults of autoscaling/v2;
settings may have the behavior of an HPA of one's own behind the parameters (`triggers.policies.behavior`).

Source: `hpa.kernel`; kubernetes v1.36 pkg/apis/autoscaling/v2/defaults.go.
"""

import math
from typing import Any

import numpy

from gpuscale.hpa.kernel import (
    MAX,
    NO_CHOICE,
    NOT_FETCHED,
    PERCENT,
    PODS,
    Limits,
    PodTotals,
    Proposal,
    Rules,
    Tolerances,
    average_proposal,
    cells_of,
    chosen,
    failure,
    share_proposal,
    sync,
)
from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_PLACES = 256
"""Recommendations that are remembered: an hour of steps of 15 s, and more."""
_CELLS = cells_of(_PLACES)
_POLICIES = (PERCENT, 100, 15_000, PODS, 4, 15_000, PERCENT, 100, 15_000)
"""Up by 100 % or 4 pods in 15 s, down by 100 % in 15 s: kind, value and period of each."""
MOST = 1_000_000
"""Replicas where nothing else bounds them."""
UP_TOLERANCE, UP_WINDOW, UP_SELECT, DOWN_SELECT, UP_COUNT, FIRST_POLICY = range(3, 9)
"""Where the behavior of an HPA of one's own stands in the settings; then kind, value and period in ms of each
policy, those of scale-up first."""
MAX_POLICIES = 16
"""Of both directions together."""
_READY = _CELLS + 3 * MAX_POLICIES
LAG_STEPS = 64
"""Of ready pods that are remembered, for signals that are late."""


def _on_utilization(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    measured = measured_pods(seen, memory, _READY, LAG_STEPS)
    if math.isnan(seen.utilization):
        return _synced(seen, memory, settings, failure(NOT_FETCHED), 1, MOST)
    totals = pod_totals(seen, measured, round(seen.utilization * 100_000))
    proposal = average_proposal(
        totals, round(settings[0] * 100_000), int(seen.replicas), _tolerances(settings)
    )
    return _synced(seen, memory, settings, proposal, 1, MOST)


def _on_demand(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    return on_total(seen, seen.demand, memory, settings, 1, MOST)


def on_total(
    seen: Seen, total: float, memory: Numbers, settings: Numbers, least: int, most: int
) -> float:
    """Return the count for an External metric with an average for each replica.

    Args:
        seen: of the step.
        total: the metric's value.
        memory: the policy's; its first MEMORY numbers are the HPA's.
        settings: `target`, `down_window_s`, `tolerance`, and behavior where there is more.
        least: minReplicas.
        most: maxReplicas.
    """
    total_milli, target_milli = math.ceil(total * 1000), round(settings[0] * 1000)
    proposal = share_proposal(
        total_milli, target_milli, int(seen.replicas), 1, _tolerances(settings)
    )
    return _synced(seen, memory, settings, proposal, least, most)


def measured_pods(seen: Seen, memory: Numbers, first: int, places: int) -> int:
    """Return how many ready pods were ready when the signal was measured, and remember the current number.

    Args:
        seen: of the step.
        memory: the policy's.
        first: where the ready pods of past steps begin in it.
        places: how many steps' are kept, which bounds the lag.
    """
    return int(min(seen.ready, ready_before(seen, memory, first, places)))


def ready_before(seen: Seen, memory: Numbers, first: int, places: int) -> float:
    """Return how many pods were ready when the signal was measured, and remember the current number.

    The arguments are `measured_pods`'.
    """
    memory[first + seen.step % places] = seen.ready
    lag = min(math.ceil(seen.lag_s / seen.step_s), places - 1, seen.step)
    return float(memory[first + (seen.step - lag) % places])


def pod_totals(seen: Seen, measured: int, value_milli: int) -> PodTotals:
    """Return what the controller counts: a pod that starts is unready, a ready one without a value missing.

    Args:
        seen: of the step.
        measured: ready pods that have a value.
        value_milli: of each of them.
    """
    ready, replicas = int(seen.ready), int(seen.replicas)
    unready, missing = replicas - ready, ready - measured
    return PodTotals(replicas, measured, unready, missing, 0, value_milli * measured, 0, 0, 0, 0, 0)


def _tolerances(settings: Numbers) -> Tolerances:
    if len(settings) > UP_TOLERANCE:
        return Tolerances(settings[2], settings[UP_TOLERANCE])
    return Tolerances(settings[2], settings[2])


def _synced(
    seen: Seen, memory: Numbers, settings: Numbers, proposal: Proposal, least: int, most: int
) -> float:
    """Return the count after a sync; the kernel's state is in the policy's memory."""
    cells = memory.view(numpy.int64)
    policies: Any = cells[_CELLS:]
    own: Any = cells[:_CELLS]  # numpy's arrays are no MutableSequence
    up, down = Rules(0, MAX, 0, 2), Rules(int(settings[1] * 1000), MAX, 2, 3)
    if len(settings) > UP_TOLERANCE:
        middle = int(settings[UP_COUNT])
        after = (len(settings) - FIRST_POLICY) // 3
        up = Rules(int(settings[UP_WINDOW] * 1000), int(settings[UP_SELECT]), 0, middle)
        down = Rules(int(settings[1] * 1000), int(settings[DOWN_SELECT]), middle, after)
        if seen.step == 0:
            for place in range(3 * after):
                policies[place] = int(settings[FIRST_POLICY + place])
    elif seen.step == 0:
        for place in range(len(_POLICIES)):
            policies[place] = _POLICIES[place]
    limits = Limits(least, most, 1, 0, up, down, policies)
    now_ms = round(seen.step * seen.step_s * 1000)
    choice = chosen(NO_CHOICE, proposal)
    return float(sync(limits, own, int(seen.replicas), choice, 0, now_ms))


_WINDOW = Parameter("down_window_s", 300, 0, 3600)
_TOLERANCE = Parameter("tolerance", 0.1, 0, 0.5)
MEMORY = _READY + LAG_STEPS
ON_TOTAL = (Parameter("target", 0.6, 0.2, 1.0), _WINDOW, _TOLERANCE)
"""The parameters of `on_total`."""

HPA = Policy(
    "hpa",
    "the HPA on GPU utilization",
    _on_utilization,
    (Parameter("target", 0.6, 0.2, 0.95), _WINDOW, _TOLERANCE),
    MEMORY,
    "kubernetes v1.36",
)
HPA_ON_DEMAND = Policy(
    "hpa-demand",
    "the HPA on demand",
    _on_demand,
    ON_TOTAL,
    MEMORY,
    "kubernetes v1.36",
)
