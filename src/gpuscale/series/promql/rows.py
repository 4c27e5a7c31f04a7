"""Values passed between evaluated nodes: rows, windows, scalars.

Plain tuples, since ten thousand of them are made per query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuscale.base.errors import QueryError
from gpuscale.series.labels import LabelSet
from gpuscale.series.promql.budget import Budget
from gpuscale.series.promql.tree import Node

Row = tuple[LabelSet, float, int]
"""Labels, value, and when it was measured in milliseconds."""

Rows = list[Row]

NAN = float("nan")


class Reading(NamedTuple):
    """A scalar; `measured_ms` is None if no sample went into it."""

    value: float
    measured_ms: int | None = None


class Window(NamedTuple):
    """The samples of one series within a range, at least one, in order of time."""

    labels: LabelSet
    times_ms: Sequence[int]
    values: Sequence[float]
    measured_ms: int


class RangeWindows(NamedTuple):
    """The windows of all series, with the range they cover."""

    start_ms: int
    end_ms: int
    windows: list[Window]


class QueryRange(NamedTuple):
    """The time range of a whole query."""

    start_ms: int
    end_ms: int
    step_ms: int
    """0 where there is only one time."""


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query with its times and evaluation settings."""

    root: Node
    covered: QueryRange
    steps: range
    """Of what is covered, the times that values are due for."""
    lookback_ms: int
    left_open: bool
    """Whether a sample exactly at the start of a range stays out."""
    check: Budget
    """Raises once the time is up; called every few milliseconds."""


class Evaluator(Protocol):
    """What functions need of the running evaluation."""

    at_ms: int

    def query_range(self) -> QueryRange:
        """Return the time range of the whole query."""
        ...

    def rows(self, node: Node) -> Rows: ...

    def number(self, node: Node) -> Reading: ...

    def windows(self, node: Node) -> RangeWindows: ...

    def text(self, node: Node) -> str: ...

    def hold_labels(self, size: int) -> None:
        """Count the bytes of new label texts."""
        ...


def nameless(rows: Rows) -> Rows:
    """Return the rows without the metric's name, type and unit, as after most functions.

    Raises:
        QueryError: two rows differ by nothing but the name.
    """
    return unique([(labels.without_name(), value, measured) for labels, value, measured in rows])


def unique(rows: Rows) -> Rows:
    """Return the rows, or raise if two have equal labels.

    Raises:
        QueryError: two rows have the same labels; the text is Prometheus'.
    """
    if len({row[0].key for row in rows}) != len(rows):
        raise QueryError("vector cannot contain metrics with the same labelset")
    return rows
