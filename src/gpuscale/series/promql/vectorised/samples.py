"""A query's samples, copied from a store as blocks.

Selectors whose series are merely reduced to a few numbers a step are not copied ahead, but some series at a
time, while the query is evaluated. So a sum over very many series holds few of them at once.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from gpuscale.base.errors import UncoveredError
from gpuscale.base.memory import give_memory_back
from gpuscale.series.promql import tree
from gpuscale.series.promql.budget import Budget
from gpuscale.series.promql.evaluate import Evaluable
from gpuscale.series.promql.functions.ranges import RANGE_FUNCTIONS
from gpuscale.series.promql.rows import PlannedQuery, QueryRange
from gpuscale.series.promql.snapshot import Need, needs
from gpuscale.series.promql.tree import ValueType, value_type
from gpuscale.series.promql.vectorised.aggregation import GRADUAL
from gpuscale.series.promql.vectorised.axis import Axis, Making, Memory
from gpuscale.series.promql.vectorised.blocks import Block, Ints, blocks_of, without_markers
from gpuscale.series.promql.vectorised.support import RowWiseError
from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.frames import Frame, frames_of
from gpuscale.series.storage.index import Selector
from gpuscale.series.storage.samples import Series, current
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, Value

CELL_BYTES = 8
"""A sample, or a result."""
SLICE_CELLS = 1 << 17
"""Samples copied in one go, or results computed in one go; 1 MiB, and up to ten times that on the way."""
_SERIES_A_COPY = 1_000
_CELLS_A_MOMENT = 5_000
"""Samples that take as long to copy as it takes to find the row of one time in one group."""
_CELLS_A_FRAME = 10_000
"""Samples that take as long to copy as a frame of none."""
_LARGE_BYTES = 8 * 1024 * 1024
"""Of samples, from which on it pays to give memory back."""

HandOver = Callable[[Callable[[], list[Frame]]], list[Frame]]
"""Runs something where the store may be read."""


@dataclass(eq=False)
class Selection:
    """A selector's series, and the copied part of their samples."""

    matchers: Selector
    axis: Axis
    series: tuple[Series, ...]
    need: Need
    making: Making
    is_gradual: bool = False
    """Whether the samples are copied while the query is evaluated."""
    cut_ms: Ints = field(init=False)
    """Of each series: the newest sample that was dropped to make room."""
    _frames: list[Frame] = field(default_factory=list)
    _newest: list[Block] = field(default_factory=list)
    _ready: dict[bool, list[Block]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cut_ms = np.full(len(self.series), -NEVER_MS)

    def add(self, frames: Sequence[Frame]) -> int:
        """Add copied samples; return their bytes."""
        self._frames += frames
        return sum(
            2 * frame.times_ms.nbytes + frame.values.nbytes + 24 * len(frame.labels)
            for frame in frames
        )

    def add_newest(self, first: int, series: Sequence[Series]) -> int:
        """Copy some series' newest samples up to the instant query's time; return the bytes.

        Args:
            first: the place of the first of them.
            series: neighbours in the selection.

        Raises:
            RowWiseError: one may have been dropped.
        """
        # A range query with a single step may end later.
        (at_ms,) = self.need.moments or (self.need.end_ms,)
        try:
            found = [current(each, self.need.start_ms, at_ms) for each in series]
        except UncoveredError:
            raise RowWiseError("a sample may have been dropped") from None
        there = [place for place, sample in enumerate(found, first) if sample is not None]
        newest = [sample for sample in found if sample is not None]
        self._newest.append(
            Block(
                np.array([[time_ms for time_ms, _ in newest]], np.int64),
                np.ones(len(newest), np.int64),
                np.array([[value for _, value in newest]]),
                np.arange(len(newest)),
                np.array(there, np.int64),
            )
        )
        return 5 * CELL_BYTES * len(newest)

    def frames(self, series: Sequence[Series]) -> Iterator[Frame]:
        """Return copies of some series' samples."""
        need = self.need
        return frames_of(
            series, need.start_ms, need.end_ms, need.moments if self.is_sparse else None
        )

    @cached_property
    def is_instant(self) -> bool:
        """Return whether samples of one time are enough."""
        return self.need.moments is not None and len(self.need.moments) == 1

    @cached_property
    def rows(self) -> int:
        """Return the approximate number of samples of each series, estimated from a few."""
        few = self.series[:: max(1, len(self.series) // 4)]
        frames = frames_of(few, self.need.start_ms, self.need.end_ms)
        return max((len(frame.times_ms) for frame in frames), default=0)

    @cached_property
    def is_sparse(self) -> bool:
        """Return whether so few samples are needed that picking them out pays."""
        if self.need.moments is None:
            return False
        some = self.series[:_SERIES_A_COPY]
        frames = len({each.group for each in some}) * -(-len(self.series) // max(1, len(some)))
        picking = len(self.need.moments) * frames * _CELLS_A_MOMENT
        return picking < (self.rows - len(self.need.moments)) * len(self.series)

    def blocks(self, *, keep_stale: bool) -> list[Block]:
        """Return the samples without holes, and without end markers unless they are kept."""
        found = self._ready.get(keep_stale)
        if found is None:
            found = []
            for block in self._whole:
                found.append(without_markers(block, keep_stale=keep_stale))
                if found[-1] is not block:
                    size = found[-1].values.nbytes + found[-1].times_ms.nbytes
                    self.making.budget.hold(size)
            self._ready[keep_stale] = found
        return found

    @cached_property
    def _whole(self) -> list[Block]:
        """Yield the copied samples as blocks of some frames, freeing the frames one by one."""
        found = self._newest
        while self._frames:
            cells, count = 0, 0
            while count < len(self._frames) and cells < SLICE_CELLS:
                cells += self._frames[count].values.size
                count += 1
            some, self._frames = self._frames[:count], self._frames[count:]
            positions = self._positions([id(labels) for frame in some for labels in frame.labels])
            self.cut_ms[positions] = np.concatenate([frame.cut_ms for frame in some])
            found += blocks_of(some, positions)
        return found

    def _positions(self, identities: Sequence[int]) -> Ints:
        """Return the indexes of label sets among the series, found by identity."""
        order, ordered = self.making.once((self.axis,), "identities", self._by_identity)
        found: Ints = order[np.searchsorted(ordered, np.array(identities, np.int64))]
        return found

    def _by_identity(self) -> Ints:
        identities = np.fromiter(map(id, self.axis), np.int64, len(self.axis))
        order = np.argsort(identities)
        self.making.budget.hold_labels(2 * order.nbytes)
        return np.stack([order, identities[order]])

    def part(self) -> "Selection":
        """Return an empty selection of the same series."""
        return Selection(self.matchers, self.axis, self.series, self.need, self.making)


class QuerySamples(Evaluable):
    """A query's samples; `instant` and `range_query` evaluate it with numpy.

    Args:
        store: only touched in `fill`, and through `hand_over`.
        root: of the query.
        covered: the times it is evaluated at.
        lookback_ms: how old a sample may be and still count as the current one.
        hand_over: runs something where the store may be read; by default right here.
        budget: of the query.
    """

    def __init__(
        self,
        store: SeriesStore,
        root: tree.Node,
        covered: QueryRange,
        lookback_ms: int,
        hand_over: HandOver = lambda read: read(),
        budget: Budget | None = None,
    ) -> None:
        self._oldest_kept_ms = store.oldest_kept_ms()
        self._hand_over = hand_over
        self.budget = budget or Budget()
        memory = _memory(store)
        self.making = Making(memory, self.budget)
        steps = 1 + (covered.end_ms - covered.start_ms) // (covered.step_ms or 1)
        once = _reduced_once(root)
        self.selections: dict[Selector, Selection] = {}
        for matchers, need in needs(root, covered, lookback_ms).items():
            series = store.select(matchers)
            axis = memory.axis(matchers, series)
            selection = Selection(matchers, axis, series, need, self.making)
            if matchers in once and not selection.is_instant:
                cells = len(series) * max(steps, selection.rows)
                selection.is_gradual = cells > 2 * SLICE_CELLS
            self.selections[matchers] = selection

    def fill(self) -> Iterator[None]:
        """Copy the samples that are needed from the start; the caller may do other work between slices.

        Raises:
            QueryError: the query would hold too many bytes.
        """
        for selection in self.selections.values():
            if selection.is_gradual:
                continue
            cost = 0
            for start in range(0, len(selection.series), _SERIES_A_COPY):
                part = selection.series[start : start + _SERIES_A_COPY]
                if selection.is_instant:
                    self.budget.hold(selection.add_newest(start, part))
                    yield
                    continue
                for frame in selection.frames(part):
                    self.budget.hold(selection.add([frame]))
                    cost += frame.values.size + _CELLS_A_FRAME
                    if cost > SLICE_CELLS:
                        cost = 0
                        yield

    def slices(self, selection: Selection, steps: int) -> Iterator[tuple[int, int, Selection]]:
        """Yield samples of consecutive slices of series: first and last index, and the samples.

        Args:
            selection: a gradual one.
            steps: results of each series.
        """
        width = max(1, SLICE_CELLS // max(selection.rows, steps, 1))
        for start in range(0, len(selection.series), width):
            stop = min(len(selection.series), start + width)
            part = selection.part()
            held = self.budget.held
            # In parts, so that the store's owner gets its turn.
            for first in range(start, stop, _SERIES_A_COPY):
                series = selection.series[first : min(stop, first + _SERIES_A_COPY)]
                self.budget.hold(part.add(self._copied(selection, series)))
            yield start, stop, part
            self.budget.held = held

    def _copied(self, selection: Selection, series: Sequence[Series]) -> list[Frame]:
        return self._hand_over(lambda: list(selection.frames(series)))

    def let_go(self) -> None:
        """Free all samples, as the result is there; only the result's bytes stay counted."""
        self.selections = {}
        if self.budget.held > _LARGE_BYTES:
            # Many small objects follow, which would fragment the space of large arrays.
            give_memory_back()
        self.budget.held = 0

    def oldest_kept_ms(self) -> int:
        """Return the earliest time for which queries are answered."""
        return self._oldest_kept_ms

    def instant(self, query: PlannedQuery) -> Value:
        from gpuscale.series.promql.vectorised.queries import instant

        return instant(self, query)

    def range_query(self, query: PlannedQuery) -> Matrix:
        from gpuscale.series.promql.vectorised.queries import range_query

        return range_query(self, query)


_memories: "WeakKeyDictionary[SeriesStore, Memory]" = WeakKeyDictionary()


def _memory(store: SeriesStore) -> Memory:
    """Return the store's cache of label sets, cleared when a series appears or ends."""
    found = _memories.get(store)
    if found is None or found.generation != store.generation:
        if found is not None:
            found.made.clear()
        found = _memories[store] = Memory(store.generation)
    return found


def _reduced_once(root: tree.Node) -> set[Selector]:
    """Return the selectors read in one place only, by an aggregation that takes series in batches."""
    uses: Counter[Selector] = Counter()
    reduced: set[Selector] = set()

    def visit(node: tree.Node) -> None:
        if isinstance(node, tree.Select):
            uses[node.matchers] += 1
        if isinstance(node, tree.Aggregate) and (selector := reduced_selector(node)) is not None:
            reduced.add(selector.matchers)
        for child in tree.children(node):
            visit(child)

    visit(root)
    return {matchers for matchers in reduced if uses[matchers] == 1}


def reduced_selector(node: tree.Aggregate) -> tree.Select | None:
    """Return the only selector of an aggregation that can take its series in batches."""
    return _columnwise(node.expression) if node.operator in GRADUAL else None


def _columnwise(node: tree.Node) -> tree.Select | None:
    """Return the selector of an expression that treats each series by itself."""
    match node:
        case tree.Select():
            return node
        case tree.SelectRange():
            return node.selector
        case tree.Negate() | tree.Subquery():
            return _columnwise(node.expression)
        case tree.Call() if node.function in RANGE_FUNCTIONS:
            inside = [each for each in node.arguments if value_type(each) is ValueType.MATRIX]
            scalars = [each for each in node.arguments if each not in inside]
            if all(isinstance(each, tree.Number) for each in scalars):
                return _columnwise(inside[0])
            return None
        case tree.Binary():
            sides = [each for each in (node.left, node.right) if not isinstance(each, tree.Number)]
            is_set = node.operator in tree.SET_OPERATORS
            return _columnwise(sides[0]) if len(sides) == 1 and not is_set else None
        case _:
            return None
