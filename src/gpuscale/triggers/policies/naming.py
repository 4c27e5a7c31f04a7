"""Policies by name: built-in ones, and those of plug-ins, imported on demand."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from gpuscale.base.plugins import PluginError, PluginGroup
from gpuscale.base.words import closest
from gpuscale.triggers.policy_keys import PolicyFault

if TYPE_CHECKING:
    from gpuscale.triggers.policies.policy import Policy

GROUP = "gpuscale.policies"
"""Of the entry points; each refers to a `Policy`."""


def find_policy(name: str) -> "Policy | None":
    """Return a policy; None where there is none of the name.

    Raises:
        PluginError: a plug-in's can't be loaded.
        ModuleNotFoundError: numpy is not installed.
    """
    from gpuscale.triggers.policies.policy import Policy
    from gpuscale.triggers.policies.registry import POLICIES

    return POLICIES.get(name) or PluginGroup(GROUP, Policy).find(name)


def policy_faults(name: str, settings: Mapping[str, float]) -> Iterator[PolicyFault]:
    """Yield the faults of a policy's name and settings; see `triggers.policy_keys.PolicyCheck`."""
    try:
        policy = find_policy(name)
    except PluginError as error:
        yield PolicyFault("policy", "a policy that can be loaded", str(error))
        return
    except ModuleNotFoundError as error:
        fix = "install it with: pip install 'gpuscale[plan]'"
        yield PolicyFault("policy", f"the Python package {error.name}", "none", fix)
        return
    if policy is None:
        from gpuscale.triggers.policies.registry import POLICIES

        names = f"one of {', '.join(POLICIES)}, or a plug-in's"
        yield PolicyFault("policy", names, repr(name), _meant(name, POLICIES))
        return
    known = {each.name: each for each in policy.parameters}
    for key, value in settings.items():
        bounds = known.get(key)
        if bounds is None:
            expected = f"one of {', '.join(known)}" if known else f"none; {name} has no settings"
            yield PolicyFault(f"policy.settings.{key}", expected, repr(key), _meant(key, known))
        elif not bounds.least <= value <= bounds.most:
            expected = f"{bounds.least:g} to {bounds.most:g}"
            yield PolicyFault(f"policy.settings.{key}", expected, f"{value:g}")


def _meant(name: str, known: Iterable[str]) -> str | None:
    meant = closest(name, known)
    return f"write {meant}" if meant else None
