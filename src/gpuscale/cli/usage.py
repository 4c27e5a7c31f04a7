"""What is wrong with the words of a command line, in the same form as every other message.

typer's own texts stand in a box, and those about values are pydantic's.
"""

import re
from collections.abc import Sequence
from typing import Any

from gpuscale.base.words import closest

_EXPECTED = (
    (r"Input should be a valid integer.*", "a whole number"),
    (r"Input should be a valid number.*", "a number"),
    (r"Input should be a finite number.*", "a number"),
    (r"Input should be a valid boolean.*", "true or false"),
    (r"Input should be greater than or equal to (.*)", r"\1 or more"),
    (r"Input should be less than or equal to (.*)", r"\1 or less"),
    (r"(?:Value error, )?'.*' is not one of (.*)", r"one of: \1"),
)
"""Texts about values, and what was expected instead."""


_NEAR = {
    "dashboard": "gpuscale top shows a cluster, and the Grafana dashboards are part of gpuscale install",
    "status": "gpuscale top shows what a cluster does, gpuscale doctor what is wrong with it",
    "signals": "gpuscale init --signal list prints what workloads can be scaled on",
    "version": "gpuscale --version prints it",
    "help": "gpuscale --help lists the commands, gpuscale COMMAND --help explains one",
}
"""Words that other programs have as commands, and what is nearest to them here."""
_LIKE_ENOUGH = 0.8
"""How like the option given a suggestion has to be: `--name` is no misspelling of `--namespace`."""


def usage_text(error: Any, words: Sequence[str]) -> str:  # noqa: ANN401 - typer keeps the class to itself
    """Return what is wrong and where to read on; empty where there is nothing to say.

    Args:
        error: a usage error of typer's.
        words: of the command line.
    """
    text = error.format_message().rstrip(".")
    if not text:
        return ""
    path = error.ctx.command_path if error.ctx is not None else "gpuscale"
    return f"{_said(error, text, words)}\nsee {path} --help"


def _said(error: Any, text: str, words: Sequence[str]) -> str:  # noqa: ANN401 - as above
    if bad_value := re.fullmatch(r"Invalid value for (.*?): (.*)", text, re.DOTALL):
        names, reason = bad_value.groups()
        names = names.replace("'", "")
        for pattern, expected in _EXPECTED:
            if found := re.fullmatch(pattern, reason, re.DOTALL):
                value = _value(error, words)
                shown = f"found {value!r}, " if value is not None else ""
                return f"{names}: {shown}expected {found.expand(expected).replace(chr(39), '')}"
        return f"{names}: {reason}"
    if possible := re.fullmatch(r"No such option: (\S+) \(Possible options: (.*)\)", text):
        close = closest(possible[1], possible[2].split(", "), cutoff=_LIKE_ENOUGH)
        return f"No such option: {possible[1]}" + (f"; did you mean {close}?" if close else "")
    if unknown := re.fullmatch(r"No such command '(.*)'", text):
        if unknown[1] in _NEAR:
            return f"No such command: {unknown[1]}; {_NEAR[unknown[1]]}"
        known = error.ctx.command.list_commands(error.ctx) if error.ctx is not None else []
        close = closest(unknown[1], known, cutoff=0.5)
        listed = f"did you mean {close}?" if close else f"expected one of: {', '.join(known)}"
        return f"No such command: {unknown[1]}; {listed}"
    return text.replace("Missing argument", "missing argument").replace("'", "")


def _value(error: Any, words: Sequence[str]) -> str | None:  # noqa: ANN401 - as above
    """Return what was given for the option that an error is about; None where that is not certain."""
    names = getattr(error.param, "opts", ())
    given: list[str | None] = []
    for word, following in zip(words, [*words[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name in names and name.startswith("-"):
            given.append(value if equals else following)
    if not given or (len(given) > 1 and getattr(error.param, "multiple", False)):
        return None
    return given[-1]  # if an option is repeated, the last one counts
