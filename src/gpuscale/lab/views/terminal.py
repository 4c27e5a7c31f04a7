"""A run as text: a line for each event, a live table, and tables at the end.

`rich` is imported where it is used: commands that print plain lines start without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from gpuscale.base.pages.columns import GAP, aligned, fits, fitted, shortened
from gpuscale.base.pages.words import NO_DATA, clock_text, label_text, number_text, plain_text
from gpuscale.lab.views.summary import (
    Rows,
    columns_of,
    mapping,
    mappings,
    row_cells,
    shown_events,
    summary_groups,
    summary_totals,
)

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

MAX_EVENTS = 60
"""Events that a summary shows; a long run has thousands, and its JSON and HTML hold them all."""
_MOST_GPUS = 8
_TABLE_WIDTH = 60
"""Letters from which on an event's words have room beside its time and kind."""
COLUMNS_WIDTH = 80
"""Letters from which on events stand in columns; a narrower terminal would wrap their blanks."""
_RESCALES = ("SuccessfulRescale", "KEDAScaleTargetActivated", "KEDAScaleTargetDeactivated")
_KIND_WIDTH = 17  # the length of SuccessfulRescale, the longest frequent reason
_OBJECT_WIDTH = 31


def event_line(event: Mapping[str, object], width: int | None = None) -> str:
    """Return an event as one line: time, kind, object and reason, in columns where they fit."""
    time, kind, name, reason = event_cells(event)
    if width is not None and width < COLUMNS_WIDTH:
        return GAP.join(cell for cell in (time, kind, name, reason) if cell)
    return f"{time}  {kind:<{_KIND_WIDTH}}  {name:<{_OBJECT_WIDTH}}  {reason}".rstrip()


def event_lines(event: Mapping[str, object], width: int | None) -> list[str]:
    """Return an event as lines that fit the terminal, indented from the second on."""
    line = event_line(event, width)
    if width is None or len(line) <= width:
        return [line]
    indent = " " * (len("00:00:00") + len(GAP))
    return wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True)


def event_cells(event: Mapping[str, object]) -> tuple[str, str, str, str]:
    """Return an event's time, kind, object and reason without line breaks and control codes."""
    seconds = event.get("t")
    time = clock_text(seconds) if isinstance(seconds, (int, float)) else NO_DATA
    reason = plain_text(event.get("reason"))
    before, after = event.get("from"), event.get("to")
    if not reason and before is not None and after is not None and before != after:
        reason = f"{number_text(before)} -> {number_text(after)}"
    return time, plain_text(event.get("kind")), plain_text(event.get("object")), reason


# ---- the live table

_WORKLOAD_HEADS = ("Workload", "Load/s", "HPA sees", "Ready", "Wanted", "Pending", "Waiting")
_WORKLOAD_KEEP = (3, 2, 4, 1, 5, 6)
"""Columns of the above, the most important first; Pending is what Wanted and Ready differ by."""
_JOB_HEADS = ("Job", "Pending", "Running", "Succeeded", "Planned")
_JOB_KEEP = (3, 2, 1, 4)


def state_text(state: Mapping[str, object], width: int) -> "Text":
    """Return the current state as text: a row for each workload and Job, then nodes and GPUs."""
    from rich.text import Text

    text = Text(no_wrap=True)
    for lines in (_workload_lines(state, width), _job_lines(state, width)):
        if lines:
            text.append(lines[0] + "\n", style="bold")
            text.append("\n".join(lines[1:]) + "\n")
    return text.append("\n".join(_caption_lines(state, width)), style="dim")


def _workload_lines(state: Mapping[str, object], width: int) -> list[str]:
    hpas = {
        str(hpa.get("reference", "")).rpartition("/")[2]: hpa for hpa in mappings(state.get("hpas"))
    }
    rows: list[tuple[str, ...]] = []
    for workload in mappings(state.get("workloads")):
        hpa = hpas.get(str(workload.get("name")), {})
        rows.append(
            (
                plain_text(workload.get("name")),
                number_text(workload.get("rate")),
                plain_text(hpa.get("targets")) or NO_DATA,
                number_text(workload.get("ready")),
                number_text(hpa.get("desired")),
                number_text(workload.get("pending")),
                number_text(workload.get("queue")),
            )
        )
    return fitted([_WORKLOAD_HEADS, *rows], width, _WORKLOAD_KEEP, spare=3) if rows else []


def _job_lines(state: Mapping[str, object], width: int) -> list[str]:
    keys = ("pending", "running", "succeeded", "planned")
    rows = [
        (plain_text(job.get("name")), *(number_text(job.get(key)) for key in keys))
        for job in mappings(mapping(state.get("jobs")).get("workloads"))
    ]
    return fitted([_JOB_HEADS, *rows], width, _JOB_KEEP, spare=1) if rows else []


