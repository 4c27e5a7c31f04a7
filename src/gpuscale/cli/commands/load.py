"""`gpuscale load`: bounded load on a service, on GPUs or of Jobs, and what came of it."""

import json
import logging
import shutil
import sys
from enum import Enum
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from gpuscale.base.errors import UsageError
from gpuscale.base.whole_files import check_writable
from gpuscale.base.words import counted, shown_ms
from gpuscale.cli.commands.loads.gpu import gpu
from gpuscale.cli.commands.loads.jobs import jobs
from gpuscale.cli.commands.loads.read import read
from gpuscale.cli.commands.loads.shaped import foreign_plan, shaped_load, token_lengths
from gpuscale.cli.commands.loads.watched import watched_hpa, while_watching
from gpuscale.cli.exits import NO
from gpuscale.cli.files import write_files
from gpuscale.cli.help import Command, CommandGroup
from gpuscale.cli.options.cluster import PANEL, Context, Kubeconfig
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.requests import (
    CaFile,
    Data,
    Headers,
    Insecure,
    Method,
    Timeout,
    request_of,
    slo_of,
)
from gpuscale.cli.options.runs import (
    Duration,
    HpaNamespace,
    Html,
    OutputFile,
    TimeColumn,
    WatchHpa,
)
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.lab import shipped_names

if TYPE_CHECKING:
    from gpuscale.load import LoadPlan, RunSecond
    from gpuscale.load.timeline import Timeline
    from gpuscale.load.watching import WatchedHpa, WatchedUp

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False)
app.command("jobs", cls=Command, short_help="Run N Jobs on a cluster, and see what they wait for.")(
    jobs
)
app.command("read", cls=Command, short_help="Show results of hey, GuideLLM, AIPerf and others.")(
    read
)
app.command("gpu", cls=Command, short_help="Keep GPUs busy for a share of the time, hold memory.")(
    gpu
)


_USERS = 10


class ArrivalPattern(Enum):
    """The spacing of requests."""

    POISSON = "poisson"
    EVEN = "even"


