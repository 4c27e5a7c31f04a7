"""A run as text: one line per event, a live table, and the tables that end a simulation.

`rich` is imported where it is used: commands that print plain lines start without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.views.summary import (
    Rows,
    columns_of,
    mappings,
    row_cells,
    shown_events,
    summary_groups,
    summary_totals,
)
from gpuscale.views.words import NO_DATA, clock_text, label_text, number_text, plain_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

MAX_EVENTS = 60
"""Events that a summary shows; a long run has thousands, and its JSON and HTML hold them all."""
_KIND_WIDTH = 17  # SuccessfulRescale, the longest common word
_OBJECT_WIDTH = 31


def event_line(event: Mapping[str, object]) -> str:
    """Return an event as one plain line: time, kind, object and reason."""
    time, kind, name, reason = event_cells(event)
    return f"{time}  {kind:<{_KIND_WIDTH}}  {name:<{_OBJECT_WIDTH}}  {reason}".rstrip()


def event_cells(event: Mapping[str, object]) -> tuple[str, str, str, str]:
    """Return an event's time, kind, object and reason, free of line breaks and control codes."""
    seconds = event.get("t")
    time = clock_text(seconds) if isinstance(seconds, (int, float)) else NO_DATA
    return time, plain_text(event.get("kind")), plain_text(event.get("object")), _reason(event)


def _reason(event: Mapping[str, object]) -> str:
    reason = plain_text(event.get("reason"))
    before, after = event.get("from"), event.get("to")
    if reason or before is None or after is None or before == after:
        return reason
    return f"{number_text(before)} -> {number_text(after)}"


# ---- the live table


def state_table(state: Mapping[str, object]) -> "Table":
    """Return the loop as it stands now: a row per workload, and the GPUs and nodes below."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, pad_edge=False, caption=Text(_state_caption(state)), caption_justify="left"
    )
    table.add_column("Workload", no_wrap=True, overflow="ellipsis")
    for heading in ("Load/s", "HPA sees", "Ready", "Wanted", "Pending", "Waiting"):
        table.add_column(heading, justify="right", no_wrap=True)
    hpas = {_target_name(hpa): hpa for hpa in mappings(state.get("hpas"))}
    for workload in mappings(state.get("workloads")):
        table.add_row(*map(Text, _state_row(workload, hpas.get(str(workload.get("name")), {}))))
    return table


def _state_row(workload: Mapping[str, object], hpa: Mapping[str, object]) -> tuple[str, ...]:
    return (
        plain_text(workload.get("name")),
        number_text(workload.get("rate")),
        plain_text(hpa.get("targets")) or NO_DATA,
        number_text(workload.get("ready")),
        number_text(hpa.get("desired")),
        number_text(workload.get("pending")),
        number_text(workload.get("queue")),
    )


def _target_name(hpa: Mapping[str, object]) -> str:
    return str(hpa.get("reference", "")).rpartition("/")[2]


def _state_caption(state: Mapping[str, object]) -> str:
    seconds = state.get("t")
    time = clock_text(seconds) if isinstance(seconds, (int, float)) else NO_DATA
    nodes = list(mappings(state.get("nodes")))
    ready = sum(1 for node in nodes if node.get("ready") is True)
    gpus = [_gpu_text(gpu) for node in nodes for gpu in mappings(node.get("gpus"))]
    shown = ", ".join(gpus[:8]) + (f" and {len(gpus) - 8} more" if len(gpus) > 8 else "")
    speed = f" at {number_text(state.get('speed'))}x" if state.get("speed") is not None else ""
    return f"{time}{speed}   nodes {ready} of {len(nodes)} ready   GPUs {shown or 'none'}"


def _gpu_text(gpu: Mapping[str, object]) -> str:
    util = gpu.get("util")
    return "no data" if util is None else f"{number_text(util)}%"


# ---- the end of a simulation


def summary_tables(document: Mapping[str, object], max_events: int = MAX_EVENTS) -> "Group":
    """Return a run's events and summary for a terminal; they fit themselves to its width."""
    from rich.console import Group
    from rich.text import Text

    events, left_out = shown_events(document, max_events)
    parts = [_event_table(events)] if events else []
    notes = [Text(_left_out_text(left_out), style="dim")] if left_out else []
    totals = _totals_table(summary_totals(document))
    groups = [_rows_table(name, rows) for name, rows in summary_groups(document)]
    spaced = [item for part in (totals, *groups) for item in (Text(), part)]
    return Group(*parts, *notes, *spaced)


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
    if kind.startswith(("Failed", "BackOff", "Unhealthy")):
        return "yellow"
    return "bold" if kind == "SuccessfulRescale" else ""


def _totals_table(totals: Sequence[tuple[str, str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in totals:
        table.add_row(Text(name), Text(value, style="bold"))
    return table


def _rows_table(title: str, rows: Rows) -> "Table":
    from rich.table import Table
    from rich.text import Text

    columns = columns_of(rows)
    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for column in columns:
        table.add_column(label_text(column), justify="right")
    for name, values in rows.items():
        table.add_row(*map(Text, (plain_text(name), *row_cells(columns, values))))
    return table


def summary_text(document: Mapping[str, object], max_events: int = MAX_EVENTS) -> str:
    """Return a run's events and summary as plain text for a file or a pipe, without a last newline."""
    events, left_out = shown_events(document, max_events)
    blocks = [_event_lines(events)]
    if left_out:
        blocks.append(_left_out_text(left_out))
    blocks.append(_aligned(summary_totals(document)))
    blocks += [_rows_text(name, rows) for name, rows in summary_groups(document)]
    return "\n\n".join(block for block in blocks if block)


def _event_lines(events: Sequence[Mapping[str, object]]) -> str:
    cells = [event_cells(event) for event in events]
    kind_width = max((len(kind) for _, kind, _, _ in cells), default=0)
    name_width = max((len(name) for _, _, name, _ in cells), default=0)
    lines = (
        f"{time}  {kind:<{kind_width}}  {name:<{name_width}}  {reason}".rstrip()
        for time, kind, name, reason in cells
    )
    return "\n".join(lines)


def _rows_text(title: str, rows: Rows) -> str:
    columns = columns_of(rows)
    head = (title, *map(label_text, columns))
    return _aligned(
        [head, *((plain_text(name), *row_cells(columns, values)) for name, values in rows.items())]
    )


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return columns two blanks apart: the first to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned_row(row, widths) for row in rows)


def _aligned_row(row: Sequence[str], widths: Sequence[int]) -> str:
    rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join((row[0].ljust(widths[0]), *rest)).rstrip()


def _left_out_text(count: int) -> str:
    return f"... and {count} more; --json and --html hold every event"
