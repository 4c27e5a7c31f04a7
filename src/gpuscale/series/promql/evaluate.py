"""PromQL evaluated on the store, row by row.

The language is that of Prometheus 3: a range or a lookback leaves out a sample that lies exactly on its left
boundary. Prometheus 2 took it in; `left_open=False` asks for that. Known differences: no native histograms,
and what else is not supported is refused by name.

A range query is an instant query at each of its steps. What makes that quick lies elsewhere: the store
remembers what a selector selects, and groupings remember where a label set belongs.

Source: prometheus promql/engine.go, release 3.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from gpuscale.base.errors import BugError, UncoveredError
from gpuscale.series.labels import EMPTY, LabelKey, LabelSet
from gpuscale.series.promql.binary import scalar_binary, vector_binary
from gpuscale.series.promql.budget import (
    POINT_BYTES,
    SERIES_BYTES,
    SUBQUERY_STEP_MS,
    Budget,
    Check,
    check_work,
    row_bytes,
)
from gpuscale.series.promql.functions.aggregate import aggregate
from gpuscale.series.promql.functions.functions import SCALAR_FUNCTIONS, VECTOR_FUNCTIONS
from gpuscale.series.promql.parse import BadQueryError, Query, parse_query
from gpuscale.series.promql.rows import (
    Evaluator,
    PlannedQuery,
    QueryRange,
    RangeWindows,
    Reading,
    Rows,
    Window,
    nameless,
)
from gpuscale.series.promql.tree import (
    Aggregate,
    Anchor,
    Binary,
    Call,
    Moment,
    Negate,
    Node,
    Number,
    Select,
    SelectRange,
    Subquery,
    Text,
    ValueType,
    value_type,
)
from gpuscale.series.storage.index import Selector
from gpuscale.series.storage.samples import Series, current, window
from gpuscale.series.values import (
    Matrix,
    MatrixSeries,
    Points,
    Scalar,
    StringValue,
    Value,
    Vector,
    VectorSample,
)

LOOKBACK_MS = 300_000
MAX_POINTS = 11_000
"""Steps of a range query, as Prometheus bounds them."""


class StoredSamples(Protocol):
    """The source of samples: a store, or a partial copy of one."""

    def select(self, matchers: Selector) -> tuple[Series, ...]: ...

    def oldest_kept_ms(self) -> int:
        """Return the earliest time for which queries are answered."""
        ...


class Evaluable(ABC):
    """Samples that bring their own evaluator."""

    @abstractmethod
    def instant(self, query: PlannedQuery) -> Value:
        """Return a query's value at its time."""

    @abstractmethod
    def range_query(self, query: PlannedQuery) -> Matrix:
        """Return a query's values at its steps."""


Samples = StoredSamples | Evaluable


def instant(
    store: Samples,
    query: str | Query,
    at_ms: int,
    *,
    lookback_ms: int = LOOKBACK_MS,
    left_open: bool = True,
    check: Check | None = None,
) -> Value:
    """Return the value of a query at one time.

    Args:
        store: where the samples are.
        query: PromQL, or what `parse_query` made of it.
        at_ms: milliseconds since the epoch.
        lookback_ms: how old a sample may be and still count as the current one.
        left_open: whether a sample exactly at the start of a range stays out, as since Prometheus 3.
        check: raises QueryTimeoutError once the time is up, called every few milliseconds; or the budget that
            counts what the query holds already.

    Raises:
        QueryError: not PromQL, not supported, ambiguous, or too much to evaluate.
        QueryTimeoutError: the time is up.
    """
    root = (parse_query(query) if isinstance(query, str) else query).root
    check_work(root, 1)
    covered = QueryRange(at_ms, at_ms, 0)
    if isinstance(store, Evaluable):
        times = range(at_ms, at_ms + 1)
        return store.instant(
            PlannedQuery(root, covered, times, lookback_ms, left_open, Budget.of(check))
        )
    span = _Span(store, covered, lookback_ms, left_open, Budget.of(check))
    evaluation = _Evaluation(span, at_ms)
    match value_type(root):
        case ValueType.SCALAR:
            return Scalar(evaluation.number(root).value)
        case ValueType.STRING:
            return StringValue(evaluation.text(root))
        case ValueType.MATRIX:
            return _raw_matrix(evaluation.windows(root))
        case ValueType.VECTOR:
            return Vector(tuple(VectorSample(*row) for row in evaluation.rows(root)))


