"""An HPA's decision and its explanation, as lines of text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.pages.words import NO_DATA, plain_text
from gpuscale.base.words import shown_number
from gpuscale.hpa import Decision, MetricStatus, metric_text
from gpuscale.hpa.decisions import (
    DecisionRequest,
    Difference,
    ReportedStatus,
    current_milli,
    deciding_event,
    decision_notes,
    differences,
    metric_label,
)
from gpuscale.hpa.terms import could_decide

_HEADINGS = ("Metric", "Current", "Target", "Asks for")


@dataclass(frozen=True, slots=True)
class StyledLine:
    """A line of text with its terminal style."""

    text: str
    style: str = ""
    """In rich's words; empty for plain text."""


def decision_lines(request: DecisionRequest, decision: Decision) -> Iterator[StyledLine]:
    """Return the lines: what the HPA sees, its decision, the reasons, and what to change."""
    hpa, count = request.hpa, decision.current_replicas
    name = "" if request.name in ("", hpa.metadata.name) else f"{request.name}: "
    target = f"{hpa.target.kind}/{hpa.target.name}"
    title = f"{request.place}: {name}HPA {hpa.metadata.key} of {target}"
    bounds = f"{hpa.min_replicas} to {hpa.max_replicas} replicas"
    yield StyledLine(plain_text(f"{title}, {bounds}"), "bold")
    verdict = f"Can't decide, and leaves the count at {count}."
    if request.scale_error:
        verdict = "Can't decide: the target's scale can't be read."
    elif decision.rescale:
        verdict = f"Goes from {count} to {decision.desired_replicas}."
    elif could_decide(decision):
        verdict = f"Stays at {count}."
    style = "bold green" if decision.rescale else "bold"
    yield StyledLine(verdict, style if could_decide(decision) else "bold red")
    if decision.metrics:
        yield StyledLine("")
        yield from _table([_HEADINGS, *(_row(hpa, each) for each in decision.metrics)])
    yield from _section("Why", _explanation(request, decision))
    notes = decision_notes(request, decision)
    shaped = [(f"{each.rule}: {each.effect}", f"  -> {each.remedy}") for each in notes]
    yield from _section("What shaped it", (text for texts in shaped for text in texts))
    conditions = [(c.type, c.status, c.reason, c.message) for c in decision.conditions]
    yield from _section("Conditions", _aligned(conditions))
    event = deciding_event(decision)
    if event is not None:
        yield from _section("Event", (f"{event.type}  {event.reason}  {event.message}",))
    if request.reported is not None:
        found = differences(request, decision)
        yield from _section("Status in the cluster", _status_texts(request.reported, found))
    yield from _section("Nodes", request.nodes)
    yield from _section("Not visible from outside the controller", request.unknown)


def _row(hpa: HorizontalPodAutoscaler, status: MetricStatus) -> tuple[str, ...]:
    name = plain_text(metric_label(hpa.metrics[status.index]))
    if status.error is not None:
        return name, NO_DATA, status.target, "failed"
    milli = current_milli(status)
    current = NO_DATA if milli is None else shown_number(milli)
    if status.average_utilization is not None:
        current = f"{status.average_utilization}%"
    return name, current, status.target, str(status.proposed_replicas)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[StyledLine]:
    """Return columns two spaces apart, the first left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield StyledLine("  ".join((row[0].ljust(widths[0]), *rest)), "" if index else "bold")


def _explanation(request: DecisionRequest, decision: Decision) -> Iterator[str]:
    """Return the steps with metrics' short names, as events print whole Go structures."""
    names = {metric_text(spec): metric_label(spec) for spec in request.hpa.metrics}
    for sentence in (*request.notes, *decision.explanation):
        shortened = sentence
        for long_name, label in names.items():
            shortened = shortened.replace(long_name, label)
        yield shortened


def _status_texts(status: ReportedStatus, found: Sequence[Difference]) -> Iterator[str]:
    """Return the controller's own results, and where they differ from this decision."""
    if not status.conditions:
        yield "The controller has not looked at this HPA yet, which takes it 15 s by default;"
        yield "if it stays so, no HPA controller runs."
        return
    scaled = f"last scaled {status.last_scale_time}" if status.last_scale_time else "never scaled"
    counts = f"{status.current_replicas} current, {status.desired_replicas} desired, {scaled}"
    if not found:
        yield f"{counts}: the controller says the same."
        return
    yield f"{counts}. The controller says otherwise than this answer about:"
    for each in found:
        yield f"{each.field}: {each.reported}"
        yield f"  here: {each.decided}"
        yield f"  -> {each.why}"


def _aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return rows with aligned columns."""
    cells = [[plain_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True))
        yield "  ".join((*padded, row[-1]))


def _section(heading: str, texts: Iterable[str]) -> Iterator[StyledLine]:
    lines: list[StyledLine] = []
    for text in texts:
        indent = " " * (2 + len(text) - len(text.lstrip(" ")))
        lines.append(StyledLine(f"{indent}{plain_text(text)}".rstrip()))
    if lines:
        yield StyledLine("")
        yield StyledLine(heading, "bold")
        yield from lines
