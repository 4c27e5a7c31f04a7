"""What one metric asks for, in words and as its status, made from the kernel's numbers.

Known difference: at 0 replicas upstream divides the total of an AverageValue by 0; here there is no
average to report then.
"""

from collections.abc import Iterator

from gpuscale.base.words import counted, shown_number, shown_ratio
from gpuscale.hpa.kernel.numbers import MIN_INT32, MIN_INT64
from gpuscale.hpa.kernel.pods import PodTotals
from gpuscale.hpa.kernel.proposals import (
    AGAINST,
    DIVIDED,
    ENLARGED_WITHIN,
    FROM_ZERO,
    FULL_MISSING,
    IDLE_MISSING,
    IDLE_UNREADY,
    MULTIPLIED,
    TURNED,
    WITHIN,
    Proposal,
)
from gpuscale.hpa.replicas.calculator import Measure, MetricProposal, SyncContext
from gpuscale.hpa.replicas.tolerances import tolerances_text
from gpuscale.hpa.types import MetricStatus

_OVERFLOW = (
    f"beyond 32 bits, which the controller on amd64 takes for {MIN_INT32}: it asks for none at all."
)


def metric_status(index: int, name: str, target: str, asked: MetricProposal) -> MetricStatus:
    """Return the status of a metric with a proposal."""
    proposal, value, average, percent = asked.proposal, None, None, None
    match asked.measure:
        case Measure.VALUE:
            value = proposal.total_milli
        case Measure.SHARE:
            average = None if proposal.average_milli == MIN_INT64 else proposal.average_milli
        case Measure.AVERAGE:
            average = proposal.average_milli
        case Measure.UTILIZATION:
            average, percent = proposal.average_milli, proposal.percent
    return MetricStatus(index, name, target, proposal.replicas, value, average, percent)


def explanation(asked: MetricProposal, sync: SyncContext) -> tuple[str, ...]:
    """Return a sentence for each step from the metric to its count."""
    measured = _measured(asked, sync)
    if asked.totals is None:
        return measured, _total_step(asked, sync)
    return measured, *_pod_steps(asked, asked.totals, sync)


def _measured(asked: MetricProposal, sync: SyncContext) -> str:
    proposal, totals = asked.proposal, asked.totals
    ratio = shown_ratio(proposal.ratio)
    if totals is None:
        share = ""
        if asked.measure is Measure.SHARE:
            share = f" for each of {counted(sync.status_replicas, 'replica')}"
        return (
            f"The total is {shown_number(proposal.total_milli)} against a target of "
            f"{shown_number(asked.target)}{share}: ratio {ratio}."
        )
    pods = counted(totals.counted + totals.strangers, "pod")
    if asked.measure is Measure.AVERAGE:
        return (
            f"The average over {pods} is {shown_number(proposal.average_milli)} against a target of "
            f"{shown_number(asked.target)}: ratio {ratio}."
        )
    return (
        f"The {asked.resource} utilization over {pods} is {proposal.percent}% against a target of "
        f"{asked.target}%: ratio {ratio}."
    )


def _total_step(asked: MetricProposal, sync: SyncContext) -> str:
    proposal = asked.proposal
    is_beyond = proposal.replicas == MIN_INT32
    if proposal.outcome == WITHIN:
        return _within_tolerance(sync)
    if proposal.outcome == FROM_ZERO:
        if is_beyond:
            return f"With no replicas the ratio alone counts; it is {_OVERFLOW}"
        return f"With no replicas the ratio alone counts, rounded up to {proposal.replicas}."
    if proposal.outcome == DIVIDED:
        if is_beyond:
            return f"The total divided by the target is {_OVERFLOW}"
        return f"The total divided by the target rounds up to {proposal.replicas}."
    pods = counted(proposal.pods, "ready pod")
    return f"{pods} x {shown_ratio(proposal.ratio)} rounds up to {proposal.replicas}."


def _pod_steps(asked: MetricProposal, totals: PodTotals, sync: SyncContext) -> Iterator[str]:
    proposal = asked.proposal
    outcome = proposal.outcome
    if outcome == WITHIN:
        yield _within_tolerance(sync)
        return
    if outcome == MULTIPLIED:
        if totals.unready:
            yield f"{counted(totals.unready, 'unready pod')} left out of a scale-down."
        yield _rounded_up(proposal)
        return
    missing = f"{counted(totals.missing, 'pod')} without a sample"
    if proposal.filled & FULL_MISSING:
        words = "exactly on target"
        if asked.measure is Measure.UTILIZATION:
            words = f"using {max(100, asked.target)}% of their request"
        yield _count_as(missing, totals.missing, words)
    if proposal.filled & IDLE_MISSING:
        yield _count_as(missing, totals.missing, "0")
    if proposal.filled & IDLE_UNREADY:
        yield _count_as(counted(totals.unready, "unready pod"), totals.unready, "0")
    yield f"With them the ratio is {shown_ratio(proposal.new_ratio)}."
    if outcome == ENLARGED_WITHIN:
        yield _within_tolerance(sync)
    elif outcome == TURNED:
        yield _no_change("that points the other way")
    else:
        yield _rounded_up(proposal)
        if outcome == AGAINST:
            yield _no_change("that goes against the ratio")


def _count_as(which: str, count: int, words: str) -> str:
    return f"{which} count{'s' if count == 1 else ''} as {words}."


def _within_tolerance(sync: SyncContext) -> str:
    return _no_change(f"the ratio lies within the tolerance, {tolerances_text(sync.tolerances)}")


def _no_change(why: str) -> str:
    return f"No change: {why}."


def _rounded_up(proposal: Proposal) -> str:
    product = f"{counted(proposal.pods, 'pod')} x {shown_ratio(proposal.new_ratio)}"
    if proposal.rounded == MIN_INT32:
        return f"{product} is {_OVERFLOW}"
    return f"{product} rounds up to {proposal.rounded}."
