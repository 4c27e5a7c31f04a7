"""Reads a history: its tables as views, for our own questions and for anybody's SQL.

SQL sees the history's files and nothing else of the machine, changes nothing, and ends after a while. What
keeps it so is DuckDB's own: `allowed_paths` without external access, a locked configuration, and one SELECT
at a time.
An object store's addresses (s3://, gs://, azure://) are read by DuckDB's extensions; journals are not there.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.ops.history.duck import connect, literal, load_journals
from gpuscale.ops.history.folder import (
    MARK,
    Part,
    check_version,
    counting,
    is_history,
    journals_in,
    number_of,
    part_of,
    parts_in,
)
from gpuscale.ops.history.tables import DECISIONS, TABLES, hours_of

if TYPE_CHECKING:
    import duckdb

_MEMORY_MIB = 1024
_TRIES = 5
"""Of reading the names of files while the writer makes others of them."""
_BATCH = 1024
_EXTENSIONS = {"s3": "httpfs", "gs": "httpfs", "gcs": "httpfs", "r2": "httpfs", "az": "azure"}
_EXTENSIONS |= {"https": "httpfs", "azure": "azure", "abfss": "azure"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns, and rows as they come."""

    columns: Sequence[str]
    rows: Iterator[Sequence[Any]]


class History:
    """Answers from a folder, or an address of an object store. What is written later is not seen.

    Args:
        place: the folder or address.
        timeout_s: after which a question is given up.
        memory_mib: that a question may take.

    Raises:
        UsageError: there is no history, it is another version's, or DuckDB is not installed.
        UnavailableError: it can't be read.
    """

    def __init__(self, place: str, timeout_s: float = 60, memory_mib: int = _MEMORY_MIB) -> None:
        self.place = place
        self._timeout_s = timeout_s
        self._connection = connect(memory_mib)
        scheme, _, rest = place.partition("://")
        try:
            parts = self._remote(place.rstrip("/"), scheme) if rest else self._local(Path(place))
        except OSError as error:
            raise UnavailableError(f"can't read {place}: {error.strerror}") from None
        paths: dict[str, list[str]] = {name: [] for name in TABLES}
        for part in parts:
            paths[part.table].append(part.path)
        import duckdb

        try:
            for name in TABLES:
                self._connection.execute(f"CREATE VIEW {name} AS {_view(name, paths[name])}")
            self._connection.execute(f"CREATE VIEW decisions AS {DECISIONS}")
        except duckdb.Error as error:  # a file is damaged, or somebody else's
            raise UnavailableError(f"can't read {place}: {_first_line(error)}") from None
        allowed = ", ".join(literal(path) for of_table in paths.values() for path in of_table)
        for setting in (
            f"allowed_paths = [{allowed}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._connection.close()

    def _local(self, folder: Path) -> list[Part]:
        """Load the rows of journals, and return the files beside them that count."""
        if not is_history(folder):
            raise UsageError(
                f"{folder}: found no history there; keep one with: gpuscale history keep --to {folder}"
            )
        for _ in range(_TRIES):
            journals = journals_in(folder)
            try:
                load_journals(self._connection, journals)
            except FileNotFoundError:
                continue
            parts = parts_in(folder)
            if journals_in(folder)[: len(journals)] == journals:
                numbers = frozenset(map(number_of, journals))
                return list(counting(parts, numbers))
        raise UnavailableError(f"can't read {folder}: its files changed all the time; try again")

    def _remote(self, address: str, scheme: str) -> list[Part]:
        import duckdb

        extension = _EXTENSIONS.get(scheme)
        if extension is None:
            known = ", ".join(f"{each}://" for each in _EXTENSIONS)
            raise UsageError(f"{address}: expected a folder, or one of {known}")
        try:
            self._connection.install_extension(extension)
            self._connection.load_extension(extension)
            if scheme != "https":
                of = {"azure": "azure"}.get(
                    extension, scheme.replace("gs", "gcs").replace("gcsc", "gc")
                )
                self._connection.execute(f"CREATE SECRET (TYPE {of}, PROVIDER credential_chain)")
            mark = literal(f"{address}/{MARK}")
            found = self._connection.execute(f"SELECT content FROM read_text({mark})").fetchone()
            check_version(found[0] if found else "", address)
            listed = self._connection.execute(
                f"SELECT file FROM glob({literal(f'{address}/*/day=*/*.parquet')})"
            ).fetchall()
        except duckdb.Error as error:
            raise UnavailableError(f"can't read {address}: {_first_line(error)}") from None
        load_journals(self._connection, ())
        return list(counting([part for (path,) in listed if (part := part_of(path)) is not None]))

    @contextmanager
    def ask(self, sql: str, *values: object) -> Iterator[Answer]:
        """Answer a SELECT, whose rows are read inside the block.

        Raises:
            UsageError: it is no single SELECT, is wrong, or needs what is not allowed.
            UnavailableError: it takes too long or too much memory, or a file can't be read.
        """
        import duckdb

        timer = threading.Timer(self._timeout_s, self._connection.interrupt)
        timer.daemon = True
        try:
            statements = self._connection.extract_statements(sql)
            kinds = [each.type for each in statements]
            if kinds != [duckdb.StatementType.SELECT]:
                said = ", ".join(each.name for each in kinds) or "nothing"
                raise UsageError(f"found {said}, expected one SELECT: a history is only read")
            timer.start()
            result = self._connection.execute(statements[0], list(values))
            yield Answer([each[0] for each in result.description or ()], _rows(result))
        except duckdb.InterruptException:
            raise UnavailableError(
                f"gave up after {self._timeout_s:g} s; ask about less, or allow more with --timeout"
            ) from None
        except duckdb.OutOfMemoryException as error:
            raise UnavailableError(
                f"took more memory than it may; ask about less: {_first_line(error)}"
            ) from None
        except duckdb.PermissionException as error:
            raise UsageError(
                f"found what is outside the history, expected its tables alone: {_first_line(error)}"
            ) from None
        except (duckdb.IOException, duckdb.HTTPException) as error:
            raise UnavailableError(f"can't read {self.place}: {_first_line(error)}") from None
        except duckdb.Error as error:
            raise UsageError(str(error)) from None
        finally:
            timer.cancel()


def _rows(result: "duckdb.DuckDBPyConnection") -> Iterator[Sequence[Any]]:
    while found := result.fetchmany(_BATCH):
        yield from found


def _view(name: str, paths: Sequence[str]) -> str:
    new = f"FROM new_{name}"
    if name == "gpu_hours":
        new = f"FROM ({hours_of('FROM new_gpus')})"
    of_journals = f"SELECT *, time::DATE AS day {new}"
    if not paths:
        return of_journals
    listed = ", ".join(map(literal, paths))
    options = "hive_partitioning = true, hive_types = {'day': DATE}"
    return f"SELECT * FROM read_parquet([{listed}], {options}) UNION ALL {of_journals}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
