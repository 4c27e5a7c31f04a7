"""gpuscale's own: many simple policies, each corrected by its own shortages; the cheapest decides.

An expert asks for the highest demand of a window, times a headroom, plus a margin. Its margin moves as the
tracker of a quantile does: up at each step at which the expert itself would have been short, down a little at
all others, so that in the long run it is short as often as was promised, whatever the demand does. This is
adaptive conformal inference (Gibbs and Candes 2021) with a policy's own outcome as the error: an expert that
was not followed still knows what it would have had ready. Among the experts that keep the promise, the one
with the least average replicas of late is followed; a change costs, so that it does not switch for nothing.
Switching can make the whole short more often than each expert is, so its own shortage moves their promise.

Nothing is fitted ahead: an hour of demand is enough to begin with, and days make it better.
"""

import math

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_WINDOWS_S = (0.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 7200.0)
_HEADROOMS = (1.0, 1.1, 1.25, 1.5)
_MOVES = (0.02, 0.1, 0.4)
"""Pods that the margin grows at a short step."""
_KINDS = len(_HEADROOMS) * len(_MOVES)
_EXPERTS = len(_WINDOWS_S) * _KINDS
_PAST = 512
"""Steps of demand that are remembered."""
_ASKED = 256
"""Steps of each expert's replicas that are remembered: start-up time and lag at the most."""
_CURRENT, _OWN_SHORT = 0, 1
_DEMAND = 2
_HIGHEST = _DEMAND + _PAST
_MARGIN = _HIGHEST + len(_WINDOWS_S)
_COST = _MARGIN + _EXPERTS
_SHORT = _COST + _EXPERTS
_CHANGES = _SHORT + _EXPERTS
_ORDERS = _CHANGES + _EXPERTS
_SIZE = _ORDERS + _EXPERTS * _ASKED


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    promise, memory_s, switch, change_cost_s = settings[0], settings[1], settings[2], settings[3]
    feedback, own_promise = settings[4], settings[5]
    _remember(seen, memory)
    lag = math.ceil(seen.lag_s / seen.step_s)
    reach = min(math.ceil(seen.start_up_s / seen.step_s), _ASKED - lag - 1)
    keep, own_keep = 0.5 ** (seen.step_s / memory_s), 0.5 ** (seen.step_s / settings[6])
    at = seen.step % _ASKED
    if seen.step == 0:
        memory[_OWN_SHORT] = own_promise
    factor = 1.0 + feedback * (1.0 - memory[_OWN_SHORT] / own_promise)
    promise = promise * min(max(factor, 0.2), 2.0)
    best, best_cost, current_cost = 0, math.inf, math.inf
    for expert in range(_EXPERTS):
        window, kind = expert // _KINDS, expert % _KINDS
        base = memory[_HIGHEST + window] * _HEADROOMS[kind // len(_MOVES)]
        ring = _ORDERS + expert * _ASKED
        if seen.step == 0:
            memory[_MARGIN + expert] = 1.0
            memory[_SHORT + expert] = promise
            memory[_COST + expert] = base + 1.0
        else:
            # The capacity that met the demand `lag` steps ago: a pod serves if it was wanted ever
            # since its order.
            then = seen.step - lag
            had = math.inf
            for back in range(min(reach, then) + 1):
                had = min(had, memory[ring + (then - back) % _ASKED])
            short = 1.0 if then >= 0 and seen.demand > had + 1e-9 else 0.0
            memory[_MARGIN + expert] += _MOVES[kind % len(_MOVES)] * (short - promise)
            memory[_SHORT + expert] = keep * memory[_SHORT + expert] + (1 - keep) * short
        asked = max(1.0, math.ceil(base + memory[_MARGIN + expert] - 1e-9))
        before = memory[ring + (seen.step - 1) % _ASKED] if seen.step else asked
        memory[ring + at] = asked
        changed = 1.0 if asked != before else 0.0
        memory[_COST + expert] = keep * memory[_COST + expert] + (1 - keep) * asked
        memory[_CHANGES + expert] = keep * memory[_CHANGES + expert] + (1 - keep) * changed
        over = max(0.0, memory[_SHORT + expert] / promise - 1.0)
        per_change = memory[_CHANGES + expert] * change_cost_s / seen.step_s
        cost = (memory[_COST + expert] + per_change) * (1.0 + over)
        if cost < best_cost:
            best, best_cost = expert, cost
        if expert == int(memory[_CURRENT]):
            current_cost = cost
    if best_cost < current_cost * (1.0 - switch):
        memory[_CURRENT] = best
    memory[_OWN_SHORT] = own_keep * memory[_OWN_SHORT] + (1 - own_keep) * seen.short
    return float(memory[_ORDERS + int(memory[_CURRENT]) * _ASKED + at])


def _remember(seen: Seen, memory: Numbers) -> None:
    """Store the demand, and the maximum of each window."""
    memory[_DEMAND + seen.step % _PAST] = seen.demand
    highest, back = seen.demand, 0
    for window in range(len(_WINDOWS_S)):
        until = min(seen.step, _PAST - 1, int(_WINDOWS_S[window] / seen.step_s))
        while back < until:
            back += 1
            highest = max(highest, memory[_DEMAND + (seen.step - back) % _PAST])
        memory[_HIGHEST + window] = highest


GUARDED = Policy(
    "guarded",
    "the cheapest of many that keep the promise",
    _desired,
    (
        Parameter("promise", 0.003, 0.0001, 0.2, is_log=True),
        Parameter("memory_s", 172_800, 3600, 1_209_600, is_log=True),
        Parameter("switch", 0.02, 0, 0.5),
        Parameter("change_cost_s", 300, 0, 7200),
        Parameter("feedback", 0.5, 0, 10),
        Parameter("own_promise", 0.004, 0.0001, 0.2, is_log=True),
        Parameter("own_memory_s", 43_200, 3600, 1_209_600, is_log=True),
    ),
    _SIZE,
    learns=True,
)
