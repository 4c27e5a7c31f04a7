"""The file format of segments: a header, then records with length and checksum.

```
header   magic, version, byte order, when it was begun, the run that wrote it, CRC-32 of all that
record   bytes stored, bytes inside, CRC-32 of the rest, kind, compression, then the stored bytes
```

A file ends wherever its writer died. Whatever follows the last record that is whole is not read.
"""

import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from gpuscale.series.storage.compression import Compression, CompressionError, compress, decompress

VERSION = 1
MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Of one record, uncompressed. Writers stay far below it."""
_MAGIC = b"gpuscale\x00samples"
_HEADER = struct.Struct("<16sBBxxq16s")
_RECORD = struct.Struct("<IIIBB")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_BYTE_ORDER = 1 if sys.byteorder == "little" else 2

Read = Callable[[int], bytes]
"""Returns the next bytes of a file, fewer at its end."""


class RecordKind(IntEnum):
    """The kind of a record's content."""

    SERIES = 1
    SAMPLES = 2


class UnusableSegmentError(ValueError):
    """A file is no segment, or of an unsupported version."""


class TornSegmentError(ValueError):
    """A file can't be read from here on; the records before are good."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment file."""

    begun_ms: int
    """When it was begun, milliseconds since the epoch."""
    run: bytes
    """16 bytes that name the process that wrote it."""

    def encode(self) -> bytes:
        """Return the header's bytes."""
        plain = _HEADER.pack(_MAGIC, VERSION, _BYTE_ORDER, self.begun_ms, self.run)
        return plain + _CHECKSUM.pack(zlib.crc32(plain))


@dataclass(frozen=True, slots=True)
class Record:
    """A record's content."""

    kind: RecordKind
    content: bytes


def read_header(read: Read) -> SegmentHeader:
    """Read a file's header.

    Raises:
        UnusableSegmentError: it has none, or one of another release or machine.
    """
    data = read(HEADER_BYTES)
    if data[: len(_MAGIC)] != _MAGIC:
        raise UnusableSegmentError("it is no file of saved samples")
    if len(data) > len(_MAGIC) + 1 and data[16] != VERSION:
        raise UnusableSegmentError(f"found format {data[16]}, expected {VERSION}")
    plain = data[: _HEADER.size]
    if len(data) < HEADER_BYTES or data[_HEADER.size :] != _CHECKSUM.pack(zlib.crc32(plain)):
        raise UnusableSegmentError("its header is damaged")
    _, _, byte_order, begun_ms, run = _HEADER.unpack(plain)
    if byte_order != _BYTE_ORDER:
        raise UnusableSegmentError("it is of a machine with another byte order")
    return SegmentHeader(begun_ms, run)


def encode_record(record: Record, compression: Compression) -> bytes:
    """Return the bytes of a record."""
    stored = compress(record.content, compression)
    rest = bytes((record.kind, compression))
    checksum = zlib.crc32(stored, zlib.crc32(rest))
    head = _RECORD.pack(len(stored), len(record.content), checksum, record.kind, compression)
    return head + stored


def read_record(read: Read) -> Record | None:
    """Read the next record; None at the end of the file.

    Raises:
        TornSegmentError: it is not whole.
    """
    head = read(_RECORD.size)
    if not head:
        return None
    if len(head) < _RECORD.size:
        raise TornSegmentError("a record's head is cut off")
    stored_bytes, content_bytes, checksum, kind, compression = _RECORD.unpack(head)
    if max(stored_bytes, content_bytes) > MAX_RECORD_BYTES:
        raise TornSegmentError("a record is larger than any that is written")
    stored = read(stored_bytes)
    if len(stored) < stored_bytes:
        raise TornSegmentError("a record is cut off")
    if zlib.crc32(stored, zlib.crc32(head[-2:])) != checksum:
        raise TornSegmentError("a record's checksum is wrong")
    try:
        content = decompress(stored, Compression(compression), content_bytes)
        return Record(RecordKind(kind), content)
    except CompressionError as error:
        raise TornSegmentError(str(error)) from None
    except ValueError:
        raise TornSegmentError("a record is of an unknown kind") from None
