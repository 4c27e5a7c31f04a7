"""One line of the Prometheus text format 0.0.4 to its parts.

Both readers, of whole families and of scrapes, take lines apart here.

Source: prometheus model/textparse (promlex.l, promparse.go). Like a scrape, and unlike expfmt, an unknown
escape in a label value stands for itself and the last line needs no newline.
"""

import math
import re
from dataclasses import dataclass

_BLANK = " \t"
_NAME = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_LABEL = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(?:(,)|(?=\}))',
    re.DOTALL,
)
_CLOSE = re.compile(r"[ \t]*\}[ \t]*")
_META = re.compile(
    r"[ \t]*#[ \t]+(HELP|TYPE)[ \t]+([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]+(.*)|[ \t]*)", re.DOTALL
)
_ESCAPE = re.compile(r'\\([\\"n])')
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_SHOWN = 60


class LineError(ValueError):
    """A line is not of the text format; the parts go into a Problem."""

    def __init__(self, found: str, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(f"found {found}, expected {expected}")


@dataclass(frozen=True, slots=True)
class SampleLine:
    """A line that carries a value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """In the line's order."""
    value: int | float
    timestamp_ms: int | None
    head: str
    """The line up to its value, as written: the same text names the same series."""


@dataclass(frozen=True, slots=True)
class MetaLine:
    """A HELP or TYPE line."""

    keyword: str
    name: str
    text: str


def parse_line(line: str) -> SampleLine | MetaLine | None:
    """Return what a line holds; None for an empty line or a plain comment.

    Raises:
        LineError: the line is not of the format.
    """
    stripped = line.lstrip(_BLANK)
    if not stripped:
        return None
    if stripped[0] == "#":
        return _meta_line(stripped)
    return _sample_line(line)


def parse_value(text: str) -> int | float:
    """Return the number that a value's text stands for; a whole number stays whole.

    Raises:
        LineError: not a number as Go reads it.
    """
    if _INTEGER.fullmatch(text):
        # Only a float has a zero below zero.
        return int(text) or (-0.0 if text[0] == "-" else 0)
    if is_plain(text):
        try:
            number = float(text)
        except ValueError:
            number = None
        if number is not None and (math.isfinite(number) or text.lstrip("+-").isalpha()):
            return number
    raise LineError(shown(text), "a number as the value")


def is_plain(text: str) -> bool:
    """Return whether Python's `float` reads this text, or texts joined, no laxer than Go does."""
    return text.isascii() and "_" not in text and text.split() == [text]


def shown(text: str) -> str:
    """Return a text quoted and cut to what fits a message."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _meta_line(line: str) -> MetaLine | None:
    match = _META.fullmatch(line)
    if match is None:
        return None
    keyword, name, text = match.groups()
    return MetaLine(keyword, name, _unescape(text or ""))


def _sample_line(line: str) -> SampleLine:
    match = _NAME.match(line)
    if match is None:
        raise LineError(shown(line), "a metric name, such as gpu_utilization_ratio")
    end = match.end()
    labels: tuple[tuple[str, str], ...] = ()
    if line[end : end + 1] == "{":
        labels, end = _labels(line, end + 1)
    elif line[end - 1] not in _BLANK:
        raise LineError(shown(line), "a metric name, then labels in braces or a space and a value")
    value, timestamp_ms = _value_and_time(line[end:])
    return SampleLine(match[1], labels, value, timestamp_ms, line[:end].rstrip(_BLANK))


def _labels(line: str, start: int) -> tuple[tuple[tuple[str, str], ...], int]:
    labels: list[tuple[str, str]] = []
    position, may_go_on = start, True
    while may_go_on and (match := _LABEL.match(line, position)):
        labels.append((match[1], _unescape(match[2])))
        position, may_go_on = match.end(), match[3] is not None
    closing = _CLOSE.match(line, position)
    if closing is None:
        raise LineError(shown(line[position:]), 'labels such as {gpu="0",pod="a"}')
    _check_each_once(labels)
    return tuple(labels), closing.end()


def _check_each_once(labels: list[tuple[str, str]]) -> None:
    names = [name for name, _ in labels]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LineError(f"label {twice!r} twice", "each label once")


def _value_and_time(text: str) -> tuple[int | float, int | None]:
    parts = text.strip(_BLANK).replace("\t", " ").split(" ")
    words = [part for part in parts if part]
    if not words:
        raise LineError("no value", "a number after the series")
    if len(words) > 2:
        raise LineError(shown(text.strip(_BLANK)), "a value and at most a timestamp")
    return parse_value(words[0]), _timestamp(words[1]) if len(words) == 2 else None


def _timestamp(text: str) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) >= 1 << 63:
        raise LineError(shown(text), "a timestamp in whole milliseconds")
    return int(text)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
