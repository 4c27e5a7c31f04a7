"""Files that are reloaded when they change; a faulty file keeps the last good value.

Looking is polling: mounted ConfigMaps and Secrets are swapped through links, which file events miss.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from pathlib import Path
from typing import Generic, TypeVar

Stamps = tuple[tuple[int, int, int] | None, ...]
"""For each file, what is different after a change; None where there is no file."""
_Value = TypeVar("_Value")


def stamps_of(paths: Iterable[Path]) -> Stamps:
    """Return the files' current modification stamps."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class FileLook(Enum):
    """The result of checking files for changes."""

    UNCHANGED = auto()
    LOADED = auto()
    FAILED = auto()


class LastGood(Generic[_Value]):
    """A value made from files. A faulty file keeps the last good value.

    Args:
        paths: of the files.
        load: makes the value.
        errors: what `load` raises where a file can't be used; at first they go on to the caller.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        load: Callable[[], _Value],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self.fault: Exception | None = None
        """Why the files as they are now can't be used; None where they can."""
        self._paths = tuple(paths)
        self._load = load
        self._errors = errors
        self._stamps = stamps_of(self._paths)
        self.value = load()

    def look(self) -> FileLook:
        """Reload the files if they changed and are valid."""
        now = stamps_of(self._paths)
        if now == self._stamps:
            self.fault = None
            return FileLook.UNCHANGED
        try:
            self.value = self._load()
        except self._errors as error:
            # The old stamps are kept, so that a half-renewed pair is checked again.
            self.fault = error
            return FileLook.FAILED
        self._stamps, self.fault = now, None
        return FileLook.LOADED
