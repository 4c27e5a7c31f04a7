"""What evaluation passes from node to node: rows of a vector, windows of a range, readings of a number.

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
    """A scalar; `measured_ms` is None where nothing measured went into it."""

    value: float
    measured_ms: int | None = None


class Window(NamedTuple):
    """The samples of one series inside a range, at least one, time ascending."""

    labels: LabelSet
    times_ms: Sequence[int]
    values: Sequence[float]
    measured_ms: int


class RangeWindows(NamedTuple):
    """The windows of all series, and the range they were cut from."""

    start_ms: int
    end_ms: int
    windows: list[Window]


class QueryRange(NamedTuple):
    """What a query as a whole covers."""

    start_ms: int
    end_ms: int
    step_ms: int
    """0 where there is only one time."""


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query with the times and rules that it is evaluated by."""

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
    """What functions ask of the evaluation they run in."""

    at_ms: int

    def query_range(self) -> QueryRange:
        """Return what the whole query covers, whichever step this is."""
        ...

    def rows(self, node: Node) -> Rows: ...

    def number(self, node: Node) -> Reading: ...

    def windows(self, node: Node) -> RangeWindows: ...

    def text(self, node: Node) -> str: ...

    def hold_labels(self, size: int) -> None:
        """Count bytes of texts that are made for label sets."""
        ...


def nameless(rows: Rows) -> Rows:
    """Return the rows without the metric's name, type and unit, as after anything that changes the meaning.

    Raises:
        QueryError: two rows differ by nothing but the name.
    """
    return unique([(labels.without_name(), value, measured) for labels, value, measured in rows])


def unique(rows: Rows) -> Rows:
    """Return the rows where all labels differ.

    Raises:
        QueryError: two rows have the same labels; the text is Prometheus'.
    """
    if len({row[0].key for row in rows}) != len(rows):
        raise QueryError("vector cannot contain metrics with the same labelset")
    return rows
