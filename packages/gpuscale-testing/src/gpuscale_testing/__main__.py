"""A control plane with simulated GPU nodes to try things on: `python -m gpuscale_testing`."""

import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.simulated import SimulatedNode
from gpuscale_testing.background import simulated_nodes
from gpuscale_testing.flags import Settings
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
) -> None:
    """Run a Kubernetes control plane with simulated GPU nodes until Ctrl-C.

    Example: python -m gpuscale_testing --nodes 3 --gpus 4
    """
    typer.echo("starting the control plane, about 10 seconds", err=True)
    fleet = [SimulatedNode(f"gpu-{number}", gpus=gpus) for number in range(1, nodes + 1)]
    with (
        ControlPlane(Settings(hpa_sync_period_s=hpa_sync_period).sped_up(speed)) as plane,
        simulated_nodes(plane, *fleet),
    ):
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
