"""Samples as remote write's protobuf message, `WriteRequest`.

Written by hand, because the message is four kinds of fields and most of it repeats: names and values of
labels are encoded once, and a time once for all series that share it. The protobuf library takes ten times
as long, most of it to make an object for each label.

Source: prometheus prompb/remote.proto and prompb/types.proto; the remote write specification 1.0.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from gpuscale.series.labels import LabelSet
from gpuscale.series.remote_write.relabelling import RelabelRule, relabelled
from gpuscale.series.storage.tail import Batch
from gpuscale.series.values import ABSENT_BITS

K = TypeVar("K")
V = TypeVar("V", bound=bytes | None)

_SERIES = b"\x0a"
"""Tag of `WriteRequest.timeseries`: field 1, with a length."""
_LABEL = b"\x0a"
_LABEL_NAME = b"\x0a"
_LABEL_VALUE = b"\x12"
_SAMPLE = b"\x12"
_VALUE = b"\x09"
"""Tag of `Sample.value`: field 1, eight bytes."""
_TIME = b"\x10"
"""Tag of `Sample.timestamp`: field 2, a varint."""
_ABSENT = struct.pack("<Q", ABSENT_BITS)
_MAX_REMEMBERED = 50_000
"""Label pairs, or series with relabelling; then they are forgotten, and encoded again."""
_MAX_REMEMBERED_BYTES = 1024
"""Of one pair or series; what is longer is encoded each time."""


def varint(number: int) -> bytes:
    """Return a number as a protobuf varint; a negative one takes ten bytes."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


_LENGTHS = tuple(varint(number) for number in range(1 << 12))


def _length(number: int) -> bytes:
    return _LENGTHS[number] if number < len(_LENGTHS) else varint(number)


class _Pairs(dict[tuple[str, str], bytes]):
    """Encoded labels, cached as series share most of them."""

    def __missing__(self, pair: tuple[str, str]) -> bytes:
        name, value = (text.encode("utf-8", "replace") for text in pair)
        body = b"".join(
            (_LABEL_NAME, _length(len(name)), name, _LABEL_VALUE, _length(len(value)), value)
        )
        made = _LABEL + _length(len(body)) + body
        _remember(self, pair, made)
        return made


def _remember(known: dict[K, V], key: K, made: V) -> None:
    if made is None or len(made) <= _MAX_REMEMBERED_BYTES:
        if len(known) >= _MAX_REMEMBERED:
            known.clear()
        known[key] = made


class LabelEncoder:
    """Encodes label sets.

    Args:
        external: labels that every series gets unless it has one of that name.
        rules: what is done to labels then; a series may be left out.
    """

    def __init__(self, external: Mapping[str, str], rules: Sequence[RelabelRule] = ()) -> None:
        self._external = dict(external)
        self._rules = tuple(rules)
        self._pairs = _Pairs()
        self._relabelled: dict[LabelSet, bytes | None] = {}

    def encode(self, labels: LabelSet) -> bytes | None:
        """Return a series' encoded labels; None if it is dropped."""
        if self._rules:
            return self._relabel(labels)
        if self._external:
            merged = sorted({**self._external, **dict(labels.items())}.items())
            return b"".join(map(self._pairs.__getitem__, merged))
        return b"".join(map(self._pairs.__getitem__, labels.items()))

    def _relabel(self, labels: LabelSet) -> bytes | None:
        if labels in self._relabelled:
            return self._relabelled[labels]
        found = relabelled({**self._external, **dict(labels.items())}, self._rules)
        made = None
        if found:
            made = b"".join(map(self._pairs.__getitem__, sorted(found.items())))
        _remember(self._relabelled, labels, made)
        return made


class WriteMessage:
    """A growing message."""

    def __init__(self) -> None:
        self.samples = 0
        self.newest_ms = 0
        self._parts: list[bytes] = []

    def encode(self) -> bytes:
        return b"".join(self._parts)

    def add(
        self, labels: Iterable[bytes | None], times_ms: Sequence[int], rows: Sequence[bytes]
    ) -> None:
        """Add series that share their times.

        Args:
            labels: of each series; None for one that is left out.
            times_ms: T, ascending.
            rows: T; the values of all series at one time, eight little-endian bytes each.
        """
        ends = [_TIME + varint(t_ms) for t_ms in times_ms]
        starts = [_SAMPLE + _length(len(end) + 9) + _VALUE for end in ends]
        cells = [[row[low : low + 8] for low in range(0, len(row), 8)] for row in rows]
        parts = self._parts
        before = self.samples
        for label, *values in zip(labels, *cells, strict=True):
            if label is None:
                continue
            samples = [
                start + value + end
                for start, value, end in zip(starts, values, ends, strict=True)
                if value != _ABSENT
            ]
            if samples:
                body = b"".join((label, *samples))
                parts += (_SERIES, _length(len(body)), body)
                self.samples += len(samples)
        if self.samples > before:
            self.newest_ms = max(self.newest_ms, times_ms[-1])


def pieces(batch: Batch, max_samples: int) -> Iterator[tuple[range, slice]]:
    """Yield a batch in parts of at most so many samples: columns and times.

    All of the first times come before any later ones, so that sending them in this order sends each
    series' samples in order.
    """
    width, count = len(batch.refs), len(batch.times_ms)
    times = min(count, max_samples)
    columns = max(1, max_samples // max(1, times))
    for first in range(0, count, times):
        for low in range(0, width, columns):
            yield range(low, min(low + columns, width)), slice(first, min(first + times, count))


def value_rows(batch: Batch, columns: range, times: slice) -> list[bytes]:
    """Return some series' values at some times, in the form of `WriteMessage.add`."""
    width = len(batch.refs)
    found = []
    for row in range(*times.indices(len(batch.times_ms))):
        values: array[float] = batch.values[
            row * width + columns.start : row * width + columns.stop
        ]
        if sys.byteorder == "big":
            values.byteswap()
        found.append(values.tobytes())
    return found
