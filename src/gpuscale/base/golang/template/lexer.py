"""Template text to pieces: plain text, and the tokens between delimiters such as `<<` and `>>`.

Source: Go's text/template/parse (lex.go).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from gpuscale.base.golang.template.functions import Dialect
from gpuscale.base.golang.template.values import TemplateError

MAX_TEMPLATE = 64 * 1024
"""Characters; far above any real query."""
_SPACE = " \t\r\n"
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<raw>`[^`]*`)
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.]))
    |(?P<field>\.[^\W\d]\w*)
    |(?P<variable>\$\w*)
    |(?P<word>[^\W\d]\w*)
    |(?P<declare>:=)
    |(?P<symbol>[.|(),=])""",
    re.VERBOSE,
)


class TokenKind(Enum):
    """What a token is."""

    SPACE = auto()
    STRING = auto()
    RAW = auto()
    NUMBER = auto()
    FIELD = auto()
    VARIABLE = auto()
    WORD = auto()
    DECLARE = auto()
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class TemplateToken:
    """One word of an action."""

    kind: TokenKind
    text: str


Piece = str | tuple[TemplateToken, ...]
"""Plain text, or the tokens of one action."""


def pieces(text: str, dialect: Dialect) -> Iterator[Piece]:
    """Return a template's pieces in order, without comments and trimmed whitespace.

    Raises:
        TemplateError: an action or comment is not closed, or holds a character of no token.
    """
    if len(text) > MAX_TEMPLATE:
        raise TemplateError(f"found {len(text)} characters, expected at most {MAX_TEMPLATE}")
    position = 0
    trims = False
    while (start := text.find(dialect.left, position)) >= 0:
        before = text[position:start]
        start += len(dialect.left)
        trims_before = text[start : start + 1] == "-" and text[start + 1 : start + 2] in tuple(
            _SPACE
        )
        yield _trimmed(before, left=trims, right=trims_before)
        tokens, position, trims = _action(text, start + 1 if trims_before else start, dialect)
        if tokens is not None:
            yield tokens
    yield _trimmed(text[position:], left=trims, right=False)


def _trimmed(text: str, *, left: bool, right: bool) -> str:
    if left:
        text = text.lstrip(_SPACE)
    return text.rstrip(_SPACE) if right else text


def _action(
    text: str, start: int, dialect: Dialect
) -> tuple[tuple[TemplateToken, ...] | None, int, bool]:
    """Return the tokens (None for a comment), the action's end, and whether it trims what follows."""
    after_space = re.compile(r"[ \t\r\n]*").match(text, start)
    inner = after_space.end() if after_space and text[start - 1] == "-" else start
    if text.startswith("/*", inner):
        return _comment(text, inner, dialect)
    tokens: list[TemplateToken] = []
    position = start
    while position < len(text):
        if text.startswith(dialect.right, position):
            return tuple(tokens), position + len(dialect.right), False
        if text.startswith("-" + dialect.right, position) and text[position - 1] in _SPACE:
            return tuple(tokens), position + 1 + len(dialect.right), True
        match = _TOKEN.match(text, position)
        if match is None:
            raise TemplateError(f"unexpected {text[position]!r} in an action")
        tokens.append(TemplateToken(TokenKind[str(match.lastgroup).upper()], match[0]))
        position = match.end()
    raise TemplateError(f"unclosed action: found no {dialect.right} for a {dialect.left}")


def _comment(text: str, start: int, dialect: Dialect) -> tuple[None, int, bool]:
    match = _COMMENT.match(text, start)
    if match is None:
        raise TemplateError("unclosed comment: found no */ for a /*")
    rest = dialect.comment_end.match(text, match.end())
    if rest is None:
        raise TemplateError("comment ends before closing delimiter: expected >> right after */")
    return None, rest.end(), rest["trim"] is not None
