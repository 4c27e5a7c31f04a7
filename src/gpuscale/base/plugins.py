"""Plug-ins: objects that other distributions offer as entry points.

Looking for them reads the metadata of everything that is installed. So it is done only for a name that is not
built in, or where all names are wanted.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from gpuscale.base.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class PluginError(UsageError):
    """A plug-in that is installed can't be used."""


@dataclass(frozen=True, slots=True)
class PluginGroup(Generic[T]):
    """An extension point for plug-ins."""

    name: str
    """Of the entry points."""
    expected: type[T]
    """What each entry point refers to; an object of it has a `name`, which is the entry point's."""

    def find(self, name: str) -> T | None:
        """Return a plug-in's object by name; None if there is none.

        Raises:
            PluginError: it can't be loaded or is something else, or several have the name.
        """
        entry = find_entry(self.name, name)
        return None if entry is None else self._load(entry)

    def every(self) -> tuple[T, ...]:
        """Return all plug-ins' objects, by name.

        Raises:
            PluginError: one can't be loaded or is something else, or several have a name.
        """
        names = sorted({each.name for each in _entry_points(self.name)})
        return tuple(found for name in names if (found := self.find(name)) is not None)

    def _load(self, entry: "EntryPoint") -> T:
        who, loaded = described(entry), load(entry)
        if not isinstance(loaded, self.expected):
            found = f"a {type(loaded).__name__}"
            raise PluginError(f"{who}: found {found}, expected a {_qualified(self.expected)}")
        named = getattr(loaded, "name", None)
        if named != entry.name:
            raise PluginError(f"{who}: found the name {named!r}, expected {entry.name!r}")
        return loaded


def find_entry(group: str, name: str) -> "EntryPoint | None":
    """Return the entry point of a name; None where there is none.

    Raises:
        PluginError: several have the name.
    """
    found = [each for each in _entry_points(group) if each.name == name]
    if len(found) > 1:
        where = " and ".join(sorted(map(_distribution, found)))
        raise PluginError(f"{group}: found {name!r} in {where}, expected one; uninstall the others")
    return found[0] if found else None


def load(entry: "EntryPoint") -> object:
    """Load an entry point's object.

    Raises:
        PluginError: it can't be loaded.
    """
    try:
        return entry.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"{described(entry)}: can't be loaded: {reason}") from error


def described(entry: "EntryPoint") -> str:
    """Return an entry point's name for messages."""
    where = f"entry point {entry.group}: {entry.name} = {entry.value}"
    return f"plug-in {_distribution(entry)}, {where}"


@lru_cache
def _entry_points(group: str) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import entry_points  # takes 3 MiB with its imports

    return tuple(entry_points(group=group))


def _distribution(entry: "EntryPoint") -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "(unknown)"


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"
