"""The kernel's functions as a caller gets them: interpreted, or compiled (`hpa.kernel.compiled`)."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.hpa.kernel import memory, pods, proposals, syncing
from gpuscale.hpa.kernel.memory import Cells, Limits
from gpuscale.hpa.kernel.pods import Column, CpuRules, PodColumns, PodTotals
from gpuscale.hpa.kernel.proposals import Choice, Proposal, Tolerances
from gpuscale.hpa.kernel.syncing import Normalized


@dataclass(frozen=True, slots=True)
class Kernel:
    """The functions of the kernel, each as its own module describes it."""

    column: Callable[[list[int]], Cells]
    """Makes what the functions take for a column: a list is one, or has to be an array."""
    pod_totals: Callable[[PodColumns, CpuRules, int], PodTotals]
    average_proposal: Callable[[PodTotals, int, int, Tolerances], Proposal]
    utilization_proposal: Callable[[PodTotals, int, int, int, Tolerances], Proposal]
    value_proposal: Callable[[int, int, int, int, int, Tolerances], Proposal]
    share_proposal: Callable[[int, int, int, int, Tolerances], Proposal]
    external_total: Callable[[Column, int], int]
    chosen: Callable[[Choice, Proposal], Choice]
    is_blocked: Callable[[Choice, int], bool]
    begin: Callable[[Cells, int, int], None]
    phase: Callable[[int, int, int, int], int]
    normalized: Callable[[Limits, Cells, int, int, int], Normalized]
    record_change: Callable[[Cells, Limits, int, int, int], None]
    sync: Callable[[Limits, Cells, int, Choice, int, int], int]


def _as_it_is(values: list[int]) -> Cells:
    return values


PLAIN = Kernel(
    column=_as_it_is,
    pod_totals=pods.pod_totals,
    average_proposal=proposals.average_proposal,
    utilization_proposal=proposals.utilization_proposal,
    value_proposal=proposals.value_proposal,
    share_proposal=proposals.share_proposal,
    external_total=proposals.external_total,
    chosen=proposals.chosen,
    is_blocked=proposals.is_blocked,
    begin=memory.begin,
    phase=syncing.phase,
    normalized=syncing.normalized,
    record_change=memory.record_change,
    sync=syncing.sync,
)
"""The functions as Python runs them."""
