"""`gpuscale exporter`: the node agent.

The flags come from one table, so this command has no parameters of its own: its signature is made from
the table, which is what typer reads.
"""

import inspect
from typing import Any

from gpuscale.agent.exporter import COMMON, GROUPS
from gpuscale.cli.help import Command, wants_all
from gpuscale.cli.options.go_flags import texts_of_server
from gpuscale.cli.options.parameters import parameters
from gpuscale.cli.servers import agent


class ExporterCommand(Command):
    """Takes arguments as Go's programs do: `-collectors FILE`, `--kubernetes`, `--kubernetes=false`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its class to itself
        """Return what is left of the arguments once they are read."""
        return super().parse_args(ctx, wants_all(self, agent.plain_arguments(args)))


def exporter(**given: str | None) -> None:
    """Serve this node's GPUs to Prometheus: a drop-in for dcgm-exporter, with pods and a stream.

    --help-all shows every flag, all of dcgm-exporter's included. Each has an environment variable.

    Example:  gpuscale exporter --gpu "simulated:NVIDIA H200:8" --collect-interval 1s

    Example:  gpuscale exporter --kubernetes --collectors counters.csv
    """
    agent.run(texts_of_server(given, None))


exporter.__signature__ = inspect.Signature(parameters(GROUPS, COMMON))  # type: ignore[attr-defined]
COMMAND_CLASS = ExporterCommand
"""What the registry makes the command with."""
