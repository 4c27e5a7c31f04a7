"""Files that are written atomically."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from gpuscale.base.errors import UnavailableError, UsageError

Content = str | Callable[[BinaryIO], None]
"""A text, or what writes bytes to the open file, for what is too large to hold twice."""


def check_writable(names: Iterable[str], option: str) -> None:
    """Raise if a file can't be written, before time is spent on its content.

    Raises:
        UsageError: a folder is missing, or may not be written to.
    """
    for name in names:
        path = Path(name)
        if path.is_dir():
            raise UsageError(f"{option}: found a folder, {name}, expected a file")
        if not path.parent.is_dir():
            raise UsageError(f"{option} {name}: found no folder {path.parent}; make it first")
        place = path if path.exists() else path.parent
        if not os.access(place, os.W_OK):
            raise UsageError(f"{option} {name}: {place} may not be written to")


def write_file(path: Path, text: str, option: str) -> None:
    """Write the file that an option names, atomically.

    Raises:
        UsageError: it can't be written.
    """
    try:
        replace_files({str(path): text})
    except UnavailableError as error:
        raise UsageError(f"{option}: {error}") from None


def replace_files(contents: Mapping[str, Content]) -> None:
    """Write all files to temporary ones, then move them into place; a failure changes nothing.

    Raises:
        UnavailableError: the system could not write, as on a full disk.
    """
    with contextlib.ExitStack() as leftovers:
        moves = [leftovers.enter_context(_written(*item)) for item in contents.items()]
        for move in moves:
            move()


@contextlib.contextmanager
def _written(name: str, content: Content) -> Iterator[Callable[[], None]]:
    """Write a temporary file; yield a function that moves it into place, and remove the rest."""
    if Path(name).exists() and not Path(name).is_file():
        with _failing_as(name), Path(name).open("wb") as device:
            _write(content, device)  # nothing can be moved onto a device or a pipe
        yield lambda: None
        return
    path = Path(name).resolve()  # a symbolic link is kept
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with _failing_as(name), beside.open("xb") as file:
            _write(content, file)
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode)

        def move() -> None:
            with _failing_as(name):
                beside.replace(path)

        yield move
    finally:
        beside.unlink(missing_ok=True)


def _write(content: Content, file: BinaryIO) -> None:
    if isinstance(content, str):
        file.write(content.encode())
    else:
        content(file)


@contextlib.contextmanager
def _failing_as(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"can't write {name}: {error.strerror or error}") from None
