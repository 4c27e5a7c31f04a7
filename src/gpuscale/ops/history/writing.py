"""The writer of a history: rows go to the journal, and from there to Parquet files. One process at a time."""

import fcntl
import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.base.whole_files import replace_files
from gpuscale.ops.history.duck import (
    check_installed,
    connect,
    literal,
    load_journals,
    write_parquet,
)
from gpuscale.ops.history.folder import (
    JOURNALS,
    MARK,
    Part,
    counting,
    is_history,
    journals_in,
    number_of,
    parts_in,
)
from gpuscale.ops.history.journal import SUFFIX, Journal, sync_folder
from gpuscale.ops.history.tables import TABLES, VERSION, Batch, hours_of

if TYPE_CHECKING:
    import duckdb

MIB = 1024 * 1024
_MEMORY_MIB = 1024
"""Of DuckDB as it sorts a day."""
_FRAMES = 15
"""In a journal, before they are made Parquet files: whoever reads has to read them one by one."""
_FILES_A_DAY = 24
"""Of a table, before they are made one while the day goes on."""


class HistoryWriter:
    """Writes to a folder until it is closed.

    Args:
        folder: made where it is not there.
        max_bytes: of all files together; beyond it the oldest days go.
        journal_bytes: that are written before they are made Parquet files.

    Raises:
        UsageError: another process writes to it, it holds something else, or DuckDB is not installed.
        UnavailableError: it can't be written.
    """

    def __init__(self, folder: Path, max_bytes: int, journal_bytes: int = 4 * MIB) -> None:
        self.folder = folder
        self._max_bytes = max_bytes
        self._journal_bytes = min(journal_bytes, max_bytes // 8)
        check_installed()
        try:
            if folder.is_dir() and any(folder.iterdir()) and not is_history(folder):
                raise UsageError(f"{folder}: found other files, expected a history or no folder")
            (folder / JOURNALS).mkdir(parents=True, exist_ok=True)
            self._lock = (folder / JOURNALS / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UsageError(f"{folder}: another process writes to it; expected one") from None
        except OSError as error:
            raise UnavailableError(f"can't write {folder}: {error.strerror}") from None
        if not (folder / MARK).exists():
            replace_files({str(folder / MARK): json.dumps({"version": VERSION}) + "\n"})
            sync_folder(folder)
        for leftover in folder.glob("*/day=*/*.writing"):
            leftover.unlink()
        self._journal = self._next_journal()
        self.compact()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, batch: Batch) -> None:
        """Keep rows, all of them or none; once this returns they survive a kill.

        Raises:
            UnavailableError: they could not be written, and are not kept.
        """
        self._journal.append(batch)
        if self._journal.size >= self._journal_bytes or self._journal.frames >= _FRAMES:
            with suppress(UnavailableError):  # they are kept; the next write and `close` try again
                self.compact()

    def close(self) -> None:
        """Make Parquet files of what is left, and let other processes write."""
        try:
            self.compact()
        finally:
            self._journal.close()
            self._lock.close()

    def compact(self) -> None:
        """Make Parquet files of the journals, and of several files of a day one; keep to the size.

        Raises:
            UnavailableError: the system could not write; nothing is lost.
        """
        try:
            self._compact()
        except OSError as error:
            raise UnavailableError(f"can't write {self.folder}: {error.strerror}") from None

    def _compact(self) -> None:
        if self._journal.size:
            full, self._journal = self._journal, self._next_journal()
            full.close()
        full_journals = [each for each in journals_in(self.folder) if each != self._journal.path]
        self._make_room(2 * sum(each.stat().st_size for each in full_journals))
        for path in full_journals:
            with connect(_MEMORY_MIB) as connection:
                load_journals(connection, [path])
                of_gpus = hours_of("FROM new_gpus")
                connection.execute(f"INSERT INTO new_gpu_hours {of_gpus}")
                for table in TABLES:
                    self._write_days(connection, table, f"{number_of(path):08}")
            path.unlink()
            sync_folder(path.parent)
        self._merge()
        self._make_room(0)

    def _next_journal(self) -> Journal:
        numbers = [0, *map(number_of, journals_in(self.folder))]
        numbers += [each.last for each in parts_in(self.folder)]
        return Journal(self.folder / JOURNALS / f"{max(numbers) + 1:08}{SUFFIX}")

    def _write_days(self, connection: "duckdb.DuckDBPyConnection", table: str, name: str) -> None:
        days = f"SELECT DISTINCT strftime(time, '%Y-%m-%d') FROM new_{table}"
        for (day,) in connection.execute(days).fetchall():
            rows = f"SELECT * FROM new_{table} WHERE time::DATE = DATE '{day}'"
            self._write_file(connection, table, day, name, rows)

    def _write_file(
        self, connection: "duckdb.DuckDBPyConnection", table: str, day: str, name: str, rows: str
    ) -> None:
        folder = self.folder / table / f"day={day}"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            sync_folder(folder.parent)
            sync_folder(self.folder)
        write_parquet(
            connection, f"{rows} ORDER BY {TABLES[table].order}", folder / f"{name}.parquet"
        )

    def _merge(self) -> None:
        """Make one file of a day's where the day is over or has many, and delete what counts no more."""
        parts = parts_in(self.folder)
        kept = list(counting(parts))
        for part in set(parts) - set(kept):
            Path(part.path).unlink()
        by_day: dict[tuple[str, str], list[Part]] = defaultdict(list)
        for part in kept:
            by_day[part.table, part.day].append(part)
        newest = max((part.day for part in kept), default="")
        for (table, day), of_day in by_day.items():
            if len(of_day) < 2 or (day == newest and len(of_day) < _FILES_A_DAY):
                continue
            size = sum(Path(part.path).stat().st_size for part in of_day)
            if _size(self.folder) + 2 * size > self._max_bytes:
                continue
            with connect(_MEMORY_MIB) as connection:
                paths = ", ".join(literal(part.path) for part in of_day)
                rows = f"FROM read_parquet([{paths}], hive_partitioning = false)"
                if table == "gpu_hours":
                    rows = hours_of(rows)
                name = f"{of_day[0].first:08}-{of_day[-1].last:08}"
                try:
                    self._write_file(connection, table, day, name, f"SELECT * FROM ({rows})")
                except UnavailableError:  # one of them is damaged, which readers say
                    continue
            for part in of_day:
                Path(part.path).unlink()

    def _make_room(self, size: int) -> None:
        """Delete the oldest days until so many bytes are free; of the last day, its oldest files."""
        parts = sorted(parts_in(self.folder), key=lambda each: (each.day, each.last))
        while parts and _size(self.folder) + size > self._max_bytes:
            oldest, only_day = parts[0], parts[0].day == parts[-1].day
            for part in list(parts):
                if part.day == oldest.day and (not only_day or part.last == oldest.last):
                    Path(part.path).unlink()
                    parts.remove(part)
                    if not any(Path(part.path).parent.iterdir()):
                        Path(part.path).parent.rmdir()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
