"""Finding scenarios: by the name of one that ships with gpuscale, or by file."""

import gzip
import sys
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from gpuscale.sim.setup import Setup

MAX_FILE_BYTES = 512 * 1024 * 1024
"""A trace of a large service's whole day fits; a disk image given by mistake does not."""
_SHIPPED_PREFIX = "shipped:"


def shipped_names() -> list[str]:
    """Return the names of the scenarios that ship with gpuscale."""
    return sorted(
        entry.name for entry in _shipped().iterdir() if (entry / "scenario.yaml").is_file()
    )


def find_setup(name: str) -> "Setup":
    """Return the scenario called `name`, or that of the file at this path; warnings go to standard error.

    Raises:
        UsageError: neither.
        ConfigError: its file, or one that it names, is wrong.
    """
    setup = _find(name)
    for warning in setup.rules.warnings:
        print(f"gpuscale: warning: {warning}", file=sys.stderr)
    return setup


def _find(name: str) -> "Setup":
    from gpuscale.sim.setup import load_setup

    if name in shipped_names():
        folder = _shipped() / name
        return load_setup(
            _text(folder / "scenario.yaml"),
            f"{name}/scenario.yaml",
            lambda file: _beside(folder, file),
        )
    path = Path(name)
    if not path.is_file():
        known = ", ".join(shipped_names())
        raise UsageError(f"found no scenario {name!r}, expected a file or one of: {known}")
    return load_setup(_text(path), name, lambda file: _beside(path.parent, file))


def _shipped() -> Traversable:
    return resources.files("gpuscale.sim") / "scenarios"


def _beside(folder: Traversable | Path, name: str) -> str:
    """Return the text of a file named in a scenario: beside it, or `shipped:` with gpuscale."""
    if name.startswith(_SHIPPED_PREFIX):
        return _text(_joined(_shipped(), name.removeprefix(_SHIPPED_PREFIX)))
    if isinstance(folder, Path):
        return _text(folder / Path(name).expanduser())
    return _text(_joined(folder, name))


def _joined(folder: Traversable, name: str) -> Traversable:
    for part in name.split("/"):
        folder = folder / part
    return folder


def _text(place: Traversable | Path) -> str:
    if not place.is_file():
        raise NotFoundError(f"no such file: {place}")
    try:
        with place.open("rb") as raw:
            data = raw.read(MAX_FILE_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            data = _unpacked(data)
        if len(data) > MAX_FILE_BYTES:
            raise NotFoundError(f"{place} is larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB")
        return data.decode()
    except UnicodeDecodeError:
        raise NotFoundError(f"{place} is not UTF-8 text") from None
    except OSError as error:
        raise NotFoundError(f"can't read {place}: {error.strerror or error}") from None


def _unpacked(data: bytes) -> bytes:
    """Return the content of a gzip file, up to one byte over the limit."""
    import io

    with gzip.open(io.BytesIO(data)) as packed:
        return packed.read(MAX_FILE_BYTES + 1)