@app.command("http", cls=Command, short_help="Send HTTP requests when they are due, and time them.")
def http(
    url: Annotated[
        str | None,
        typer.Argument(
            help="Where to, such as http://host/predict?query=Music; with --plan, in place of its own."
        ),
    ] = None,
    *,
    rate: Annotated[
        float | None, typer.Option("--rate", "-r", help="Requests per second, all the time.")
    ] = None,
    ramp: Annotated[
        str | None, typer.Option(metavar="FROM..TO", help="A rate that rises or falls evenly.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="RATE@TIME,...", help="Rates in turn: 10@30s,50@1m.")
    ] = None,
    spikes: Annotated[
        str | None,
        typer.Option(
            metavar="BASE,PEAK,EVERY,LENGTH", help="A rate with spikes, such as 5,50,1m,10s."
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[/DEPLOYMENT]",
            help="The load that a scenario, shipped or in a file, has on a service.",
            autocompletion=shipped_names,
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a scenario with several: the Deployment's name."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="CSV with a row for each request, or a rate per row; or a Mooncake trace (.jsonl).",
        ),
    ] = None,
    plan_file: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="The load of a plan of Taurus, JMeter, Locust or k6, which is read and not run.",
        ),
    ] = None,
    time_column: TimeColumn = "time",
    rate_column: Annotated[
        str | None, typer.Option(help="Of the trace: requests per second from then on.")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="What a trace's requests are multiplied by.", min=1e-6)
    ] = 1.0,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Ask this model of an OpenAI-compatible server, with --tokens or those of a trace.",
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="PROMPT:ANSWER",
            help="Tokens of each request, such as 512:128; or two columns of a CSV trace.",
        ),
    ] = None,
    duration: Duration = "",
    arrivals: Annotated[
        ArrivalPattern, typer.Option(help="Poisson: as many users come; even: equal gaps.")
    ] = ArrivalPattern.POISSON,
    seed: Annotated[int, typer.Option(metavar="N", help="Of Poisson arrivals.", min=0)] = 1,
    method: Method = "GET",
    headers: Headers = None,
    data: Data = None,
    timeout: Timeout = "30s",
    connections: Annotated[
        int, typer.Option(metavar="N", help="Open at once, at most.", min=1, max=60_000)
    ] = 1_000,
    requests: Annotated[
        int, typer.Option(metavar="N", help="In all, at most.", min=1, max=100_000_000)
    ] = 100_000_000,
    processes: Annotated[
        int, typer.Option(metavar="N", help="That share the requests.", min=1, max=64)
    ] = 1,
    ca_file: CaFile = None,
    is_insecure: Insecure = False,
    promised: Annotated[
        list[str] | None,
        typer.Option(
            "--promise", metavar="p99=500ms|errors=1%", help="Exit with 1 where it isn't kept."
        ),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --closed-loop: how many wait.", min=1, show_default="10"
        ),
    ] = None,
    is_closed: Annotated[
        bool,
        typer.Option(
            "--closed-loop",
            help="Users who wait for an answer before they ask again. It never asks for more than the "
            "service gives, so it can't show whether autoscaling works.",
        ),
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What is printed.")
    ] = Output.TEXT,
    output_file: OutputFile = None,
    html: Html = None,
    watch_hpa: WatchHpa = None,
    watch_up: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The same of a running gpuscale up.", rich_help_panel=PANEL
        ),
    ] = None,
    namespace: HpaNamespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Send requests when they are due, whatever the service does, and time each from when it was due.

    So a service that is too slow shows in the latency of all requests that wait, as its users would see it.
    Ends by itself; Ctrl-C ends it early, with what was measured.

    Example:  gpuscale load http http://127.0.0.1:8000/predict?query=Music --ramp 1..50 --for 5m

    Example:  gpuscale load http http://bert.example/ --rate 60 --for 5m --watch-hpa bert --html run.html
    """
    from gpuscale.load import LoadPlan, RunLimits

    shape = {
        "--rate": rate, "--ramp": ramp, "--steps": steps, "--spikes": spikes,
        "--scenario": scenario, "--trace": trace, "--plan": plan_file,
    }  # fmt: skip
    foreign = foreign_plan(plan_file) if plan_file is not None else None
    load, duration_s, words = shaped_load(
        {name: value for name, value in shape.items() if value is not None},
        seconds_of("--for", duration) if duration else None,
        (time_column, rate_column, scale),
        foreign,
        service,
        is_closed=is_closed,
    )
    if users is not None and not is_closed:
        raise UsageError("found --users, expected --closed-loop beside it")
    users = foreign.users if foreign is not None else users or _USERS
    for option, name in (("--output-file", output_file), ("--html", html)):
        check_writable([name] if name else [], option)
    watch = _watch(watch_hpa, watch_up, namespace, kubeconfig, context)
    request = request_of(
        url,
        method,
        headers or [],
        data,
        timeout,
        ca_file,
        foreign.requests if foreign is not None else (),
        token_lengths(tokens, trace),
        model,
        is_insecure=is_insecure,
    )
    if foreign is not None and len(foreign.requests) > 1 and not request.others:
        left = counted(len(foreign.requests) - 1, "further request")
        print(f"gpuscale: {left} of the plan not sent beside the command line's", file=sys.stderr)
    plan = LoadPlan(
        request=request,
        load=load,
        duration_s=duration_s,
        arrivals=arrivals.value,
        seed=seed,
        users=max(1, users // processes) if is_closed else 0,
        bounds=RunLimits(max(1, requests // processes), max(1, connections // processes)),
        slo=slo_of(promised or []),
        shape=f"{users} users" if is_closed else words,
    )
    document, timeline = _run(plan, processes, watch)
    texts = {output_file: json.dumps(document) + "\n"} if output_file else {}
    if html:
        from gpuscale.load import load_totals
        from gpuscale.load.timeline import render_timeline

        texts[html] = render_timeline(timeline, load_totals(document))
    write_files(texts)
    _print(document, timeline if watch else None, output)
    if not document["requests"]["sent"] and not document["requests"]["errors"]:
        print("gpuscale: no request came due: a higher rate or a longer time", file=sys.stderr)
    if document["slo"] or not document["requests"]["ok"]:
        raise typer.Exit(NO)


def _watch(
    hpa: str | None,
    up: str | None,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> "WatchedHpa | WatchedUp | None":
    """Return the watcher to run during the load; None if nothing is watched."""
    if hpa is not None and up is not None:
        raise UsageError("found --watch-hpa and --watch-up, expected one of them")
    watched = watched_hpa(hpa, namespace, kubeconfig, context)
    if up is None:
        return watched
    from gpuscale.load.watching import WatchedUp

    if urlsplit(up).scheme not in ("http", "https"):
        raise UsageError(f"--watch-up: found {up!r}, expected a URL, as up prints it")
    return WatchedUp(up)


def _run(
    plan: "LoadPlan", processes: int, watch: "WatchedHpa | WatchedUp | None"
) -> "tuple[dict[str, Any], Timeline]":
    from gpuscale.load import load_document, load_timeline, run_load

    logging.basicConfig(format="gpuscale: %(message)s", stream=sys.stderr, level=logging.WARNING)
    on_row = _show if sys.stderr.isatty() else _ignore
    recording, watched = while_watching(watch, lambda: run_load(plan, processes, on_row))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    timeline = load_timeline(plan, recording, watched)
    return load_document(plan, recording, watched), timeline


def _ignore(_row: "RunSecond") -> None:
    """Do nothing: standard error is no terminal."""


def _show(row: "RunSecond") -> None:
    """Print the last second's figures on a line that the next second replaces."""
    p99 = "-" if row.p99_ms is None else shown_ms(row.p99_ms)
    text = f"{row.t_s + 1} s  {row.sent}/s sent  {row.errors} failed  {row.in_flight} in flight  p99 {p99}"
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _print(document: dict[str, Any], timeline: "Timeline | None", output: Output) -> None:
    """Print the result, and each hop's figures if something was watched."""
    from gpuscale.load import load_text

    if output is not Output.TEXT:
        print_document(document, output)
        return
    lines = load_text(document).splitlines()
    width = 100
    if sys.stdout.isatty():
        width = shutil.get_terminal_size((width, 24)).columns
        # Long words, such as a URL, stay whole: they may be copied.
        wrapped = TextWrapper(
            width,
            subsequent_indent=" " * 10,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines = [part for line in lines for part in wrapped.wrap(line)]
    if timeline is not None:
        from gpuscale.load.timeline import timeline_text

        lines += ["", *timeline_text(timeline, width).splitlines()]
    for line in lines:
        print(printable(line))
