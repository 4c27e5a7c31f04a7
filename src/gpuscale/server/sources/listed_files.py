"""Rule files by name and by folder, listed again at each look.

Files of a ConfigMap change by a symbolic link that is turned, so one that is missing once may be back at the
next look.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuscale.base.errors import ConfigError, Problem

_SUFFIXES = (".yaml", ".yml", ".json")
"""Of rule files in a folder."""


Problems = list[Problem]
Paths = list[Path]


class ListedFiles:
    """The named files, and those in the named folders, in this order.

    Files of a folder come sorted by name. One that leaves its folder is listed until the second look that
    misses it; one that was named always is.

    Args:
        paths: files, and folders with files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._folders: dict[Path, tuple[Path, ...]] = {}
        """The latest list of each folder; kept where the folder can't be read."""
        self._missed: set[Path] = set()
        """Left their folder at the latest look, perhaps for the moment of a rename."""

    def list(self, problems: Problems) -> Paths:
        """Return the files; adds folders that are empty or can't be read to `problems`."""
        found: dict[Path, None] = {}
        for path in self._paths:
            if path.is_dir() or path in self._folders:
                self._list_folder(path, problems)
                found |= dict.fromkeys(self._folders.get(path, ()))
            else:
                found[path] = None
        return [*found]

    def _list_folder(self, folder: Path, problems: Problems) -> None:
        try:
            inside = sorted(folder.iterdir())
        except OSError as error:
            problems.append(_unreadable(folder, error))
            return
        found = set(_rule_files(inside))
        if not found:
            expected = f"rule files, whose names end in {', '.join(_SUFFIXES)}"
            problems.append(Problem(str(folder), None, None, "none", expected))
        gone = set(self._folders.get(folder, ())) - found
        missed = gone - self._missed
        self._missed = (self._missed - gone - found) | missed
        self._folders[folder] = tuple(sorted(found | missed))


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        ConfigError: it can't be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_unreadable(path, error)) from error


def _rule_files(paths: Iterable[Path]) -> Iterable[Path]:
    # A mounted ConfigMap shows its files twice, once in a folder whose name starts with two dots.
    return (
        path
        for path in paths
        if path.suffix in _SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> Problem:
    reason = getattr(error, "strerror", None) or str(error)
    return Problem(str(path), None, None, None, f"can't be read: {reason}")
