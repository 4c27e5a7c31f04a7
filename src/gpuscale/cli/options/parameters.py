"""Flags of a table as parameters of a command, which typer makes options of."""

import inspect
from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any

import typer

from gpuscale.base.flags import Flag
from gpuscale.cli.options.flag_help import flag_names, help_text, value_word


def parameters(
    groups: Mapping[str, Sequence[Flag]], common: Container[str]
) -> list[inspect.Parameter]:
    """Return the parameters that typer makes options of.

    Args:
        groups: the flags of each panel of the help.
        common: names of those that `--help` shows; the others only `--help-all`.
    """
    return [
        parameter(flag, group, is_hidden=flag.name not in common)
        for group, flags in groups.items()
        for flag in flags
    ]


def parameter(flag: Flag, group: str, *, is_hidden: bool = False) -> inspect.Parameter:
    """Return the parameter that typer makes an option of.

    Args:
        flag: of the command's table.
        group: the panel of the help that it stands in.
        is_hidden: whether only `--help-all` shows it.
    """
    option = typer.Option(
        *flag_names(flag),
        metavar=value_word(flag),
        help=help_text(flag),
        rich_help_panel=group,
        show_default=False,
        hidden=is_hidden,
    )
    kind: Any = list[str] | None if flag.repeats else str | None
    return inspect.Parameter(
        flag.name.replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )
