"""Policies that other distributions offer as entry points."""

from collections.abc import Callable
from typing import Any

from gpuscale.core.errors import UsageError


def load_policy(group: str, name: str) -> Callable[[], Any] | None:
    """Return what makes the policy that a plug-in offers under a name; None where there is none.

    Raises:
        UsageError: it can't be loaded, makes nothing, or several plug-ins have the name.
    """
    from importlib.metadata import entry_points  # reads the metadata of everything installed

    found = tuple(entry_points(group=group, name=name))
    if not found:
        return None
    if len(found) > 1:
        where = " and ".join(sorted(each.value for each in found))
        raise UsageError(f"{group}: found {name!r} in {where}, expected one; uninstall the others")
    who = f"entry point {group}: {name} = {found[0].value}"
    try:
        factory = found[0].load()
    except Exception as error:
        raise UsageError(f"{who}: can't be loaded: {type(error).__name__}: {error}") from error
    if not callable(factory):
        kind = type(factory).__name__
        raise UsageError(f"{who}: found a {kind}, expected a class, or a function that makes one")
    made: Callable[[], Any] = factory
    return made
