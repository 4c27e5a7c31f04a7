"""The folder of a history: its files, and which of them count.

    DIR/gpuscale-history.json            the version
    DIR/journal/00000012.journal         rows that are in no Parquet file yet
    DIR/gpus/day=2026-01-31/00000003-00000011.parquet    a table's rows of a day, of these journals

A Parquet file is named by the journals that its rows come from. So a crash between two steps of the compactor
leaves files of which the names say which count: one of a journal that is still there does not, and neither
does one whose journals another file has too.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.errors import UsageError
from gpuscale.ops.history.journal import SUFFIX
from gpuscale.ops.history.tables import TABLES, VERSION

MARK = "gpuscale-history.json"
JOURNALS = "journal"
_NAME = re.compile(r"(?:.*/)?(\w+)/day=(\d{4}-\d\d-\d\d)/(\d+)(?:-(\d+))?\.parquet")


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file."""

    path: str
    table: str
    day: str
    first: int
    last: int
    """Journals from which its rows come."""


def check_version(text: str, place: str) -> None:
    """Check what `gpuscale-history.json` says.

    Raises:
        UsageError: it is another version's, or no such file.
    """
    try:
        version = json.loads(text)["version"]
    except (ValueError, TypeError, LookupError):
        version = None
    if version != VERSION:
        raise UsageError(
            f"{place}/{MARK}: found version {version}, expected {VERSION}; use the gpuscale that wrote it, "
            "or keep a new history in another folder"
        )


def is_history(folder: Path) -> bool:
    """Return whether a folder holds a history; checks its version.

    Raises:
        UsageError: it is another version's.
    """
    mark = folder / MARK
    if not mark.is_file():
        return False
    check_version(mark.read_text(), str(folder))
    return True


def part_of(path: str) -> Part | None:
    """Return what the name of a file says; None of a file that is not ours."""
    found = _NAME.fullmatch(path)
    if found is None or found[1] not in TABLES:
        return None
    return Part(path, found[1], found[2], int(found[3]), int(found[4] or found[3]))


def parts_in(folder: Path) -> list[Part]:
    """Return all Parquet files, those that don't count too."""
    paths = (str(path) for path in folder.glob("*/day=*/*.parquet"))
    return [part for path in paths if (part := part_of(path)) is not None]


def journals_in(folder: Path) -> list[Path]:
    """Return the journals, the oldest first."""
    return sorted((folder / JOURNALS).glob(f"*{SUFFIX}"))


def number_of(journal: Path) -> int:
    """Return a journal's number."""
    return int(journal.name.removesuffix(SUFFIX))


def counting(parts: Sequence[Part], journals: frozenset[int] = frozenset()) -> Iterator[Part]:
    """Yield the files that count.

    Args:
        parts: all that there are.
        journals: those that are still there.
    """
    widest: dict[tuple[str, str], list[Part]] = {}
    for part in sorted(parts, key=lambda each: (each.first, -each.last)):
        if part.first == part.last and part.first in journals:
            continue
        before = widest.setdefault((part.table, part.day), [])
        if not before or part.last > before[-1].last:
            before.append(part)
    for of_day in widest.values():
        yield from of_day
