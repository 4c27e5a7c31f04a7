"""Flags of a table as parameters of a command, which typer makes options of."""

import inspect
from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any

import typer

from gpuscale.core.flags import Flag


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
    names = [f"--{flag.name}"]
    if flag.alias:
        names.append(f"-{flag.alias}" if len(flag.alias) == 1 else f"--{flag.alias}")
    option = typer.Option(
        *names,
        metavar="|".join(flag.choices) or _word(flag),
        help=_help(flag),
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


_KINDS = {"bool": "BOOL", "duration": "DURATION", "list": "LIST", "int": "N"}
_ENDINGS = {"-url": "URL", "-file": "FILE", "-kubeconfig": "FILE", "-dir": "FOLDER"}


def _word(flag: Flag) -> str:
    """Return the word for a flag's value."""
    if flag.kind in _KINDS:
        return _KINDS[flag.kind]
    return next((word for end, word in _ENDINGS.items() if flag.name.endswith(end)), "TEXT")


def _help(flag: Flag) -> str:
    text = f"{flag.help} (Changes nothing here.)" if flag.no_effect else flag.help
    text = f"{text} Default: {flag.default}." if flag.default else text
    return f"{text} Variable: {flag.env}." if flag.env else text
