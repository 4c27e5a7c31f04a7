"""Series and labels that releases of a server have no more, and what they are called now.

Source: the last columns of former-series.csv and former-labels.csv; of signals' older names, the files of the
    signals.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpuscale.signals.catalogue import SIGNALS
from gpuscale.signals.signal import SignalFamily

_ENDINGS = ("_bucket", "_sum", "_count", "_total")


@dataclass(frozen=True, slots=True)
class FormerSeries:
    """A series that was renamed or is gone."""

    successor: str
    """What it is called now; empty where nothing stands in its place."""
    family: SignalFamily
    gone: tuple[int, ...]
    """The first release without it; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class FormerLabel:
    """A label that series were renamed to have no more."""

    series: re.Pattern[str]
    """All of the name of a series that had it."""
    label: str
    successor: str
    server: str
    """Whose series they are."""
    gone: str
    """The first release without it."""
    unless: str
    """The option that brings it back; empty where none does."""


def former_label(series: str, label: str) -> FormerLabel | None:
    """Return what became of a label of a series; None for one that is there as far as is known."""
    found = (each for each in _labels().get(label, ()) if each.series.fullmatch(series))
    return next(found, None)


def former_series(name: str) -> FormerSeries | None:
    """Return what became of a series; None for one that is there as far as is known."""
    found = _table().get(name)
    for ending in _ENDINGS if found is None else ():
        base = name.removesuffix(ending)
        if base != name and (found := _table().get(base)) is not None:
            successor = f"{found.successor}{ending}" if found.successor else ""
            return FormerSeries(successor, found.family, found.gone)
    return found


@lru_cache(maxsize=1)
def _table() -> Mapping[str, FormerSeries]:
    table = {
        name: FormerSeries(signal.series, signal.family, signal.older_until)
        for signal in SIGNALS.values()
        for name in signal.older
    }
    families = {signal.family.name: signal.family for signal in SIGNALS.values()}
    for row in _rows("former-series.csv"):
        gone = tuple(map(int, row["gone"].split("."))) if row["gone"] else ()
        table[row["series"]] = FormerSeries(row["successor"], families[row["family"]], gone)
    return table


@lru_cache(maxsize=1)
def _labels() -> Mapping[str, list[FormerLabel]]:
    table: dict[str, list[FormerLabel]] = {}
    for row in _rows("former-labels.csv"):
        found = FormerLabel(
            re.compile(row["series"]),
            *(row[key] for key in ("label", "successor", "server", "gone", "unless")),
        )
        table.setdefault(found.label, []).append(found)
    return table


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = Path(__file__).with_name(name).read_text()
    yield from csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
