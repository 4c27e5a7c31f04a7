"""Files that change while they are used: whether they did, and what was last good in them.

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
    """Return what the files look like now."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class FileLook(Enum):
    """What a look at files found."""

    UNCHANGED = auto()
    LOADED = auto()
    FAILED = auto()


class LastGood(Generic[_Value]):
    """What is made of some files. One that can't be used leaves the last good value in place.

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
        """Take the files as they are now, if they changed and can be used."""
        now = stamps_of(self._paths)
        if now == self._stamps:
            self.fault = None
            return FileLook.UNCHANGED
        try:
            self.value = self._load()
        except self._errors as error:
            # The stamps stay the old ones, so that a pair that is half renewed is looked at again.
            self.fault = error
            return FileLook.FAILED
        self._stamps, self.fault = now, None
        return FileLook.LOADED
