"""Copies of the samples that a query reads, so that the store may change during evaluation.

What a query reads follows from its text and its times. As in Prometheus, it is gathered before anything is
evaluated: what a query holds is known before the work, and the evaluation needs no lock.

Source: prometheus promql/engine.go (populateSeries, getTimeRangesForSelector).
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.series.promql import tree
from gpuscale.series.promql.budget import SAMPLE_BYTES, SERIES_BYTES, Budget
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.storage.index import Selector
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore

_SERIES_A_SLICE = 1_000
"""Series copied in one go; a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Need:
    """The time range that a selector reads, in milliseconds since the epoch, both ends included."""

    start_ms: int
    end_ms: int
    moments: range | None
    """The times at which only the newest sample counts; None where every sample does."""

    def joined(self, other: "Need") -> "Need":
        if self == other:
            return self
        return Need(min(self.start_ms, other.start_ms), max(self.end_ms, other.end_ms), None)


def needs(root: tree.Node, covered: QueryRange, lookback_ms: int) -> dict[Selector, Need]:
    """Return the time ranges that a query reads, by selector.

    Args:
        root: of the query.
        covered: the times it is evaluated at.
        lookback_ms: how old a sample may be and still count as the current one.
    """
    found: dict[Selector, Need] = {}
    times = range(covered.start_ms, covered.end_ms + 1, covered.step_ms or 1)

    def visit(node: tree.Node, start_ms: int, end_ms: int, *, is_outermost: bool) -> None:
        match node:
            case tree.Select():
                low, high = _looked(node.moment, covered, start_ms, end_ms)
                moments = None
                if low == high:
                    moments = range(low, low + 1)
                elif is_outermost:
                    moments = range(low, high + 1, times.step)
                add(node.matchers, Need(low - lookback_ms, high, moments))
            case tree.SelectRange():
                low, high = _looked(node.selector.moment, covered, start_ms, end_ms)
                add(node.selector.matchers, Need(low - node.range_ms, high, None))
            case tree.Subquery():
                low, high = _looked(node.moment, covered, start_ms, end_ms)
                visit(node.expression, low - node.range_ms, high, is_outermost=False)
            case _:
                for child in tree.children(node):
                    visit(child, start_ms, end_ms, is_outermost=is_outermost)

    def add(matchers: Selector, need: Need) -> None:
        found[matchers] = need.joined(found.get(matchers, need))

    visit(root, covered.start_ms, covered.end_ms, is_outermost=True)
    return found


def _looked(
    moment: tree.Moment, covered: QueryRange, start_ms: int, end_ms: int
) -> tuple[int, int]:
    """Return the times at which a selector is evaluated."""
    match moment.at:
        case None:
            return start_ms - moment.offset_ms, end_ms - moment.offset_ms
        case tree.Anchor.START:
            at_ms = covered.start_ms
        case tree.Anchor.END:
            at_ms = covered.end_ms
        case _:
            at_ms = moment.at
    return at_ms - moment.offset_ms, at_ms - moment.offset_ms


class SampleCopies:
    """Copied samples by selector, which evaluation reads like a store.

    Args:
        oldest_kept_ms: the store's.
        budget: of the query.
    """

    def __init__(self, oldest_kept_ms: int, budget: Budget | None = None) -> None:
        self._oldest_kept_ms = oldest_kept_ms
        self._selected: dict[Selector, tuple[Series, ...]] = {}
        self._budget = budget or Budget()

    def fill(
        self, store: SeriesStore, root: tree.Node, covered: QueryRange, lookback_ms: int
    ) -> Iterator[None]:
        """Copy a query's samples in slices; the caller may do other work between two of them.

        Raises:
            QueryError: the query would hold too many bytes.
        """
        for matchers, need in needs(root, covered, lookback_ms).items():
            series = store.select(matchers)
            kept: list[Series] = []
            for start in range(0, len(series), _SERIES_A_SLICE):
                copies = (
                    self._copy(each, need) for each in series[start : start + _SERIES_A_SLICE]
                )
                kept.extend(copy for copy in copies if copy is not None)
                yield
            self._selected[matchers] = tuple(kept)

    def select(self, matchers: Selector) -> tuple[Series, ...]:
        return self._selected[matchers]

    def oldest_kept_ms(self) -> int:
        """Return the earliest time for which queries are answered."""
        return self._oldest_kept_ms

    def _copy(self, series: Series, need: Need) -> Series | None:
        times_ms, values = series.read(need.start_ms, need.end_ms)
        if not times_ms and series.cut_ms < need.start_ms:
            return None
        if need.moments is not None and len(times_ms) > len(need.moments):
            places = _newest_at(times_ms, 0, len(times_ms), need.moments)
            times_ms = array("q", [times_ms[place] for place in places])
            values = array("d", [values[place] for place in places])
        self._budget.hold(SERIES_BYTES + SAMPLE_BYTES * len(times_ms))
        return Series.copied(series, times_ms, values)


def _newest_at(times_ms: Sequence[int], low: int, high: int, moments: range) -> list[int]:
    """Return the indexes of the newest samples at some times, each once."""
    places: list[int] = []
    for moment_ms in moments:
        place = bisect_right(times_ms, moment_ms, low, high) - 1
        if place >= low and (not places or places[-1] != place):
            places.append(place)
    return places
