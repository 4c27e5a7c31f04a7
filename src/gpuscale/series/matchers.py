"""Label matchers: the conditions between a selector's braces."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gpuscale.base.regex import compile_re2

_LITERAL = re.compile(r"""(?:[\w :/@,;=~%&!#<>'"-]|\\[-.+*?()\[\]{}^$])*""", re.ASCII)
"""What matches itself in RE2, and a character that it would take for an operator, escaped."""


class MatchOp(Enum):
    """How a matcher compares a label's value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on one label; an absent label counts as empty."""

    name: str
    op: MatchOp
    value: str

    def values(self) -> tuple[str, ...] | None:
        """Return the only values that can match; None if the condition does not list them.

        Autoscalers ask for pods by `pod=~"web-1|web-2"`: such an expression is a list of names.

        Source: prometheus model/labels/regexp.go (SetMatches), release 3.0.
        """
        if self.op is MatchOp.EQUAL:
            return (self.value,)
        parts = self.value.split("|")
        if self.op is MatchOp.REGEX and all(map(_LITERAL.fullmatch, parts)):
            return tuple(dict.fromkeys(part.replace("\\", "") for part in parts))
        return None

    def predicate(self) -> Callable[[str], bool]:
        """Return the test of a label's value.

        Raises:
            ValueError: not a regular expression of RE2.
        """
        value = self.value
        if self.op is MatchOp.EQUAL:
            return value.__eq__
        if self.op is MatchOp.NOT_EQUAL:
            return value.__ne__
        if (values := self.values()) is not None:
            return frozenset(values).__contains__
        fullmatch = compile_re2(value).fullmatch
        if self.op is MatchOp.REGEX:
            return lambda text: fullmatch(text) is not None
        return lambda text: fullmatch(text) is None

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{self.op.value}"{escaped}"'
