"""`gpuscale rehearse`: a scenario on a real API server."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gpuscale.cli.extras import missing_extra
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.scenarios import find_setup, shipped_names
from gpuscale.cli.screen import QUIET
from gpuscale.cli.signals import stop_event
from gpuscale.cli.up import limit_seconds

if TYPE_CHECKING:
    from gpuscale.rehearse.rehearsal import Announcement
    from gpuscale.rehearse.target import Target
    from gpuscale.sim.setup import Setup

DEFAULT_NAMESPACE = "gpuscale-rehearsal"


def rehearse(
    scenario: Annotated[
        str | None, typer.Argument(help="A shipped scenario's name, or a file.")
    ] = None,
    *,
    kubeconfig: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Of the cluster; no other place is looked for one."),
    ],
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig, instead of its current one.")
    ] = None,
    namespace: Annotated[
        str, typer.Option(help="Namespace to make, for the scenario's objects.")
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
        typer.Option("--for", metavar="DURATION", help="End before the scenario does."),
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove what a killed rehearsal left behind.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Use a cluster that is not on this machine.")
    ] = False,
    output: Annotated[str, typer.Option(help="Of the result: text or json.")] = "text",
) -> None:
    """Run a scenario on a real cluster: Kubernetes schedules and scales, nodes and GPUs are simulated.

    It makes a namespace, nodes and an APIService of its own, and removes them at the end; Ctrl-C ends it.

    Example:  gpuscale rehearse --kubeconfig cluster.yaml ack-bert
    """
    if output not in {"text", "json"}:
        raise typer.BadParameter(f"found {output!r}, expected text or json", param_hint="--output")
    set_up_log(logging.WARNING)
    target = _target(kubeconfig, context, namespace, advertise_address, is_confirmed=yes)
    if clean:
        asyncio.run(_clean(target, output))
        return
    if scenario is None:
        names = ", ".join(shipped_names())
        raise typer.BadParameter(f"name a file or one of: {names}", param_hint="SCENARIO")
    result = asyncio.run(_rehearse(find_setup(scenario), target, limit_seconds(for_), output))
    _show(result, output)


def _target(
    kubeconfig: Path,
    context: str | None,
    namespace: str,
    address: str | None,
    *,
    is_confirmed: bool,
) -> "Target":
    try:
        from gpuscale.rehearse.target import make_target
    except ImportError as error:
        raise missing_extra(error, "kubernetes") from error

    return make_target(kubeconfig, context, namespace, address, is_confirmed=is_confirmed)


async def _clean(target: "Target", output: str) -> None:
    from gpuscale.rehearse.rehearsal import clean

    removed = await clean(target)
    if output == "json":
        print(json.dumps({"removed": list(removed)}))
        return
    for name in removed:
        print(f"removed {name}")
    if not removed:
        print("nothing to remove")


async def _rehearse(
    setup: "Setup", target: "Target", limit_s: float | None, output: str
) -> dict[str, object]:
    from gpuscale.rehearse.rehearsal import Rehearsal
    from gpuscale.views.terminal import event_line

    lines = sys.stderr if output == "json" else sys.stdout

    def tell(event: dict[str, object]) -> None:
        if event["kind"] not in QUIET:
            print(event_line(event), file=lines, flush=True)

    stop = stop_event()
    rehearsal = Rehearsal(setup, target, tell, lambda found: _announce(found, setup, lines))
    return await rehearsal.run(stop, limit_s)


def _announce(found: "Announcement", setup: "Setup", lines: TextIO) -> None:
    print(f"gpuscale: rehearsal {found.id} on {found.server}", file=lines)
    print(setup.description, file=lines)
    print(f"\n  namespaces      {', '.join(found.namespaces)}", file=lines)
    print(f"  look at it      kubectl get hpa,pods -n {found.namespaces[0]}", file=lines)
    print("  Ctrl-C ends it and removes everything\n", file=lines, flush=True)


def _show(result: dict[str, object], output: str) -> None:
    if output == "json":
        print(json.dumps(result, ensure_ascii=False))
        return
    from gpuscale.views.terminal import summary_text

    print("\n" + summary_text({**result, "events": []}))
