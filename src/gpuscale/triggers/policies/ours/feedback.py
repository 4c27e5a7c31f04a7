"""Headroom that feeds back on shortage: it grows at each short step and shrinks slowly otherwise."""

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen
from gpuscale.triggers.policies.rings import held

_TARGET = 0
_HOLD = 480
_FIRST = 1


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    start, down, up, hold_s = settings[0], settings[1], settings[2], settings[3]
    if seen.step == 0:
        memory[_TARGET] = start
    if seen.short > 0:
        memory[_TARGET] = max(0.05, memory[_TARGET] * (1 - down))
    else:
        memory[_TARGET] = min(1.0, memory[_TARGET] * (1 + up))
    return held(seen.demand / memory[_TARGET], seen, memory, _FIRST, _HOLD, hold_s)


FEEDBACK = Policy(
    "feedback",
    "headroom that grows with each short step",
    _desired,
    (
        Parameter("start", 0.6, 0.1, 1),
        Parameter("down", 0.02, 0.001, 0.2, is_log=True),
        Parameter("up", 0.00007, 0.00001, 0.001, is_log=True),
        Parameter("hold_s", 300, 15, 7200, is_log=True),
    ),
    _FIRST + _HOLD,
    shown=(("target", _TARGET),),
)
