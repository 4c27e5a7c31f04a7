"""What the commands that stand in for Go programs share: flags from a table, signals and a log."""

import asyncio
import inspect
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

import typer


class GoFlag(Protocol):
    """What each command's table says of a flag."""

    @property
    def name(self) -> str:
        """Without the dashes."""

    @property
    def kind(self) -> str:
        """`bool` for those that may stand alone."""

    @property
    def help(self) -> str:
        """What it does."""

    @property
    def default(self) -> str:
        """Empty for none."""

    @property
    def no_effect(self) -> str:
        """Why the flag changes nothing here; empty for those that do."""


def plain_arguments(args: Sequence[str], find: Callable[[str], GoFlag | None]) -> list[str]:
    """Return Go-style arguments as click reads them: long names, and a value for each flag.

    Args:
        args: as they were typed.
        find: returns the flag that a name with its dashes stands for; None for what is no flag.
    """
    return [part for arg in args for part in _plain_argument(arg, find)]


def _plain_argument(arg: str, find: Callable[[str], GoFlag | None]) -> list[str]:
    name, equals, value = arg.partition("=")
    flag = find(name)
    if flag is None:
        return [arg]
    if equals:
        return [f"--{flag.name}", value]
    return [f"--{flag.name}", "true"] if flag.kind == "bool" else [f"--{flag.name}"]


def parameter_name(flag: GoFlag) -> str:
    """Return the name of a flag's parameter."""
    return flag.name.replace("-", "_")


def parameter(
    flag: GoFlag,
    names: Sequence[str],
    group: str,
    metavar: str,
    note: str = "",
    kind: Any = str | None,  # noqa: ANN401 - a type, as typer reads it
) -> inspect.Parameter:
    """Return the parameter that typer makes an option of.

    Args:
        flag: of the command's table.
        names: with their dashes.
        group: the panel of the help that it stands in.
        metavar: what stands for its value in the help.
        note: follows what the help says of it.
        kind: what the command receives.
    """
    option = typer.Option(
        *names, metavar=metavar, help=_help(flag) + note, rich_help_panel=group, show_default=False
    )
    return inspect.Parameter(
        parameter_name(flag),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )


def _help(flag: GoFlag) -> str:
    text = f"{flag.help} (Changes nothing here.)" if flag.no_effect else flag.help
    return f"{text} Default: {flag.default}." if flag.default else text


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; call it in the event loop that they are to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


PLAIN_LOG = logging.Formatter("%(asctime)s %(levelname)s %(message)s")


def set_up_log(level: int, formatter: logging.Formatter = PLAIN_LOG) -> None:
    """Write gpuscale's log from a level on, and the warnings of libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("gpuscale").setLevel(level)
