"""OpenMetrics text 1.0, entry by entry, as Prometheus reads it.

Exemplars are read for their form and not kept. `_created` lines are series like any other, as in Prometheus
without its feature flag for start times.

Source: OpenMetrics 1.0; prometheus model/textparse (openmetricslex.l, openmetricsparse.go), release 3.16.
"""

import math
import re

from gpuscale.base.exposition.reading.entries import (
    LABEL,
    METRIC,
    QUOTED_IN_LINE,
    QUOTED_NAME,
    EndOfText,
    Entry,
    LineError,
    MetaLine,
    SampleLine,
    bare,
    check_help,
    is_utf8,
    parse_value,
    sample_line,
    shown,
    unescaped,
)
from gpuscale.base.exposition.reading.series import SeriesGrammar, native_histogram, rest_of_line

TYPES = (
    *("counter", "gauge", "histogram", "gaugehistogram"),
    *("summary", "info", "stateset", "unknown"),
)
"""The words of a TYPE line."""
EOF = "# EOF"

_META = re.compile(rf"# (HELP|TYPE|UNIT) ({METRIC}|{QUOTED_NAME}) ([^\n]*+)\n")
_SERIES = SeriesGrammar(
    start=re.compile(rf"({METRIC})(\{{)?"),
    pair=re.compile(rf"({LABEL}|{QUOTED_NAME})=({QUOTED_IN_LINE})(?:,|(?=\}}))"),
    quoted_metric=re.compile(rf"({QUOTED_NAME})(?:,|(?=\}}))"),
    close=re.compile(r"\}"),
)
_EXEMPLAR_TEXT = r'"(?:[^\\"\n\0]++|\\[^\n\0])*+"'
_EXEMPLAR_PAIR = rf"(?:{LABEL}|{_EXEMPLAR_TEXT})={_EXEMPLAR_TEXT}"
_EXEMPLAR = re.compile(
    rf" # \{{(?:{_EXEMPLAR_PAIR}(?:,{_EXEMPLAR_PAIR})*+,?)?\}} ([^ \n]++)(?: ([^ \n]++))?\n"
)
_VALUE = re.compile(r" ([^ \n]++)(?: (?!# \{)([^ \n]++))?")


def read_entry(text: str, start: int) -> tuple[Entry, int]:
    """Parse the entry at an offset; return it and the offset of the next one.

    Args:
        text: all of it.
        start: where an entry begins, before the end of the text.

    Raises:
        LineError: it is not of the format.
    """
    if text[start] == "#":
        return _meta_line(text, start)
    return _sample(text, start)


def read_exemplar(text: str, start: int) -> int:
    """Parse an exemplar; return the offset after its line.

    Args:
        text: with the exemplar's ` # {` at `start`.
        start: where it begins.

    Raises:
        LineError: it is not one.
    """
    match = _EXEMPLAR.match(text, start)
    if match is None or not is_utf8(match[0]):
        raise LineError(shown(rest_of_line(text, start)), 'an exemplar such as # {id="a"} 1')
    parse_value(match[1])
    if match[2] is not None:
        timestamp_ms(match[2])
    return match.end()


def timestamp_ms(text: str) -> int:
    """Return the milliseconds of a time in seconds.

    Raises:
        LineError: no finite number.
    """
    seconds = float(parse_value(text))
    if not math.isfinite(seconds):
        raise LineError(shown(text), "a timestamp in seconds")
    milliseconds = seconds * 1000
    # A time too large for 64 bits counts as older than everything.
    return int(milliseconds) if abs(milliseconds) < 1 << 63 else -(1 << 63)


def _meta_line(text: str, start: int) -> tuple[MetaLine | EndOfText, int]:
    if text.startswith(EOF, start):
        end = start + len(EOF) + text.startswith("\n", start + len(EOF))
        if end != len(text):
            raise LineError(shown(text[end : end + 100]), "nothing after # EOF")
        return EndOfText(), end
    match = _META.match(text, start)
    if match is None:
        found = shown(rest_of_line(text, start))
        raise LineError(found, "a line with # HELP, # TYPE or # UNIT, a name and a text, or # EOF")
    keyword, name, words = match.groups()
    name = bare(name)
    if keyword == "HELP":
        words = unescaped(check_help(words))
    elif keyword == "TYPE" and words not in TYPES:
        raise LineError(f"type {shown(words)}", f"one of {', '.join(TYPES)}")
    elif keyword == "UNIT" and words and not name.endswith(f"_{words}"):
        raise LineError(f"unit {shown(words)}", f"a unit that {name} ends with")
    return MetaLine(keyword, name, words), match.end()


def _sample(text: str, begin: int) -> tuple[SampleLine, int]:
    name, pairs, position = _SERIES.read(text, begin)
    value = _VALUE.match(text, position)
    if value is None:
        found = shown(rest_of_line(text, position))
        raise LineError(found, "a space and a number after the series")
    if value[1][0] == "{":
        raise native_histogram(shown(value[1]))
    time_ms = None if value[2] is None else timestamp_ms(value[2])
    sample = sample_line(name, pairs, text[begin:position], value[1], time_ms)
    end = value.end()
    if text.startswith(" # {", end):
        return sample, read_exemplar(text, end)
    if not text.startswith("\n", end):
        found = shown(rest_of_line(text, end))
        raise LineError(found, "a value, at most a timestamp, and the end of the line")
    return sample, end + 1
