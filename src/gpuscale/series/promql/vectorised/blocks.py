"""Samples of many series as matrices: times by group of series, values by series.

Series that were scraped together share their times, so a block has one column of times for each group and one
of values for each series. A series with gaps becomes a group of its own, so that its samples, too, lie one
under another without holes: the samples of any window are those between two rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gpuscale.series.storage.frames import Frame
from gpuscale.series.values import ABSENT_BITS, STALE_BITS

Element = TypeVar("Element", bound=np.generic)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NO_TIME = 1 << 61
"""Fills the columns of times below their last row; later than any query looks."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The samples of some series of a selection.

    T is the number of rows, G that of groups with the same times, S that of series.
    """

    times_ms: Ints
    """T x G, ascending down each column."""
    counts: Ints
    """G: how many rows of each group are samples; below them are fillers."""
    values: Floats
    """T x S."""
    group: Ints
    """S: the column of times of each series."""
    positions: Ints
    """S: where the series stands in its selection."""

    @property
    def is_even(self) -> bool:
        """Return whether all series share their times."""
        return len(self.counts) == 1

    def spread(self, by_group: npt.NDArray[Element]) -> npt.NDArray[Element]:
        """Return rows with a number for each group as rows with a number for each series."""
        if self.is_even or by_group.shape[1] == 1:
            return by_group
        return by_group[:, self.group]

    def at(self, matrix: Floats, rows: Ints) -> Floats:
        """Return the elements of a T x S matrix at given rows (K x G); the result is K x S."""
        if self.is_even:
            found: Floats = matrix[rows[:, 0]]
            return found
        series = matrix.shape[1]
        places = rows[:, self.group]
        places *= series
        places += np.arange(series)
        taken: Floats = matrix.ravel().take(places)
        return taken

    def rows(self, low: int, high: int) -> "Block":
        """Return the rows from `low` up to, but not including, `high`."""
        if low == 0 and high >= len(self.times_ms):
            return self
        return Block(
            self.times_ms[low:high],
            np.clip(self.counts - low, 0, high - low),
            self.values[low:high],
            self.group,
            self.positions,
        )

    def only(self, series: Flags) -> "Block":
        return Block(
            self.times_ms,
            self.counts,
            np.ascontiguousarray(self.values[:, series]),
            self.group[series],
            self.positions[series],
        )

    def reached(self, moments_ms: Ints) -> Ints:
        """Return how many samples of each group are not later than each of K times; K x G.

        Args:
            moments_ms: ascending, or all the same, as with an `@`.
        """
        times, moments = self.times_ms, len(moments_ms)
        if moments_ms[0] == moments_ms[-1]:
            found: Ints = (times <= moments_ms[0]).sum(axis=0, dtype=np.int64)[None, :]
            return np.broadcast_to(found, (moments, times.shape[1]))
        if self.is_even:
            found = np.searchsorted(times[:, 0], moments_ms, side="right").astype(np.int64)
            return found[:, None]
        groups = times.shape[1]
        first_ms, step_ms = int(moments_ms[0]), int(moments_ms[1] - moments_ms[0])
        # The first step that reaches a sample; one past the last if none does.
        if (
            first_ms + step_ms * (moments - 1) == moments_ms[-1]
            and (np.diff(moments_ms) == step_ms).all()
        ):
            reaching = np.clip(-((first_ms - times) // step_ms), 0, moments)
        else:
            reaching = np.searchsorted(moments_ms, times).astype(np.int64)
        reaching *= groups
        reaching += np.arange(groups)
        counted = np.bincount(reaching.ravel(), minlength=(moments + 1) * groups)
        by_moment: Ints = counted.reshape(moments + 1, groups)[:moments].cumsum(axis=0)
        return by_moment


def blocks_of(frames: Sequence[Frame], positions: Ints) -> list[Block]:
    """Return frames' samples in few blocks, in which padding adds at most a quarter of the rows.

    Args:
        frames: at least one.
        positions: where the series of all frames, one after the other, stand in their selection.
    """
    classes: dict[int, list[tuple[Frame, int]]] = {}
    first = 0
    for frame in frames:
        classes.setdefault(_size_class(len(frame.times_ms)), []).append((frame, first))
        first += len(frame.labels)
    return [_block_of(members, positions) for members in classes.values()]


def _size_class(rows: int) -> int:
    shift = max(0, rows.bit_length() - 3)
    return (-(-rows >> shift)) << shift if rows else 0


def _block_of(members: Sequence[tuple[Frame, int]], positions: Ints) -> Block:
    widths = [len(frame.labels) for frame, _ in members]
    counts = np.array([len(frame.times_ms) for frame, _ in members], np.int64)
    group = np.repeat(np.arange(len(members)), widths)
    if len(members) == 1:
        ((frame, first),) = members
        times, values = frame.times_ms[:, None], np.ascontiguousarray(frame.values)
        return Block(times, counts, values, group, positions[first : first + widths[0]])
    rows = int(counts.max())
    times = np.full((rows, len(members)), _NO_TIME, np.int64)
    values = np.zeros((rows, len(group)))
    places: list[Ints] = []
    start = 0
    for column, ((frame, first), width) in enumerate(zip(members, widths, strict=True)):
        height = len(frame.times_ms)
        times[:height, column] = frame.times_ms
        values[:height, start : start + width] = frame.values
        places.append(positions[first : first + width])
        start += width
    return Block(times, counts, values, group, np.concatenate(places))


def without_markers(block: Block, *, keep_stale: bool) -> Block:
    """Return the block without holes, and without end markers unless they are kept."""
    unordered = np.isnan(block.values)
    if not unordered.any():
        return block
    bits = block.values.view(np.int64)
    dropped = unordered & (bits == ABSENT_BITS)
    if not keep_stale:
        dropped |= unordered & (bits == STALE_BITS)
    return without(block, dropped)


def without(block: Block, dropped: Flags) -> Block:
    """Return the block without some cells (T x S); a series that loses one gets a group of its own."""
    gaps: Flags = np.any(dropped, axis=0)
    if not gaps.any():
        return block
    whole, ragged = block.only(~gaps), _compacted(block.only(gaps), dropped[:, gaps])
    if not whole.positions.size:
        return ragged
    below = ((0, len(whole.times_ms) - len(ragged.times_ms)), (0, 0))
    return Block(
        np.hstack([whole.times_ms, np.pad(ragged.times_ms, below, constant_values=_NO_TIME)]),
        np.concatenate([whole.counts, ragged.counts]),
        np.hstack([whole.values, np.pad(ragged.values, below)]),
        np.concatenate([whole.group, ragged.group + len(whole.counts)]),
        np.concatenate([whole.positions, ragged.positions]),
    )


def _compacted(block: Block, dropped: Flags) -> Block:
    """Return the block with each series' samples moved up over its holes."""
    rows, series = block.values.shape
    dropped |= np.arange(rows)[:, None] >= block.counts[block.group]
    order = np.argsort(dropped, axis=0, kind="stable")
    counts: Ints = rows - dropped.sum(axis=0, dtype=np.int64)
    times = np.take_along_axis(block.times_ms[:, block.group], order, axis=0)
    values = np.take_along_axis(block.values, order, axis=0)
    below = np.arange(rows)[:, None] >= counts
    times[below] = _NO_TIME
    values[below] = 0.0
    return Block(times, counts, values, np.arange(series), block.positions)


def is_stale(values: Floats) -> Flags:
    """Return where a series' end markers are."""
    flags: Flags = values.view(np.int64) == STALE_BITS
    return flags
