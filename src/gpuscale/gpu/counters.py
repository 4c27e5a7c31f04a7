"""Which fields to serve and under which type and help text: dcgm-exporter's counters file.

One row per metric: DCGM field, Prometheus type, help text. Spaces around a column fall away (tabs stay),
`#` comments out a line as its first character only, and a help text with a comma is quoted as CSV does.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/counters/counter_config.go. Differences: all errors of a
    file are reported together; a line of spaces is blank; a quoted column may follow spaces; a field may
    stand in one row only; text is only taken as a label; a quoted column ends on its line.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from gpuscale.core.errors import ConfigError, Problem
from gpuscale.core.words import closest
from gpuscale.gpu.fields import FIELDS

CounterType = Literal["gauge", "counter", "histogram", "summary", "label"]

MAX_TEXT_BYTES = 1024 * 1024
"""What a ConfigMap can hold, and far above any real list."""
MAX_PROBLEMS = 50
"""After so many faults the file is something else than a counters file."""

_TYPES: tuple[str, ...] = get_args(CounterType)
_COLUMNS = "3 columns: DCGM field, Prometheus type, help text"
_SHOWN_CHARACTERS = 80
_OFF_ROW = re.compile(r"^# (?=DCGM_\w+ *, *\w+ *,)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counter:
    """One row: serve this field, as this type, with this help text."""

    field: str
    """A name of `FIELDS`."""
    type: CounterType
    """`label` makes the value a label of every other sample of its GPU."""
    help: str
    line: int
    """1-based, for messages."""


def load_counters(text: str, source: str) -> tuple[Counter, ...]:
    """Return the rows of a counters file in file order.

    Raises:
        ConfigError: at least one row is wrong, there is none, or the text is too large.
    """
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        expected = f"at most {MAX_TEXT_BYTES // 1024} KiB"
        raise ConfigError(Problem(source, None, None, "a larger file", expected))
    loader = _Loader(source)
    for number, line in _rows(text):
        loader.add(number, line)
    return loader.finish()


def _rows(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that is neither blank nor a comment."""
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = raw.removesuffix("\r")
        if line.strip() and not line.startswith("#"):
            yield number, line


class _Loader:
    """Counters so far, and what was wrong so far."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._counters: dict[str, Counter] = {}
        self._problems: list[Problem] = []

    def add(self, number: int, line: str) -> None:
        if len(self._problems) >= MAX_PROBLEMS:
            return
        faults = len(self._problems)
        columns = self._columns(number, line)
        if columns is None:
            return
        field, type_, help_ = columns
        self._check_field(number, field)
        self._check_type(number, field, type_)
        if len(self._problems) == faults:
            self._counters[field] = Counter(field, type_, help_, number)  # type: ignore[arg-type]

    def finish(self) -> tuple[Counter, ...]:
        if len(self._problems) >= MAX_PROBLEMS:
            self._note(None, None, None, f"reading stopped after {MAX_PROBLEMS} faults")
        if not self._problems and not self._counters:
            self._note(None, None, "no rows", f"at least one row of {_COLUMNS}")
        if self._problems:
            raise ConfigError(*self._problems)
        return tuple(self._counters.values())

    def _columns(self, number: int, line: str) -> list[str] | None:
        try:
            row = next(csv.reader([line], skipinitialspace=True, strict=True))
        except csv.Error as error:
            self._note(number, None, _quoting_fault(error), _COLUMNS)
            return None
        if len(row) != len(("field", "type", "help")):
            self._note(number, None, _count(len(row)), _COLUMNS, _columns_fix(line, len(row)))
            return None
        return [column.strip(" ") for column in row]

    def _check_field(self, number: int, field: str) -> None:
        if field not in FIELDS:
            fix = _near_miss(field, FIELDS)
            self._note(number, "field", _shown(field), "the name of a DCGM field", fix)
        elif field in self._counters:
            first = self._counters[field].line
            expected = f"each field once; it stands on line {first} already"
            self._note(number, "field", _shown(field), expected)

    def _check_type(self, number: int, field: str, type_: str) -> None:
        if type_ not in _TYPES:
            expected = f"{', '.join(_TYPES[:-1])} or {_TYPES[-1]}"
            self._note(number, "type", _shown(type_), expected, _near_miss(type_, _TYPES))
        elif type_ != "label" and field in FIELDS and FIELDS[field].kind == "string":
            self._note(number, "type", _shown(type_), f"label, because {field} is text")

    def _note(
        self,
        number: int | None,
        column: str | None,
        found: str | None,
        expected: str,
        fix: str | None = None,
    ) -> None:
        self._problems.append(Problem(self._source, number, column, found, expected, fix))


def _quoting_fault(error: csv.Error) -> str:
    if str(error) == "unexpected end of data":
        return "a double quote that is not closed on its line"
    if str(error).endswith("expected after '\"'"):
        return "text after a closing double quote"
    return str(error)


def _columns_fix(line: str, count: int) -> str | None:
    if line.lstrip().startswith("#"):
        return "write the # of a comment as the first character of its line"
    if count > len(("field", "type", "help")):
        return "put a help text that holds a comma in double quotes"
    return None


def _near_miss(found: str, known: Iterable[str]) -> str | None:
    """Return a question that names the most similar known word, if any is similar."""
    if len(found) > _SHOWN_CHARACTERS:
        return None
    close = closest(found, known)
    return f"did you mean {close}?" if close else None


def _count(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


_BUILT_IN = Path(__file__).with_name("default-counters.csv").read_text(encoding="utf-8")
DEFAULT_COUNTERS = load_counters(_BUILT_IN, "default-counters.csv")
"""The rows that dcgm-exporter 4.8.2 has switched on by default, in gpuscale's own words."""


@lru_cache(maxsize=1)
def switched_off_counters() -> tuple[Counter, ...]:
    """Return the rows of the built-in file that are commented out."""
    every = load_counters(_OFF_ROW.sub("", _BUILT_IN), "default-counters.csv")
    on = {row.field for row in DEFAULT_COUNTERS}
    return tuple(row for row in every if row.field not in on)