def range_query(
    store: Samples,
    query: str | Query,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    *,
    lookback_ms: int = LOOKBACK_MS,
    left_open: bool = True,
    check: Check | None = None,
) -> Matrix:
    """Return the values of a query at each step from `start_ms` to `end_ms`, both included.

    Raises:
        QueryError: as `instant`; or more than 11 000 steps, or a query that is no vector or scalar.
    """
    root = (parse_query(query) if isinstance(query, str) else query).root
    check_range(root, start_ms, end_ms, step_ms)
    covered = range_covered(start_ms, end_ms, step_ms)
    steps = range(start_ms, end_ms + 1, step_ms)
    check_work(root, len(steps))
    if isinstance(store, Evaluable):
        return store.range_query(
            PlannedQuery(root, covered, steps, lookback_ms, left_open, Budget.of(check))
        )
    span = _Span(store, covered, lookback_ms, left_open, Budget.of(check))
    return _gathered(span, root, steps, is_inner=False).matrix()


def range_covered(start_ms: int, end_ms: int, step_ms: int) -> QueryRange:
    """Return the time range that a range query covers."""
    return QueryRange(start_ms, end_ms, step_ms if end_ms > start_ms else 0)


def check_range(root: Node, start_ms: int, end_ms: int, step_ms: int) -> None:
    """Raise for a range query that Prometheus would refuse.

    Raises:
        BadQueryError: no step, an end before the start, too many points, or a query that is no vector or
            scalar; the texts are Prometheus'.
    """
    if end_ms < start_ms:
        raise BadQueryError('invalid parameter "end": end timestamp must not be before start time')
    if step_ms <= 0:
        raise BadQueryError(
            'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
            "Try a positive integer"
        )
    if (end_ms - start_ms) // step_ms > MAX_POINTS:
        raise BadQueryError(
            "exceeded maximum resolution of 11,000 points per timeseries. "
            "Try decreasing the query resolution (?step=XX)"
        )
    kind = value_type(root)
    if kind in {ValueType.MATRIX, ValueType.STRING}:
        raise BadQueryError(
            f'invalid parameter "query": invalid expression type "{kind.value}" for range query, '
            "must be Scalar or instant Vector"
        )


@dataclass(slots=True)
class _Span:
    """What all steps of a query share."""

    store: StoredSamples
    covered: QueryRange
    lookback_ms: int
    left_open: bool
    budget: Budget


@dataclass(slots=True)
class _Points:
    labels: LabelSet
    times_ms: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    measured_ms: int = 0


class _Gathered:
    """Rows of many steps, grouped by series."""

    def __init__(self) -> None:
        self._series: dict[LabelKey, _Points] = {}

    def __len__(self) -> int:
        return len(self._series)

    def add(self, labels: LabelSet, at_ms: int, value: float, measured_ms: int) -> None:
        points = self._series.get(labels.key)
        if points is None:
            points = self._series[labels.key] = _Points(labels)
        points.times_ms.append(at_ms)
        points.values.append(value)
        points.measured_ms = measured_ms

    def matrix(self) -> Matrix:
        ordered = sorted(self._series.values(), key=lambda points: tuple(points.labels.items()))
        return Matrix(tuple(_matrix_series(points) for points in ordered))

    def windows(self) -> list[Window]:
        return [
            Window(points.labels, points.times_ms, points.values, points.measured_ms)
            for points in self._series.values()
        ]


def _gathered(span: _Span, node: Node, steps: range, *, is_inner: bool) -> _Gathered:
    """Return an expression's rows at many times; each step's samples are freed before the next.

    The steps of a subquery have to be covered, all of them. Those of a query itself are left out where
    samples are missing that were too old to be kept.
    """
    gathered, budget = _Gathered(), span.budget
    for at_ms in steps:
        held, made = budget.held, budget.labels
        try:
            rows = _Evaluation(span, at_ms, is_inner=is_inner).rows(node)
        except UncoveredError as error:
            if is_inner or error.until_ms >= span.store.oldest_kept_ms():
                raise
            rows = []
        before = len(gathered)
        for labels, value, measured_ms in rows:
            gathered.add(labels, at_ms, value, measured_ms)
        budget.held = held
        if len(gathered) == before:
            # This step's label sets equal those of an earlier one.
            budget.labels = made
        budget.hold(POINT_BYTES * len(rows) + 2 * SERIES_BYTES * (len(gathered) - before))
    return gathered


def _matrix_series(points: _Points | Window) -> MatrixSeries:
    return MatrixSeries(points.labels, Points(points.times_ms, points.values))


def _raw_matrix(windows: RangeWindows) -> Matrix:
    ordered = sorted(windows.windows, key=lambda window: tuple(window.labels.items()))
    return Matrix(tuple(_matrix_series(window) for window in ordered))


