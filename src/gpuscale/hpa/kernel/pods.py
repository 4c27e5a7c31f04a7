"""Which pods count, as what: the pods of a target in columns, and what of them the arithmetic needs.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (groupPods).
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpuscale.hpa.kernel.numbers import quotient, wrapped64

Column = Sequence[int]
"""A list, or a numpy array of int64; compiled functions take arrays alone."""

GONE, PENDING, SILENT, SAMPLED, STRANGER = range(5)
"""What a pod is to one metric: failed or going away; not started; running without a sample; with one; a
sample of a pod that is not the target's."""
READY, UNREADY, UNKNOWN, ABSENT = range(4)
"""Its Ready condition; absent is none."""
NEVER_MS = -62_135_596_800_000
"""Go's zero time, the year 1: a time that is not there."""

IGNORED, HELD_BACK, MISSING, COUNTED, UNMATCHED = range(5)
"""What a pod counts as. Of one that is held back the sample is dropped, and it is idle on a scale-up."""


class PodColumns(NamedTuple):
    """The pods of a target and strangers' samples, a place for each in every column."""

    states: Column
    """GONE, PENDING, SILENT, SAMPLED or STRANGER."""
    samples_milli: Column
    requests_milli: Column
    """Of the metric's resource; only utilization looks at it."""
    readiness: Column
    """READY, UNREADY, UNKNOWN or ABSENT. From here on only cpu looks."""
    starts_ms: Column
    changes_ms: Column
    """When the Ready condition last changed."""
    measured_ms: Column
    windows_ms: Column
    """Over which the sample was measured."""


class CpuRules(NamedTuple):
    """When a cpu sample shows a pod's start instead of its load."""

    is_cpu: int
    """0 for every other metric, which takes all samples."""
    now_ms: int
    initialization_ms: int
    """--horizontal-pod-autoscaler-cpu-initialization-period."""
    readiness_delay_ms: int
    """--horizontal-pod-autoscaler-initial-readiness-delay."""


class PodTotals(NamedTuple):
    """What a metric of pods is computed from; a simulator may know it without looking at pods."""

    pods: int
    """All of the target."""
    counted: int
    """With a sample that counts."""
    unready: int
    """Held back."""
    missing: int
    """Without a sample."""
    strangers: int
    """Samples of pods that are not the target's; they count in an average."""
    counted_milli: int
    """Sum of the samples that count; all sums are int64 and wrap around."""
    strangers_milli: int
    counted_request_milli: int
    """Sum of the requests of the pods whose samples count. From here on only utilization looks."""
    unready_request_milli: int
    missing_request_milli: int
    missing_full_milli: int
    """What missing pods count as on a scale-down: 100 % of each request, or the target where that is
    higher."""


def pod_class(pods: PodColumns, place: int, rules: CpuRules) -> int:
    """Return what one pod counts as."""
    state = pods.states[place]
    if state == GONE:
        return IGNORED
    if state == PENDING:
        return HELD_BACK
    if state == SILENT:
        return MISSING
    if state == STRANGER:
        return UNMATCHED
    if rules.is_cpu and _shows_its_start(pods, place, rules):
        return HELD_BACK
    return COUNTED


def _shows_its_start(pods: PodColumns, place: int, rules: CpuRules) -> bool:
    start_ms, changed_ms = pods.starts_ms[place], pods.changes_ms[place]
    readiness = pods.readiness[place]
    if readiness == ABSENT or start_ms == NEVER_MS:
        return True
    if start_ms + rules.initialization_ms > rules.now_ms:
        is_early = pods.measured_ms[place] < changed_ms + pods.windows_ms[place]
        return readiness == UNREADY or is_early
    return readiness == UNREADY and start_ms + rules.readiness_delay_ms > changed_ms


def pod_totals(pods: PodColumns, rules: CpuRules, percent: int) -> PodTotals:
    """Return what the arithmetic needs of the pods; `percent` is a utilization target's, else 0."""
    whole = counted = unready = missing = strangers = 0
    counted_milli = strangers_milli = 0
    counted_request = unready_request = missing_request = missing_full = 0
    for place in range(len(pods.states)):
        kind = pod_class(pods, place, rules)
        sample, request = pods.samples_milli[place], pods.requests_milli[place]
        if kind == UNMATCHED:
            strangers += 1
            strangers_milli = wrapped64(strangers_milli + sample)
            continue
        whole += 1
        if kind == COUNTED:
            counted += 1
            counted_milli = wrapped64(counted_milli + sample)
            counted_request = wrapped64(counted_request + request)
        elif kind == HELD_BACK:
            unready += 1
            unready_request = wrapped64(unready_request + request)
        elif kind == MISSING:
            missing += 1
            missing_request = wrapped64(missing_request + request)
            full = quotient(wrapped64(request * max(100, percent)), 100)
            missing_full = wrapped64(missing_full + full)
    return PodTotals(
        whole,
        counted,
        unready,
        missing,
        strangers,
        counted_milli,
        strangers_milli,
        counted_request,
        unready_request,
        missing_request,
        missing_full,
    )
