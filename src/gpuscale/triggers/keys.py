"""Reads users' key-value texts by type, and collects faults."""

import re
from collections.abc import Callable, Iterable, Mapping

from gpuscale.base.documents.validation import LABEL_PATTERN
from gpuscale.base.errors import QueryError
from gpuscale.base.golang.durations import MAX_DURATION_MS, parse_duration_ms
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.base.words import closest, printable
from gpuscale.hpa.terms import MetricUnit, unit_of_query
from gpuscale.series.promql import parse_once

MAX_TARGET = 1e12
MAX_REPLICAS = 100_000
_MAX_TEXT = 4096
_NUMBER = "a number such as 60 or 600m"

Note = Callable[[str, str, str | None, str | None], None]
"""Takes a key, what was expected, what was found, and what to do."""


class KeyReader:
    """Reads values by key.

    Args:
        values: texts, or what YAML made of them.
        note: called for each fault.
    """

    def __init__(self, values: Mapping[str, object], note: Note) -> None:
        self.values = values
        self.faults = 0
        """How many were noted."""
        self._note = note

    def note(
        self, key: str, expected: str, found: str | None = None, fix: str | None = None
    ) -> None:
        self.faults += 1
        shown = None if found is None else printable(found[:120])
        self._note(key, expected, shown, fix)

    def namespace(self, key: str, value: object) -> str:
        if not isinstance(value, str) or len(value) > 63 or not re.match(LABEL_PATTERN, value):
            found = "none" if value is None else str(value)
            self.note(key, "a namespace such as team-a", found)
            return ""
        return value

    def has(self, key: str) -> bool:
        return self.text(key) is not None

    def text(self, key: str) -> str | None:
        """Return a value as text; None where it is absent or empty."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool | list | dict):
            if value is not None:
                self.note(key, "text or a number", type(value).__name__)
            return None
        text = str(value).strip()
        if len(text) > _MAX_TEXT:
            self.note(key, f"at most {_MAX_TEXT} characters", f"{len(text)}")
            return None
        return text or None

    def query_unit(self, key: str, text: str) -> MetricUnit | None:
        try:
            return unit_of_query(parse_once(text).root)
        except QueryError as error:
            self.note(key, f"PromQL ({error})", repr(text))
        return None

    def not_among(self, key: str, text: str, known: Iterable[str]) -> None:
        meant = closest(text, known)
        fix = f"write {meant}" if meant else None
        self.note(key, f"one of {', '.join(known)}", repr(text), fix)

    def quantity(self, key: str) -> Quantity | None:
        text = self.text(key)
        if text is None:
            return None
        try:
            return parse_quantity(text)
        except ValueError:
            self.note(key, _NUMBER, repr(text))
            return None

    def number(self, key: str, default: float, *, least: float) -> float:
        quantity = self.quantity(key)
        if quantity is None:
            return default
        if not least <= float(quantity) <= MAX_TARGET:
            self.note(key, f"a number from {least:g} to {MAX_TARGET:g}", str(quantity))
        return float(quantity)

    def count(self, key: str, default: int | None, *, least: int) -> int | None:
        text = self.text(key)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,7}", text) or not least <= int(text) <= MAX_REPLICAS:
            self.note(key, f"a whole number from {least} to {MAX_REPLICAS}", repr(text))
            return default
        return int(text)

    def seconds(self, key: str, default: float) -> float:
        text = self.text(key)
        if text is None:
            return default
        try:
            length_ms = parse_duration_ms(text)
        except ValueError:
            self.note(key, "a duration such as 90s, 10m or 1h30m", repr(text))
            return default
        if length_ms > MAX_DURATION_MS:
            self.note(key, "a duration of at most a year", repr(text))
        return length_ms / 1000
