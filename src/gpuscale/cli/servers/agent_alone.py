"""The command line where only what the node agent needs is installed: no typer, no other commands."""

import textwrap
from collections.abc import Iterator, Sequence

from gpuscale import __version__
from gpuscale.agent.exporter import FLAGS, GROUPS
from gpuscale.base.errors import UsageError
from gpuscale.cli.options.flag_help import flag_names, help_text, value_word
from gpuscale.cli.servers.agent import plain_arguments

_HELP = ("--help", "-h", "--help-all")
_WIDTH = 80
_ELSEWHERE = (
    "only the node agent is installed here, gpuscale exporter; for the rest: pip install gpuscale"
)


def run(words: Sequence[str]) -> None:
    """Handle arguments other than a plain run: help, version, mistakes.

    Raises:
        UsageError: another command, or a wrong argument of the agent.
    """
    if words[:1] == ["--version"]:
        print(f"gpuscale {__version__}")
    elif not words or words[0] in _HELP:
        print(f"Usage: gpuscale exporter [FLAGS]\n\n{_ELSEWHERE}")
    elif words[0] != "exporter":
        raise UsageError(f"found {words[0]!r}, but {_ELSEWHERE}")
    elif any(word in _HELP for word in words):
        print("\n".join(_agent_help()))
    else:
        raise UsageError(_mistake(words[1:]))


def _agent_help() -> Iterator[str]:
    yield "Usage: gpuscale exporter [FLAGS]"
    yield ""
    yield "Serve this node's GPUs to Prometheus: a drop-in for dcgm-exporter, with pods and a stream."
    for group, flags in GROUPS.items():
        yield ""
        yield f"{group}:"
        for flag in flags:
            yield f"  {', '.join(flag_names(flag))} {value_word(flag)}"
            yield textwrap.fill(
                help_text(flag), _WIDTH, initial_indent="      ", subsequent_indent="      "
            )


def _mistake(args: Sequence[str]) -> str:
    """Return the error for invalid arguments."""
    words = iter(plain_arguments(args))
    for word in words:
        if word.removeprefix("--") not in FLAGS:
            return f"found {word!r}, expected a flag; gpuscale exporter --help shows them"
        if next(words, None) is None:
            return f"{word}: found no value, expected {value_word(FLAGS[word[2:]])}"
    return _ELSEWHERE
