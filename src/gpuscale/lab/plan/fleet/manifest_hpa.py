"""A policy that does what an HPA manifest says: target, bounds, behavior, controller settings.

The metric is a sum of what ready pods work on and of what waits: the use of GPUs in percent, requests in
flight, or requests that wait. Pods metrics are the mean over ready pods; others are that, or the total.
"""

import math
from typing import Any

import numpy

from gpuscale.hpa.kernel import (
    NO_CHOICE,
    NOT_FETCHED,
    Limits,
    Rules,
    Tolerances,
    average_proposal,
    cells_of,
    chosen,
    failure,
    share_proposal,
    sync,
    value_proposal,
)
from gpuscale.triggers.policies import Numbers, Policy, Seen, pod_totals, ready_before

POD_AVERAGE, VALUE, OBJECT_AVERAGE, EXTERNAL_AVERAGE = range(4)
"""What a target is held against: the mean over pods, the value, or the value's share of each replica."""
MEAN, TOTAL, WHOLE_TOTAL = range(3)
"""What the metric shows of all ready pods; the last in whole numbers, rounded down."""
_HEAD = 20
"""Settings before the limits' policies; the count of the memory's cells is the last of them."""


def manifest_policy(
    limits: Limits,
    target_milli: int,
    kind: int,
    *,
    tolerance_up: float,
    tolerance_down: float,
    busy_milli: float,
    waiting_milli: float = 0.0,
    shows: int = MEAN,
    unit_milli: float = 0.0,
    step_s: float,
    lag: int,
) -> tuple[Policy, Numbers]:
    """Return the policy of an HPA, and its settings.

    Args:
        limits: as `hpa.replicas.numbers.limits_of` has them.
        target_milli: in thousandths of the metric.
        kind: POD_AVERAGE, VALUE, OBJECT_AVERAGE or EXTERNAL_AVERAGE.
        tolerance_up: half of the dead band.
        tolerance_down: likewise.
        busy_milli: the metric of a pod that is busy all the time.
        waiting_milli: what a second of a pod's work adds to it that waits.
        shows: MEAN, TOTAL or WHOLE_TOTAL.
        unit_milli: a pod's value is a multiple of it, the nearest; 0 for any value.
        step_s: between two syncs.
        lag: steps by which signals are late.
    """
    policies = list(limits.policies)
    longest_ms = max(
        [limits.window_ms, limits.up.window_ms, limits.down.window_ms, *policies[2::3]]
    )
    cells = cells_of(math.ceil(longest_ms / 1000 / step_s) + 2)
    settings = [
        target_milli,
        kind,
        tolerance_down,
        tolerance_up,
        busy_milli,
        limits.least,
        limits.most,
        limits.has_behavior,
        limits.window_ms,
        *(limits.up.window_ms, limits.up.select, limits.up.after),
        *(limits.down.window_ms, limits.down.select, limits.down.first, limits.down.after),
        waiting_milli,
        shows,
        unit_milli,
        cells,
        *policies,
    ]
    policy = Policy(
        "manifest",
        "an HPA of a manifest",
        _desired,
        memory=cells + len(policies) + lag + 1,
        source="hpa.kernel",
    )
    return policy, numpy.array(settings, dtype=numpy.float64)


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    ready, replicas = int(seen.ready), int(seen.replicas)
    target_milli, kind = int(settings[0]), int(settings[1])
    tolerances = Tolerances(settings[2], settings[3])
    numbers = memory.view(numpy.int64)
    cells = int(settings[_HEAD - 1])
    after = cells + len(settings) - _HEAD
    policies: Any = numbers[cells:after]
    own: Any = numbers[:cells]  # numpy's arrays are no MutableSequence
    if seen.step == 0:
        for place in range(len(policies)):
            policies[place] = int(settings[_HEAD + place])
    then_ready = ready_before(seen, memory, after, len(memory) - after)
    if math.isnan(seen.utilization) or then_ready <= 0:
        proposal = failure(NOT_FETCHED)
    else:
        of_pod = seen.utilization * settings[4]
        if settings[18] > 0:
            of_pod = math.floor(of_pod / settings[18] + 0.5) * settings[18]
        if settings[16] > 0:
            of_pod += seen.queue * settings[16] / then_ready
        shows = int(settings[17])
        value_milli = round(of_pod if shows == MEAN else of_pod * then_ready)
        if shows == WHOLE_TOTAL:
            value_milli -= value_milli % 1000
        if kind == POD_AVERAGE:
            totals = pod_totals(seen, int(min(seen.ready, then_ready)), value_milli)
            proposal = average_proposal(totals, target_milli, replicas, tolerances)
        elif kind == VALUE:
            proposal = value_proposal(
                value_milli, target_milli, replicas, replicas, ready, tolerances
            )
        else:
            is_external = 1 if kind == EXTERNAL_AVERAGE else 0
            proposal = share_proposal(value_milli, target_milli, replicas, is_external, tolerances)
    limits = Limits(
        int(settings[5]),
        int(settings[6]),
        int(settings[7]),
        int(settings[8]),
        Rules(int(settings[9]), int(settings[10]), 0, int(settings[11])),
        Rules(int(settings[12]), int(settings[13]), int(settings[14]), int(settings[15])),
        policies,
    )
    now_ms = round(seen.step * seen.step_s * 1000)
    return float(sync(limits, own, replicas, chosen(NO_CHOICE, proposal), 0, now_ms))
