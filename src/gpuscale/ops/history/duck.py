"""DuckDB, which comes with `gpuscale[history]`: connections to it, and what goes in and out."""

import json
import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.ops.history.journal import frames, sync_folder
from gpuscale.ops.history.tables import TABLES

if TYPE_CHECKING:
    import duckdb


def check_installed() -> None:
    """Check that DuckDB is there.

    Raises:
        UsageError: it is not.
    """
    if find_spec("duckdb") is None:
        raise UsageError(
            "found no Python package duckdb; install it with: pip install 'gpuscale[history]'"
        )


def connect(memory_mib: int) -> "duckdb.DuckDBPyConnection":
    """Return an empty database in memory, of which nothing goes to disk.

    Raises:
        UsageError: DuckDB is not installed.
    """
    check_installed()
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mib}MiB",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    return duckdb.connect(":memory:", config=settings)


def load_journals(connection: "duckdb.DuckDBPyConnection", journals: Iterable[Path]) -> None:
    """Make the tables `new_NAME`, with the rows of journals."""
    for name, table in TABLES.items():
        columns = ", ".join(f'"{each}" {kind}' for each, kind in table.columns.items())
        connection.execute(f"CREATE TABLE new_{name} ({columns})")
    for path in journals:
        for frame in frames(path):
            for name, columns_json in frame.items():
                connection.execute(_insert(name), [columns_json.decode(), _structure(name)])


def write_parquet(connection: "duckdb.DuckDBPyConnection", rows: str, path: Path) -> None:
    """Write the rows of a SELECT to a file that is there whole or not at all, also after a crash.

    Raises:
        UnavailableError: the system could not write.
    """
    import duckdb

    beside = path.with_name(f"{path.name}.writing")
    try:
        connection.execute(
            f"COPY ({rows}) TO {literal(beside)} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        )
    except duckdb.Error as error:
        raise UnavailableError(f"can't write {path}: {error}") from None
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def literal(text: object) -> str:
    """Return a text as SQL has it."""
    quoted = str(text).replace("'", "''")
    return f"'{quoted}'"


def _insert(name: str) -> str:
    values = ", ".join(_value(each, kind) for each, kind in TABLES[name].columns.items())
    parsed = "WITH parsed AS MATERIALIZED (SELECT from_json($1::JSON, $2) AS given)"
    return f"INSERT INTO new_{name} {parsed} SELECT {values} FROM parsed"


def _value(column: str, kind: str) -> str:
    value = f'unnest(given."{column}")'
    return f"make_timestamp({value} * 1000)" if kind == "TIMESTAMP" else value


def _structure(name: str) -> str:
    columns: Mapping[str, str] = TABLES[name].columns
    return json.dumps(
        {each: ["BIGINT" if kind == "TIMESTAMP" else kind] for each, kind in columns.items()}
    )
