"""An HPA as its manifest has it, as a policy: its target, bounds, behavior and the controller's settings.

The metric is the use of the pods' GPUs in percent: their mean over ready pods (Pods), or one value of an
object (Object). It ends at the share of a pod's GPUs that a saturated pod keeps busy.
"""

import math
from typing import Any

import numpy

from gpuscale.hpa.kernel.memory import Limits, Rules, cells_of
from gpuscale.hpa.kernel.proposals import (
    NO_CHOICE,
    NOT_FETCHED,
    Tolerances,
    average_proposal,
    chosen,
    failure,
    share_proposal,
    value_proposal,
)
from gpuscale.hpa.kernel.sync import sync
from gpuscale.plan.policies.hpa import measured_pods, pod_totals
from gpuscale.plan.policies.policy import Numbers, Policy, Seen

POD_AVERAGE, VALUE, OBJECT_AVERAGE = range(3)
"""What a target is held against: the mean over pods, the value, or the value's share of each replica."""
_HEAD = 17
"""Settings before the limits' policies; the count of the memory's cells is the last of them."""


def manifest_policy(
    limits: Limits,
    target_milli: int,
    kind: int,
    *,
    tolerance_up: float,
    tolerance_down: float,
    busy: float,
    step_s: float,
    lag: int,
) -> tuple[Policy, Numbers]:
    """Return the policy of one HPA and its settings.

    Args:
        limits: as `hpa.numbers.limits_of` has them.
        target_milli: in thousandths of the metric, which is in percent.
        kind: POD_AVERAGE, VALUE or OBJECT_AVERAGE.
        tolerance_up: half of the dead band.
        tolerance_down: likewise.
        busy: share of its GPUs' time that a saturated pod uses.
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
        100_000 * busy,
        limits.least,
        limits.most,
        limits.has_behavior,
        limits.window_ms,
        *(limits.up.window_ms, limits.up.select, limits.up.after),
        *(limits.down.window_ms, limits.down.select, limits.down.first, limits.down.after),
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
    measured = measured_pods(seen, memory, after, len(memory) - after)
    if math.isnan(seen.utilization):
        proposal = failure(NOT_FETCHED)
    else:
        percent_milli = round(seen.utilization * settings[4])
        if kind == POD_AVERAGE:
            totals = pod_totals(seen, measured, percent_milli)
            proposal = average_proposal(totals, target_milli, replicas, tolerances)
        elif kind == VALUE:
            proposal = value_proposal(
                percent_milli, target_milli, replicas, replicas, ready, tolerances
            )
        else:
            proposal = share_proposal(percent_milli, target_milli, replicas, 0, tolerances)
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
