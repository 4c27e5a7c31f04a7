"""`gpuscale load`: bounded load on a service, and what came of it second by second."""

import json
import logging
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.exits import NO
from gpuscale.cli.files import check_writable, write_files
from gpuscale.cli.help import Command, Group
from gpuscale.cli.scenarios import find_setup, shipped_names
from gpuscale.cli.texts import Output, print_document, read_text
from gpuscale.core.errors import UsageError
from gpuscale.core.golang.durations import parse_duration_ms

if TYPE_CHECKING:
    from gpuscale.load.plan import LoadPlan, Request, Slo
    from gpuscale.load.recording import Row
    from gpuscale.sim.load.loads import Load

app = typer.Typer(cls=Group, no_args_is_help=True)

_SHAPES = "--rate, --ramp, --steps, --spikes, --scenario or --trace"


class Arrivals(Enum):
    """How requests follow each other."""

    POISSON = "poisson"
    EVEN = "even"


@app.command("http", cls=Command, short_help="Send HTTP requests when they are due, and time them.")
def http(
    url: Annotated[str, typer.Argument(help="Where to, such as http://host/predict?query=Music.")],
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
            help="The load that a scenario has on a service.",
            autocompletion=shipped_names,
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="CSV with a row for each request, or a rate per row."),
    ] = None,
    time_column: Annotated[str, typer.Option(help="Of the trace: when.")] = "time",
    rate_column: Annotated[
        str | None, typer.Option(help="Of the trace: requests per second from then on.")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="What a trace's requests are multiplied by.", min=1e-6)
    ] = 1.0,
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long, such as 2m.")
    ] = "",
    arrivals: Annotated[
        Arrivals, typer.Option(help="Poisson: as many users come; even: equal gaps.")
    ] = Arrivals.POISSON,
    seed: Annotated[int, typer.Option(metavar="N", help="Of Poisson arrivals.", min=0)] = 1,
    method: Annotated[str, typer.Option("--method", "-X", help="GET, POST, ...")] = "GET",
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="A header.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="The body, or @FILE. The method is POST.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="For each answer.")] = "30s",
    connections: Annotated[
        int, typer.Option(metavar="N", help="Open at once, at most.", min=1, max=60_000)
    ] = 1_000,
    requests: Annotated[
        int, typer.Option(metavar="N", help="In all, at most.", min=1, max=100_000_000)
    ] = 100_000_000,
    processes: Annotated[
        int, typer.Option(metavar="N", help="That share the requests.", min=1, max=64)
    ] = 1,
    ca_file: Annotated[
        str | None, typer.Option("--cacert", metavar="FILE", help="CA of the server.")
    ] = None,
    is_insecure: Annotated[
        bool, typer.Option("--insecure", "-k", help="Take any certificate.")
    ] = False,
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="p99=500ms|errors=1%", help="Exit with 1 where it isn't kept."),
    ] = None,
    users: Annotated[
        int, typer.Option(metavar="N", help="With --closed-loop: how many wait.", min=1)
    ] = 10,
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
    output_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the result as JSON to a file.")
    ] = None,
) -> None:
    """Send requests when they are due, whatever the service does, and time each from when it was due.

    So a service that is too slow shows in the latency of all requests that wait, as its users would see it.
    Ends by itself; Ctrl-C ends it early, with what was measured.

    Example:  gpuscale load http http://127.0.0.1:8000/predict?query=Music --ramp 1..50 --for 5m
    """
    from gpuscale.load.plan import Bounds, LoadPlan

    shape = {
        "--rate": rate, "--ramp": ramp, "--steps": steps, "--spikes": spikes,
        "--scenario": scenario, "--trace": trace,
    }  # fmt: skip
    load, duration_s, words = _load(
        {name: value for name, value in shape.items() if value is not None},
        _duration("--for", duration) if duration else None,
        (time_column, rate_column, scale),
        is_closed=is_closed,
    )
    files = {output_file: ".json"} if output_file else {}
    check_writable(files, "--output-file")
    plan = LoadPlan(
        request=_request(
            url, method, headers or [], data, timeout, ca_file, is_insecure=is_insecure
        ),
        load=load,
        duration_s=duration_s,
        arrivals=arrivals.value,
        seed=seed,
        users=max(1, users // processes) if is_closed else 0,
        bounds=Bounds(max(1, requests // processes), max(1, connections // processes)),
        slo=_slo(slo or []),
        shape=f"{users} users" if is_closed else words,
    )
    document = _run(plan, processes)
    write_files({name: json.dumps(document) + "\n" for name in files})
    _print(document, output)
    if document["slo"] or not document["requests"]["ok"]:
        raise typer.Exit(NO)


def _load(
    shapes: dict[str, object],
    duration_s: float | None,
    trace: tuple[str, str | None, float],
    *,
    is_closed: bool,
) -> "tuple[Load | None, float, str]":
    """Return the load, how long it takes, and what it is called."""
    from gpuscale.load import shapes as made
    from gpuscale.load.plan import MAX_DURATION_S

    if is_closed == bool(shapes) or len(shapes) > 1:
        found = " and ".join(shapes) or "no load"
        beside = " with --closed-loop" if is_closed else ""
        expected = "--users alone" if is_closed else f"one of {_SHAPES}"
        raise UsageError(f"found {found}{beside}, expected {expected}")
    name, value = next(iter(shapes.items()), ("", ""))
    own_s: float | None = None
    load: Load | None = None
    try:
        match name:
            case "--rate":
                load = made.constant(float(str(value)))
            case "--ramp":
                load = made.ramp(str(value), duration_s or 1.0)
            case "--steps":
                load, own_s = made.steps(str(value))
            case "--spikes":
                load = made.spikes(str(value))
            case "--scenario":
                load, own_s = _of_scenario(str(value))
            case "--trace":
                load = _of_trace(str(value), *trace)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    wanted_s = duration_s or own_s
    if wanted_s is None:
        raise UsageError("found no --for, expected how long the load lasts, such as --for 2m")
    if wanted_s > MAX_DURATION_S:
        raise UsageError(f"--for: found {wanted_s:g} s, expected a week at most")
    return load, wanted_s, f"{name.removeprefix('--')} {value}"


def _of_scenario(text: str) -> "tuple[Load, float]":
    """Return the load on a scenario's service, and how long the scenario takes."""
    known = shipped_names()
    name, _, wanted = text.partition("/") if text.partition("/")[0] in known else (text, "", "")
    setup = find_setup(name)
    services = {each.deployment.partition("/")[2]: each.load for each in setup.workloads}
    if not services:
        raise UsageError(f"--scenario: found no service with a load in {name}, expected one")
    if wanted and wanted not in services:
        names = ", ".join(services)
        raise UsageError(
            f"--scenario: found no service {wanted!r} in {name}, expected one of: {names}"
        )
    if not wanted and len(services) > 1:
        names = ", ".join(f"{name}/{each}" for each in services)
        raise UsageError(f"--scenario: found {len(services)} services, expected one of: {names}")
    load = services[wanted] if wanted else next(iter(services.values()))
    return load, setup.duration_ms / 1000


def _of_trace(name: str, time_column: str, rate_column: str | None, scale: float) -> "Load":
    from gpuscale.sim.load.traces import load_trace

    text = read_text(name)
    return load_trace(text, name, time_column=time_column, rate_column=rate_column, scale=scale)


def _request(
    url: str,
    method: str,
    headers: list[str],
    data: str | None,
    timeout: str,
    ca_file: str | None,
    *,
    is_insecure: bool,
) -> "Request":
    from gpuscale.load.plan import Request

    pairs = []
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header: found {header!r}, expected NAME: VALUE")
        pairs.append((name.strip(), value.strip()))
    if method.upper() == "HEAD" or not method.isalpha():
        raise UsageError(f"--method: found {method!r}, expected one such as GET or POST")
    body = b""
    if data is not None:
        body = _body(data)
        method = "POST" if method == "GET" else method
    return Request(
        url=url,
        method=method.upper(),
        headers=tuple(pairs),
        body=body,
        timeout_s=_duration("--timeout", timeout),
        ca_file=ca_file,
        is_insecure=is_insecure,
    )


def _body(data: str) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"--data: {data[1:]}: {error.strerror or error}") from None


def _slo(texts: list[str]) -> "Slo":
    from gpuscale.load.plan import parse_slo

    try:
        return parse_slo(tuple(texts))
    except ValueError as error:
        raise UsageError(f"--slo: {error}") from None


def _duration(name: str, text: str) -> float:
    try:
        seconds = parse_duration_ms(text) / 1000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(f"{name}: found {text!r}, expected a duration such as 30s or 2m")
    return seconds


def _run(plan: "LoadPlan", processes: int) -> dict[str, Any]:
    from gpuscale.load.result import load_document
    from gpuscale.load.run import run_load

    logging.basicConfig(format="gpuscale: %(message)s", stream=sys.stderr, level=logging.WARNING)
    timeline = run_load(plan, processes, _show if sys.stderr.isatty() else _ignore)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return load_document(plan, timeline)


def _ignore(_row: "Row") -> None:
    """Show nothing: standard error is no terminal."""


def _show(row: "Row") -> None:
    """Show the second that passed, on one line that each second replaces."""
    p99 = "-" if row.p99_ms is None else f"{row.p99_ms:.4g} ms"
    text = f"{row.t_s + 1} s  {row.sent}/s sent  {row.errors} failed  {row.in_flight} in flight  p99 {p99}"
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _print(document: dict[str, Any], output: Output) -> None:
    from gpuscale.load.result import load_text

    if output is Output.TEXT:
        print(load_text(document))
    else:
        print_document(document, output)
