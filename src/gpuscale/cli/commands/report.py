"""`gpuscale report`: what happened on a cluster, such as last night."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import QueryError, UsageError
from gpuscale.cli.options.cluster import looking
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.prometheus import (
    KeptHistory,
    RangeEnd,
    RecordedCaFile,
    RecordedTokenFile,
    RecordedUrl,
    end_of_range_ms,
    recorded_or_kept,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import TicketOutput, print_document, printable

if TYPE_CHECKING:
    from gpuscale.ops.past import Past
    from gpuscale.server.sources.prometheus import PrometheusSource

_LONGEST_S = 31 * 86_400
_MOMENTS = 1_440
"""Of a range at most: a minute apart in a day."""
_LEAST_STEP_S = 15


def report(
    *,
    prometheus_url: RecordedUrl = None,
    prometheus_token_file: RecordedTokenFile = None,
    prometheus_ca_file: RecordedCaFile = None,
    history: KeptHistory = None,
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="How far back, such as 12h.")
    ] = "24h",
    until: RangeEnd = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Leave out what happened in other namespaces.",
        ),
    ] = None,
    output: Annotated[
        TicketOutput,
        typer.Option(
            "--output", "-o", help="markdown is for a ticket; json and yaml for programs."
        ),
    ] = TicketOutput.TEXT,
) -> None:
    """Tell what happened: scaling steps with their metric, pods that waited, nodes and GPUs that failed.

    HPAs at their maximum or without a metric, exporters that were away and GPUs that were held and idle too.
    Only asks a Prometheus that has kube-state-metrics, or a history that was kept; what is not there is said.

    Exit code 0: it was looked at; 2: the input is wrong, or nothing could be asked.

    Example:  gpuscale report --prometheus-url http://127.0.0.1:9090

    Example:  gpuscale report --prometheus-url http://127.0.0.1:9090 --since 8h -n inference -o markdown
    """
    from gpuscale.ops.past import past_document, past_lines, past_markdown

    length_s = round(seconds_of("--since", since))
    if not 60 <= length_s <= _LONGEST_S:
        raise UsageError(f"--since: found {since!r}, expected 1m to 31d")
    end_s = end_of_range_ms(until) // 1000
    source = recorded_or_kept(prometheus_url, prometheus_token_file, prometheus_ca_file, history)
    if source is None:
        from gpuscale.ops.history import History, recall_past

        with looking(), History(history or "") as kept:
            past = recall_past(kept, end_s - length_s, end_s, namespace)
    else:
        with looking(), working(f"asking {source.settings.shown_url}") as show:
            past = asyncio.run(_past(source, end_s - length_s, end_s, namespace, show))
    if output in (TicketOutput.JSON, TicketOutput.YAML):
        print_document(past_document(past), output)
        return
    for line in (past_markdown if output is TicketOutput.MARKDOWN else past_lines)(past):
        print(printable(line))


async def _past(
    source: "PrometheusSource",
    begin_s: int,
    end_s: int,
    namespace: str | None,
    show: Callable[[str], None],
) -> "Past":
    from gpuscale.ops.past import makers_query, past_of, queries
    from gpuscale.series import Matrix, Vector
    from gpuscale.server.sources.prometheus import persistently

    step_s = max(_LEAST_STEP_S, -(-(end_s - begin_s) // _MOMENTS))
    answers: dict[str, Sequence[tuple[dict[str, str], Sequence[tuple[int, float]]]]] = {}
    unseen: list[str] = []
    async with source:
        for number, (name, query) in enumerate((asked := queries()).items()):
            show(f"asking Prometheus: {number / len(asked):.0%}")
            try:
                value = await persistently(
                    source.query_range, query, begin_s * 1000, end_s * 1000, step_s * 1000
                )
            except QueryError as error:
                unseen.append(f"{name}: {error}")
                continue
            answers[name] = [
                (
                    dict(series.labels),
                    [(round(time_ms / 1000), value) for time_ms, value in series.points],
                )
                for series in (value.series if isinstance(value, Matrix) else ())
                if namespace is None or series.labels.get("namespace", namespace) == namespace
            ]
        query = makers_query(end_s - begin_s)
        found = await persistently(source.query, query, end_s * 1000)
    makers = [row.labels for row in (found.samples if isinstance(found, Vector) else ())]
    return past_of(answers, begin_s, end_s, step_s, makers, unseen)
