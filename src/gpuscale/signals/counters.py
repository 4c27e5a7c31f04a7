"""dcgm-exporter's counters file: which fields to serve, with type and help text.

One row per metric: DCGM field, Prometheus type, help text. Spaces around a column fall away (tabs stay),
`#` comments out a line as its first character only, and a help text with a comma is quoted as CSV does.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/counters/counter_config.go. Differences: all errors of a
    file are reported together, and good rows count beside bad ones; a line of spaces is blank; a quoted
    column may follow spaces; a quoted column ends on its line; names from DCGM 4.6 and 4.7 are known too.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Literal, get_args

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.words import closest
from gpuscale.signals.fields import FIELDS
from gpuscale.signals.known_fields import current_name, is_known, known_names

CounterType = Literal["gauge", "counter", "histogram", "summary", "label"]

MAX_TEXT_BYTES = 1024 * 1024
"""What a ConfigMap can hold, and far above any real list."""
MAX_PROBLEMS = 50
"""After so many faults the file is something else than a counters file."""
MAX_NOTES = 20
"""Each is a line of the log, at each load of the file."""

_TYPES: tuple[str, ...] = get_args(CounterType)
_COLUMNS = "3 columns: DCGM field, Prometheus type, help text"
_SHOWN_CHARACTERS = 80
_OFF_ROW = re.compile(r"^# (?=DCGM_\w+ *, *\w+ *,)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counter:
    """A row of a counters file: field, type and help text."""

    field: str
    """What is read: a name of `FIELDS`, or of a DCGM field that nothing here reads."""
    type: CounterType
    """`label` makes the value a label of every other sample of its GPU."""
    help: str
    line: int
    """1-based, for messages."""
    alias: str = ""
    """The name that the file has for the field, where that is another one, such as `dcgm_gpu_temp`."""

    @property
    def name(self) -> str:
        """Return the name to serve it under."""
        return self.alias or self.field


@dataclass(frozen=True, slots=True)
class CountersRead:
    """A counters file's valid rows, and its faults."""

    rows: tuple[Counter, ...]
    """The good ones, in file order; of two with one name the first."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """What is odd but taken."""


def load_counters(text: str, source: str) -> tuple[Counter, ...]:
    """Return the rows of a counters file in file order.

    Raises:
        ConfigError: at least one row is wrong, or the text is too large.
    """
    read = read_counters(text, source)
    if read.problems:
        raise ConfigError(*read.problems)
    return read.rows


def read_counters(text: str, source: str) -> CountersRead:
    """Return a counters file's valid rows and its faults.

    Raises:
        ConfigError: the text is too large.
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
    """The rows and faults so far."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._counters: dict[str, Counter] = {}
        self._problems: list[Problem] = []
        self._notes: list[str] = []
        self._more_notes = 0

    def add(self, number: int, line: str) -> None:
        if len(self._problems) >= MAX_PROBLEMS:
            return
        faults = len(self._problems)
        columns = self._columns(number, line)
        if columns is None:
            return
        name, type_, help_ = columns
        self._check_field(number, name)
        if name not in FIELDS or not FIELDS[name].is_derived:  # upstream accepts any type for these
            self._check_type(number, type_)
        if len(self._problems) > faults:
            return
        if name in self._counters:
            first = self._counters[name].line
            self._remark(number, f"{name} stands on line {first} already")
            return
        field = current_name(name)
        if type_ != "label" and field in FIELDS and FIELDS[field].kind == "string":
            note = f"{name} is text: it is served where it is a number; take the type label for it"
            self._remark(number, note)
        alias = "" if name == field else name
        self._counters[name] = Counter(field, type_, help_, number, alias)  # type: ignore[arg-type]

    def finish(self) -> CountersRead:
        if len(self._problems) >= MAX_PROBLEMS:
            self._note(None, None, None, f"reading stopped after {MAX_PROBLEMS} faults")
        if self._more_notes:
            self._notes.append(f"{self._source}: {self._more_notes} more rows are like these")
        return CountersRead(
            tuple(self._counters.values()), tuple(self._problems), tuple(self._notes)
        )

    def _remark(self, number: int, text: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes.append(f"{self._source}:{number}: {text}")
        else:
            self._more_notes += 1

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
        if not is_known(field):
            fix = _field_meant(field)
            self._note(number, "field", _shown(field), "the name of a DCGM field", fix)

    def _check_type(self, number: int, type_: str) -> None:
        if type_ not in _TYPES:
            expected = f"{', '.join(_TYPES[:-1])} or {_TYPES[-1]}"
            self._note(number, "type", _shown(type_), expected, _near_miss(type_, _TYPES))

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


_FIELD_PREFIX = re.compile(r"dcgm_(?:(?:fi|exp)_)?(?:(?:dev|prof)_)?", re.IGNORECASE)
_LIKE_ENOUGH = 0.8
"""Of the words behind the prefix, which all names share."""


def _field_meant(found: str) -> str | None:
    """Return a question with the field whose misspelling this may be.

    Other numbers in the name, such as a link's, mean another field: that is no misspelling.
    """
    if len(found) > _SHOWN_CHARACTERS:
        return None
    names: dict[str, str] = {}
    for name in (*FIELDS, *known_names()):
        if _numbers(name) == _numbers(found):
            names.setdefault(_FIELD_PREFIX.sub("", name).lower(), name)
    close = closest(_FIELD_PREFIX.sub("", found), names, _LIKE_ENOUGH)
    return f"did you mean {names[close]}?" if close else None


def _numbers(text: str) -> list[str]:
    return re.findall(r"[0-9]+", text)


def _near_miss(found: str, known: Iterable[str]) -> str | None:
    """Return a question with the most similar known word; empty if none is similar."""
    if len(found) > _SHOWN_CHARACTERS:
        return None
    close = closest(found, known)
    return f"did you mean {close}?" if close else None


def _count(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


_FOLDER = Path(__file__).parent
_BUILT_IN = (_FOLDER / "default-counters.csv").read_text(encoding="utf-8")
DEFAULT_COUNTERS = load_counters(_BUILT_IN, "default-counters.csv")
"""The rows that dcgm-exporter 4.8.2 has switched on by default, in gpuscale's own words."""
_LISTS = {
    "default-counters.csv": "default-counters.csv",
    "dcp-metrics-included.csv": "default-counters.csv",  # 4.8.2 has the same rows enabled in both
    "1.x-compatibility-metrics.csv": "1.x-compatibility-metrics.csv",
}
"""The lists of dcgm-exporter 4.8.2's image, by name, and which of ours each is."""


def list_of_image(path: PurePath) -> str | None:
    """Return the text of a counters file in dcgm-exporter's image; None for any other path.

    gpu-operator and many public values files name such a path, and nobody else's image has the file.
    """
    found = _LISTS.get(path.name) if path.parent == Path("/etc/dcgm-exporter") else None
    return (_FOLDER / found).read_text(encoding="utf-8") if found else None


@lru_cache(maxsize=1)
def first_release_counters() -> tuple[Counter, ...]:
    """Return the rows of the list that keeps the names of dcgm-exporter 1.x."""
    name = "1.x-compatibility-metrics.csv"
    return load_counters((_FOLDER / name).read_text(encoding="utf-8"), name)


@lru_cache(maxsize=1)
def switched_off_counters() -> tuple[Counter, ...]:
    """Return the rows of the built-in file that are commented out."""
    every = load_counters(_OFF_ROW.sub("", _BUILT_IN), "default-counters.csv")
    on = {row.field for row in DEFAULT_COUNTERS}
    return tuple(row for row in every if row.field not in on)
