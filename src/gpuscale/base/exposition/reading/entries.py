"""Entries of an exposition, and what the formats share: label pairs, numbers, escapes.

Source: prometheus model/textparse (promparse.go, openmetricsparse.go).
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpuscale.base.errors import ConfigError, Problem, UpstreamError

QUOTED = r'"(?:[^\\"]++|\\[^\n])*+"'
"""A quoted text that may hold line breaks; nothing but one may not be escaped."""
QUOTED_NAME = r'"(?:[^\\"\0]++|\\[^\n\0])*+"'
QUOTED_IN_LINE = r'"(?:[^\\"\n]++|\\[^\n])*+"'
METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*+"

_ESCAPE = re.compile(r'\\([\\"n])')
_HELP_ESCAPE = re.compile(r"\\([\\n])")
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_SHOWN = 60


class LineError(ValueError):
    """An entry is malformed; the exception's arguments become a Problem.

    Args:
        found: what the text has.
        expected: what the format wants there.
        is_native_histogram: whether the entry is one that only a store of native histograms could take.
    """

    def __init__(self, found: str, expected: str, *, is_native_histogram: bool = False) -> None:
        self.found = found
        self.expected = expected
        self.is_native_histogram = is_native_histogram
        super().__init__(f"found {found}, expected {expected}")


@dataclass(frozen=True, slots=True)
class SampleLine:
    """An entry that carries a value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """In the text's order."""
    value: int | float
    timestamp_ms: int | None
    series_text: str
    """What stands before the value, less blanks: the same text names the same series."""
    value_text: str


@dataclass(frozen=True, slots=True)
class MetaLine:
    """A HELP, TYPE or UNIT line."""

    keyword: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class EndOfText:
    """The line that ends a text in OpenMetrics."""


Entry = SampleLine | MetaLine | EndOfText | None
"""None is an empty line or a comment."""


def sample_line(
    quoted_name: str,
    pairs: Iterable[tuple[str, str]],
    series_text: str,
    value_text: str,
    timestamp_ms: int | None,
) -> SampleLine:
    """Return a sample from its parts as written, checked.

    Args:
        quoted_name: the metric's name, in quotes or bare.
        pairs: names of labels, in quotes or bare, and values in quotes.
        series_text: what stands before the value.
        value_text: the value.
        timestamp_ms: the sample's own time, where it has one.

    Raises:
        LineError: not UTF-8, no name, a label twice, or no number.
    """
    if not is_utf8(series_text):
        raise LineError(shown(series_text), "names and label values in UTF-8")
    name = unquoted(quoted_name)
    if not name:
        raise LineError("an empty metric name", "a metric name, such as gpu_utilization_ratio")
    labels = tuple((unquoted(label), unescaped(value[1:-1])) for label, value in pairs)
    _check_labels(labels)
    value = parse_value(value_text)
    return SampleLine(name, labels, value, timestamp_ms, series_text, value_text)


def parse_value(text: str) -> int | float:
    """Return a value's number; integers stay integers.

    Raises:
        LineError: not a number as Go reads it.
    """
    if _INTEGER.fullmatch(text):
        # Only a float can be a negative zero.
        return int(text) or (-0.0 if text[0] == "-" else 0)
    if is_plain(text):
        try:
            number = float(text)
        except ValueError:
            number = None
        if number is not None and (math.isfinite(number) or is_special(text)):
            return number
    raise LineError(shown(text), "a number as the value")


def is_plain(text: str) -> bool:
    """Return whether `float` accepts a text, or joined texts, exactly as Go does.

    It says nothing of numbers that are not finite.
    """
    return text.isascii() and "_" not in text and text.split() == [text]


def is_special(text: str) -> bool:
    """Return whether Go accepts a text that `float` reads as infinity or NaN; NaN has no sign there."""
    return text.isalpha() or text[1:4].lower() == "inf"


def unquoted(name: str) -> str:
    """Return a bare or quoted name."""
    return unescaped(name[1:-1]) if name[:1] == '"' else name


def bare(name: str) -> str:
    """Return a meta line's name without quotes; escapes are kept, as in Prometheus."""
    inner = name[1:-1] if name[:1] == '"' else name
    if is_utf8(inner):
        return inner
    return inner.encode(errors="surrogateescape").decode(errors="replace")


def unescaped(text: str) -> str:
    """Return the label value between quotes, unescaped; an unknown escape stays as it is."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_replaced, text)


def unescaped_help(text: str) -> str:
    """Return a help text of the Prometheus format, where quotes are not escaped."""
    return _HELP_ESCAPE.sub(_replaced, text) if "\\" in text else text


def check_help(text: str) -> str:
    """Return a help text that is UTF-8.

    Raises:
        LineError: it is not.
    """
    if not is_utf8(text):
        raise LineError(shown(text), "a help text in UTF-8")
    return text


def is_utf8(text: str) -> bool:
    """Return whether a text, decoded with `surrogateescape`, was UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    """Return a text quoted and cut to what fits a message."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _check_labels(labels: tuple[tuple[str, str], ...]) -> None:
    names = {"__name__", *(name for name, _ in labels)}
    if len(names) != len(labels) + 1:
        seen = {"__name__"}
        for name, _ in labels:
            if name in seen:
                raise LineError(f"label {name!r} twice", "each label once")
            seen.add(name)
    if "" in names and any(value for name, value in labels if not name):
        raise LineError("an empty label name", "a label name, such as gpu")


def _replaced(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


class ExpositionError(ConfigError):
    """A text is not of its format; nothing of it was used."""


class NativeHistogramError(ExpositionError):
    """A text carries native histograms, which are not supported."""


class UnsupportedFormatError(UpstreamError):
    """A target's response is in an unsupported format.

    Args:
        name: of the format.
        content_type: as the target sent it.
    """

    def __init__(self, name: str, content_type: str) -> None:
        super().__init__(
            f"answered in {name} ({content_type[:200]!r}), which is not supported; "
            "expected Prometheus text or OpenMetrics 1.0"
        )


def line_error(error: LineError, source: str, line: int) -> ExpositionError:
    """Return the error of a whole text for a malformed line."""
    problem = Problem(source, line, None, error.found, error.expected)
    return (NativeHistogramError if error.is_native_histogram else ExpositionError)(problem)
