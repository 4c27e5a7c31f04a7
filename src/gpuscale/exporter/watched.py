"""Whether files have changed, by polling: mounted ConfigMaps and Secrets are swapped through links."""

from collections.abc import Iterable
from pathlib import Path

Stamps = tuple[tuple[int, int, int] | None, ...]
"""For each file, what is different after a change; None where there is no file."""


def stamps_of(paths: Iterable[Path]) -> Stamps:
    """Return what the files look like now."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
