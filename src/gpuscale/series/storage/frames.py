"""Samples of many series as numpy arrays, for queries over many series.

Series that share their times lie side by side, one row for each time and one column for each series. The
arrays are copies, so the store may change while they are read.

This module needs numpy, which is in the extra `streams`; the rest of the store does without.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuscale.series.labels import LabelSet
from gpuscale.series.storage.columns import RowBlock
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.index import Selector
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import ABSENT, ABSENT_BITS


@dataclass(frozen=True, slots=True)
class Frame:
    """Samples of some series between two times: S series and T times, T may be 0.

    No label set is in two frames of one answer.
    """

    labels: Sequence[LabelSet]
    """One for each column."""
    times_ms: NDArray[np.int64]
    """T of them, ascending, each once."""
    values: NDArray[np.float64]
    """T x S. A NaN with the bits `ABSENT_BITS` is no sample, one with `STALE_BITS` ends the series, and any
    other NaN is a value."""
    cut_ms: NDArray[np.int64]
    """S of them: the newest sample that was dropped to make room; a range that reaches back to it is not
    covered."""
    is_dense: bool
    """Whether it is known that all T x S are samples, with neither marker among them."""


def frames(
    store: SeriesStore,
    matchers: Selector,
    start_ms: int,
    end_ms: int,
    moments: range | None = None,
) -> Iterator[Frame]:
    """Yield the samples of all matching series; the store may change between two frames.

    A series is left out where it has no sample between the times and none of them may have been dropped to
    make room.

    Args:
        store: where the samples are.
        matchers: all of which a series fulfils.
        start_ms: milliseconds since the epoch, included.
        end_ms: likewise.
        moments: the times at which only the newest sample counts; rows that are not needed for these may be
            left out. None where every sample counts.
    """
    return frames_of(store.select(matchers), start_ms, end_ms, moments)


def frames_of(
    selected: Sequence[Series], start_ms: int, end_ms: int, moments: range | None = None
) -> Iterator[Frame]:
    """Yield the samples of some series of a store, as `frames` does.

    A query over very many series asks for some of them at a time.
    """
    alone: list[Series] = []
    members: dict[SeriesGroup, list[Series]] = {}
    for series in selected:
        group, own_times_ms = series.group, series.own_times_ms
        if group is None or (own_times_ms is not None and own_times_ms[-1] >= start_ms):
            alone.append(series)
        else:
            members.setdefault(group, []).append(series)
    for group, columns in members.items():
        frame = _frame_of_group(group, columns, start_ms, end_ms, moments)
        if frame is not None:
            yield frame
    yield from _frames_of_others(alone, start_ms, end_ms)


def _frame_of_group(
    group: SeriesGroup, columns: list[Series], start_ms: int, end_ms: int, moments: range | None
) -> Frame | None:
    """Return a frame of series whose samples between the times are all in a group's rows."""
    # Most groups are small, and for few series lists are quicker than arrays.
    slots = np.array([series.slot for series in columns], np.int64)
    first = [series.first for series in columns]
    last = [series.last for series in columns]
    cut_ms = np.array([series.cut_ms for series in columns], np.int64)
    latest, earliest = max(first), min(last)
    parts: list[_Rows] = []
    for block, low, high in group.between(min(first), max(last), start_ms, end_ms):
        theirs = None
        if latest > block.sequence or earliest < block.sequence:
            theirs = (np.array(first) <= block.sequence) & (np.array(last) >= block.sequence)
        times_ms = np.frombuffer(block.times_ms, np.int64)[low:high].copy()
        parts.append(_Rows(block, low, slots, theirs, times_ms))
    if moments is not None:
        parts = _needed(parts, moments, len(columns))
    values = np.concatenate([part.values() for part in parts] or [np.empty((0, len(columns)))])
    times_ms = np.concatenate([part.times_ms for part in parts] or [np.empty(0, np.int64)])
    is_dense = not np.isnan(values).any()
    if not is_dense or not len(times_ms):
        shown = (values.view(np.uint64) != ABSENT_BITS).any(axis=0) | (cut_ms >= start_ms)
        if not shown.any():
            return None
        if not shown.all():
            columns = [series for series, is_shown in zip(columns, shown, strict=True) if is_shown]
            values, cut_ms = np.ascontiguousarray(values[:, shown]), cut_ms[shown]
            is_dense = not np.isnan(values).any()
    return Frame([series.labels for series in columns], times_ms, values, cut_ms, is_dense)


@dataclass(slots=True)
class _Rows:
    """Rows of a block, with the needed columns."""

    block: RowBlock
    low: int
    """The position of the first row."""
    slots: NDArray[np.int64]
    theirs: NDArray[np.bool_] | None
    """Which columns' places are theirs in this block; None where all are."""
    times_ms: NDArray[np.int64]
    kept: list[int] | None = None
    """Positions among the rows that are needed; None where all are."""

    def values(self) -> NDArray[np.float64]:
        """Return a copy of the needed values."""
        width = self.block.width
        rows = np.frombuffer(self.block.values).reshape(-1, width)
        rows = rows[self.low : self.low + len(self.times_ms)]
        if self.kept is not None:
            rows = rows[self.kept]
            self.times_ms = self.times_ms[self.kept]
        if self.theirs is None:
            return rows[:, self.slots]
        values = rows[:, np.where(self.theirs, self.slots, 0)]
        values[:, ~self.theirs] = ABSENT
        return values

    def holds(self, row: int, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which columns have a sample in a row."""
        width = self.block.width
        start = (self.low + row) * width
        bits = np.frombuffer(self.block.values, np.uint64)[start : start + width]
        found: NDArray[np.bool_]
        if self.theirs is None:
            found = bits[self.slots[columns]] != ABSENT_BITS
            return found
        theirs = self.theirs[columns]
        found = theirs & (bits[np.where(theirs, self.slots[columns], 0)] != ABSENT_BITS)
        return found


def _needed(parts: list[_Rows], moments: range, series: int) -> list[_Rows]:
    """Return the rows with any column's newest sample at some times."""
    places = [(part, row) for part in parts for row in range(len(part.times_ms))]
    times_ms = [int(time_ms) for part in parts for time_ms in part.times_ms]
    for part in parts:
        part.kept = []
    seen = 0
    for moment_ms in moments:
        end = bisect_right(times_ms, moment_ms)
        missing = np.arange(series)
        found: list[int] = []
        for place in range(end - 1, seen - 1, -1):
            part, row = places[place]
            holds = part.holds(row, missing)
            if holds.any():
                found.append(place)
                missing = missing[~holds]
                if not len(missing):
                    break
        for place in reversed(found):
            part, row = places[place]
            if part.kept is not None:
                part.kept.append(row)
        seen = max(seen, end)
    return [part for part in parts if part.kept]


def _frames_of_others(selected: list[Series], start_ms: int, end_ms: int) -> Iterator[Frame]:
    """Yield frames of series with arrays of their own; those with equal times share a frame."""
    alike: dict[bytes, list[tuple[Series, array[float]]]] = {}
    for series in selected:
        times_ms, column = series.read(start_ms, end_ms)
        if not times_ms and series.cut_ms < start_ms:
            continue
        alike.setdefault(times_ms.tobytes(), []).append((series, column))
    for times, parts in alike.items():
        values = np.empty((len(times) // 8, len(parts)))
        for place, (_, column) in enumerate(parts):
            values[:, place] = np.frombuffer(column)
        yield Frame(
            [series.labels for series, _ in parts],
            np.frombuffer(times, np.int64),
            values,
            np.array([series.cut_ms for series, _ in parts], np.int64),
            not np.isnan(values).any(),
        )
