"""What an HPA would do, and why, as lines for a terminal or a file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.pages.words import NO_DATA, plain_text
from gpuscale.base.words import shown_number
from gpuscale.hpa import Condition, Decision, MetricStatus, metric_text
from gpuscale.hpa.decisions import (
    DecisionNote,
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
    """A line of text, and how a terminal shows it."""

    text: str
    style: str = ""
    """In rich's words; empty for plain text."""


def decision_lines(request: DecisionRequest, decision: Decision) -> Iterator[StyledLine]:
    """Return what the HPA sees, what it would do, why, and what to change."""
    yield StyledLine(_title(request), "bold")
    yield StyledLine(_verdict(request, decision), _verdict_style(decision))
    if decision.metrics:
        yield StyledLine("")
        yield from _table([_HEADINGS, *(_row(request.hpa, m) for m in decision.metrics)])
    yield from _section("Why", _explanation(request, decision))
    yield from _section("What shaped it", _note_texts(decision_notes(request, decision)))
    yield from _section("Conditions", _aligned(map(_condition_row, decision.conditions)))
    event = deciding_event(decision)
    if event is not None:
        yield from _section("Event", (f"{event.type}  {event.reason}  {event.message}",))
    if request.reported is not None:
        found = differences(request, decision)
        yield from _section("Status in the cluster", _status_texts(request.reported, found))
    yield from _section("Not visible from outside the controller", request.unknown)


def _title(request: DecisionRequest) -> str:
    hpa = request.hpa
    target = f"{hpa.target.kind}/{hpa.target.name}"
    bounds = f"{hpa.min_replicas} to {hpa.max_replicas} replicas"
    name = "" if request.name in ("", hpa.metadata.name) else f"{request.name}: "
    return plain_text(f"{request.place}: {name}HPA {hpa.metadata.key} of {target}, {bounds}")


def _verdict(request: DecisionRequest, decision: Decision) -> str:
    if request.scale_error:
        return "Can't decide: the target's scale can't be read."
    if decision.rescale:
        return f"Goes from {decision.current_replicas} to {decision.desired_replicas}."
    if could_decide(decision):
        return f"Stays at {decision.current_replicas}."
    return f"Can't decide, and leaves the count at {decision.current_replicas}."


def _verdict_style(decision: Decision) -> str:
    if not could_decide(decision):
        return "bold red"
    return "bold green" if decision.rescale else "bold"


def _row(hpa: HorizontalPodAutoscaler, status: MetricStatus) -> tuple[str, ...]:
    name = plain_text(metric_label(hpa.metrics[status.index]))
    if status.error is not None:
        return name, NO_DATA, status.target, "failed"
    return name, _current(status), status.target, str(status.proposed_replicas)


def _current(status: MetricStatus) -> str:
    if status.average_utilization is not None:
        return f"{status.average_utilization}%"
    milli = current_milli(status)
    return NO_DATA if milli is None else shown_number(milli)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[StyledLine]:
    """Return columns two blanks apart: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield StyledLine("  ".join((row[0].ljust(widths[0]), *rest)), "" if index else "bold")


def _explanation(request: DecisionRequest, decision: Decision) -> Iterator[str]:
    """Return the steps with the short names of metrics: events print whole Go structures."""
    names = {metric_text(spec): metric_label(spec) for spec in request.hpa.metrics}
    for sentence in (*request.notes, *decision.explanation):
        shortened = sentence
        for long_name, label in names.items():
            shortened = shortened.replace(long_name, label)
        yield shortened


def _note_texts(notes: Iterable[DecisionNote]) -> Iterator[str]:
    for note in notes:
        yield f"{note.rule}: {note.effect}"
        yield f"  -> {note.remedy}"


def _status_texts(status: ReportedStatus, found: Sequence[Difference]) -> Iterator[str]:
    """Return what the controller wrote, and where that is not what was decided here."""
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


def _condition_row(condition: Condition) -> tuple[str, ...]:
    return condition.type, condition.status, condition.reason, condition.message


def _aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return rows whose cells but the last stand in columns."""
    cells = [[plain_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True))
        yield "  ".join((*padded, row[-1]))


def _section(heading: str, texts: Iterable[str]) -> Iterator[StyledLine]:
    lines = [StyledLine(f"  {_on_one_line(text)}".rstrip()) for text in texts]
    if lines:
        yield StyledLine("")
        yield StyledLine(heading, "bold")
        yield from lines


def _on_one_line(text: str) -> str:
    indent = len(text) - len(text.lstrip(" "))
    return " " * indent + plain_text(text)
