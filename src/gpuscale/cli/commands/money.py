"""`gpuscale money`: what GPUs cost, for whom, and how much of that is of no use."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.ledger import advice_of, show_file_ledger, show_ledger
from gpuscale.cli.commands.savings import DAYS, check_days, show_savings
from gpuscale.cli.options.cluster import looking
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.instance_types import InstanceTypes
from gpuscale.cli.options.prices import GpuCurrency, GpuPrices, price_book
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
from gpuscale.cli.recordings import FromFile, Manifests, Recorded, WorkloadName
from gpuscale.cli.texts import TicketOutput, print_ticket

if TYPE_CHECKING:
    from gpuscale.ops.money import Bill, PriceBook
    from gpuscale.server.sources.prometheus import PrometheusSource

_LONGEST_S = 400 * 86_400
_FORECAST_DAYS = 28
"""Of a range that is not said: four of each day of the week."""


def money(
    *,
    prometheus_url: RecordedUrl = None,
    prometheus_token_file: RecordedTokenFile = None,
    prometheus_ca_file: RecordedCaFile = None,
    history: KeptHistory = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How far back, such as 7d.", show_default="this month (UTC)"
        ),
    ] = None,
    until: RangeEnd = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="PARTS",
            help="Add up by these, with commas: namespace, workload, label, pool, gpu.",
        ),
    ] = "namespace",
    label: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The pods' label that --by label means, such as team."),
    ] = None,
    gpu_price: GpuPrices = None,
    currency: GpuCurrency = "USD",
    instance_types: InstanceTypes = None,
    savings: Annotated[
        bool,
        typer.Option(
            "--savings",
            help="Show instead what tuned HPAs would save in a month, how sure that is, and why their pods "
            "are idle; of the last 14 days where --since is not given.",
        ),
    ] = False,
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast",
            help="Show instead what the next 14 days take; of the last 28 days where --since is not given.",
        ),
    ] = False,
    ledger: Annotated[
        bool,
        typer.Option(
            "--ledger",
            help="Show instead what each day took, and would have with other settings; of the last 14 days "
            "where --since is not given.",
        ),
    ] = False,
    advice: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --ledger: what --savings -o json printed once; says whether it came true.",
        ),
    ] = None,
    from_file: FromFile = None,
    workload: WorkloadName = None,
    manifests: Manifests = None,
    most: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=500,
            metavar="N",
            help="With --savings or --ledger: the N dearest workloads.",
            show_default="20 and 3",
        ),
    ] = None,
    output: Annotated[
        TicketOutput,
        typer.Option(
            "--output", "-o", help="markdown is for a ticket; json and yaml print one document."
        ),
    ] = TicketOutput.TEXT,
) -> None:
    """Show who holds the GPUs that are paid for, what they use of them, and what that costs.

    Hours of nodes go to the pods that asked for their GPUs, by their shares, and the rest to nobody: the
    lines add up to the nodes. A GPU-hour is used as far as the GPU worked in it.

    Exit code 0: it was looked at; 2: the input is wrong, or nothing could be asked.

    Example:  gpuscale money --prometheus-url http://127.0.0.1:9090

    Example:  gpuscale money --prometheus-url http://127.0.0.1:9090 --since 7d --by namespace,workload

    Example:  gpuscale money --prometheus-url http://127.0.0.1:9090 --by label --label team

    Example:  gpuscale money --prometheus-url http://127.0.0.1:9090 --savings

    Example:  gpuscale money --prometheus-url http://127.0.0.1:9090 --forecast

    Example:  gpuscale money --prometheus-url http://127.0.0.1:9090 --ledger --advice savings.json
    """
    from gpuscale.agent.gpu import MODELS
    from gpuscale.ops.money import (
        PARTS,
        GpuSize,
        bill_document,
        bill_lines,
        forecast_document,
        forecast_lines,
        look_ahead,
        series_label,
        smaller,
    )

    parts = [each.strip() for each in by.split(",")]
    for each in parts:
        if each not in PARTS:
            raise UsageError(f"--by: found {each!r}, expected some of {', '.join(PARTS)}")
    if ("label" in parts) != (label is not None):
        raise UsageError("--by label, --label KEY: expected both or none")
    asked = {"--savings": savings, "--forecast": forecast, "--ledger": ledger}
    only = [option for option, is_asked in asked.items() if is_asked]
    if len(only) > 1:
        raise UsageError(f"found {' and '.join(only)}, expected one of them")
    if (savings or ledger) and history is not None:
        raise UsageError(f"{only[0]}: found --history, expected --prometheus-url")
    if advice is not None and not ledger:
        raise UsageError("--advice: expected --ledger beside it")
    if (from_file is not None) != (ledger and prometheus_url is None):
        raise UsageError("--ledger: expected --prometheus-url, or --from-file FILE")
    if since is None and only:
        since = f"{_FORECAST_DAYS if forecast else DAYS}d"
    start_s, end_s = _range(since, until)
    if savings or ledger:
        check_days(only[0], end_s - start_s)
    advised = advice_of(advice)
    book = price_book(instance_types, gpu_price, currency)
    if from_file is not None:
        files = tuple(manifests or ())
        recorded = Recorded(
            *(None, from_file, workload, "", None, "", None, None, files, None, None, None, None)
        )
        show_file_ledger(recorded, book, advised, output)
        return
    source = recorded_or_kept(prometheus_url, prometheus_token_file, prometheus_ca_file, history)
    pod_label = None if label is None else series_label(label)
    if source is None:
        from gpuscale.ops.history import History, recall_bill, recall_hours

        with looking(), History(history or "") as kept:
            bill = recall_bill(kept, start_s, end_s, book, pod_label)
            hours = recall_hours(kept, bill) if forecast else []
    else:
        with looking(), working(f"asking {source.settings.shown_url}") as show:
            bill, hours = asyncio.run(
                _bill(source, (start_s, end_s), book, pod_label, show, by_hour=forecast)
            )
            to = (str(prometheus_url), prometheus_token_file, prometheus_ca_file)
            if savings:
                show_savings(to, (start_s, end_s), bill, most or 20, output, show)
                return
            if ledger:
                show_ledger(to, (start_s, end_s), bill, most or 3, advised, output, show)
                return
    if forecast:
        try:
            found = look_ahead(hours)
        except ValueError as error:
            raise UsageError(f"--forecast: {error}; ask for more with --since") from None
        print_ticket(
            output,
            lambda: forecast_document(bill, found),
            lambda table: forecast_lines(bill, found, table),
        )
        return
    sizes = {each.name: GpuSize(each.memory_mib, each.mig_slices) for each in MODELS.values()}
    less = list(smaller(bill.peaks, sizes, book.types))
    print_ticket(
        output,
        lambda: bill_document(bill, parts, less),
        lambda table: bill_lines(bill, parts, less, table),
    )


async def _bill(
    source: "PrometheusSource",
    span: tuple[int, int],
    book: "PriceBook",
    pod_label: str | None,
    show: Callable[[str], None],
    *,
    by_hour: bool,
) -> "tuple[Bill, list[float | None]]":
    """Return the bill of a range, asked for a day at a time, and what each hour bought if that is asked."""
    from gpuscale.ops.money import (
        HOUR_S,
        Bill,
        BillQueries,
        bought_by_hour,
        days_of,
        hourly_queries,
    )
    from gpuscale.series import Matrix
    from gpuscale.server.sources.prometheus import persistently

    bill = Bill(*span)
    async with source:
        for end_s, length_s in days_of(*span):
            show(f"asking Prometheus: {(end_s - span[0]) / (span[1] - span[0]):.0%}")
            asked = BillQueries(length_s, pod_label)
            queries = {**asked.all(), **asked.peaks()}
            bill.add(await _answers(source, queries, end_s), book, pod_label)
        if not by_hour:
            return bill, []
        found: dict[str, list[tuple[int, Mapping[str, str], float]]] = {}
        times_ms = ((span[0] + (span[1] - span[0]) % HOUR_S + HOUR_S) * 1000, span[1] * 1000)
        for name, query in hourly_queries().items():
            value = await persistently(source.query_range, query, *times_ms, HOUR_S * 1000)
            series = value.series if isinstance(value, Matrix) else ()
            found[name] = [
                (at_ms // 1000, each.labels, value)
                for each in series
                for at_ms, value in each.points
            ]
    moments = {end_s: value for end_s, _, value in found["moments"]}
    return bill, bought_by_hour(bill, found["nodes"], moments)


async def _answers(
    source: "PrometheusSource", queries: Mapping[str, str], end_s: int
) -> dict[str, Sequence[tuple[Mapping[str, str], float]]]:
    from gpuscale.series import Vector
    from gpuscale.server.sources.prometheus import persistently

    found: dict[str, Sequence[tuple[Mapping[str, str], float]]] = {}
    for name, query in queries.items():
        value = await persistently(source.query, query, end_s * 1000)
        rows = value.samples if isinstance(value, Vector) else ()
        found[name] = [(row.labels, row.value) for row in rows]
    return found


def _range(since: str | None, until: str | None) -> tuple[int, int]:
    """Return begin and end in seconds since the epoch."""
    end_s = end_of_range_ms(until) // 1000
    if since is not None:
        length_s = round(seconds_of("--since", since))
        if length_s > _LONGEST_S:
            raise UsageError(f"--since: found {since!r}, expected 400 days at most")
        return end_s - length_s, end_s
    month = datetime.fromtimestamp(end_s, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    return min(round(month.timestamp()), end_s - 3600), end_s