class _Evaluation(Evaluator):
    """The evaluation of a query at one time.

    Args:
        span: of the query.
        at_ms: the time.
        is_inner: whether it is a step of a subquery.
    """

    __slots__ = ("_is_inner", "_span", "at_ms")

    def __init__(self, span: _Span, at_ms: int, *, is_inner: bool = False) -> None:
        self._span = span
        self._is_inner = is_inner
        self.at_ms = at_ms

    def query_range(self) -> QueryRange:
        """Return the time range of the whole query."""
        return self._span.covered

    def rows(self, node: Node) -> Rows:
        """Return the instant vector of an expression; a scalar becomes a row without labels."""
        budget = self._span.budget
        held = budget.held
        rows = self._rows(node)
        budget.work(1 + len(rows))
        # A node's inputs are freed once its result exists.
        size = row_bytes(rows, new_labels=not isinstance(node, Select))
        budget.hold(size)
        budget.held = held + size
        return rows

    def hold_labels(self, size: int) -> None:
        self._span.budget.hold_labels(size)

    def _rows(self, node: Node) -> Rows:
        match node:
            case Select():
                return self._select(node)
            case Aggregate():
                return aggregate(self, node)
            case Call() if node.function in VECTOR_FUNCTIONS:
                return VECTOR_FUNCTIONS[node.function](self, node.arguments)
            case Binary() if value_type(node) is ValueType.VECTOR:
                return vector_binary(self, node)
            case Negate() if value_type(node) is ValueType.VECTOR:
                rows = self.rows(node.expression)
                return nameless([(labels, -value, time_ms) for labels, value, time_ms in rows])
            case _:
                reading = self.number(node)
                measured_ms = self.at_ms if reading.measured_ms is None else reading.measured_ms
                return [(EMPTY, reading.value, measured_ms)]

    def number(self, node: Node) -> Reading:
        self._span.budget.work()
        match node:
            case Number():
                return Reading(node.value)
            case Call() if node.function in SCALAR_FUNCTIONS:
                return SCALAR_FUNCTIONS[node.function](self, node.arguments)
            case Binary():
                return scalar_binary(self, node)
            case Negate():
                value, measured_ms = self.number(node.expression)
                return Reading(-value, measured_ms)
            case _:
                raise BugError(f"found a {value_type(node).value} where a scalar belongs")

    def text(self, node: Node) -> str:
        if isinstance(node, Text):
            return node.value
        raise BugError(f"found a {value_type(node).value} where a string belongs")

    def windows(self, node: Node) -> RangeWindows:
        match node:
            case SelectRange():
                return self._select_range(node)
            case Subquery():
                return self._subquery(node)
            case _:
                raise BugError(f"found a {value_type(node).value} where a range vector belongs")

    def _end_ms(self, moment: Moment) -> int:
        """Return the end of a selector's lookback or range."""
        match moment.at:
            case None:
                at_ms = self.at_ms
            case Anchor.START:
                at_ms = self._span.covered.start_ms
            case Anchor.END:
                at_ms = self._span.covered.end_ms
            case _:
                at_ms = moment.at
        return at_ms - moment.offset_ms

    def _series(self, selector: Select) -> tuple[Series, ...]:
        return self._span.store.select(selector.matchers)

    def _select(self, node: Select) -> Rows:
        """Return each series' newest sample within the lookback."""
        at_ms = self._end_ms(node.moment)
        oldest_ms = self._oldest_ms(at_ms)
        rows: Rows = []
        for series in self._series(node):
            found = current(series, oldest_ms, at_ms)
            if found is not None:
                rows.append((series.labels, found[1], found[0]))
        return rows

    def _oldest_ms(self, at_ms: int) -> int:
        """Return the start of the lookback at `at_ms`, in milliseconds."""
        oldest_ms = at_ms - self._span.lookback_ms + (1 if self._span.left_open else 0)
        if self._is_inner:
            return oldest_ms
        return max(oldest_ms, self._span.store.oldest_kept_ms())

    def _select_range(self, node: SelectRange) -> RangeWindows:
        end_ms = self._end_ms(node.selector.moment)
        start_ms = end_ms - node.range_ms
        windows: list[Window] = []
        if end_ms < self._span.store.oldest_kept_ms() and not self._is_inner:
            return RangeWindows(start_ms, end_ms, windows)
        for series in self._series(node.selector):
            window = self._window(series, start_ms, end_ms)
            if window is not None:
                windows.append(window)
        return RangeWindows(start_ms, end_ms, windows)

    def _window(self, series: Series, start_ms: int, end_ms: int) -> Window | None:
        times_ms, values = window(series, start_ms, end_ms, left_open=self._span.left_open)
        if not times_ms:
            return None
        self._span.budget.hold_window(len(times_ms))
        return Window(series.labels, times_ms, values, times_ms[-1])

    def _subquery(self, node: Subquery) -> RangeWindows:
        end_ms = self._end_ms(node.moment)
        start_ms = end_ms - node.range_ms
        step_ms = node.step_ms or SUBQUERY_STEP_MS
        first_ms = -(-start_ms // step_ms) * step_ms
        if self._span.left_open and first_ms == start_ms:
            first_ms += step_ms
        steps = range(first_ms, end_ms + 1, step_ms)
        gathered = _gathered(self._span, node.expression, steps, is_inner=True)
        return RangeWindows(start_ms, end_ms, gathered.windows())
