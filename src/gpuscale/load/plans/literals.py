"""Parses literals of JavaScript: objects, lists, strings, numbers. Nothing is run.

What is no plain value (a variable, a call, a template with `${`) is read over and becomes `Unread`, with its
line, so that the rest can still be taken over.

Source: ECMAScript 2024, 12 (lexical grammar) and 13.2 (primary expressions).
"""

import re
from bisect import bisect_left
from dataclasses import dataclass

MAX_DEPTH = 60
MAX_VALUES = 100_000
_BLANK = re.compile(r"(?:\s+|//[^\n]*)*")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_TEXT = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|`(?:[^`\\]|\\.)*`", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b"}
_ENDS = (",", "}", "]", ")")
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_CONSTANTS = {"true": True, "false": False, "null": None, "undefined": None}


@dataclass(frozen=True, slots=True)
class Unread:
    """An expression that is no plain value."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """A value and its line."""

    value: "Value"
    line: int


Value = str | float | bool | None | Unread | dict[str, LiteralValue] | list[LiteralValue]


class LiteralError(ValueError):
    """The text ends inside a value, or is nested too deeply; the line is in `args[1]`."""


def read_literal(text: str, start: int) -> tuple[Value, int]:
    """Return the value that begins at an offset, and where it ends.

    Raises:
        LiteralError: it has no end, or is too large.
    """
    reader = _Reader(text, start)
    value = reader.value(0)
    return value, reader.at


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self._text, self.at = text, at
        self._values = 0
        self._breaks = [found.start() for found in re.finditer("\n", text)]

    def line(self) -> int:
        return bisect_left(self._breaks, self.at) + 1

    def value(self, depth: int) -> Value:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise LiteralError("found values nested too deeply, or too many", self.line())
        self._skip()
        start = self.at
        found = self._plain(depth)
        after = self.at
        self._skip()
        if not isinstance(found, Unread) and (not depth or self._peek() in _ENDS or self._is_end()):
            self.at = after
            return found
        self.at = start
        return self._unread()

    def _plain(self, depth: int) -> Value:
        sign = self._peek()
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._list(depth)
        if found := _TEXT.match(self._text, self.at):
            self.at = found.end()
            inner = found[0][1:-1]
            if found[0][0] == "`" and "${" in inner:
                return Unread(found[0], self.line())
            return _ESCAPE.sub(lambda each: _ESCAPES.get(each[1], each[1]), inner)
        if found := _NUMBER.match(self._text, self.at):
            self.at = found.end()
            return float(found[0].replace("_", ""))
        if (found := _WORD.match(self._text, self.at)) and found[0] in _CONSTANTS:
            self.at = found.end()
            return _CONSTANTS[found[0]]
        return Unread("", self.line())

    def _object(self, depth: int) -> Value:
        self.at += 1
        members: dict[str, LiteralValue] = {}
        while True:
            self._skip()
            sign, line = self._peek(), self.line()
            if sign == "}":
                self.at += 1
                return members
            if sign == ",":
                self.at += 1
                continue
            before = self.at
            key = self._key()
            self._skip()
            if key is None or self._peek() != ":":
                spread = self._unread()  # a spread, a method, or a shorthand property
                members[f"({spread.text[:40]})" if key is None else key] = LiteralValue(
                    spread, line
                )
                self._check_moved(before)
                continue
            self.at += 1
            members[key] = LiteralValue(self.value(depth + 1), line)

    def _key(self) -> str | None:
        found = _TEXT.match(self._text, self.at)
        if found is not None:
            self.at = found.end()
            return found[0][1:-1]
        found = _WORD.match(self._text, self.at) or _NUMBER.match(self._text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def _list(self, depth: int) -> Value:
        self.at += 1
        items: list[LiteralValue] = []
        while True:
            self._skip()
            sign, line = self._peek(), self.line()
            if sign == "]":
                self.at += 1
                return items
            if sign == ",":
                self.at += 1
                continue
            before = self.at
            items.append(LiteralValue(self.value(depth + 1), line))
            self._check_moved(before)

    def _unread(self) -> Unread:
        """Skip an expression: up to a comma, a semicolon or an unmatched bracket."""
        start, line = self.at, self.line()
        open_: list[str] = []
        while True:
            self._skip()
            sign = self._peek()
            if not open_ and (sign in _ENDS or self._is_end()):
                return Unread(self._text[start : self.at].strip(), line)
            if found := _TEXT.match(self._text, self.at):
                self.at = found.end()
                continue
            if sign in _CLOSING:
                open_.append(_CLOSING[sign])
            elif open_ and sign == open_[-1]:
                open_.pop()
            if self._is_end() or len(open_) > MAX_DEPTH:
                raise LiteralError("found a value without an end", line)
            self.at += 1

    def _skip(self) -> None:
        """Skip whitespace and comments."""
        while True:
            found = _BLANK.match(self._text, self.at)
            if found is not None:
                self.at = found.end()
            if not self._text.startswith("/*", self.at):
                return
            end = self._text.find("*/", self.at + 2)
            if end < 0:
                raise LiteralError("found a comment without an end", self.line())
            self.at = end + 2

    def _check_moved(self, before: int) -> None:
        if self.at == before:
            raise LiteralError("found a value without an end", self.line())

    def _peek(self) -> str:
        return self._text[self.at : self.at + 1]

    def _is_end(self) -> bool:
        return self.at >= len(self._text) or self._peek() == ";"
