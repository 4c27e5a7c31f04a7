"""Trace files: a user's own CSV to a load.

Two kinds of file are read. In a *request* trace every row is one request and one column says when it
came. In a *rate* trace one column has the time and another the requests per second from then on.
Times are numbers of seconds, or dates such as `2023-11-16 18:15:46.6805900`; the first row is second 0.
"""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime

from gpuscale.core.errors import ConfigError, Problem
from gpuscale.sim.load.loads import RateTraceLoad, TraceLoad

MAX_ROWS = 5_000_000
_MICROSECOND_DIGITS = 6


def load_trace(
    text: str,
    source: str,
    *,
    time_column: str,
    rate_column: str | None,
    scale: float,
    unit: str = "requests per second",
) -> TraceLoad | RateTraceLoad:
    """Return the load that a CSV file recorded.

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
    header = [name.strip() for name in next(rows, [])]
    indices = [_column(header, name, source) for name in (time_column, rate_column) if name]
    times: list[float] = []
    rates: list[float] = []
    problems: list[Problem] = []
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            values = [row[index] for index in indices]
            times.append(seconds_of_time(values[0]))
            rates.extend(_rate(value, unit) for value in values[1:])
        except (ValueError, IndexError) as error:
            problems.append(_row_problem(source, line, row, error))
        if line > MAX_ROWS + 1:
            expected = f"at most {MAX_ROWS:,} rows"
            problems.append(Problem(source, line, None, "another row", expected))
        if len(problems) == 10 or line > MAX_ROWS + 1:
            break
    if not times and not problems:
        problems.append(Problem(source, None, None, "no rows", "at least one row below the header"))
    if problems:
        raise ConfigError(*problems)
    return _load(times, rates, scale, source)


def _rows(text: str, source: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(text))
    try:
        yield from rows
    except csv.Error as error:
        raise ConfigError(
            Problem(source, rows.line_num, None, str(error), "a row of CSV")
        ) from None


def _load(
    times: list[float], rates: list[float], scale: float, source: str
) -> TraceLoad | RateTraceLoad:
    start = times[0]
    relative = [time - start for time in times]
    if not rates:
        return TraceLoad(sorted(relative), scale)
    for index in range(1, len(relative)):
        if relative[index] <= relative[index - 1]:
            expected = "times that rise from row to row in a rate trace"
            raise ConfigError(
                Problem(source, index + 2, None, "a time not after the one above", expected)
            )
    return RateTraceLoad(relative, rates, scale)


def _column(header: list[str], name: str, source: str) -> int:
    if name not in header:
        found = ", ".join(header) or "an empty file"
        raise ConfigError(Problem(source, 1, None, found[:200], f"a column named {name!r}"))
    return header.index(name)


def seconds_of_time(text: str) -> float:
    """Return the seconds of a time: a number of them, or of a date since the epoch.

    Raises:
        ValueError: it is neither.
    """
    stripped = text.strip()
    try:
        value = float(stripped)
    except ValueError:
        return _date_seconds(stripped)
    if not abs(value) < 1e12:
        raise ValueError(f"found {text!r}, expected a number of seconds")
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


def _row_problem(source: str, line: int, row: list[str], error: Exception) -> Problem:
    if isinstance(error, IndexError):
        return Problem(source, line, None, f"{len(row)} columns", "as many as the header has")
    return Problem(source, line, None, None, str(error))
