"""Looks up scenarios by shipped name or file, and policies of plug-ins."""

import gzip
import sys
import zlib
from collections.abc import Callable, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.base.errors import ConfigError, NotFoundError, Problem, UsageError
from gpuscale.base.plugins import PluginError, described, find_entry, load
from gpuscale.base.text_files import STDIN, read_text, shown_name, unreadable

if TYPE_CHECKING:
    from gpuscale.lab.sim.scenario.setup import Setup

MAX_FILE_BYTES = 512 * 1024 * 1024
"""A trace of a large service's whole day fits; a disk image given by mistake does not."""
_SHIPPED_PREFIX = "shipped:"


def shipped_names() -> list[str]:
    """Return the names of the shipped scenarios."""
    return sorted(
        entry.name for entry in _shipped().iterdir() if (entry / "scenario.yaml").is_file()
    )


def find_setup(
    name: str, settings: Sequence[str] = (), instance_types: str | None = None
) -> "Setup":
    """Return the scenario of a shipped name or file; warnings go to standard error.

    Args:
        name: of a shipped scenario, or a path; `-` is standard input, whose files are in this folder.
        settings: fields of it to set, each as `spec.duration=10m`.
        instance_types: name of a file of instance types, which go before the scenario's.

    Raises:
        UsageError: neither.
        ConfigError: its file, or one that it names, is wrong.
    """
    from gpuscale.lab.sim.scenario.loading import load_setup

    folder: Traversable | Path = Path()
    if name in shipped_names():
        folder = _shipped() / name
        text, source = _text(folder / "scenario.yaml"), f"{name}/scenario.yaml"
    elif name == STDIN:
        text, source = read_text(name), shown_name(name)
    elif Path(name).exists():
        folder, source = Path(name).parent, name
        try:
            text = _text(Path(name))
        except NotFoundError as error:
            raise ConfigError(Problem(name, None, None, None, str(error))) from None
    else:
        known = ", ".join(shipped_names())
        raise UsageError(f"found no scenario {name!r}, expected a file or one of: {known}")
    more = None if instance_types is None else (read_text(instance_types), instance_types)
    setup = load_setup(
        text, source, lambda file: read_beside(folder, file), load_policy, settings, more
    )
    for warning in setup.rules.warnings:
        sys.stderr.write(f"gpuscale: warning: {warning}\n")
    return setup


def _shipped() -> Traversable:
    return resources.files("gpuscale.lab.sim") / "scenarios"


def read_beside(folder: Traversable | Path, name: str) -> str:
    """Return the text of a file named in a scenario: beside it, or shipped (`shipped:`).

    Raises:
        NotFoundError: it can't be read; with the reason.
    """
    place = folder / Path(name).expanduser() if isinstance(folder, Path) else _joined(folder, name)
    if name.startswith(_SHIPPED_PREFIX):
        place = _joined(_shipped(), name.removeprefix(_SHIPPED_PREFIX))
    try:
        return _text(place)
    except NotFoundError as error:
        raise NotFoundError(f"{error}: {name}") from None


def _joined(folder: Traversable, name: str) -> Traversable:
    for part in name.split("/"):
        folder = folder / part
    return folder


def _text(place: Traversable | Path) -> str:
    try:
        with place.open("rb") as raw:
            data = raw.read(MAX_FILE_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            data = _unpacked(data)
        if len(data) > MAX_FILE_BYTES:
            raise NotFoundError(f"larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB")
        return data.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except (UnicodeDecodeError, OSError) as error:
        raise NotFoundError(unreadable(error)) from None
    except (EOFError, zlib.error):
        raise NotFoundError("a damaged gzip file") from None


def _unpacked(data: bytes) -> bytes:
    """Return the content of a gzip file, up to one byte over the limit."""
    import io

    with gzip.open(io.BytesIO(data)) as packed:
        return packed.read(MAX_FILE_BYTES + 1)


def load_policy(group: str, name: str) -> Callable[[], Any] | None:
    """Return a plug-in's policy of this name; None if there is none.

    Raises:
        PluginError: it can't be loaded or makes nothing, or several plug-ins have the name.
    """
    entry = find_entry(group, name)
    if entry is None:
        return None
    factory = load(entry)
    if not callable(factory):
        found = f"a {type(factory).__name__}"
        expected = "a class, or a function that makes a policy"
        raise PluginError(f"{described(entry)}: found {found}, expected {expected}")
    made: Callable[[], Any] = factory
    return made
