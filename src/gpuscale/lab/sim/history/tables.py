"""A recording as CSV or JSON lines: one row for each time; an empty cell or null is a gap.

Columns: `time` (seconds since the epoch, or a date and time), `replicas`, `ready`, `utilization` (mean
percent of the GPUs of ready pods), `rate` (requests per second), `nodes`; facts, whose first value holds for
all rows: `gpusPerNode`, `gpuModel`, `startupSeconds`, `provisioningSeconds`; and what the HPA said:
`minReplicas`, `maxReplicas`, and `target/METRIC` for each of its metrics. Only `time` and `replicas` are
needed; the others may be left out, and any other column is passed over.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import median_low

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.words import counted
from gpuscale.lab.sim.history.recording import (
    FACT_COLUMNS,
    MOST_TARGETS,
    NAMES,
    RecordedColumns,
    Recording,
    is_of_hpa,
    metric_of,
)
from gpuscale.lab.sim.load.traces import seconds_of_time

MAX_STEPS = 100_000
"""Of a recording; at 15 s more than 17 days, and as many rows as a run keeps."""
_MAX_PROBLEMS = 10
_MOST_OBJECTS = 100_000.0
"""As many nodes as a pool of a scenario may have; a slip in a table must not fill the memory with pods."""
_LARGEST = {
    "utilization": 100.0,
    "replicas": _MOST_OBJECTS,
    "ready": _MOST_OBJECTS,
    "nodes": _MOST_OBJECTS,
    "gpusPerNode": 72.0,
    "startupSeconds": 86_400.0,
    "provisioningSeconds": 86_400.0,
    "minReplicas": 2**31 - 1.0,
    "maxReplicas": 2**31 - 1.0,
}
_LARGEST_TARGET = 1e15
"""Thousandths of it are whole numbers of 64 bits, as a quantity's are."""
Row = tuple[int, dict[str, float | None]]
"""Milliseconds since the epoch, and values by column."""
Line = tuple[int, Mapping[str, object] | Problem]
"""Its number, counted from 1, and cells by column or why it has none."""


def read_recording(text: str, source: str) -> Recording:
    """Return the recording in a file; `.jsonl` and `.ndjson` hold JSON lines, others CSV.

    Raises:
        ConfigError: with every bad line up to the tenth.
    """
    is_json = source.removesuffix(".gz").endswith((".jsonl", ".ndjson"))
    text = text.removeprefix("\ufeff")  # a spreadsheet's byte order mark
    return recording_of(_json_lines(text, source) if is_json else _csv_lines(text, source), source)


