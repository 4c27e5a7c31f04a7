"""Batching in a scenario: its fields, and the user's table of measurements.

The names of columns are those of the Splitwise measurements unless others are given; results of simulators of
engines are read the same way.
"""

import csv
import io
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.documents.models import Model
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.lab.queueing.batching import MAX_BATCH, BatchCurve, Batching
from gpuscale.lab.sim.scenario.times import DurationOrTimes, PositiveSeconds, times_of

MAX_ROWS = 100_000
Row = tuple[int, float, tuple[float, ...]]
"""Batch, prompt tokens, and the times in seconds."""


class BatchColumns(Model):
    """What the table calls its columns."""

    batch: str = "batch_size"
    prompt_tokens: str = "prompt_size"
    prompt_time: str = "prompt_time"
    """Until the first token, of a batch that begins together."""
    token_time: str = "token_time"  # noqa: S105 - a column's name
    """Between two tokens of one request."""
    request_time: str | None = None
    """Of whole requests, instead of prompt and token time."""


class BatchingSpec(Model):
    """Pods that work on several requests at once, each the slower the more they are."""

    file: str
    """The table, relative to the scenario file: .csv, .yaml or .json, also with .gz."""
    columns: BatchColumns = BatchColumns()
    unit: Literal["ms", "s"] = "ms"
    """Of the table's times."""
    where: dict[str, str | float] = {}
    """Columns and what they hold in the rows that count, such as hardware: a100-80gb."""
    prompt_tokens: float = Field(ge=1, le=1e8)
    output_tokens: DurationOrTimes = Field(union_mode="left_to_right")
    """A number, or a distribution that each request draws from."""
    max_batch: int = Field(default=256, ge=1, le=MAX_BATCH)
    """Requests in a pod's batch at the most; not more than the table has."""
    kv_cache_tokens: Annotated[float, Field(ge=1, le=1e12)] | None = None
    """Tokens that a pod's KV cache has room for; absent: it is not looked at."""
    timeout: PositiveSeconds | None = None
    """How long clients wait before they give up; absent: for ever."""


def batching_of(spec: BatchingSpec, text: str, source: str) -> Batching:
    """Return the batching of a service's pods.

    Args:
        spec: of the scenario.
        text: of its table.
        source: the table's name, for messages.

    Raises:
        ConfigError: a column or a number is missing, or no row counts.
    """
    rows = list(_rows(spec, text, source))
    if not rows:
        said = ", ".join(f"{name}: {value}" for name, value in spec.where.items())
        expected = f"at least one row with {said}" if said else "at least one row"
        raise ConfigError(Problem(source, None, None, "no such rows", expected))
    output = times_of(spec.output_tokens)
    points = _points(
        rows, spec.prompt_tokens, output.mean, has_whole=bool(spec.columns.request_time)
    )
    if not points or points[0][0] != 1:
        found = f"the batches {', '.join(str(size) for size, _ in points) or 'none'}"
        expected = f"rows for a batch of 1 with {spec.prompt_tokens:g} prompt tokens or around them"
        raise ConfigError(Problem(source, None, None, found, expected))
    curve = BatchCurve(points)
    return Batching(
        curve.cut(min(spec.max_batch, curve.largest)),
        spec.prompt_tokens,
        output,
        spec.kv_cache_tokens,
    )


def _points(
    rows: Sequence[Row], prompt: float, output: float, *, has_whole: bool
) -> list[tuple[int, float]]:
    """Return the seconds of a mean request by batch size, as far as the table covers.

    A prompt phase depends on the tokens of all prompts together, so where the table has no row for this batch
    and prompt it is read off from as many tokens. A batch beyond all that was measured is left out.
    """
    sizes = sorted({batch for batch, _, _ in rows})
    if has_whole:
        return [(size, _at(prompt, _by_prompt(rows, size, 0))) for size in sizes]
    by_tokens = _medians((batch * tokens, times[0]) for batch, tokens, times in rows)
    found = []
    for size in sizes:
        same = [times[0] for batch, tokens, times in rows if (batch, tokens) == (size, prompt)]
        if not same and not by_tokens[0][0] <= size * prompt <= by_tokens[-1][0]:
            continue
        prompt_s = median(same) if same else _at(size * prompt, by_tokens)
        token_s = _at(prompt, _by_prompt(rows, size, 1))
        found.append((size, prompt_s + max(0.0, output - 1) * token_s))
    return found


