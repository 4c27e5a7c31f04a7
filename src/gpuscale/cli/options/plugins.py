"""Policies that other distributions offer as entry points."""

from collections.abc import Callable
from typing import Any

from gpuscale.core.plugins import PluginError, described, find_entry, load


def load_policy(group: str, name: str) -> Callable[[], Any] | None:
    """Return what makes the policy that a plug-in offers under a name; None where there is none.

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
