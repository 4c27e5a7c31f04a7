"""Series that releases of a server have no more, and what they are called now.

Source: the last column of former-series.csv; of signals' older names, the files of the signals.
"""

import csv
from collections.abc import Mapping
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
    text = Path(__file__).with_name("former-series.csv").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        gone = tuple(map(int, row["gone"].split("."))) if row["gone"] else ()
        table[row["series"]] = FormerSeries(row["successor"], families[row["family"]], gone)
    return table
