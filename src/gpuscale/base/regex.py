"""Regular expressions as Go reads them (RE2): what Prometheus and rule files are written in."""

from collections.abc import Callable
from typing import Protocol

import re2

from gpuscale.base.byte_cache import remembered

_PATTERN_BYTES = 60 * 1024
"""Most that a compiled expression takes, with what it keeps of its searches, all in RE2's own memory."""
_LARGE_PATTERN_BYTES = 8 * 1024 * 1024
"""The same of one whose program alone is larger, which is not remembered; RE2's own default."""


class Match(Protocol):
    """A match of a regular expression."""

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


def _options(most_bytes: int) -> re2.Options:
    options = re2.Options()
    options.max_mem = most_bytes
    options.log_errors = False
    options.dot_nl = False
    return options


def compile_re2(expression: str) -> Pattern:
    """Return the compiled expression.

    Raises:
        ValueError: not RE2, such as look-around or a back-reference; the message says what.
    """
    found = _small(expression)
    return found if found is not None else _compiled(expression, _LARGE_PATTERN_BYTES)


@remembered("expressions", 8 * 1024 * 1024, lambda _: _PATTERN_BYTES)
def _small(expression: str) -> Pattern | None:
    try:
        return _compiled(expression, _PATTERN_BYTES)
    except ValueError as error:
        if "too large" in str(error):
            return None
        raise


def _compiled(expression: str, most_bytes: int) -> Pattern:
    try:
        return re2.compile(expression, _options(most_bytes))  # type: ignore[no-any-return]
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a regular expression of RE2: {text}") from None


def escape(text: str) -> str:
    """Return an expression that matches exactly `text`."""
    return str(re2.escape(text))
