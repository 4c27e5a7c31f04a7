"""The journal: what is written to it is kept from then on, whatever happens to the process or the machine.

A frame is its length and checksum, then compressed JSON: the columns of each table. A kill leaves a torn
frame at the end at most, which was never acknowledged, and nothing is read from there on.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gpuscale.base.errors import UnavailableError
from gpuscale.ops.history.tables import TABLES, Batch

SUFFIX = ".journal"
_HEAD = struct.Struct("<II")
_FRAME = msgspec.json.Decoder(dict[str, msgspec.Raw])


def frames(path: Path) -> Iterator[Mapping[str, bytes]]:
    """Yield the JSON of each table's columns, frame by frame, as far as the file is whole."""
    for _, payload in _payloads(path):
        yield {name: bytes(raw) for name, raw in _FRAME.decode(zlib.decompress(payload)).items()}


def _payloads(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield where each whole frame ends, and what is in it."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            payload = file.read(length)
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            yield file.tell(), payload


class Journal:
    """A file that frames are appended to. One process writes to it at a time.

    Raises:
        UnavailableError: it can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
            self.size = max((end for end, _ in _payloads(path)), default=0)
            self.frames = 0
            self._file.truncate(self.size)
            sync_folder(path.parent)
        except OSError as error:
            raise UnavailableError(f"can't write {path}: {error.strerror}") from None

    def append(self, batch: Batch) -> None:
        """Keep rows; once this returns, a kill of the process or a failure of the machine loses none.

        Raises:
            UnavailableError: the system could not write, as on a full disk. Nothing of them is kept.
        """
        columns = {
            name: dict(zip(TABLES[name].columns, zip(*rows, strict=True), strict=True))
            for name, rows in batch.items()
            if rows
        }
        payload = zlib.compress(msgspec.json.encode(columns), 1)
        frame = _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
        try:
            written = 0
            while written < len(frame):
                written += self._file.write(frame[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(self.size)
            raise UnavailableError(f"can't write {self.path}: {error.strerror}") from None
        self.size += len(frame)
        self.frames += 1

    def close(self) -> None:
        self._file.close()


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