def _caption_lines(state: Mapping[str, object], width: int) -> list[str]:
    """Return time, nodes and GPUs, on one line if it fits, else on several."""
    seconds = state.get("t")
    time = clock_text(seconds) if isinstance(seconds, (int, float)) else NO_DATA
    speed = f" at {number_text(state.get('speed'))}x" if state.get("speed") is not None else ""
    if state.get("paused") is True:
        speed = ", paused"
    nodes = list(mappings(state.get("nodes")))
    ready = sum(1 for node in nodes if node.get("ready") is True)
    used = [gpu.get("util") for node in nodes for gpu in mappings(node.get("gpus"))]
    gpus = ["no data" if util is None else f"{number_text(util)}%" for util in used]
    parts = [f"{time}{speed}", f"nodes {ready} of {len(nodes)} ready", _gpus_text(gpus, width)]
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}   {part}" if lines else ""
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _gpus_text(gpus: Sequence[str], width: int) -> str:
    """Return as many GPUs as fit on a line, up to eight, and the number of the others."""
    for count in range(min(len(gpus), _MOST_GPUS), 0, -1):
        more = f" and {len(gpus) - count} more" if count < len(gpus) else ""
        text = f"GPUs {', '.join(gpus[:count])}{more}"
        if len(text) <= width:
            return text
    return f"GPUs {len(gpus) or 'none'}"


# ---- the end of a simulation


def summary_tables(
    document: Mapping[str, object], width: int, max_events: int = MAX_EVENTS
) -> "Group":
    """Return a run's events and summary for a terminal of `width` columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    events, left_out = shown_events(document, max_events)
    shown = _event_table if width >= _TABLE_WIDTH else _event_paragraphs
    parts = [shown(events)] if events else []
    notes = [Text(_left_out_text(left_out), style="dim")] if left_out else []
    totals = Table(box=None, pad_edge=False, show_header=False)
    totals.add_column()
    totals.add_column(justify="right")
    for name, value in summary_totals(document):
        totals.add_row(Text(name), Text(value, style="bold"))
    tables: list[RenderableType] = [totals]
    tables += [_rows_block(name, rows, width) for name, rows in summary_groups(document)]
    spaced = [item for table in tables for item in (Text(), table)]
    return Group(*parts, *notes, *spaced)


def _event_paragraphs(events: Iterable[Mapping[str, object]]) -> "Group":
    """Return events with object and reason below, for narrow terminals."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = []
    for event in events:
        time, kind, name, reason = event_cells(event)
        parts.append(Text.assemble((time, "dim"), GAP, (kind, _kind_style(kind))))
        words = Text.assemble(name, GAP, (reason, "dim"), overflow="fold")
        parts.append(Padding(words, (0, 0, 0, len(GAP))))
    return Group(*parts)


def _event_table(events: Iterable[Mapping[str, object]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("Time", no_wrap=True, style="dim")
    table.add_column("Event", no_wrap=True)
    table.add_column("Object and reason", overflow="fold", ratio=1)
    for event in events:
        time, kind, name, reason = event_cells(event)
        words = Text.assemble(name, "  ", (reason, "dim"))
        table.add_row(Text(time), Text(kind, style=_kind_style(kind)), words)
    return table


def _kind_style(kind: str) -> str:
    if kind.startswith(("Failed", "BackOff", "Unhealthy")) or kind == "KEDAScalerFailed":
        return "yellow"
    return "bold" if kind in _RESCALES else ""


def _rows_block(title: str, rows: Rows, width: int) -> "Text":
    from rich.text import Text

    head, *lines = _rows_lines(title, rows, width)
    return Text.assemble((head, "bold"), "\n", "\n".join(lines), no_wrap=True)


def _rows_lines(title: str, rows: Rows, width: int | None = None) -> list[str]:
    """Return a table, or names with values below them if the table is too wide."""
    columns = columns_of(rows)
    heads = tuple(map(label_text, columns))
    cells = {plain_text(name): row_cells(columns, values) for name, values in rows.items()}
    table = [(title, *heads), *((name, *row) for name, row in cells.items())]
    if width is None or fits(table, width):
        return aligned(table)
    lines = [title]
    for name, row in cells.items():
        lines.append(shortened(name, width))
        lines += [f"{GAP}{line}" for line in aligned(list(zip(heads, row, strict=True)))]
    return lines


def summary_text(document: Mapping[str, object], max_events: int = MAX_EVENTS) -> str:
    """Return a run's events and summary as plain text, without a final newline."""
    events, left_out = shown_events(document, max_events)
    cells = [event_cells(event) for event in events]
    kind_width = max((len(kind) for _, kind, _, _ in cells), default=0)
    name_width = max((len(name) for _, _, name, _ in cells), default=0)
    lines = (
        f"{time}  {kind:<{kind_width}}  {name:<{name_width}}  {reason}".rstrip()
        for time, kind, name, reason in cells
    )
    blocks = ["\n".join(lines)]
    if left_out:
        blocks.append(_left_out_text(left_out))
    blocks.append("\n".join(aligned(summary_totals(document))))
    blocks += ["\n".join(_rows_lines(name, rows)) for name, rows in summary_groups(document)]
    return "\n\n".join(block for block in blocks if block)


def _left_out_text(count: int) -> str:
    return f"... and {count} more; -o json prints every event"
