"""The keys of a trigger with a policy, parsed and checked.

Which policies there are, and what settings they take, is known in rooms above this one: they pass a check.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.words import closest
from gpuscale.triggers.keys import KeyReader
from gpuscale.triggers.trigger import DEFAULT_LAG_S, DEFAULT_LEARN_S, ServedPolicy

POLICY_KEYS = frozenset({"policy", "podLoad", "minReplicas", "maxReplicas", "lag", "learn"})
_DAY_S = 86_400.0
_MAX_LEARN_S = 14 * _DAY_S
_MAX_LAG_S = 600.0
_MAX_START_S = 3600.0
_MAX_SETTINGS = 64
_STANZA = ("name", "settings")
_SHAPE = "a policy's name, or name and settings"


class PolicyFault(NamedTuple):
    """A fault in a policy's name or settings."""

    key: str
    """`policy`, or `policy.settings.NAME`."""
    expected: str
    found: str
    fix: str | None = None


PolicyCheck = Callable[[str, Mapping[str, float]], Iterator[PolicyFault]]
"""Takes a policy's name and settings, and yields what is wrong with them."""


def any_policy(_name: str, _settings: Mapping[str, float]) -> Iterator[PolicyFault]:
    """Accept any name and settings."""
    return iter(())


def read_policy(reader: KeyReader, check: PolicyCheck) -> ServedPolicy | None:
    """Return a trigger's policy; None without one, or after recording faults."""
    given = reader.values.get("policy")
    if given is None:
        for key in sorted(POLICY_KEYS - {"policy"}):
            if reader.has(key):
                reader.note(key, f"policy with {key}", "none")
        return None
    name, settings = _stanza(reader, given)
    if name:
        for fault in check(name, settings):
            reader.note(*fault)
    for key, why in _UNUSED.items():
        if reader.has(key):
            reader.note(key, f"no {key} with a policy: {why}", "one")
    if not reader.has("query"):
        reader.note("query", "PromQL for the load of the whole workload, with a policy", "none")
    for key, example in (("podLoad", "16"), ("startTime", "3m"), ("maxReplicas", "20")):
        if not reader.has(key):
            reader.note(key, f"it with a policy, such as {example}", "none")
    if str(reader.values.get("startTime")).strip() == "auto":
        expected = "a duration with a policy, so that all servers use the same"
        reader.note("startTime", expected, "auto")
        start_s = 0.0
    else:
        start_s = _within(reader, "startTime", 60.0, 1.0, _MAX_START_S)
    least = reader.count("minReplicas", 1, least=1) or 1
    most = reader.count("maxReplicas", None, least=1) or least
    if most < least:
        reader.note("maxReplicas", f"minReplicas, {least}, or more", str(most))
    return ServedPolicy(
        name,
        tuple(sorted(settings.items())),
        _pod_load(reader),
        start_s,
        least,
        most,
        _within(reader, "lag", DEFAULT_LAG_S, 0.0, _MAX_LAG_S),
        _within(reader, "learn", DEFAULT_LEARN_S, _DAY_S, _MAX_LEARN_S),
    )


_UNUSED = {
    "target": "the value is in replicas, podLoad says what a pod takes, and the HPA's target is 1",
    "activationTarget": "the workload stays up",
    "window": "the policy smooths by itself",
    "waiting": "the policy sees the load",
    "throughput": "the policy sees the load",
    "drain": "the policy sees the load",
}


def _stanza(reader: KeyReader, given: object) -> tuple[str, dict[str, float]]:
    """Return name and settings; KEDA's metadata are texts, so a mapping may be given as text."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            (document,) = load_documents(given, "policy")
            given = document.data
        except (ConfigError, ValueError):
            reader.note("policy", _SHAPE, repr(given))
            return "", {}
    if isinstance(given, str) and given.strip():
        return given.strip(), {}
    if not isinstance(given, dict):
        reader.note("policy", _SHAPE, repr(given) if given == "" else type(given).__name__)
        return "", {}
    for key in given:
        if key not in _STANZA:
            meant = closest(str(key), _STANZA)
            fix = f"write {meant}" if meant else None
            reader.note(f"policy.{key}", "name or settings", None, fix)
    name = given.get("name")
    if not isinstance(name, str) or not name:
        reader.note("policy.name", "the name of a policy", None if name is None else repr(name))
        name = ""
    return name, _settings(reader, given.get("settings"))


def _settings(reader: KeyReader, given: object) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MAX_SETTINGS:
        expected = f"names with numbers, at most {_MAX_SETTINGS}"
        reader.note("policy.settings", expected, type(given).__name__)
        return {}
    found: dict[str, float] = {}
    for key, value in given.items():
        try:
            number = float(value) if isinstance(value, int | float | str) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number):
            reader.note(f"policy.settings.{key}", "a number", repr(value))
        found[str(key)] = number
    return found


def _pod_load(reader: KeyReader) -> float:
    load = reader.number("podLoad", 1.0, least=0.0)
    if load <= 0:
        reader.note("podLoad", "more than 0", f"{load:g}")
        return 1.0
    return load


def _within(reader: KeyReader, key: str, default: float, least: float, most: float) -> float:
    seconds = reader.seconds(key, default)
    if reader.has(key) and not least <= seconds <= most:
        reader.note(key, f"{least:g}s to {most:g}s", f"{seconds:g}s")
    return seconds
