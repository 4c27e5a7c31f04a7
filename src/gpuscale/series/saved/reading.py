"""Loads segments' records into a store."""

import json
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from gpuscale.series.possible import MAX_AHEAD_MS
from gpuscale.series.saved.records import Record, RecordKind, TornSegmentError
from gpuscale.series.saved.writing import SAMPLES_HEAD, SERIES_HEAD
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import ABSENT_BITS, STALE_BITS

_INCONSISTENT = "a record does not fit what came before"
_MARKERS = tuple(struct.pack("=Q", bits) for bits in (STALE_BITS, ABSENT_BITS))


@dataclass(slots=True)
class Restored:
    """The result of loading: counts of samples and faults."""

    samples: int = 0
    too_old: int = 0
    """Samples from before the store's retention."""
    ahead: int = 0
    """Samples from a time that has not come: the clock was set back since."""
    refused: int = 0
    """Samples that the store did not take for another reason, such as being full."""


class SegmentReader:
    """Loads one run's segments into a store, oldest first.

    Args:
        store: gets the samples.
        now_ms: the server's time.
        restored: counts what came back.
    """

    def __init__(self, store: SeriesStore, now_ms: int, restored: Restored) -> None:
        self._store = store
        self._now_ms = now_ms
        self._restored = restored
        self._run = b""
        self._places: dict[int, list[Series | None]] = {}
        """By number of the group: the series of its places, as the segment has declared them."""
        self._groups: dict[int, SeriesGroup] = {}
        """By number, which is the same in all segments of a run."""
        self._declared: dict[bytes, list[Series | None]] = {}
        """By digest of the text that declared them; segments repeat each other."""
        store.advance(now_ms)

    def begin(self, run: bytes) -> None:
        """Start the next segment, which declares its own series.

        Args:
            run: that wrote it.
        """
        if run != self._run:
            self.end()
            self._run = run
        self._places = {}

    def end(self) -> None:
        """Finish loading: the next append continues the restored groups."""
        self._store.leave_unclaimed(self._groups.values())
        self._groups = {}

    def take(self, record: Record) -> Iterator[int]:
        """Store a record's samples; yield the number of samples after each part.

        Raises:
            TornSegmentError: the record makes no sense.
        """
        try:
            if record.kind is RecordKind.SERIES:
                self._declare(record.content)
            else:
                yield from self._append(record.content)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error):
            # The checksum is right, so that the writer made the error.
            raise TornSegmentError(_INCONSISTENT) from None

    def _declare(self, content: bytes) -> None:
        position = 0
        while position < len(content):
            number, first, count, size = _unpack(SERIES_HEAD, content, position)
            position += SERIES_HEAD.size
            found = self._series(content[position : position + size])
            position += size
            places = self._places.setdefault(number, [])
            if len(found) != count or len(places) < first:
                raise ValueError(_INCONSISTENT)
            places[first : first + count] = found

    def _series(self, text: bytes) -> list[Series | None]:
        digest = blake2b(text, digest_size=16).digest()
        found = self._declared.get(digest)
        if found is None:
            found = self._declared[digest] = [
                None if labels is None else self._store.ref(labels) for labels in json.loads(text)
            ]
        return found

    def _append(self, content: bytes) -> Iterator[int]:
        position = 0
        while position < len(content):
            number, width, count = _unpack(SAMPLES_HEAD, content, position)
            position += SAMPLES_HEAD.size
            refs = self._places[number][:width]
            values_at = position + 8 * count
            end = values_at + 8 * count * width
            if len(refs) != width or end > len(content):
                raise ValueError(_INCONSISTENT)
            times_ms = array("q", content[position:values_at])
            for row, t_ms in enumerate(times_ms):
                low = values_at + 8 * width * row
                self._append_row(number, refs, content[low : low + 8 * width], t_ms)
            yield width * count
            position = end

    def _append_row(self, number: int, refs: list[Series | None], row: bytes, t_ms: int) -> None:
        restored, now_ms = self._restored, self._now_ms
        if t_ms < self._store.oldest_kept_ms():
            restored.too_old += len(refs)
            return
        if t_ms > now_ms + MAX_AHEAD_MS:
            restored.ahead += len(refs)
            return
        values = array("d", row)
        known: list[Series] = [ref for ref in refs if ref is not None]
        ended: list[Series] = []
        if len(known) < len(refs) or any(marker in row for marker in _MARKERS):
            known, values, ended = _without_markers(refs, row)
        group = self._group(number, known) if known and len(refs) > 1 else None
        taken = self._store.append_many(known, values, t_ms, now_ms, group)
        for series in ended:
            if t_ms > series.last_ms:
                restored.samples += self._store.mark_stale(series, t_ms)
        restored.samples += taken
        restored.refused += len(known) - taken

    def _group(self, number: int, refs: list[Series]) -> SeriesGroup:
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = self._store.group_of(refs)
        return group


def _without_markers(
    refs: list[Series | None], row: bytes
) -> tuple[list[Series], "array[float]", list[Series]]:
    """Return a row's series with samples, these samples, and the series that end in it."""
    known: list[Series] = []
    values = array("d")
    ended: list[Series] = []
    for ref, bits, value in zip(refs, array("Q", row), array("d", row), strict=True):
        if ref is None or bits == ABSENT_BITS:
            continue
        if bits == STALE_BITS:
            ended.append(ref)
        else:
            known.append(ref)
            values.append(value)
    return known, values, ended


def _unpack(head: struct.Struct, content: bytes, position: int) -> tuple[int, ...]:
    return head.unpack_from(content, position)
