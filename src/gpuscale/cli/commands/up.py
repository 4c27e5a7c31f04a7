"""`gpuscale up`: the loop, live, on this machine."""

import asyncio
import contextlib
import functools
import shlex
import sys
from collections.abc import Callable
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
                functools.cache(lambda: next_steps(scenario, setup)),
            )
        )


def next_steps(scenario: str, setup: "Setup") -> tuple[tuple[str, str], ...]:
    """Return what to do once a scenario is over, as texts and commands that work as they stand."""
    from gpuscale.lab.tuning import Overrides, of_setup

    name, can_tune = shlex.quote(scenario), []
    for workload in setup.workloads:
        with contextlib.suppress(UsageError):  # what can't be tuned isn't offered
            of_setup(setup, scenario, workload.deployment, None, Overrides())
            can_tune.append(workload.deployment)
    steps = [
        (
            "The same in virtual time, as a report",
            f"gpuscale simulate {name} --output-file run.html",
        )
    ]
    if can_tune:
        one = f" --workload {can_tune[0]}" if len(setup.workloads) > 1 else ""
        steps.append(("Settings that cost less, in some minutes", f"gpuscale tune {name}{one}"))
    steps.append(("What is wrong in a cluster of yours", "gpuscale doctor"))
    steps.append(("This page for it", "gpuscale dashboard"))
    return tuple(steps)


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
    steps: Callable[[], tuple[tuple[str, str], ...]],
) -> None:
    from gpuscale.lab.local import LiveOptions
    from gpuscale.server.page import PortTakenError
    from gpuscale.server.sources.remote_write import endpoint_of_url

    try:
        endpoints = tuple(map(endpoint_of_url, receivers))
    except UsageError as error:
        raise UsageError(f"--remote-write-url: {error}") from None

    def options(port: int) -> LiveOptions:
        return LiveOptions(host, port, speed, rules, endpoints, steps)

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
    live = LiveLoop(
        setup, options, screen.event, lambda: screen.scenario_over(options.next_steps())
    )

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
