"""How many replicas one metric asks for, and which of several metrics decides.

A metric of pods follows one course, as an average or as utilization. The ratio over the pods with samples
decides the direction. If pods are missing or unready, they are filled in against that direction, and the
count follows the ratio over the enlarged set, unless it then points the other way.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go, metrics/utilization.go;
    horizontal.go (computeReplicasForMetrics).
"""

import math
from typing import NamedTuple

from gpuscale.hpa.kernel.numbers import (
    MAX_INT64,
    capped_ceil_int32,
    ceil_int32,
    ceil_int64,
    float_quotient,
    quotient,
    wrapped32,
    wrapped64,
)
from gpuscale.hpa.kernel.pods import Column, PodTotals

NOT_FETCHED, NO_PODS, NO_SAMPLES, NO_REQUEST, NO_MATCH = range(1, 6)
"""Why a metric asks for nothing: its API gave no value; the target has no pods; no sample counts; a pod
has no request; no sample is of a pod with a request."""
WITHIN, MULTIPLIED, ENLARGED, ENLARGED_WITHIN, TURNED, AGAINST, FROM_ZERO, DIVIDED = range(10, 18)
"""How a count came about: none within the tolerance; pods times ratio; the same with pods filled in; none,
since with them it is within the tolerance, points the other way, or goes against the ratio; the ratio
alone, at no replicas; the total divided by the target."""
FULL_MISSING, IDLE_MISSING, IDLE_UNREADY = 1, 2, 4
"""Which pods were filled in, and as what: bits."""


class Proposal(NamedTuple):
    """What one metric asks for, or why it asks for nothing."""

    outcome: int
    """Up to NO_MATCH it failed, and nothing else holds."""
    replicas: int
    filled: int
    ratio: float
    """Of the metric to its target."""
    new_ratio: float
    """With pods filled in."""
    pods: int
    """That the deciding ratio was multiplied with."""
    rounded: int
    """The product, before it was held against the direction."""
    total_milli: int
    average_milli: int
    percent: int


def failure(outcome: int) -> Proposal:
    """Return what a metric asks for that failed: nothing."""
    return Proposal(outcome, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0)


class Tolerances(NamedTuple):
    """How far below and above 1 a ratio may lie and change nothing; both ends lie within."""

    scale_down: float
    scale_up: float


def is_within(ratio: float, tolerances: Tolerances) -> bool:
    """Return whether a ratio is too close to 1 to act on."""
    return (1.0 - tolerances.scale_down) <= ratio <= (1.0 + tolerances.scale_up)


def average_proposal(
    totals: PodTotals, target_milli: int, current: int, tolerances: Tolerances
) -> Proposal:
    """Return the count for an average over pods against a raw target."""
    if totals.pods == 0:
        return failure(NO_PODS)
    count = totals.counted + totals.strangers
    if count == 0:
        return failure(NO_SAMPLES)
    total = wrapped64(totals.counted_milli + totals.strangers_milli)
    average = quotient(total, count)
    ratio = float_quotient(average, target_milli)
    filled = _filled(totals, ratio)
    if filled < 0:
        return _at_once(totals, ratio, current, tolerances, average, 0)
    if filled & FULL_MISSING:
        total = wrapped64(total + wrapped64(target_milli * totals.missing))
    count = _enlarged(totals, filled)
    new_ratio = float_quotient(quotient(total, count), target_milli)
    return _rebalanced(filled, ratio, new_ratio, count, current, tolerances, average, 0)


def utilization_proposal(
    totals: PodTotals, target_percent: int, lacks_request: int, current: int, tolerances: Tolerances
) -> Proposal:
    """Return the count for a percentage of the requests; `lacks_request` says that a pod has none."""
    if totals.pods == 0:
        return failure(NO_PODS)
    if totals.counted + totals.strangers == 0:
        return failure(NO_SAMPLES)
    if lacks_request:
        return failure(NO_REQUEST)
    used, requested = totals.counted_milli, totals.counted_request_milli
    if requested == 0:
        return failure(NO_MATCH)
    average, percent = quotient(used, totals.counted), _percent(used, requested)
    ratio = float_quotient(percent, target_percent)
    filled = _filled(totals, ratio)
    if filled < 0:
        return _at_once(totals, ratio, current, tolerances, average, percent)
    if filled & FULL_MISSING:
        used = wrapped64(used + totals.missing_full_milli)
    if filled & (FULL_MISSING | IDLE_MISSING):
        requested = wrapped64(requested + totals.missing_request_milli)
    if filled & IDLE_UNREADY:
        requested = wrapped64(requested + totals.unready_request_milli)
    if requested == 0:
        return failure(NO_MATCH)
    new_ratio = float_quotient(_percent(used, requested), target_percent)
    count = _enlarged(totals, filled)
    return _rebalanced(filled, ratio, new_ratio, count, current, tolerances, average, percent)


def _percent(used_milli: int, requested_milli: int) -> int:
    return wrapped32(quotient(wrapped64(used_milli * 100), requested_milli))


def _filled(totals: PodTotals, ratio: float) -> int:
    """Return which pods are filled in, none of them at a ratio of 1; -1 where there are none to fill in."""
    holds_back = totals.unready > 0 and ratio > 1.0
    if totals.missing == 0 and not holds_back:
        return -1
    filled = IDLE_UNREADY if holds_back else 0
    if totals.missing > 0 and ratio < 1.0:
        filled |= FULL_MISSING
    if totals.missing > 0 and ratio > 1.0:
        filled |= IDLE_MISSING
    return filled


