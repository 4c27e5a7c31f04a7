"""`gpuscale exporter`: the node agent.

The flags come from one table, so this command has no parameters of its own: its signature is made from
the table, which is what typer reads.
"""

import inspect
from typing import Any

from typer.core import TyperCommand

from gpuscale.cli import agent
from gpuscale.cli.parameters import parameter
from gpuscale.exporter.flags import GROUPS, Flag


class ExporterCommand(TyperCommand):
    """Takes arguments as Go's programs do: `-collectors FILE`, `--kubernetes`, `--kubernetes=false`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its class to itself
        """Return what is left of the arguments once they are read."""
        return super().parse_args(ctx, agent.plain_arguments(args))


def exporter(**given: str | None) -> None:
    """Serve this node's GPUs to Prometheus: a drop-in for dcgm-exporter, with pods and a stream.

    Example:  gpuscale exporter --gpu "simulated:NVIDIA H200:8" --collect-interval 1s
    """
    agent.run({name.replace("_", "-"): text for name, text in given.items() if text is not None})


_METAVARS = {"bool": "[true|false]", "duration": "DURATION", "list": "A,B,…"}


def _parameter(flag: Flag, group: str) -> inspect.Parameter:
    names = [f"--{flag.name}"]
    if flag.alias:
        names.append(f"-{flag.alias}" if len(flag.alias) == 1 else f"--{flag.alias}")
    metavar = _METAVARS.get(flag.kind, "|".join(flag.choices) or "TEXT")
    return parameter(flag, names, group, metavar, note=f" Variable: {flag.env}.")


exporter.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_parameter(flag, group) for group, flags in GROUPS.items() for flag in flags]
)
