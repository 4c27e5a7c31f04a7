"""Questions on a terminal: each with its choices, asked again until the answer can be taken."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gpuscale.base.errors import UsageError
from gpuscale.base.words import closest

T = TypeVar("T")


class NoAnswerError(Exception):
    """The input ended where an answer was due."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the user."""

    prompt: str
    default: str | None = None
    """What an empty line means; None where it means nothing."""
    explanation: Sequence[str] = ()
    """Lines above the prompt."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Each possible answer, and what it is; any text will do where there are none."""


def ask(question: Question, read: Callable[[str], T]) -> T:
    """Ask until an answer is valid, and return it.

    Args:
        question: to print on standard error, which is where people look while output goes to a file.
        read: makes something of the answer; what it raises is why the question is asked again.

    Raises:
        NoAnswerError: the input ended.
        KeyboardInterrupt: Ctrl-C.
    """
    for line in _above(question):
        _print(line)
    default = "" if question.default is None else f" [{question.default}]"
    while True:
        _print(f"{question.prompt}{default}: ", end="")
        text = _line() or question.default
        if not text:
            continue
        try:
            return read(_chosen(text, question.choices))
        except (UsageError, ValueError) as error:
            for line in str(error).splitlines():
                _print(f"  {line}")


def _above(question: Question) -> list[str]:
    width = max(map(len, question.choices), default=0)
    choices = [f"  {name:{width}}  {what}" for name, what in question.choices.items()]
    return ["", *question.explanation, *choices]


def _line() -> str:
    """Return a line that was typed, without the blanks around it."""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return "\N{REPLACEMENT CHARACTER}"
    if not line:
        raise NoAnswerError
    return line.strip()


def _chosen(text: str, choices: Mapping[str, str]) -> str:
    if not choices:
        return text
    return one_of(text, tuple(choices))


def one_of(text: str, known: Sequence[str]) -> str:
    """Check that a text is one of some choices.

    Raises:
        ValueError: it is not; with the one that may be meant.
    """
    if text in known:
        return text
    raise unknown(text, known)


def unknown(text: str, known: Sequence[str]) -> ValueError:
    """Return the error for an unknown text, with a suggestion."""
    near = closest(text, known, cutoff=0.6)
    hint = f"; did you mean {near}?" if near else ""
    return ValueError(f"found {text!r}, expected one of: {', '.join(known)}{hint}")


def _print(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
