"""Demand as it will be when an ordered pod is ready: its level, and its trend over the start-up time."""

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen
from gpuscale.triggers.policies.rings import held

_LEVEL, _SLOPE = 0, 1
_HOLD = 480
_FIRST = 2


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    headroom, spare, smoothing_s, hold_s = settings[0], settings[1], settings[2], settings[3]
    share = seen.step_s / (smoothing_s + seen.step_s)
    if seen.step == 0:
        memory[_LEVEL] = seen.demand
    before = memory[_LEVEL]
    memory[_LEVEL] = share * seen.demand + (1 - share) * (before + memory[_SLOPE])
    change = memory[_LEVEL] - before
    memory[_SLOPE] = share * change + (1 - share) * memory[_SLOPE]
    ahead = (seen.start_up_s + seen.lag_s) / seen.step_s
    expected = memory[_LEVEL] + max(0.0, memory[_SLOPE]) * ahead
    wanted = max(expected, seen.demand) * headroom + spare
    return held(wanted, seen, memory, _FIRST, _HOLD, hold_s)


TREND = Policy(
    "trend",
    "demand and its trend over the start-up time",
    _desired,
    (
        Parameter("headroom", 1.2, 1, 3),
        Parameter("spare", 1, 0, 20),
        Parameter("smoothing_s", 120, 15, 1800, is_log=True),
        Parameter("hold_s", 600, 15, 7200, is_log=True),
    ),
    _FIRST + _HOLD,
    shown=(("level", _LEVEL), ("slope a step", _SLOPE)),
)
