"""Flags of a table as parameters of a command, which typer makes options of."""

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gpuscale.cli.go_flags import GoFlag


def _parameter_name(flag: GoFlag) -> str:
    """Return the name of a flag's parameter."""
    return flag.name.replace("-", "_")


def parameter(
    flag: GoFlag,
    names: Sequence[str],
    group: str,
    metavar: str = "",
    note: str = "",
    kind: Any = str | None,  # noqa: ANN401 - a type, as typer reads it
    *,
    is_hidden: bool = False,
) -> inspect.Parameter:
    """Return the parameter that typer makes an option of.

    Args:
        flag: of the command's table.
        names: with their dashes.
        group: the panel of the help that it stands in.
        metavar: word for its value in the help, where its kind and name don't give it.
        note: follows what the help says of it.
        kind: what the command receives.
        is_hidden: whether only `--help-all` shows it.
    """
    option = typer.Option(
        *names,
        metavar=metavar or _word(flag),
        help=_help(flag) + note,
        rich_help_panel=group,
        show_default=False,
        hidden=is_hidden,
    )
    return inspect.Parameter(
        _parameter_name(flag),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )


_KINDS = {"bool": "BOOL", "duration": "DURATION", "list": "LIST", "int": "N"}
_ENDINGS = {"-url": "URL", "-file": "FILE", "-kubeconfig": "FILE", "-dir": "FOLDER"}


def _word(flag: GoFlag) -> str:
    """Return the word for a flag's value."""
    if flag.kind in _KINDS:
        return _KINDS[flag.kind]
    return next((word for end, word in _ENDINGS.items() if flag.name.endswith(end)), "TEXT")


def _help(flag: GoFlag) -> str:
    text = f"{flag.help} (Changes nothing here.)" if flag.no_effect else flag.help
    return f"{text} Default: {flag.default}." if flag.default else text
