"""The Prometheus text formats 0.0.4 and 1.0.0, entry by entry.

The lexer of Prometheus is laxer than the format's description: commas between labels may be left out, a label
value may hold a line break, and a value may follow its name without a blank.

Source: prometheus model/textparse (promlex.l, promparse.go), release 3.16.
"""

import re

from gpuscale.base.exposition.reading.entries import (
    LABEL,
    METRIC,
    QUOTED,
    QUOTED_NAME,
    Entry,
    LineError,
    MetaLine,
    SampleLine,
    bare,
    check_help,
    is_utf8,
    sample_line,
    shown,
    unescaped_help,
)
from gpuscale.base.exposition.reading.series import SeriesGrammar, native_histogram, rest_of_line

TYPES = ("gauge", "counter", "histogram", "summary", "untyped")
"""The words of a TYPE line."""

_BLANKS = re.compile(r"[ \t]*+")
_SERIES = SeriesGrammar(
    start=re.compile(rf"({METRIC})[ \t]*+(\{{)?"),
    pair=re.compile(rf"[ \t]*+({LABEL}|{QUOTED_NAME})[ \t]*+=[ \t]*+({QUOTED})[ \t]*+,?"),
    quoted_metric=re.compile(rf"[ \t]*+({QUOTED_NAME})[ \t]*+(?:,|(?=\}}))"),
    close=re.compile(r"[ \t]*+\}"),
)
_VALUE = re.compile(r"[ \t]*+([^{ \t\n]++)(?:[ \t]++([0-9]++))?[ \t]*+\n")
_META = re.compile(r"#[ \t]++(HELP|TYPE)[ \t]++")
_META_NAME = re.compile(rf"{METRIC}|{QUOTED_NAME}")
_LAST_TIME = (1 << 63) - 1


def read_entry(text: str, start: int) -> tuple[Entry, int]:
    """Parse the entry at an offset; return it and the offset of the next one.

    Args:
        text: ends with a line break.
        start: where an entry begins, before the end of the text.

    Raises:
        LineError: it is not of the format.
    """
    match = _BLANKS.match(text, start)
    begin = start if match is None else match.end()
    first = text[begin]
    if first == "\n":
        return None, begin + 1
    if first == "#":
        return _meta_line(text, begin)
    return _sample(text, begin)


def timestamp_ms(text: str) -> int:
    """Return a sample's own time in milliseconds.

    Raises:
        LineError: no whole number, or one beyond 64 bits.
    """
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit()) or len(digits) > 19 or int(text) > _LAST_TIME:
        raise LineError(shown(text), "a timestamp in whole milliseconds")
    return int(text)


def _meta_line(text: str, begin: int) -> tuple[MetaLine | None, int]:
    start = _META.match(text, begin)
    if start is None:
        return None, text.index("\n", begin) + 1
    name = _META_NAME.match(text, start.end())
    if name is None:
        found = shown(rest_of_line(text, begin))
        raise LineError(found, f"a metric name after {start[1]}")
    end = text.index("\n", name.end())
    rest = text[name.end() : end]
    # Prometheus skips exactly one byte here, whatever it is.
    words = rest[1:] if rest.strip(" \t") else ""
    if rest[:1] > "\x7f" and is_utf8(rest[0]):
        # The byte was a part of a character, so that the rest is no valid text.
        raise LineError(shown(rest), "a blank after the metric name")
    if start[1] == "HELP":
        return MetaLine("HELP", bare(name[0]), unescaped_help(check_help(words))), end + 1
    if words not in TYPES:
        raise LineError(f"type {shown(words)}", f"one of {', '.join(TYPES)}")
    return MetaLine("TYPE", bare(name[0]), words), end + 1


def _sample(text: str, begin: int) -> tuple[SampleLine, int]:
    name, pairs, position = _SERIES.read(text, begin)
    value = _VALUE.match(text, position)
    if value is None:
        raise _value_error(text, begin, position)
    time_ms = None if value[2] is None else timestamp_ms(value[2])
    series_text = text[begin : value.start(1)].rstrip(" \t")
    return sample_line(name, pairs, series_text, value[1], time_ms), value.end()


def _value_error(text: str, begin: int, position: int) -> LineError:
    """Return the error for malformed text after the labels."""
    rest = rest_of_line(text, position).strip(" \t")
    if not rest:
        if text[position - 1] in " \t}":
            return LineError("no value", "a number after the series")
        expected = "a metric name, then labels in braces or a space and a value"
        return LineError(shown(rest_of_line(text, begin)), expected)
    if rest[0] == "{":
        return native_histogram(shown(rest))
    words = rest.replace("\t", " ").split(" ")
    if len(words) > 2:
        return LineError(shown(rest), "a value and at most a timestamp")
    if len(words) == 2:
        return LineError(shown(words[1]), "a timestamp in whole milliseconds")
    return LineError(shown(rest), "a number as the value")
