"""All commands of `gpuscale`, grouped by what one wants.

A command's module is imported when it is run or its help is shown, so each starts as if it were alone.
Wheels that hold a part of gpuscale have the commands of that part.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from gpuscale import __version__
from gpuscale.base.errors import UsageError
from gpuscale.cli.help import Command, CommandGroup

_TRY = "Try it, without a GPU or a cluster"
_LOOK = "Look: what is wrong, and why"
_CLUSTER = "Put it on a cluster"
_SERVE = "Serve: what runs in the cluster"
_OTHER = "Other"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A command: its place in the help, and its module."""

    panel: str
    name: str
    module: str
    """Below `gpuscale.cli`."""
    attribute: str
    summary: str

    @property
    def path(self) -> str:
        return f"gpuscale.cli.{self.module}"

    def is_installed(self) -> bool:
        try:
            return find_spec(self.path) is not None
        except ModuleNotFoundError:  # its package is not installed at all
            return False

    def line(self) -> TyperCommand:
        """Return what the list of commands shows."""
        return TyperCommand(self.name, short_help=self.summary, rich_help_panel=self.panel)

    def command(self) -> Any:  # noqa: ANN401 - typer keeps the class of commands to itself
        """Import the command, and return it."""
        module = import_module(self.path)
        found = getattr(module, self.attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(self.name, cls=getattr(module, "COMMAND_CLASS", Command))(found)
            found = alone
        command = get_command(found)
        command.name = self.name
        command.short_help = self.summary
        command.rich_help_panel = self.panel  # type: ignore[attr-defined]  # typer's commands have one
        return command


# fmt: off
_ENTRIES: Mapping[str, _Entry] = {each.name: each for each in (
    _Entry(_TRY, "up", "commands.up", "up", "Run the whole loop live, with simulated GPUs."),
    _Entry(_TRY, "simulate", "commands.simulate", "simulate",
           "Run a scenario in virtual time: hours in seconds."),
    _Entry(_TRY, "rehearse", "commands.rehearse", "rehearse",
           "Run a scenario on a real cluster, GPU nodes simulated."),
    _Entry(_TRY, "calibrate", "commands.calibrate", "calibrate",
           "Find what one replica can take, and its threshold."),
    _Entry(_TRY, "tune", "commands.tuning.tune", "tune",
           "Find an HPA's settings that cost least and keep enough pods."),
    _Entry(_LOOK, "lint", "commands.lint", "lint",
           "Check rules, HPAs, values and scenarios before they run."),
    _Entry(_LOOK, "top", "commands.top", "top",
           "Show what GPUs, nodes, workloads and Jobs do now."),
    _Entry(_LOOK, "dashboard", "commands.dashboard", "dashboard",
           "Serve a page of what a cluster does now, and did in the last hours."),
    _Entry(_LOOK, "report", "commands.report", "report",
           "Tell what happened, such as last night."),
    _Entry(_LOOK, "money", "commands.money", "money",
           "Show what GPUs cost, for whom, and what of it is idle."),
    _Entry(_LOOK, "history", "commands.history", "app",
           "Show what GPUs did, from a history that is kept for months."),
    _Entry(_LOOK, "decide", "commands.decide", "decide", "Explain what an HPA would do now, and why."),
    _Entry(_LOOK, "shadow", "commands.shadow", "shadow",
           "Run another HPA beside a real one, and see what it would do."),
    _Entry(_LOOK, "doctor", "commands.doctor", "doctor",
           "Find what is wrong on a live cluster, each with its fix."),
    _Entry(_LOOK, "conform", "commands.conform", "conform",
           "Show that pods scale on what their GPUs do, as AI Conformance asks for."),
    _Entry(_CLUSTER, "init", "commands.init", "init", "Write a values file, from questions or flags."),
    _Entry(_CLUSTER, "render", "commands.render", "render",
           "Write the Kubernetes objects and node pool of a values file."),
    _Entry(_CLUSTER, "install", "commands.install", "install",
           "Apply a values file, and wait until it works."),
    _Entry(_CLUSTER, "uninstall", "commands.install", "uninstall",
           "Remove an installation, and what it changed."),
    _Entry(_LOOK, "bundle", "commands.bundle", "bundle",
           "Write a support archive of a cluster, without its secrets."),
    _Entry(_LOOK, "mcp", "commands.mcp", "mcp",
           "Serve the commands that look to an assistant, as tools (MCP)."),
    _Entry(_SERVE, "exporter", "servers.exporter", "exporter",
           "Serve this node's GPUs, in place of dcgm-exporter."),
    _Entry(_OTHER, "schema", "commands.schema", "schema",
           "Print the JSON schema of a file that users write."),
    _Entry(_OTHER, "completion", "commands.completion", "completion",
           "Print the completion script of a shell."),
    _Entry(_TRY, "load", "commands.load", "app",
           "Put bounded load on a service, GPUs or a cluster, and see what comes of it."),
    _Entry(_SERVE, "metrics-api", "servers.metrics_api", "app",
           "Serve metrics to HPAs, in place of prometheus-adapter; 'why' explains one."),
    _Entry(_SERVE, "scaler", "servers.scaler", "app",
           "Serve GPU metrics and wake sources to KEDA; 'ask' shows what KEDA gets."),
)}
# fmt: on


class Commands(CommandGroup):
    """The commands that are installed; each is imported when it is wanted."""

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer keeps its classes to itself
        """Return the names, in the order of the help."""
        return [name for name, entry in _ENTRIES.items() if entry.is_installed()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        """Return a command, or None where there is none of the name.

        Raises:
            UsageError: it is not in the wheel that is installed.
        """
        entry = _ENTRIES.get(cmd_name)
        if entry is None:
            return None
        if not entry.is_installed():
            raise UsageError(
                f"{cmd_name} is not in this part of gpuscale; for all of it: pip install gpuscale"
            )
        return entry.line() if self._is_listing else entry.command()

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the help, for which no command has to be imported."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


app = typer.Typer(
    name="gpuscale",
    cls=Commands,
    help="Scale GPU workloads on Kubernetes by what their GPUs really do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(*, wanted: bool) -> None:
    if wanted:
        print(f"gpuscale {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Exit code 0: done; 1: the answer is no, or a part failed; 2: wrong input; 70: a bug. "
    "--debug, anywhere, shows the trace of an error.",
)
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda value: _version(wanted=value), help="Print the version."
        ),
    ] = False,
) -> None:
    """Scale GPU workloads on Kubernetes by what their GPUs really do.

    Example:  gpuscale up
    """
