"""Loads a saved store into memory without blocking the event loop."""

import asyncio
import logging
import os
import time
from pathlib import Path

from gpuscale.series.saved import (
    Restored,
    SegmentReader,
    TornSegmentError,
    UnusableSegmentError,
    read_header,
    read_record,
)
from gpuscale.series.storage import Series, SeriesStore
from gpuscale.server.sources.saving.directory import SegmentDirectory, open_segment
from gpuscale.server.sources.saving.settings import SavingState

_LOG = logging.getLogger(__name__)
_SLICE_S = 0.005
"""How long the event loop is held at a time."""
_AT_ONCE = 2_000
"""Series that are looked at in such a time."""


async def restore(
    directory: SegmentDirectory, store: SeriesStore, now_ms: int, state: SavingState
) -> None:
    """Load all segments into a store, oldest first; unreadable parts are counted.

    Args:
        directory: held.
        store: empty.
        now_ms: the server's time.
        state: gets the counts.
    """
    began = time.monotonic()
    restored = Restored()
    reader = SegmentReader(store, now_ms, restored)
    for segment in tuple(directory.segments):
        try:
            await _read(segment.path, reader, state)
        except UnusableSegmentError as error:
            await asyncio.to_thread(directory.put_aside_file, segment.path, str(error))
        except OSError as error:
            reason = error.strerror or str(error)
            await asyncio.to_thread(directory.put_aside_file, segment.path, reason)
    reader.end()
    state.restored_samples = restored.samples
    state.restored_series = store.stats().series
    state.restore_seconds = time.monotonic() - began
    state.lost_samples = {
        "too_old": restored.too_old,
        "too_far_ahead": restored.ahead,
        "refused": restored.refused,
    }
    if directory.segments:
        _LOG.info(
            "read %s samples of %s series back in %.1f s",
            state.restored_samples,
            state.restored_series,
            state.restore_seconds,
        )
    if restored.ahead:
        _LOG.warning("left out %s samples from a time that has not come", restored.ahead)


async def _read(path: Path, reader: SegmentReader, state: SavingState) -> None:
    file = await asyncio.to_thread(open_segment, path)
    with file:
        size = os.fstat(file.fileno()).st_size
        header = await asyncio.to_thread(read_header, file.read)
        reader.begin(header.run)
        good = file.tell()
        loop = asyncio.get_running_loop()
        until = loop.time() + _SLICE_S
        try:
            while (record := await asyncio.to_thread(read_record, file.read)) is not None:
                for _ in reader.take(record):
                    if loop.time() >= until:
                        await asyncio.sleep(0)
                        until = loop.time() + _SLICE_S
                good = file.tell()
        except TornSegmentError as error:
            state.torn_segments += 1
            state.torn_bytes += size - good
            _LOG.warning("%s: %s bytes are left out: %s", path, size - good, error)


class Returning:
    """The restored series that have had no new sample yet.

    One that does not come back ended while no server ran. It gets an end marker, once it is late by three
    times the pause between its last samples: until then its old value is as good as any that is not renewed.

    Args:
        store: with nothing but what was restored.
        now_ms: the server's time.
    """

    SHORTEST_MS = 15_000
    LONGEST_MS = 300_000
    """PromQL itself forgets a series that is silent for so long."""

    def __init__(self, store: SeriesStore, now_ms: int) -> None:
        self._store = store
        self._began_ms = now_ms
        self._waiting: dict[Series, int] = {
            series: series.last_ms for series in store.select(()) if not series.is_stale()
        }
        self._late_ms: dict[Series, int] = {}
        """From when on each of them is late."""

    def __len__(self) -> int:
        return len(self._waiting)

    async def end_missing(self, now_ms: int) -> int:
        """Add end markers to the series that are late; return how many."""
        if now_ms - self._began_ms < self.SHORTEST_MS:
            return 0
        ended = 0
        for number, (series, last_ms) in enumerate(list(self._waiting.items())):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if series.last_ms != last_ms:
                self._forget(series)
            elif now_ms >= self._late_from_ms(series, last_ms):
                self._forget(series)
                # A reader may have seen this row, so it gets no more end markers.
                ended += self._store.mark_stale(series, now_ms + number // _AT_ONCE)
        return ended

    def _forget(self, series: Series) -> None:
        del self._waiting[series]
        self._late_ms.pop(series, None)

    def _late_from_ms(self, series: Series, last_ms: int) -> int:
        found = self._late_ms.get(series)
        if found is None:
            before = series.newest(last_ms - 1)
            pause_ms = self.LONGEST_MS if before is None else last_ms - before[0]
            patience_ms = min(max(3 * pause_ms, self.SHORTEST_MS), self.LONGEST_MS)
            found = self._late_ms[series] = self._began_ms + patience_ms
        return found
