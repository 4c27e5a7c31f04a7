"""Saves a store to disk every five seconds, by appending new samples to a segment.

A segment holds a quarter of the retention and the names of its series, so what is too old is
deleted as a file. The store is the buffer: what could not be written stays there and is written later, as
long as it is kept. Nothing here holds up appending; compressing and writing happen in a thread.
"""

import asyncio
import errno
import logging
import os
import secrets
import time
from io import FileIO

from gpuscale.base.clock import Clock
from gpuscale.series.saved import GroupNumbers, Record, SegmentHeader, SegmentWriter, encode_record
from gpuscale.series.storage import SeriesStore, Tail, best_compression
from gpuscale.server.sources.saving.directory import SegmentDirectory
from gpuscale.server.sources.saving.restore import Returning, restore
from gpuscale.server.sources.saving.settings import SavingSettings, SavingState

_LOG = logging.getLogger(__name__)
_SEGMENTS_PER_RETENTION = 4
_SLICE_S = 0.005
"""How long the event loop is held at a time."""
_RETRY_S = 10.0
"""From a save that failed to the next try."""
_HOLD_TRIES = 20
_HOLD_WAIT_S = 0.25
"""For a process that is ending to release the directory."""


class StoreSaver:
    """Keeps a copy of a store in a directory.

    `open` reads it back, `run` keeps it up, `close` writes the rest. A directory that can't be used is
    reported in `state`, and tried again; the store works on without it.

    Args:
        store: empty until `open`.
        settings: where and how.
        clock: gives the samples their times.
    """

    def __init__(self, store: SeriesStore, settings: SavingSettings, clock: Clock) -> None:
        self.state = SavingState()
        self._store = store
        self._settings = settings
        self._clock = clock
        self._directory = SegmentDirectory(settings.directory, settings.max_bytes)
        self._run = secrets.token_bytes(16)
        self._compression = best_compression()
        self._tail = Tail(store)
        self._returning: Returning | None = None
        self._file: FileIO | None = None
        self._numbers = GroupNumbers()
        self._writer = SegmentWriter(self._numbers)
        self._begun_s = 0.0
        self._saving: asyncio.Task[bool] | None = None

    async def open(self) -> None:
        """Lock the directory, and load its segments into the store."""
        if not await self._hold():
            return
        now_ms = self._clock.now_ms()
        await restore(self._directory, self._store, now_ms, self.state)
        self._returning = Returning(self._store, now_ms)
        # Restored samples are on disk already; only later ones are written.
        self._tail.skip()
        self._note_files()

    async def run(self) -> None:
        """Save until cancelled."""
        while True:
            # A save that has begun is finished, even if this is cancelled meanwhile.
            self._saving = asyncio.create_task(self.save(), name="save")
            worked = await asyncio.shield(self._saving)
            await self._end_missing()
            await asyncio.sleep(self._settings.interval_s if worked else _RETRY_S)

    async def close(self) -> None:
        """Save new samples, and unlock the directory."""
        if self._saving is not None:
            await self._saving
        if self._directory.is_held:
            await self.save()
        await asyncio.to_thread(self._close_file)
        self._directory.release()

    async def save(self) -> bool:
        """Save the samples since the last call; return whether that worked."""
        state, now_ms = self.state, self._clock.now_ms()
        try:
            if not self._directory.is_held:
                await asyncio.to_thread(self._directory.hold)
            if self._is_segment_over():
                await asyncio.to_thread(self._begin, now_ms)
            samples = await self._write_new()
            await asyncio.to_thread(self._directory.delete_old, now_ms - self._store.retention_ms)
        except OSError as error:
            self._tail.undo()
            await asyncio.to_thread(self._close_file)
            self._failed(_reason(error))
            return False
        self._tail.commit()
        state.samples += samples
        state.saved_ms = now_ms
        if state.fault is not None:
            _LOG.info("samples are saved in %s again", self._settings.directory)
            state.fault = None
        self._note_files()
        return True

    async def _hold(self) -> bool:
        reason = ""
        for _ in range(_HOLD_TRIES):
            try:
                await asyncio.to_thread(self._directory.hold)
            except OSError as error:
                reason = _reason(error)
                if not isinstance(error, BlockingIOError):
                    break
            else:
                return True
            await asyncio.sleep(_HOLD_WAIT_S)
        self._failed(reason)
        return False

    async def _write_new(self) -> int:
        """Write new samples; return how many.

        Raises:
            OSError: it can't be written.
        """
        writer = self._writer
        samples = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + _SLICE_S
        for batch in self._tail.read():
            samples += len(batch.values)
            for record in writer.add(batch):
                await self._append(record)
            if loop.time() >= until:
                await asyncio.sleep(0)
                until = loop.time() + _SLICE_S
        for record in writer.flush():
            await self._append(record)
        if samples:
            await asyncio.to_thread(self._sync)
        return samples

    async def _append(self, record: Record) -> None:
        await asyncio.to_thread(self._write, record)

    def _write(self, record: Record) -> None:
        if self._file is None:
            raise OSError(errno.EBADF, "the segment was closed")
        data = memoryview(encode_record(record, self._compression))
        self._directory.make_room(len(data))
        while data:
            written = self._file.write(data)
            self._directory.segments[-1].size += written
            self.state.written_bytes += written
            data = data[written:]

    def _sync(self) -> None:
        if self._file is not None:
            os.fdatasync(self._file.fileno())

    def _is_segment_over(self) -> bool:
        if self._file is None:
            return True
        age_s = time.monotonic() - self._begun_s
        size = self._directory.segments[-1].size
        return (
            age_s * 1000 * _SEGMENTS_PER_RETENTION > self._store.retention_ms
            or size * _SEGMENTS_PER_RETENTION > self._settings.max_bytes
        )

    def _begin(self, now_ms: int) -> None:
        self._close_file()
        self._file = self._directory.begin(SegmentHeader(now_ms, self._run))
        self._writer = SegmentWriter(self._numbers)
        self._begun_s = time.monotonic()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _end_missing(self) -> None:
        """Add end markers to restored series that did not come back."""
        if self._returning is None:
            return
        self.state.ended += await self._returning.end_missing(self._clock.now_ms())
        self.state.expected_back = len(self._returning)
        if not self._returning:
            self._returning = None

    def _failed(self, reason: str) -> None:
        state = self.state
        reason = f"{self._settings.directory}: {reason}"
        if state.fault != reason:
            _LOG.warning("samples are not saved: %s", reason)
        state.fault = reason
        state.faults += 1

    def _note_files(self) -> None:
        self.state.disk_bytes = self._directory.size
        self.state.segments = len(self._directory.segments)
        self.state.put_aside = self._directory.put_aside


def _reason(error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "another process uses it"
    return error.strerror or str(error)
