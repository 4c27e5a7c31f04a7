"""Regular expressions as Go reads them (RE2): what Prometheus and rule files are written in."""

from collections.abc import Callable
from typing import Protocol

import re2

from gpuscale.core.byte_cache import remembered

_PATTERN_BYTES = 16 * 1024
"""Of a compiled expression with what it keeps for its next search, in RE2's own memory; a guess."""


class Match(Protocol):
    """What a match gives back."""

    def group(self, index: int | str = 0) -> str | None:
        """Return the text of a group, or None where it took no part."""
        ...


class Pattern(Protocol):
    """A compiled RE2 expression."""

    pattern: str
    """The expression itself."""
    groups: int
    groupindex: dict[str, int]

    def search(self, text: str) -> Match | None:
        """Return the first match anywhere in `text`."""
        ...

    def fullmatch(self, text: str) -> Match | None:
        """Return a match of the whole `text`."""
        ...

    def sub(self, replacement: Callable[[Match], str], text: str) -> str:
        """Return `text` with every match replaced."""
        ...


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = False
    return options


@remembered("expressions", 8 * 1024 * 1024, lambda _: _PATTERN_BYTES)
def compile_re2(expression: str) -> Pattern:
    """Return the compiled expression.

    Raises:
        ValueError: not RE2, such as look-around or a back-reference; the message says what.
    """
    try:
        return re2.compile(expression, _options())  # type: ignore[no-any-return]
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a regular expression of RE2: {text}") from None


def escape(text: str) -> str:
    """Return an expression that matches exactly `text`."""
    return str(re2.escape(text))