def _enlarged(totals: PodTotals, filled: int) -> int:
    """Return how many pods count with those that are filled in."""
    count = totals.counted + totals.strangers
    if filled & (FULL_MISSING | IDLE_MISSING):
        count += totals.missing
    if filled & IDLE_UNREADY:
        count += totals.unready
    return count


def _at_once(
    totals: PodTotals,
    ratio: float,
    current: int,
    tolerances: Tolerances,
    average: int,
    percent: int,
) -> Proposal:
    if is_within(ratio, tolerances):
        return Proposal(WITHIN, current, 0, ratio, ratio, 0, 0, 0, average, percent)
    pods = totals.counted
    replicas = ceil_int32(ratio * float(pods))
    return Proposal(MULTIPLIED, replicas, 0, ratio, ratio, pods, replicas, 0, average, percent)


def _rebalanced(
    filled: int,
    ratio: float,
    new_ratio: float,
    count: int,
    current: int,
    tolerances: Tolerances,
    average: int,
    percent: int,
) -> Proposal:
    rounded = ceil_int32(new_ratio * float(count))
    outcome, replicas = ENLARGED, rounded
    if is_within(new_ratio, tolerances):
        outcome, replicas = ENLARGED_WITHIN, current
    elif (ratio < 1.0 and new_ratio > 1.0) or (ratio > 1.0 and new_ratio < 1.0):
        outcome, replicas = TURNED, current
    elif (new_ratio < 1.0 and rounded > current) or (new_ratio > 1.0 and rounded < current):
        outcome, replicas = AGAINST, current
    return Proposal(
        outcome, replicas, filled, ratio, new_ratio, count, rounded, 0, average, percent
    )


def value_proposal(
    total_milli: int, target_milli: int, current: int, pods: int, ready: int, tolerances: Tolerances
) -> Proposal:
    """Return the count for a total against a total; `ready` are the running pods that are ready."""
    ratio = float_quotient(total_milli, target_milli)
    if current == 0:
        replicas = ceil_int32(ratio)
        return Proposal(FROM_ZERO, replicas, 0, ratio, ratio, 0, replicas, total_milli, 0, 0)
    if is_within(ratio, tolerances):
        return Proposal(WITHIN, current, 0, ratio, ratio, 0, 0, total_milli, 0, 0)
    if pods == 0:
        return failure(NO_PODS)
    replicas = capped_ceil_int32(ratio * float(ready))
    return Proposal(MULTIPLIED, replicas, 0, ratio, ratio, ready, replicas, total_milli, 0, 0)


def share_proposal(
    total_milli: int, target_milli: int, replicas: int, is_external: int, tolerances: Tolerances
) -> Proposal:
    """Return the count for a total against each replica's share; that of an External metric is capped.

    The average over no replicas is the smallest int64, as upstream reports it.
    """
    ratio = float_quotient(total_milli, float(target_milli) * float(replicas))
    average = _share(total_milli, replicas, is_external)
    if is_within(ratio, tolerances):
        return Proposal(WITHIN, replicas, 0, ratio, ratio, 0, 0, total_milli, average, 0)
    count = float_quotient(total_milli, target_milli)
    asked = capped_ceil_int32(count) if is_external else ceil_int32(count)
    return Proposal(DIVIDED, asked, 0, ratio, ratio, 0, asked, total_milli, average, 0)


def _share(total_milli: int, replicas: int, is_external: int) -> int:
    if is_external and float(total_milli) >= float(MAX_INT64):
        return MAX_INT64
    share = float_quotient(total_milli, replicas)
    return ceil_int64(math.nan if replicas == 0 else share)


def external_total(values_milli: Column, is_share: int) -> int:
    """Return the sum of an External metric's series, held at the largest int64.

    For a share of each pod upstream takes a running sum below zero for an overflow, so that negative
    values end at the largest int64 as well; otherwise a sum below int64 wraps around.
    """
    total = 0
    for place in range(len(values_milli)):
        value = values_milli[place]
        if value > 0 and total > MAX_INT64 - value:
            return MAX_INT64
        total = wrapped64(total + value)
        if is_share and total < 0:
            return MAX_INT64
    return total


class Choice(NamedTuple):
    """What the metrics seen so far ask for together; start with `NO_CHOICE`."""

    replicas: int
    metric: int
    """Index of the one that decides; -1 for none."""
    metrics: int
    failures: int


NO_CHOICE = Choice(0, -1, 0, 0)


def chosen(choice: Choice, proposal: Proposal) -> Choice:
    """Return the choice after the next metric: the highest proposal wins."""
    index, failures = choice.metrics, choice.failures
    if proposal.outcome <= NO_MATCH:
        return Choice(choice.replicas, choice.metric, index + 1, failures + 1)
    if choice.replicas == 0 or proposal.replicas > choice.replicas:
        return Choice(proposal.replicas, index, index + 1, failures)
    return Choice(choice.replicas, choice.metric, index + 1, failures)


def is_blocked(choice: Choice, current: int) -> bool:
    """Return whether failed metrics, which might propose more, forbid scaling down."""
    if choice.failures == choice.metrics:
        return True
    return choice.failures > 0 and choice.replicas < current
