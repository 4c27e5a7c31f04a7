"""The segment files of a saved store: created, deleted when old, set aside when unreadable.

Everything here blocks, and is called in a thread.
"""

import errno
import fcntl
import logging
import os
import stat
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from gpuscale.series.saved import (
    HEADER_BYTES,
    SegmentHeader,
    UnusableSegmentError,
    read_header,
)

_LOG = logging.getLogger(__name__)
_SUFFIX = ".samples"
_UNUSABLE = ".unusable"
_LOCK = "lock"
_MAX_SEGMENTS = 1_000
"""A guard against a process that starts again and again."""


@dataclass(slots=True)
class SegmentFile:
    """A segment file, with its size and the time of its end."""

    path: Path
    number: int
    begun_ms: int
    size: int


class SegmentDirectory:
    """A directory with segments, held by one process at a time.

    Args:
        path: made where it is missing.
        max_bytes: of all segments together.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock: int | None = None
        self._next = 1
        self.segments: list[SegmentFile] = []
        """Oldest first."""
        self.put_aside = 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def is_held(self) -> bool:
        return self._lock is not None

    def hold(self) -> None:
        """Create the directory if it is missing, lock it, and list its segments.

        Raises:
            OSError: it can't be used; a `BlockingIOError` where another process holds it.
        """
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._look()
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def begin(self, header: SegmentHeader) -> FileIO:
        """Start a segment, and return its file, open for appending.

        Raises:
            OSError: it can't be made.
        """
        path = self._path / f"{self._next:08d}{_SUFFIX}"
        new = path.with_suffix(".new")
        try:
            with open(new, "wb", opener=_private) as file:
                file.write(header.encode())
                file.flush()
                os.fsync(file.fileno())
            new.rename(path)
            self._sync()
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self._next += 1
        self.segments.append(SegmentFile(path, self._next - 1, header.begun_ms, HEADER_BYTES))
        return FileIO(path, "a")

    def make_room(self, size: int) -> None:
        """Delete the oldest segments until the newest one may grow by `size` bytes.

        Raises:
            OSError: it may not, even alone; or one can't be deleted.
        """
        while self.size + size > self._max_bytes:
            if len(self.segments) == 1:
                raise OSError(errno.EDQUOT, f"more than {self._max_bytes} bytes would be saved")
            self._delete_oldest()

    def delete_old(self, before_ms: int) -> None:
        """Delete segments that ended before a time, and the oldest beyond the size limit; never the newest.

        Raises:
            OSError: one can't be deleted.
        """
        while len(self.segments) > 1 and (
            self.segments[1].begun_ms < before_ms
            or self.size > self._max_bytes
            or len(self.segments) > _MAX_SEGMENTS
        ):
            self._delete_oldest()

    def put_aside_file(self, path: Path, reason: str) -> None:
        """Rename an unreadable file for a later look; only one such file is kept."""
        self.segments = [segment for segment in self.segments if segment.path != path]
        aside = path.with_suffix(_UNUSABLE)
        try:
            for old in self._path.glob(f"*{_UNUSABLE}"):
                old.unlink(missing_ok=True)
            path.rename(aside)
        except OSError as error:
            _LOG.warning(
                "%s can't be read: %s; it can't be renamed either: %s", path, reason, error
            )
        else:
            _LOG.warning("%s can't be read: %s; it is %s now", path, reason, aside.name)
        self.put_aside += 1

    def _delete_oldest(self) -> None:
        self.segments[0].path.unlink(missing_ok=True)
        del self.segments[0]

    def _look(self) -> None:
        self.segments = []
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            if not path.stem.isascii() or not path.stem.isdigit() or len(path.stem) != 8:
                continue
            self._next = max(self._next, int(path.stem) + 1)
            try:
                self.segments.append(self._segment(path))
            except UnusableSegmentError as error:
                self.put_aside_file(path, str(error))
            except OSError as error:
                self.put_aside_file(path, error.strerror or str(error))
        for path in self._path.glob("*.new"):
            path.unlink(missing_ok=True)

    def _segment(self, path: Path) -> SegmentFile:
        with open_segment(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._max_bytes:
                raise UnusableSegmentError(
                    f"found {size} bytes, expected at most {self._max_bytes} in all files"
                )
            return SegmentFile(path, int(path.stem), read_header(file.read).begun_ms, size)

    def _sync(self) -> None:
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def open_segment(path: Path) -> BinaryIO:
    """Open a segment to read it.

    Raises:
        UnusableSegmentError: it is no plain file.
        OSError: it can't be opened.
    """
    # A pipe would block until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnusableSegmentError("it is no plain file")
    return os.fdopen(descriptor, "rb")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
