"""`gpuscale load read`: results of other load tools, and our own, on one timeline."""

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import ConfigError, Problem, UsageError
from gpuscale.base.text_files import unreadable
from gpuscale.base.whole_files import check_writable
from gpuscale.cli.files import write_files
from gpuscale.cli.texts import Output, print_document, printable

if TYPE_CHECKING:
    from gpuscale.load.timeline import Timeline

_PIPED_WIDTH = 100


def read(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Results: hey -o csv, GuideLLM's benchmarks.json, AIPerf's profile_export.jsonl, "
            "inference-perf's per_request_lifecycle_metrics.json, a Mooncake trace, or gpuscale's own.",
        ),
    ],
    *,
    started: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the first request was, such as 2026-01-31T12:00:00Z, for files that don't say.",
            show_default="by when the file was written",
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write charts as a page to a file."),
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What is printed.")
    ] = Output.TEXT,
) -> None:
    """Show what other load tools measured as charts over time, several files on one time axis.

    Example:  hey -z 1m -o csv http://127.0.0.1:8000/ > hey.csv; gpuscale load read hey.csv --html hey.html
    """
    from gpuscale.load.results import joined, read_result

    check_writable([html] if html else [], "--html")
    started_ms = _time_ms(started) if started is not None else None
    timelines: list[Timeline] = []
    totals: dict[str, str] = {}
    for path in files:
        try:
            timeline, figures, notes = read_result(path, started_ms)
        except OSError as error:
            raise ConfigError(Problem(str(path), None, None, None, unreadable(error))) from None
        timelines.append(timeline)
        prefix = f"{path.name}: " if len(files) > 1 else ""
        totals |= {f"{prefix}{name}": text for name, text in figures.items()}
        for note in notes:
            print(f"gpuscale: {printable(str(path))}: {note}", file=sys.stderr)
    whole = joined(timelines)
    if html:
        from gpuscale.load.timeline import render_timeline

        write_files({html: render_timeline(whole, totals)})
    if output is not Output.TEXT:
        from gpuscale.load.timeline import timeline_document

        print_document(timeline_document(whole), output)
        return
    from gpuscale.load.timeline import timeline_text

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns if is_terminal else _PIPED_WIDTH
    lines = [whole.title, *(f"{name}  {text}" for name, text in totals.items()), ""]
    for line in (*lines, *timeline_text(whole, width).splitlines()):
        print(printable(line))


def _time_ms(text: str) -> int:
    """Return milliseconds since the epoch; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        raise UsageError(f"--started: found {text!r}, expected a time such as 2026-01-31T12:00:00Z")
    return found
