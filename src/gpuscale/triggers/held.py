"""Saved decisions as text of limited size, for a replica that starts while a source is down.

A decision's age is written beside it and the wall time once for all, so that a step of a clock moves an age
by the time between two processes at most. An age that came out too long ends a hold early, in the stated
pods; it never ends in 0.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from gpuscale.triggers.machine import MAX_VALUE, TriggerDecision, TriggerState

_VERSION = 1
MAX_STARTS = 10
Key = tuple[str, str]
"""Namespace and name of a trigger."""


@dataclass(frozen=True, slots=True)
class HeldTrigger:
    """The saved state of a trigger."""

    decision: TriggerDecision
    away_s: float | None = None
    """How long something was not known when this was written; None while all was."""
    starts_s: tuple[float, ...] = ()
    """How long the workload's last pods took to become ready."""

    def state(self, now_s: float) -> TriggerState:
        """Return the state to continue from, at a monotonic time."""
        away_s = None if self.away_s is None else now_s - self.away_s
        return TriggerState(self.decision, away_s, is_restored=True)


def held_of(
    state: TriggerState, now_s: float, starts_s: tuple[float, ...] = ()
) -> HeldTrigger | None:
    """Return what to save of a state; None if nothing was decided."""
    if state.decision is None:
        return None
    away_s = None if state.away_s is None else max(0.0, now_s - state.away_s)
    return HeldTrigger(state.decision, away_s, starts_s)


def encode(held: Mapping[Key, HeldTrigger], now_ms: int, max_bytes: int) -> str:
    """Return the text of as many decisions as fit; inactive triggers are left out first."""
    by_need = sorted(held.items(), key=lambda pair: (not pair[1].decision.is_active, pair[0]))
    head = f'{{"version":{_VERSION},"writtenMs":{now_ms},"triggers":['
    lines: list[str] = []
    size = len(head) + 4
    for key, each in by_need:
        line = json.dumps(_entry(key, each), separators=(",", ":"))
        if size + len(line) + 2 > max_bytes:
            continue
        size += len(line) + 2
        lines.append(line)
    return head + "\n" + ",\n".join(lines) + "]}\n"


def decode(text: str, now_ms: int) -> dict[Key, HeldTrigger]:
    """Return a text's decisions, aged by the time since; invalid ones are skipped."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        return {}
    written_ms, entries = data.get("writtenMs"), data.get("triggers")
    if not isinstance(written_ms, int) or not isinstance(entries, list):
        return {}
    since_s = max(0.0, (now_ms - written_ms) / 1000)
    found = (_read(entry, since_s) for entry in entries)
    return dict(pair for pair in found if pair is not None)


def newest(sides: Iterable[Mapping[Key, HeldTrigger]]) -> dict[Key, HeldTrigger]:
    """Return each trigger's most recently measured decision; of equals the first."""
    joined: dict[Key, HeldTrigger] = {}
    for side in sides:
        for key, each in side.items():
            known = joined.get(key)
            if known is None or known.decision.measured_ms < each.decision.measured_ms:
                joined[key] = each
    return joined


def _entry(key: Key, held: HeldTrigger) -> dict[str, Any]:
    last = held.decision
    entry: dict[str, Any] = {
        "namespace": key[0],
        "name": key[1],
        "value": last.value,
        "active": last.is_active,
        "load": last.load,
        "waking": list(last.waking),
        "target": last.target,
        "measuredMs": last.measured_ms,
    }
    if held.away_s is not None:
        entry["awayS"] = round(held.away_s, 1)
    if held.starts_s:
        entry["startsS"] = [round(each, 1) for each in held.starts_s[-MAX_STARTS:]]
    return entry


def _read(entry: object, since_s: float) -> tuple[Key, HeldTrigger] | None:
    if not isinstance(entry, dict):
        return None
    name, namespace = entry.get("name"), entry.get("namespace")
    active, measured_ms = entry.get("active"), entry.get("measuredMs")
    waking, starts = entry.get("waking", []), entry.get("startsS", [])
    value, load, target = (_number(entry.get(key)) for key in ("value", "load", "target"))
    if value is None or load is None or target is None or target <= 0:
        return None
    if not isinstance(name, str) or not isinstance(namespace, str) or not isinstance(active, bool):
        return None
    if type(measured_ms) is not int or not isinstance(waking, list) or not isinstance(starts, list):
        return None
    if active and value <= 0:
        return None
    away_s = _number(entry.get("awayS"))
    decision = TriggerDecision(value, active, load, tuple(map(str, waking)), target, measured_ms)
    starts_s = tuple(each for each in map(_number, starts) if each is not None)[-MAX_STARTS:]
    return (namespace, name), HeldTrigger(
        decision, None if away_s is None else away_s + since_s, starts_s
    )


def _number(value: object) -> float | None:
    """Return a non-negative number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and 0 <= number <= MAX_VALUE * 1000 else None
