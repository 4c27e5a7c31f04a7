"""Runs and recordings as Parquet, by pyarrow, which comes with `gpuscale[parquet]`.

Series are in long form, a row for each value that there is: a pod lives for minutes and a large run has a
hundred thousand of them, so a column for each would be empty almost everywhere, and no reader opens a file of
so many columns. Rows are in the order of series and time, so a query on one series skips most of the file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow import parquet

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.text_files import unreadable
from gpuscale.lab import MAX_FILE_BYTES
from gpuscale.lab.sim.history import FACT_COLUMNS, MAX_STEPS, NAMES, Line, is_of_hpa

_GROUP_ROWS = 1 << 17
"""Rows that are held as columns at a time, beside the document."""
_KEY = "gpuscale.run"
"""Of the file's metadata, which holds the rest of the document as JSON."""
_SERIES = (("series", pa.string()), ("t", pa.float64()), ("value", pa.float64()))
_EVENTS = (
    ("t", pa.float64()),
    ("kind", pa.string()),
    ("object", pa.string()),
    ("from", pa.float64()),
    ("to", pa.float64()),
    ("reason", pa.string()),
)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_Columns = tuple[list[str], list[float], list[float]]


def write_series(document: Mapping[str, object], file: BinaryIO) -> None:
    """Write the series of a run; a gap has no row.

    Raises:
        OSError: it can't be written.
    """
    schema = _schema(_SERIES, document)
    with _writer(file, schema) as writer:
        for columns in _filled(cast("Mapping[str, Sequence[float | None]]", document["series"])):
            writer.write_table(pa.table(list(columns), schema=schema))


def write_events(document: Mapping[str, object], file: BinaryIO) -> None:
    """Write the events of a run, oldest first.

    Raises:
        OSError: it can't be written.
    """
    schema = _schema(_EVENTS, document)
    events = cast("Sequence[Mapping[str, object]]", document["events"])
    with _writer(file, schema) as writer:
        for first in range(0, len(events), _GROUP_ROWS):
            rows = events[first : first + _GROUP_ROWS]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _writer(file: BinaryIO, schema: pa.Schema) -> parquet.ParquetWriter:
    return parquet.ParquetWriter(file, schema, compression="zstd")


def _schema(
    columns: Sequence[tuple[str, pa.DataType]], document: Mapping[str, object]
) -> pa.Schema:
    rest = {name: part for name, part in document.items() if name not in ("events", "series")}
    return pa.schema(columns, metadata={_KEY: json.dumps(rest, ensure_ascii=False)})


def _filled(series: Mapping[str, Sequence[float | None]]) -> Iterator[_Columns]:
    """Yield columns of at most so many rows as a group has."""
    columns: _Columns = ([], [], [])
    names, moments, kept = columns
    for name, values in series.items():
        if name == "t":
            continue
        for t, value in zip(cast("Sequence[float]", series["t"]), values, strict=True):
            if value is None:
                continue
            names.append(name)
            moments.append(t)
            kept.append(value)
            if len(names) == _GROUP_ROWS:
                yield columns
                for column in columns:
                    column.clear()
    if names:
        yield columns


def read_rows(path: Path, source: str) -> Iterator[Line]:
    """Yield the rows of a recording, numbered from 1, as `lab.sim.history.tables` takes them.

    Raises:
        ConfigError: it can't be read, lacks a column, has another type in one, or is too large.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _refused(source, f"larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB")
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            names = _names(file, source)
            table = file.read(columns=names)
        cells = [_values(table.column(name)) for name in names]
    except (pa.ArrowException, ValueError) as error:  # a name with invalid UTF-8 raises ValueError
        raise _refused(source, f"can't be read as Parquet: {_first_line(error)}") from None
    except OSError as error:
        # Arrow's own errors about a damaged page have no errno.
        why = (
            unreadable(error) if error.errno else f"can't be read as Parquet: {_first_line(error)}"
        )
        raise _refused(source, why) from None
    for row, values in enumerate(zip(*cells, strict=True), start=1):
        found = dict(zip(names, values, strict=True))
        if found["time"] is None:
            yield row, Problem(source, row, "time", "no value", "a time in each row")
        else:
            yield row, found


def _names(file: parquet.ParquetFile, source: str) -> Sequence[str]:
    """Return the columns to read, all of a type of fixed size, so that the rows bound the memory."""
    schema = file.schema_arrow
    missing = [name for name in ("time", "replicas") if name not in schema.names]
    if missing:
        found = (", ".join(schema.names) or "no column")[:200]
        raise _refused(source, f"columns named {' and '.join(missing)}", found)
    if file.metadata.num_rows > MAX_STEPS:
        raise _refused(source, f"at most {MAX_STEPS}", f"{file.metadata.num_rows} rows")
    # A GPU model is text, whose size is not fixed.
    facts = [name for name in FACT_COLUMNS if name != "gpuModel"]
    of_hpa = filter(is_of_hpa, dict.fromkeys(schema.names))
    names = [*(name for name in ("time", *NAMES, *facts) if name in schema.names), *of_hpa]
    problems: list[Problem] = []
    for name in names:
        if schema.names.count(name) > 1:
            problems.append(Problem(source, None, name, "two columns of this name", "one"))
        elif not _is_number(kind := schema.field(name).type) and not (
            name == "time" and pa.types.is_timestamp(kind)
        ):
            expected = "timestamps, or seconds as numbers" if name == "time" else "numbers"
            problems.append(
                Problem(source, None, name, f"values of type {kind}", expected, "cast the column")
            )
    if problems:
        raise ConfigError(*problems)
    return names


def _is_number(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    # A column with nothing but gaps has no type.
    return pa.types.is_null(kind) or any(is_kind(kind) for is_kind in kinds)


def _values(column: pa.ChunkedArray) -> Sequence[float | None]:
    """Return numbers; of timestamps the seconds since the epoch, and those without a zone are UTC."""
    if not pa.types.is_timestamp(column.type):
        return cast("Sequence[float | None]", column.cast(pa.float64(), safe=False).to_pylist())
    per_second = _PER_SECOND[column.type.unit]
    ticks = column.cast(pa.int64()).to_pylist()
    return [None if tick is None else tick / per_second for tick in ticks]


def _refused(source: str, expected: str, found: str | None = None) -> ConfigError:
    return ConfigError(Problem(source, None, None, found, expected))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
