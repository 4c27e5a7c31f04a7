"""Other projects' definitions that tests hold manifests against: CRDs and a JSON schema, as released.

The releases stand in `modules/definitions.toml`. A set counts as there if the cache holds every file of
the pinned release; nothing of them is in the repository.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpuscale.base.errors import NotFoundError, UnavailableError, UsageError
from gpuscale_testing.programs.toolset import BUILD_COMMAND, MODULES, cache_folder

PINS = "definitions.toml"
_FOLDER = "definitions"
"""Of the cache."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Files of one release of another project."""

    name: str
    module: str
    """The Go module that carries them."""
    version: str
    sum: str
    """Of the module, as go.sum has it."""
    paths: tuple[str, ...]
    """In the module; their last parts differ."""

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"


def pinned_definitions() -> tuple[Definitions, ...]:
    """Return all sets in their pinned releases.

    Raises:
        NotFoundError: neither a checkout nor a wheel that carries the pins.
    """
    path = MODULES / PINS
    if not path.is_file():
        raise NotFoundError(f"{path} is not there, which names the definitions and their releases")
    pins = tomllib.loads(path.read_text())
    return tuple(
        Definitions(name, pin["module"], pin["version"], pin["sum"], tuple(pin["paths"]))
        for name, pin in pins.items()
    )


def definitions_named(name: str) -> Definitions:
    """Return the set of this name.

    Raises:
        UsageError: there is none.
    """
    known = pinned_definitions()
    for each in known:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in known)
    raise UsageError(f"found the definitions {name!r}, expected one of {names}")


def definitions_folder(wanted: Definitions, cache: Path) -> Path:
    """Return the folder of a set in a cache; it need not be there yet."""
    return cache / _FOLDER / f"{wanted.name}-{wanted.version}"


def files(wanted: Definitions, cache: Path) -> dict[str, Path]:
    """Return where each file of a set lies in a cache, by its path in the module."""
    folder = definitions_folder(wanted, cache)
    return {path: folder / PurePosixPath(path).name for path in wanted.paths}


def fetched(wanted: Definitions, cache: Path) -> bool:
    """Return whether a cache holds every file of the set's pinned release."""
    return all(path.is_file() for path in files(wanted, cache).values())


def find_definitions(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder with the files of one set.

    Raises:
        UsageError: gpuscale has no set of this name.
        UnavailableError: it was not fetched; says how to do that.
    """
    if reason := missing_definitions([name], environment):
        raise UnavailableError(reason)
    return definitions_folder(definitions_named(name), cache_folder(environment))


def missing_definitions(
    names: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """Return why these sets, or all, can't be used, in one sentence; empty if they can."""
    wanted = pinned_definitions() if names is None else [definitions_named(name) for name in names]
    cache = cache_folder(environment)
    absent = [each.label for each in wanted if not fetched(each, cache)]
    if not absent:
        return ""
    return (
        f"definitions of {', '.join(absent)} are not there: looked in {cache / _FOLDER}; "
        f"fetch once with `{BUILD_COMMAND}`"
    )
