"""A control plane with simulated GPU nodes to try things on: `python -m gpuscale_testing`."""

import signal
import sys
from contextlib import ExitStack, suppress
from typing import Annotated

import typer

from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.simulated import SimulatedNode
from gpuscale_testing.background import simulated_nodes
from gpuscale_testing.flags import Settings
from gpuscale_testing.karpenter import Karpenter, scenario_types
from gpuscale_testing.plane import ControlPlane


def serve(
    nodes: Annotated[int, typer.Option(min=0, help="Simulated nodes.")] = 2,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 8,
    hpa_sync_period: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks at each HPA.")
    ] = 15.0,
    speed: Annotated[
        float,
        typer.Option(
            min=1.0, help="What the HPA controller's periods are divided by, for rehearse --speed."
        ),
    ] = 1.0,
    karpenter: Annotated[
        str | None,
        typer.Option(
            metavar="SCENARIO",
            help="Run Karpenter too, with the KWOK provider and the instance types of this scenario's "
            "pools, for rehearse --karpenter.",
        ),
    ] = None,
) -> None:
    """Run a Kubernetes control plane with simulated GPU nodes until Ctrl-C.

    Example: python -m gpuscale_testing --nodes 3 --gpus 4
    """
    typer.echo("starting the control plane, about 10 seconds", err=True)
    fleet = [SimulatedNode(f"gpu-{number}", gpus=gpus) for number in range(1, nodes + 1)]
    types = () if karpenter is None else scenario_types(karpenter)
    with ExitStack() as stack:
        settings = Settings(hpa_sync_period_s=hpa_sync_period).sped_up(speed)
        plane = stack.enter_context(ControlPlane(settings))
        stack.enter_context(simulated_nodes(plane, *fleet))
        if types:
            stack.enter_context(Karpenter(plane, plane.folder, types))
        typer.echo(f"export KUBECONFIG={plane.admin}")
        typer.echo("logs are beside that file; Ctrl-C ends it all", err=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
        typer.echo("ending", err=True)


def main() -> None:
    """Run the command line; errors that gpuscale knows are one line, not a trace."""
    try:
        typer.run(serve)
    except GpuscaleError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