def recording_of(lines: Iterable[Line], source: str) -> Recording:
    """Return the recording in lines that are parsed already.

    Raises:
        ConfigError: with every bad line up to the tenth.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    stated: dict[str, str] = {}
    targets: set[str] = set()
    for line, cells in lines:
        if isinstance(cells, Problem):
            problems.append(cells)
        else:
            try:
                for name in FACT_COLUMNS:
                    if name not in stated and (text := _fact(name, cells.get(name))):
                        stated[name] = text
                rows.append(_row(cells, rows[-1][0] if rows else -1))
                targets.update(name for name in rows[-1][1] if metric_of(name) is not None)
            except ValueError as error:
                problems.append(Problem(source, line, None, None, str(error)))
        if len(targets) > MOST_TARGETS:
            found = f"{len(targets)} columns of targets"
            raise ConfigError(Problem(source, line, None, found, f"at most {MOST_TARGETS}"))
        if len(rows) > MAX_STEPS:
            problems.append(Problem(source, line, None, "more rows", f"at most {MAX_STEPS}"))
        if len(problems) >= _MAX_PROBLEMS or len(rows) > MAX_STEPS:
            break
    if not problems and len(rows) < 2:
        problems.append(Problem(source, None, None, counted(len(rows), "row"), "at least two"))
    if problems:
        raise ConfigError(*problems)
    return _on_a_grid(rows, stated, source)


def _on_a_grid(rows: list[Row], stated: Mapping[str, str], source: str) -> Recording:
    """Return the rows on an even time grid; a missing row becomes a gap in all columns."""
    step_ms = median_low([later[0] - earlier[0] for earlier, later in pairwise(rows)])
    start_ms = rows[0][0]
    steps = (rows[-1][0] - start_ms) // step_ms + 1
    if steps > MAX_STEPS:
        found = f"{steps} steps of {step_ms / 1000:g} s from the first row to the last"
        raise ConfigError(Problem(source, None, None, found, f"at most {MAX_STEPS}"))
    columns: dict[str, list[float | None]] = {name: [None] * steps for name in NAMES}
    for time_ms, values in rows:
        index = min(steps - 1, round((time_ms - start_ms) / step_ms))
        for name, value in values.items():
            columns.setdefault(name, [None] * steps)[index] = value
    kept = RecordedColumns(**{name: tuple(columns[name]) for name in NAMES})
    hpa = {name: tuple(column) for name, column in columns.items() if is_of_hpa(name)}
    return Recording(start_ms, step_ms, kept, hpa, stated)


def _csv_lines(text: str, source: str) -> Iterator[Line]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in ("time", "replicas") if name not in header]
        if missing:
            found = (", ".join(header) or "an empty file")[:200]
            raise ConfigError(
                Problem(source, 1, None, found, f"columns named {' and '.join(missing)}")
            )
        for name in ("time", *NAMES, *FACT_COLUMNS, *filter(is_of_hpa, dict.fromkeys(header))):
            if header.count(name) > 1:
                found = f"{header.count(name)} columns named {name}"
                raise ConfigError(Problem(source, 1, None, found, "one"))
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                expected = f"{len(header)} as the header has"
                yield (
                    reader.line_num,
                    Problem(source, reader.line_num, None, f"{len(row)} cells", expected),
                )
            else:
                yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise ConfigError(Problem(source, reader.line_num, None, str(error), "CSV")) from None


def _json_lines(text: str, source: str) -> Iterator[Line]:
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError):
            cells = None
        if isinstance(cells, dict) and cells.get("time") is not None and "replicas" in cells:
            yield number, cells
        else:
            yield (
                number,
                Problem(source, number, None, None, "a JSON object with time and replicas"),
            )


def _row(cells: Mapping[str, object], before_ms: int) -> Row:
    time_s = seconds_of_time(str(cells["time"]))
    if not 0 <= time_s < 1e11:
        raise ValueError(
            f"found the time {cells['time']!r}, expected seconds since 1970, or a date"
        )
    time_ms = round(time_s * 1000)
    if time_ms <= before_ms:
        raise ValueError("a time not after the one above, expected times that rise")
    known = (*NAMES, *filter(is_of_hpa, cells))
    return time_ms, {name: _number(name, cells.get(name)) for name in known}


def _fact(name: str, cell: object) -> str | None:
    """Return a fact as text; None for an empty cell."""
    if name == "gpuModel":
        return str(cell).strip()[:64] or None if cell is not None else None
    value = _number(name, cell)
    if value is not None and name == "gpusPerNode" and (value < 1 or value != round(value)):
        raise ValueError(f"{name}: found {cell!r}, expected a whole number from 1 to 72")
    return None if value is None else f"{value:.9g}"


def _number(name: str, cell: object) -> float | None:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    largest = _LARGEST.get(name, 1e9 if metric_of(name) is None else _LARGEST_TARGET)
    try:
        value = (
            float(cell)
            if isinstance(cell, (str, int, float)) and not isinstance(cell, bool)
            else -1.0
        )
    except (ValueError, OverflowError):
        value = -1.0
    if not (math.isfinite(value) and 0 <= value <= largest):
        raise ValueError(
            f"{name}: found {cell!r}, expected a number from 0 to {largest:g}, or nothing"
        )
    return value