def _by_prompt(rows: Sequence[Row], size: int, place: int) -> list[tuple[float, float]]:
    return _medians((tokens, times[place]) for batch, tokens, times in rows if batch == size)


def _medians(pairs: Iterator[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the median of the second numbers for each first number, in rising order."""
    found: dict[float, list[float]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return [(key, median(found[key])) for key in sorted(found)]


def _at(place: float, points: Sequence[tuple[float, float]]) -> float:
    """Return the value at a point by linear interpolation, constant outside."""
    after = bisect_left(points, (place, -math.inf))
    if after == 0 or after == len(points):
        return points[min(after, len(points) - 1)][1]
    (left, low), (right, high) = points[after - 1 : after + 1]
    return low + (high - low) * (place - left) / (right - left)


def _rows(spec: BatchingSpec, text: str, source: str) -> Iterator[Row]:
    """Yield the table's relevant rows.

    Raises:
        ConfigError: columns or numbers are missing; with every bad line up to the tenth.
    """
    problems: list[Problem] = []
    for line, row in _table(text, source):
        absent = [name for name in (*_needed(spec), *spec.where) if name not in row]
        if absent:
            found, expected = ", ".join(row)[:200], f"columns {', '.join(absent)} too"
            raise ConfigError(Problem(source, line, None, found or "nothing", expected))
        try:
            counted = _row(spec, row)
        except ValueError as error:
            problems.append(Problem(source, line, None, None, str(error)))
            if len(problems) == 10:
                break
            continue
        if counted is not None:
            yield counted
    if problems:
        raise ConfigError(*problems)


def _row(spec: BatchingSpec, row: Mapping[str, object]) -> Row | None:
    """Return a row's numbers; None for an irrelevant row.

    Raises:
        ValueError: one is missing.
    """
    if not all(_same(row[name], value) for name, value in spec.where.items()):
        return None
    batch, prompt, *times = (_number(name, row[name]) for name in _needed(spec))
    if batch != int(batch) or batch > MAX_BATCH:
        most = f"a whole number up to {MAX_BATCH}"
        raise ValueError(f"found {spec.columns.batch} {batch:g}, expected {most}")
    scale = 1000 if spec.unit == "ms" else 1
    return int(batch), prompt, tuple(time / scale for time in times)


def _needed(spec: BatchingSpec) -> list[str]:
    columns = spec.columns
    whole = columns.request_time
    timed = [whole] if whole else [columns.prompt_time, columns.token_time]
    return [columns.batch, columns.prompt_tokens, *timed]


def _table(text: str, source: str) -> Iterator[tuple[int | None, Mapping[str, object]]]:
    """Yield lines and rows by column.

    Raises:
        ConfigError: it is no table, or too long.
    """
    if source.removesuffix(".gz").endswith((".yaml", ".yml", ".json")):
        data = [each.data for each in load_documents(text, source)]
        rows = data[0] if len(data) == 1 else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError(Problem(source, None, None, "another document", "a list of rows"))
        numbered: Iterator[tuple[int | None, Mapping[str, object]]] = ((None, row) for row in rows)
    else:
        reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
        numbered = ((reader.line_num, row) for row in reader)
    try:
        for count, (line, row) in enumerate(numbered):
            if count == MAX_ROWS:
                raise ConfigError(
                    Problem(source, line, None, "another row", f"at most {MAX_ROWS:,} rows")
                )
            yield line, {str(name).strip(): value for name, value in row.items()}
    except csv.Error as error:
        raise ConfigError(Problem(source, None, None, str(error), "rows of CSV")) from None


def _same(found: object, wanted: str | float) -> bool:
    if isinstance(wanted, str):
        return str(found).strip() == wanted
    try:
        return float(str(found)) == wanted
    except ValueError:
        return False


def _number(name: str, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise ValueError(f"found {name} {value!r}, expected a number above 0")
    return number
