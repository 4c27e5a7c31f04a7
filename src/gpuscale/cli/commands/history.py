"""`gpuscale history`: keep what GPUs did, and ask about it."""

import asyncio
import csv
import json
import math
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.exits import stop_event
from gpuscale.cli.help import Command, CommandGroup
from gpuscale.cli.keeping import (
    DEFAULT_FOLDER,
    DEFAULT_MIB,
    MIB,
    MINUTE_S,
    follow_cluster,
    follow_prometheus,
)
from gpuscale.cli.options.cluster import Context, Kubeconfig, cluster_settings, looking
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.instance_types import InstanceTypes
from gpuscale.cli.options.prices import price_book
from gpuscale.cli.options.prometheus import (
    RangeEnd,
    RecordedCaFile,
    RecordedTokenFile,
    RecordedUrl,
    end_of_range_ms,
    recorded_by,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import printable

if TYPE_CHECKING:
    from gpuscale.ops.history import HistoryWriter, PrometheusTaker

_LONGEST_S = 400 * 86_400
_CELL = 60

Place = Annotated[
    str,
    typer.Option(
        "--from", metavar="DIR", help="Where the history is: a folder, or an address such as s3://."
    ),
]
Timeout = Annotated[
    str, typer.Option(metavar="DURATION", help="Give a question up after this time.")
]


class UseOutput(Enum):
    """What is printed of the use of GPUs."""

    CHART = "chart"
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    SVG = "svg"


class RowsOutput(Enum):
    """What is printed of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def history(
    ctx: typer.Context,
    *,
    place: Place = DEFAULT_FOLDER,
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="How far back, such as 25m or 30d.")
    ] = "1h",
    until: RangeEnd = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Length of a bin.", show_default="1m, longer for long ranges"
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="PART", help="Of what: container, pod, namespace, node, gpu, model or all."
        ),
    ] = "container",
    measure: Annotated[
        str, typer.Option(metavar="NAME", help="use (percent), memory (MiB) or power (watts).")
    ] = "use",
    timeout: Timeout = "60s",
    output: Annotated[
        UseOutput, typer.Option("--output", "-o", help="svg is a picture for a file.")
    ] = UseOutput.CHART,
) -> None:
    """Show what GPUs did in a time of which a history is kept; 'keep' keeps one, 'sql' asks it anything.

    Exit code 0: it was looked at; 2: the input is wrong, or the history can't be read.

    Example:  gpuscale history --since 25m

    Example:  gpuscale history --since 30d --by namespace -o csv

    Example:  gpuscale history --since 24h --by all -o svg > use.svg
    """
    if ctx.invoked_subcommand is not None:
        return
    from gpuscale.ops.history import (
        History,
        ask_use,
        use_columns,
        use_lines,
        use_picture,
        use_rows,
    )

    begin_s, end_s = _range(since, until)
    every_s = _bin_s(end_s - begin_s) if every is None else round(seconds_of("--every", every))
    begin_s -= begin_s % (every_s or 1)
    end_s += -end_s % (every_s or 1)
    with looking(), History(place, seconds_of("--timeout", timeout)) as kept:
        found = ask_use(kept, measure, by, every_s, (begin_s, end_s))
    if output is UseOutput.SVG:
        print(use_picture(found), end="")
    elif output is UseOutput.CHART:
        for line in use_lines(found, shutil.get_terminal_size((120, 24)).columns):
            print(printable(line))
    else:
        _print_rows(use_columns(found), use_rows(found), RowsOutput(output.value))


def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT", help="The question, in DuckDB's SQL.")],
    *,
    place: Place = DEFAULT_FOLDER,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Print this many at most.")
    ] = 10_000,
    timeout: Timeout = "60s",
    output: Annotated[
        RowsOutput, typer.Option("--output", "-o", help="json is an array of objects.")
    ] = RowsOutput.TABLE,
) -> None:
    """Ask a history a question of your own.

    The tables are gpus, gpu_hours, hpas, decisions, events, nodes, answers and kept; DESCRIBE lists a table's
    columns. Only the history is read, and nothing is changed.

    Exit code 0: it was asked; 2: the question is wrong or not allowed, or the history can't be read.

    Example:  gpuscale history sql "SELECT namespace, avg(use_mean) FROM gpus GROUP BY namespace"

    Example:  gpuscale history sql "SELECT * FROM decisions ORDER BY time" -o csv

    Example:  gpuscale history sql "DESCRIBE gpus"
    """
    from gpuscale.ops.history import History

    with (
        looking(),
        History(place, seconds_of("--timeout", timeout)) as kept,
        kept.ask(query) as answer,
    ):
        _print_rows(answer.columns, islice(answer.rows, rows), output)
        if next(answer.rows, None) is not None:
            print(f"gpuscale: there are more than {rows} rows; see --rows", file=sys.stderr)


def keep(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    prometheus_url: RecordedUrl = None,
    prometheus_token_file: RecordedTokenFile = None,
    prometheus_ca_file: RecordedCaFile = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder of the history.")] = Path(
        DEFAULT_FOLDER
    ),
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Keep what was recorded since then, and end.",
            show_default="follow until stopped",
        ),
    ] = None,
    until: RangeEnd = None,
    size: Annotated[
        int,
        typer.Option(
            min=16, metavar="MIB", help="Of all files together; beyond it the oldest days go."
        ),
    ] = DEFAULT_MIB,
    label: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Keep this label of the pods too, for money --by label."),
    ] = None,
    instance_types: InstanceTypes = None,
) -> None:
    """Keep minutes of GPUs and HPAs, and hours of nodes and prices: of a Prometheus, or of a cluster.

    Without --since it goes on, a minute at a time, until it is stopped. From a Prometheus it begins two hours
    back, takes what is not kept yet, and makes up later for what could not be had. Without --prometheus-url
    it looks at a cluster every 15 seconds, as gpuscale top does.

    Exit code 0: it is kept; 2: the input is wrong, or Prometheus could not be asked.

    Example:  gpuscale history keep --prometheus-url http://127.0.0.1:9090 --since 24h --to gpuscale-history

    Example:  gpuscale history keep --prometheus-url http://127.0.0.1:9090

    Example:  gpuscale history keep --kubeconfig kubeconfig
    """
    from gpuscale.ops.history import HistoryWriter, PrometheusTaker
    from gpuscale.ops.money import series_label

    if since is None and until is not None:
        raise UsageError("--until: expected --since beside it")
    span = None if since is None else _range(since, until)
    book = price_book(instance_types)
    if prometheus_url is None:
        for option, given in (("--since", since), ("--label", label)):
            if given is not None:
                raise UsageError(f"{option}: expected --prometheus-url; a cluster knows no past")
        from gpuscale.ops.top import TopSettings

        cluster = cluster_settings(kubeconfig, context)
        with looking(), HistoryWriter(to, size * MIB) as writer:
            asyncio.run(
                _follow(lambda stop: follow_cluster(cluster, TopSettings(), book, writer, stop), to)
            )
        return
    source = recorded_by(
        "--prometheus-url", prometheus_url, prometheus_token_file, prometheus_ca_file
    )
    taker = PrometheusTaker(source, book, None if label is None else series_label(label))
    with looking(), HistoryWriter(to, size * MIB) as writer:
        if span is None:
            asyncio.run(_follow(lambda stop: follow_prometheus(taker, writer, stop), to))
        else:
            with working(f"asking {source.settings.shown_url}") as show:
                asyncio.run(_keep(taker, writer, span, show))


async def _keep(
    taker: "PrometheusTaker",
    writer: "HistoryWriter",
    span: tuple[int, int],
    show: Callable[[str], None],
) -> None:
    from gpuscale.ops.history import History, keep_range, spans_kept

    with History(str(writer.folder)) as before:
        known = spans_kept(before)
    async with taker.source:
        minutes = await keep_range(taker, writer, known, *span, show)
    print(f"kept {minutes} minutes in {writer.folder}")


async def _follow(following: Callable[[asyncio.Event], Awaitable[None]], folder: Path) -> None:
    print(f"keeping minutes in {folder}; Ctrl-C ends it", flush=True)
    await following(stop_event())


def _range(since: str, until: str | None) -> tuple[int, int]:
    """Return begin and end in whole minutes, as seconds since the epoch."""
    end_s = end_of_range_ms(until) // 1000 // MINUTE_S * MINUTE_S
    length_s = round(seconds_of("--since", since))
    if not MINUTE_S <= length_s <= _LONGEST_S:
        raise UsageError(f"--since: found {since!r}, expected 1m to 400 days")
    return end_s - length_s // MINUTE_S * MINUTE_S, end_s


def _bin_s(length_s: int) -> int:
    """Return the length of a bin with which a range has 200 at most, or a day."""
    lengths = (60, 300, 900, 3600, 4 * 3600)
    return next((each for each in lengths if length_s <= 200 * each), 86_400)


def _print_rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], output: RowsOutput
) -> None:
    plain = ([_plain(cell) for cell in row] for row in rows)
    if output is RowsOutput.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(plain)
    elif output is RowsOutput.JSON:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in plain], default=str))
    else:
        cells = [[_cell(each) for each in row] for row in (columns, *plain)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            print(line.rstrip())


def _plain(value: object) -> object:
    """Return a value as JSON and CSV have it: times in UTC, no number that is none."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, Decimal | float):
        return float(value) if math.isfinite(value) else None
    return value.isoformat() if isinstance(value, date) else value


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
    return printable(text if len(text) <= _CELL else f"{text[: _CELL - 1]}…")


app = typer.Typer(cls=CommandGroup, invoke_without_command=True, add_completion=False)
app.callback()(history)
app.command("keep", cls=Command)(keep)
app.command("sql", cls=Command)(sql)
