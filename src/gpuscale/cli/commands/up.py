"""`gpuscale up`: the loop, live, on this machine."""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.clock import FASTEST, SLOWEST
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.cli.exits import stop_event
from gpuscale.cli.keeping import default_writer, follow_run
from gpuscale.cli.scenarios import PrometheusRules, scenario_help
from gpuscale.lab import find_setup, shipped_names

if TYPE_CHECKING:
    from gpuscale.lab.local import LiveOptions
    from gpuscale.lab.sim.scenario import Setup
    from gpuscale.ops.history import HistoryWriter

DEFAULT_SCENARIO = "ack-bert"
DEFAULT_PORT = 9480
DEFAULT_SPEED = 10.0


def up(
    scenario: Annotated[
        str,
        typer.Argument(help=scenario_help(), autocompletion=shipped_names),
    ] = DEFAULT_SCENARIO,
    *,
    speed: Annotated[
        float, typer.Option(help="Seconds of scenario time per second.", min=SLOWEST, max=FASTEST)
    ] = DEFAULT_SPEED,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="End by itself after this much real time."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; 0.0.0.0 or :: is every one of the machine.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            help=f"Port of the page and the APIs, 0 for any free one; without it {DEFAULT_PORT}, "
            "or another where that is taken.",
            metavar="N",
            min=0,
            max=65535,
        ),
    ] = None,
    prometheus_rules: PrometheusRules = None,
    remote_write_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Address that all samples are sent to by Prometheus' remote write, to look at the run "
            "later. May be given several times.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep minutes of the run there, for gpuscale history and report."
        ),
    ] = None,
) -> None:
    """Run the whole loop live: simulated GPUs, real servers between the hops. Ctrl-C ends it.

    Example:  gpuscale up eks-vision --speed 20
    """
    setup = find_setup(scenario)
    limit_s = limit_seconds(for_)
    with contextlib.ExitStack() as stack:
        writer = None if history is None else stack.enter_context(default_writer(history))
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        asyncio.run(
            _up(
                setup,
                host,
                port,
                speed,
                limit_s,
                tuple(prometheus_rules or ()),
                tuple(remote_write_url or ()),
                writer,
            )
        )


def limit_seconds(text: str | None) -> float | None:
    """Return the seconds of `--for`; None where it was not given."""
    from gpuscale.base.golang.durations import parse_duration_ms

    if text is None:
        return None
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None


async def _up(
    setup: "Setup",
    host: str,
    port: int | None,
    speed: float,
    limit_s: float | None,
    rules: tuple[Path, ...],
    receivers: tuple[str, ...],
    writer: "HistoryWriter | None",
) -> None:
    from gpuscale.lab.local import LiveOptions
    from gpuscale.server.page import PortTakenError
    from gpuscale.server.sources.remote_write import endpoint_of_url

    try:
        endpoints = tuple(map(endpoint_of_url, receivers))
    except UsageError as error:
        raise UsageError(f"--remote-write-url: {error}") from None

    def options(port: int) -> LiveOptions:
        return LiveOptions(host, port, speed, rules, endpoints)

    stop = stop_event()
    if limit_s is not None:
        asyncio.get_running_loop().call_later(limit_s, stop.set)
    try:
        await _run(setup, options(DEFAULT_PORT if port is None else port), stop, writer)
    except PortTakenError as error:
        if port is not None:
            advice = "choose another with --port, or --port 0 for any that is free"
            raise UsageError(f"port {error}: {advice}") from None
        await _run(setup, options(0), stop, writer, instead_of=str(error))
    except UnavailableError as error:
        raise UsageError(f"{error}; --host takes an address of this machine") from None


async def _run(
    setup: "Setup",
    options: "LiveOptions",
    stop: asyncio.Event,
    writer: "HistoryWriter | None",
    instead_of: str = "",
) -> None:
    from gpuscale.cli.screen import Screen
    from gpuscale.lab.local import LiveLoop

    screen = Screen(sys.stdout, stop.set)
    live = LiveLoop(setup, options, screen.event, screen.scenario_over)

    following: list[asyncio.Task[None]] = []

    def announce() -> None:
        if instead_of:
            print(f"gpuscale: port {instead_of}, using {live.port}", file=sys.stderr)
        kinds = (
            ("scaledobjects", setup.scaled_objects),
            ("hpa", setup.hpas or setup.scaled_objects),
            ("jobs", setup.jobs),
        )
        resources = ",".join([*(name for name, there in kinds if there), "pods", "nodes"])
        addresses = {
            **live.addresses(),
            "kubeconfig": live.kubeconfig,
            "resources": resources,
        }
        screen.announce(setup.name, setup.description, options.speed, addresses)
        if writer is not None:
            following.append(asyncio.create_task(follow_run(live.kubeconfig, writer, stop)))

    try:
        async with screen.showing(live.view.state):
            await live.run(stop, announce)
    finally:
        stop.set()
        await asyncio.gather(*following)
    screen.farewell(live.view.document())
    if screen.is_gone:
        raise BrokenPipeError
