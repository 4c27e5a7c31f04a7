"""Writes batches of samples as records of a segment.

A segment holds the names of its samples, so that any other can be deleted. The series of a
group are declared when their first samples are written to the segment.
"""

import json
import struct
from collections.abc import Iterator

from gpuscale.series.saved.records import Record, RecordKind
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.tail import Batch

SERIES_HEAD = struct.Struct("<IIII")
"""Number of the group, its first place, count, bytes of the JSON text that follows."""
SAMPLES_HEAD = struct.Struct("<III")
"""Number of the group, count of its places, count of times; times and values follow."""
MAX_LABEL_CHARS = 64 * 1024
"""Of one series in all; none with more is saved."""
_RECORD_BYTES = 1024 * 1024
"""How large records grow before they are given away; larger ones compress no better."""
_TEXT_BYTES = 64 * 1024
"""How large the text of one declaration grows."""


class GroupNumbers:
    """Numbers of series groups, the same in all segments of a run."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._used: dict[object, int] = {}
        """Those of the segment of now."""
        self._next = 0

    def begin_segment(self) -> None:
        """Forget the groups without samples in the last segment."""
        self._numbers, self._used = self._used, {}

    def of(self, group: object) -> int:
        number = self._used.get(group)
        if number is None:
            number = self._numbers.get(group, self._next)
            self._next = max(self._next, number + 1)
            self._used[group] = number
        return number


class SegmentWriter:
    """Writes the records of one segment.

    Args:
        numbers: of the run.
    """

    def __init__(self, numbers: GroupNumbers) -> None:
        self._numbers = numbers
        numbers.begin_segment()
        self._declared: dict[int, list[Series | None]] = {}
        """By number of the group: the series of its places, as a reader of the segment has them."""
        self._parts: dict[RecordKind, list[bytes]] = {kind: [] for kind in RecordKind}
        self._sizes = dict.fromkeys(RecordKind, 0)

    def add(self, batch: Batch) -> Iterator[Record]:
        """Add a batch, and yield records that are full."""
        number = self._numbers.of(batch.group)
        refs = batch.refs if isinstance(batch.refs, list) else list(batch.refs)
        width = len(refs)
        known = self._declared.setdefault(number, [])
        if known[:width] != refs:
            yield from self._declare(number, known, refs)
        step = max(1, _RECORD_BYTES // (8 * width))
        for low in range(0, len(batch.times_ms), step):
            times_ms = batch.times_ms[low : low + step]
            values = batch.values[low * width : (low + len(times_ms)) * width]
            head = SAMPLES_HEAD.pack(number, width, len(times_ms))
            yield from self._put(RecordKind.SAMPLES, head, times_ms.tobytes(), values.tobytes())

    def flush(self) -> Iterator[Record]:
        """Yield the remaining records; series come before their samples."""
        for kind in (RecordKind.SERIES, RecordKind.SAMPLES):
            if parts := self._parts[kind]:
                self._parts[kind], self._sizes[kind] = [], 0
                yield Record(kind, b"".join(parts))

    def _declare(
        self, number: int, known: list[Series | None], refs: list[Series | None]
    ) -> Iterator[Record]:
        """Write which series a group's columns belong to, where that has changed."""
        if any(old is not new for old, new in zip(known, refs, strict=False)):
            # Written samples must be read before their column gets another series.
            yield from self.flush()
        first, texts, size = 0, list[str](), 0
        for place, ref in enumerate(refs):
            if place < len(known) and known[place] is ref:
                continue
            if texts and (first + len(texts) != place or size >= _TEXT_BYTES):
                yield from self._put_series(number, first, texts)
                texts, size = [], 0
            if not texts:
                first = place
            texts.append(_text(ref))
            size += len(texts[-1])
        if texts:
            yield from self._put_series(number, first, texts)
        known[: len(refs)] = refs

    def _put_series(self, number: int, first: int, texts: list[str]) -> Iterator[Record]:
        text = f"[{','.join(texts)}]".encode("ascii")
        head = SERIES_HEAD.pack(number, first, len(texts), len(text))
        yield from self._put(RecordKind.SERIES, head, text)

    def _put(self, kind: RecordKind, *parts: bytes) -> Iterator[Record]:
        self._parts[kind] += parts
        self._sizes[kind] += sum(map(len, parts))
        if self._sizes[kind] >= _RECORD_BYTES:
            yield from self.flush()


def _text(ref: Series | None) -> str:
    """Return a series' labels as JSON; `null` for an empty column, or a series that is not saved."""
    if ref is None:
        return "null"
    labels = dict(ref.labels.items())
    if sum(map(len, labels)) + sum(map(len, labels.values())) > MAX_LABEL_CHARS:
        return "null"
    return json.dumps(labels, separators=(",", ":"))
