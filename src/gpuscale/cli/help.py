"""How `--help` looks: types as words, and of long lists of flags first those that matter."""

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

HELP_ALL = "--help-all"
_SINGLE_NEWLINE = re.compile(r"(?<!\n)\n(?!\n)")
_WORDS = {
    "<bool>": "",
    "<str>": "TEXT",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "NUMBER",
    "<float range>": "NUMBER",
    "<path>": "FILE",
}
"""What typer shows for a type, and what users see. A flag that takes no value needs no word."""


def use_words(command: Any, ctx: Any) -> None:  # noqa: ANN401 - typer keeps its classes to itself
    """Give each parameter of a command a word for the type of its value, and let paragraphs flow."""
    command.help = _SINGLE_NEWLINE.sub(" ", command.help or "")
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: ""  # the help shows its name anyway
        if param.metavar is not None:
            continue
        if param.param_type_name == "argument":
            param.metavar = param.name.upper()
        else:
            shown = param.display_type(ctx) or ""
            param.metavar = _WORDS.get(shown, shown.strip("<>"))


class Command(TyperCommand):
    """A command whose help has words for types."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        use_words(self, ctx)
        super().format_help(ctx, formatter)

    def get_help_option(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Return the help flag, which is false unless it is given."""
        return _off(super().get_help_option(ctx))


class CommandGroup(TyperGroup):
    """Commands under one name, with words for types."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        use_words(self, ctx)
        super().format_help(ctx, formatter)

    def get_help_option(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Return the help flag, which is false unless it is given."""
        return _off(super().get_help_option(ctx))


def _off(option: Any) -> Any:  # noqa: ANN401 - as above
    """Return a flag with a value, for which typer would load pydantic to make one."""
    if option is not None:
        option.default = False
    return option


def wants_all(command: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as above
    """Return the arguments with `--help` for `--help-all`, before which every flag is shown again."""
    if HELP_ALL not in args:
        return args
    for param in command.params:
        param.hidden = False
    return ["--help" if arg == HELP_ALL else arg for arg in args]
