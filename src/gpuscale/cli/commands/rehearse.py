"""`gpuscale rehearse`: a scenario on a real API server."""

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gpuscale.cli.commands.up import limit_seconds
from gpuscale.cli.exits import stop_event
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.options.cluster import (
    PANEL,
    Context,
    Kubeconfig,
    cluster_settings,
    kubectl_options,
)
from gpuscale.cli.scenarios import scenario_help
from gpuscale.cli.screen import Screen
from gpuscale.cli.texts import Output, print_document
from gpuscale.lab import find_setup, shipped_names

if TYPE_CHECKING:
    from gpuscale.lab.rehearse import Announcement, RehearsalTarget
    from gpuscale.lab.sim.scenario import Setup

DEFAULT_NAMESPACE = "gpuscale-rehearsal"


def rehearse(
    scenario: Annotated[
        str | None,
        typer.Argument(help=scenario_help(), autocompletion=shipped_names),
    ] = None,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace to make, for the scenario's objects.",
            rich_help_panel=PANEL,
        ),
    ] = DEFAULT_NAMESPACE,
    advertise_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of this machine that the API server can reach; for one that is not on it.",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="End before the scenario does, after so much of its time.",
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            help="Seconds of scenario time per second; above 1 the HPA controller's flags have to be "
            "divided by it.",
            min=1.0,
            max=100.0,
        ),
    ] = 1.0,
    karpenter: Annotated[
        bool,
        typer.Option(
            "--karpenter",
            help="Let the cluster's own Karpenter make the nodes; it has to have the KWOK provider, whose "
            "nodes cost nothing.",
        ),
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove what a killed rehearsal left behind.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Use the cluster, though it was not named, or is not on this machine.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Of the result.")] = Output.TEXT,
) -> None:
    """Run a scenario on a real cluster: Kubernetes schedules and scales, nodes and GPUs are simulated.

    It makes a namespace, nodes and an APIService of its own, and removes them at the end; Ctrl-C ends it.

    It uses a cluster on this machine whose kubeconfig is named, and any other only with --context or --yes.

    Example:  gpuscale rehearse ack-bert --kubeconfig cluster.yaml

    Example:  gpuscale rehearse ack-bert --context kind-test --for 10m

    Example:  gpuscale rehearse ack-bert --kubeconfig cluster.yaml --speed 10
    """
    from gpuscale.lab.rehearse import make_target

    set_up_log(logging.WARNING)
    target = make_target(
        cluster_settings(kubeconfig, context),
        namespace,
        advertise_address,
        is_named=kubeconfig is not None,
        is_confirmed=yes,
        options=kubectl_options(kubeconfig, context),
    )
    if clean:
        asyncio.run(_clean(target, output))
        return
    if scenario is None:
        names = ", ".join(shipped_names())
        raise typer.BadParameter(f"name a file or one of: {names}", param_hint="SCENARIO")
    result = asyncio.run(
        _rehearse(find_setup(scenario), target, limit_seconds(for_), speed, output, karpenter)
    )
    _show(result, output)


async def _clean(target: "RehearsalTarget", output: Output) -> None:
    from gpuscale.lab.rehearse import clean

    removed = await clean(target)
    if output is not Output.TEXT:
        print_document({"removed": list(removed)}, output)
        return
    for name in removed:
        print(f"removed {name}")
    if not removed:
        print("nothing to remove")


async def _rehearse(
    setup: "Setup",
    target: "RehearsalTarget",
    limit_s: float | None,
    speed: float,
    output: Output,
    karpenter: bool,
) -> dict[str, object]:
    from gpuscale.lab.rehearse import Rehearsal

    lines = sys.stdout if output is Output.TEXT else sys.stderr
    stop = stop_event()
    screen = Screen(lines, stop.set)

    def announce(found: "Announcement") -> None:
        _announce(found, setup, target, speed, lines)
        screen.begin()

    rehearsal = Rehearsal(setup, target, screen.event, announce, speed, karpenter=karpenter)
    async with screen.showing(rehearsal.state):
        return await rehearsal.run(stop, limit_s)


def _announce(
    found: "Announcement", setup: "Setup", target: "RehearsalTarget", speed: float, lines: TextIO
) -> None:
    from gpuscale.lab.rehearse import speed_lines

    print(f"gpuscale: rehearsal {found.id} on {found.server}", file=lines)
    print(setup.description, file=lines)
    print(f"\n  namespaces      {', '.join(found.namespaces)}", file=lines)
    print(
        f"  look at it      kubectl{target.options} get hpa,pods -n {found.namespaces[0]}",
        file=lines,
    )
    for name, text in speed_lines(setup, speed) if speed != 1 else ():
        print(f"  {name:<14}  {text}", file=lines)
    print("  Ctrl-C ends it and removes everything\n", file=lines, flush=True)


def _show(result: dict[str, object], output: Output) -> None:
    if output is not Output.TEXT:
        print_document(result, output)
        return
    from gpuscale.lab.views import summary_text

    print("\n" + summary_text({**result, "events": []}))
