"""What a run document says at its end: single numbers, small tables and the first events."""

import re
from collections.abc import Iterable, Mapping, Sequence

from gpuscale.views.words import clock_text, label_text, number_text

Rows = Mapping[str, Mapping[str, object]]


def shown_events(
    document: Mapping[str, object], max_events: int
) -> tuple[Sequence[Mapping[str, object]], int]:
    """Return the first events of a run, and how many more it has."""
    events = list(mappings(document.get("events")))
    return events[:max_events], max(0, len(events) - max_events)


def summary_totals(document: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the summary's single numbers as words and text, in the order of the document."""
    totals: list[tuple[str, str]] = []
    for key, value in mapping(document.get("summary")).items():
        inner = {f"{key} {name}": item for name, item in mapping(value).items()}
        flat = inner if isinstance(value, Mapping) else {key: value}
        totals += [
            (label_text(name), _total_text(name, item))
            for name, item in flat.items()
            if not isinstance(item, Mapping)
        ]
    return totals


def _total_text(key: str, value: object) -> str:
    if key == "duration" and isinstance(value, (int, float)):
        return clock_text(value)
    unit = " s" if re.search(r"(Lag|Seconds|Time|Delay)(P\d+)?$", key) else ""
    unit = " h" if key.endswith("Hours") else unit
    return number_text(value) + (unit if isinstance(value, (int, float)) else "")


def summary_groups(document: Mapping[str, object]) -> list[tuple[str, Rows]]:
    """Return the summary's tables, such as its HPAs: a title, and a row of values per name."""
    groups: list[tuple[str, Rows]] = []
    for key, value in mapping(document.get("summary")).items():
        rows = {name: row for name, row in mapping(value).items() if isinstance(row, Mapping)}
        if rows:
            groups.append((label_text(key), rows))
    return groups


def columns_of(rows: Rows) -> list[str]:
    """Return the keys that any row has, in the order they first come up."""
    return list(dict.fromkeys(column for values in rows.values() for column in values))


def row_cells(columns: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return a row's values as text, a dash where the row has none."""
    return tuple(_total_text(column, values.get(column)) for column in columns)


def mapping(value: object) -> Mapping[str, object]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> Iterable[Mapping[str, object]]:
    """Return the mappings of a list; anything else in it, or no list at all, is passed over."""
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return (item for item in items if isinstance(item, Mapping))
