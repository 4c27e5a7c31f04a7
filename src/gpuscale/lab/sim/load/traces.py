"""Loads from CSV trace files.

Two kinds of file are read. In a *request* trace every row is one request and one column says when it
came. In a *rate* trace one column has the time and another the requests per second from then on.
Times are numbers of seconds, or dates such as `2023-11-16 18:15:46.6805900`; the first row is second 0.
"""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.loads import RateTraceLoad, TraceLoad
from gpuscale.base.words import counted

MAX_ROWS = 5_000_000
_MICROSECOND_DIGITS = 6
_MOST_MILLISECONDS = 1e15


def load_trace(
    text: str,
    source: str,
    *,
    time_column: str,
    rate_column: str | None,
    scale: float,
    unit: str = "requests per second",
) -> TraceLoad | RateTraceLoad:
    """Return the load in a CSV file.

    Args:
        text: of the file.
        source: its name, for messages.
        time_column: says when.
        rate_column: says how much; None where every row is one request.
        scale: what all of it is multiplied by.
        unit: of the rates, for messages.

    Raises:
        ConfigError: a column is missing, or a row holds what is no time or rate; with every bad line
            up to the tenth.
    """
    rows = _rows(text, source)
    header = [name.strip() for name in next(rows, (1, []))[1]]
    indices = [_column(header, name, source) for name in (time_column, rate_column) if name]
    times: list[float] = []
    rates: list[float] = []
    problems: list[Problem] = []
    for line, row in rows:
        if not row:
            continue
        try:
            values = [row[index] for index in indices]
            time = seconds_of_time(values[0])
            if rate_column is not None:
                _check_later(time, times)
                rates.append(_rate(values[1], unit))
            times.append(time)
        except IndexError:
            found = counted(len(row), "column")
            problems.append(Problem(source, line, None, found, "as many as the header has"))
        except ValueError as error:
            problems.append(Problem(source, line, None, None, str(error)))
        if line > MAX_ROWS + 1:
            expected = f"at most {MAX_ROWS:,} rows"
            problems.append(Problem(source, line, None, "another row", expected))
        if len(problems) == 10 or line > MAX_ROWS + 1:
            break
    if not times and not problems:
        problems.append(Problem(source, None, None, "no rows", "at least one row below the header"))
    if problems:
        raise ConfigError(*problems)
    relative = [time - times[0] for time in times]
    return RateTraceLoad(relative, rates, scale) if rates else TraceLoad(sorted(relative), scale)


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with their first line numbers."""
    rows = csv.reader(io.StringIO(text, newline=None))
    line = 1
    try:
        for row in rows:
            yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            Problem(source, rows.line_num, None, str(error), "a row of CSV")
        ) from None


def _check_later(time: float, times: list[float]) -> None:
    if times and time <= times[-1]:
        raise ValueError(
            "found a time not after the one above, "
            "expected times that rise from row to row in a rate trace"
        )


def _column(header: list[str], name: str, source: str) -> int:
    if name not in header:
        found = ", ".join(header) or "an empty file"
        raise ConfigError(Problem(source, 1, None, found[:200], f"a column named {name!r}"))
    if header.count(name) > 1:
        expected = f"one column named {name!r}"
        raise ConfigError(Problem(source, 1, None, str(header.count(name)), expected))
    return header.index(name)


def seconds_of_time(text: str) -> float:
    """Return a time in seconds: a number, or a date since the epoch.

    Raises:
        ValueError: it is neither.
    """
    stripped = text.strip()
    try:
        value = float(stripped)
    except ValueError:
        return _date_seconds(stripped)
    if not abs(value) < 1e12:
        advice = "; are these milliseconds?" if abs(value) < _MOST_MILLISECONDS else ""
        raise ValueError(f"found {text!r}, expected a number of seconds{advice}")
    return value


def _date_seconds(text: str) -> float:
    whole, dot, fraction = text.partition(".")
    digits = len(fraction) - len(fraction.lstrip("0123456789"))
    trimmed = whole + dot + fraction[: min(digits, _MICROSECOND_DIGITS)] + fraction[digits:]
    try:
        moment = datetime.fromisoformat(trimmed)
    except ValueError:
        raise ValueError(f"found {text!r}, expected seconds or a date and time") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.timestamp()


def _rate(text: str, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise ValueError(f"found {text!r}, expected a rate of zero or more {unit}")
    return value
