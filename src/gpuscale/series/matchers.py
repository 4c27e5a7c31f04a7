"""Label matchers: the conditions between a selector's braces."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gpuscale.core.regex import compile_re2


class MatchOp(Enum):
    """How a matcher compares a label's value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label; a label that is not there counts as empty."""

    name: str
    op: MatchOp
    value: str

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
        fullmatch = compile_re2(value).fullmatch
        if self.op is MatchOp.REGEX:
            return lambda text: fullmatch(text) is not None
        return lambda text: fullmatch(text) is None

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{self.op.value}"{escaped}"'
