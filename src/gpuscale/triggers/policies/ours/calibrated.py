"""gpuscale's own: many simple rules, each with the margin that would have kept the promise.

A rule follows demand: the highest of a window, a smoothed mean with its spread, a learned quantile of what
is to come (`learned`), or nothing at all, which is a fixed number. What it has ready is the lowest that it
asked for within the start-up time, and demand less that is its shortfall. The distribution of past shortfalls
says which margin would have kept the promise (split conformal prediction; Vovk, Gammerman and Shafer 2005),
start-up time and lag of signals included. No rule has to be followed for this: one that was not still knows
what it would have had ready. The promise is a number of steps, and half a start-up's worth of them is set
aside, because one more burst may come at any time. So little history means a wide margin.

Where a wait is promised, a step's shortfall is what would have kept its requests from waiting longer
(`lateness`), and steps count by their work, since requests are promised something and not steps.

Each rule comes with five ways to hold still. It goes down only after the pods that it could do without have
cost as much as so many changes (as in the ski rental problem), and up by more than it has to. The rule with
the least replicas, margin and cost of changes included, is followed.

Days differ, and switching between rules can be short more often than each rule is. So the policy's own short
steps of late move the promise: less is allowed after more of them (Gibbs and Candes 2021).

Nothing is fitted ahead. The defaults were chosen on the first halves of the benchmark's traces, and on joins
of them whose character changes: the cheapest of those tried that kept the promise on all. Two that did not
were also seen to break it on a second half.
"""

import math

from gpuscale.triggers.policies.hpa import LAG_STEPS, ready_before
from gpuscale.triggers.policies.ours import lateness
from gpuscale.triggers.policies.ours.lateness import (
    late_by_chance,
    missing_for_backlog,
    pods_for_chance,
)
from gpuscale.triggers.policies.ours.learned import (
    FEATURES,
    LEARNED_SIZE,
    PLACES,
    learn,
    predicted,
)
from gpuscale.triggers.policies.ours.shortfalls import (
    BINS,
    count_shortfall,
    forget_shortfalls,
    least_margin,
)
from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen
from gpuscale.triggers.policies.rings import BUCKETS, highest_days_ago, keep_highest

_HIGHEST_S = (150.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 7200.0)
_SMOOTHED_S = (60.0, 150.0, 600.0, 1200.0)
_DEVIATIONS = (1.0, 2.0, 2.0, 2.0)
"""Standard deviations on top of each smoothed mean."""
_HELD_S = (300.0, 1200.0, 3600.0)
"""For how long each smoothed mean is held at its highest."""
_SMOOTHED = len(_SMOOTHED_S)
_FOLLOWED = len(_HIGHEST_S) + _SMOOTHED * len(_HELD_S) + 2
_WASTES = (0.5, 2.0, 2.0, 8.0, 8.0)
"""A way to hold still goes down when so many changes' worth of replicas were not needed."""
_OVERSHOOTS = (0.0, 0.0, 0.3, 0.3, 0.6)
"""And moves to so many margins above what is needed."""
_WAYS = len(_WASTES)
_RULES = _FOLLOWED * _WAYS
_PAST = 512
"""Steps of demand that are remembered."""
_ASKED = 256
"""Steps of each rule's replicas that are remembered: start-up time and lag at the most."""
_EVERY = 20
"""Steps between two calibrations."""
_SOONER = 4
"""Steps between two while demand is short of capacity."""
_BEGINNING = 40
"""Steps at which margins are at least half of the demand, as nothing is known yet."""
_SET_ASIDE = 0.5
"""Start-up times' worth of short steps that are kept for a burst."""
_LEAST_FACTOR, _MOST_FACTOR = 0.1, 2.0
"""Bounds of what the policy's own short steps make of the promise."""
_BETTER = 0.98
"""A rule is left for one that costs less than this share of it."""

_DAYS = 8
"""Of demand by the time of day, for yesterday and a week ago."""

_CURRENT, _STEPS, _WORK, _OWN_SHORT, _OWN_STEPS, _OWN_WORK, _QUEUED_S, _STEADY_S = range(8)
"""Work is what counts for the promise: of each step 1, or its demand where a wait is promised."""
_STEADY = 0.02
"""Demand is as it was if it changed by no more than this share of it."""
_LEVEL = 8
_SQUARE = _LEVEL + _SMOOTHED
_VALUE = _SQUARE + _SMOOTHED
_RINGS = _VALUE + _FOLLOWED
"""Of demand and of each smoothed mean."""
_MARGIN = _RINGS + (1 + _SMOOTHED) * _PAST
_REPLICAS = _MARGIN + _RULES
_WASTE = _REPLICAS + _RULES
_TOTAL = _WASTE + _RULES
"""Sum over the steps of a rule's replicas without its margin."""
_CHANGES = _TOTAL + _RULES
_ORDERS = _CHANGES + _RULES
"""Rings of each rule's replicas without its margin."""
_SHORTFALLS = _ORDERS + _RULES * _ASKED
_SUMS = _SHORTFALLS + _RULES * BINS
"""Rings of the sums of each rule's shortfalls, where a wait is promised."""
_READY = _SUMS + _RULES * lateness.PLACES
_LEARNED = _READY + LAG_STEPS
_BY_DAY = _LEARNED + LEARNED_SIZE
_SIZE = _BY_DAY + (_DAYS + 1) * BUCKETS


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    before = memory[_RINGS + (seen.step - 1) % _PAST] if seen.step else seen.demand
    is_steady = abs(seen.demand - before) <= _STEADY * seen.demand
    memory[_STEADY_S] = (memory[_STEADY_S] if is_steady else 0.0) + seen.step_s
    _follow(seen, memory)
    wait_s, service_s = settings[5], settings[6]
    weight = seen.demand if wait_s else 1.0
    memory[_OWN_SHORT] += weight * _own_share(seen, memory, wait_s, service_s)
    memory[_OWN_STEPS] += 1
    memory[_OWN_WORK] += weight
    if seen.step % _EVERY == 0:
        _forget(seen, memory, settings)
    if seen.step % _EVERY == 0 or (seen.short > 0 and seen.step % _SOONER == 0):
        _calibrate(seen, memory, settings)
    change_cost_s = settings[2]
    then = seen.step - math.ceil(seen.lag_s / seen.step_s)
    reach = min(_start_up(seen), _ASKED - (seen.step - then) - 1)
    by_chance = 0.0
    if then > 0:
        memory[_STEPS] += 1
        memory[_WORK] += weight
        if wait_s:
            by_chance = pods_for_chance(
                seen.demand, wait_s, service_s, memory[_STEADY_S], settings[0]
            )
    for rule in range(_RULES):
        way, margin = rule % _WAYS, memory[_MARGIN + rule]
        ring = _ORDERS + rule * _ASKED
        if then > 0:
            # A pod served at that step if it was wanted at every step since its start.
            had = math.inf
            for step in range(max(0, then - reach), then):
                had = min(had, memory[ring + step % _ASKED])
            shortfall = seen.demand - had
            if wait_s:
                sums = _SUMS + rule * lateness.PLACES
                earlier = memory[sums + (then - 1) % lateness.PLACES]
                memory[sums + then % lateness.PLACES] = earlier + shortfall
                missing = missing_for_backlog(memory, sums, then, had, wait_s, seen.step_s)
                shortfall = max(missing, by_chance - had)
            count_shortfall(memory, _SHORTFALLS + rule * BINS, shortfall, weight)
        needed = max(1.0, memory[_VALUE + rule // _WAYS] + margin)
        above = math.ceil(needed + _OVERSHOOTS[way] * max(margin, 0.0) - 1e-9)
        replicas = memory[_REPLICAS + rule]
        if math.ceil(needed - 1e-9) < replicas:
            memory[_WASTE + rule] += (replicas - needed) * seen.step_s
        else:
            memory[_WASTE + rule] = 0.0
        may_go_down = memory[_WASTE + rule] >= _WASTES[way] * change_cost_s and above < replicas
        if replicas < math.ceil(needed - 1e-9) or may_go_down:
            replicas = above
            memory[_REPLICAS + rule] = replicas
            memory[_WASTE + rule] = 0.0
            memory[_CHANGES + rule] += 1
        memory[ring + seen.step % _ASKED] = replicas - margin
        memory[_TOTAL + rule] += replicas - margin
    wanted = memory[_REPLICAS + int(memory[_CURRENT])]
    if wait_s and memory[_QUEUED_S] > wait_s / 2:
        # What waits by now would wait for ever where demand is just what the pods can do.
        wanted = max(wanted, seen.demand + seen.queue / (seen.start_up_s + seen.step_s))
    return float(wanted)


def _own_share(seen: Seen, memory: Numbers, wait_s: float, service_s: float) -> float:
    """Return the share of a step's requests, or of the step, that the policy's own pods were too few for."""
    ready = ready_before(seen, memory, _READY, LAG_STEPS)
    if not wait_s:
        return seen.short
    if ready <= 0:
        return 1.0 if seen.demand > 0 else 0.0
    first_s, last_s = memory[_QUEUED_S], seen.queue / ready
    memory[_QUEUED_S] = last_s
    if max(first_s, last_s) <= 0:
        return late_by_chance(seen.demand, ready, wait_s, service_s, memory[_STEADY_S])
    # From the step's beginning to its end the wait rises or falls evenly.
    rises_s = max(abs(last_s - first_s), 1e-6)
    return float(min(max((max(first_s, last_s) - wait_s) / rises_s, 0.0), 1.0))


def _start_up(seen: Seen) -> int:
    return max(1, math.ceil(seen.start_up_s / seen.step_s))


def _follow(seen: Seen, memory: Numbers) -> None:
    """Update the value that each rule follows: last a learned one, and one that stays 0."""
    at = _VALUE
    for series in range(1 + _SMOOTHED):
        value = seen.demand
        if series:
            level, square = _LEVEL + series - 1, _SQUARE + series - 1
            share = 1.0 - math.exp(-seen.step_s / _SMOOTHED_S[series - 1])
            if seen.step == 0:
                share = 1.0
            memory[level] += share * (value - memory[level])
            memory[square] += share * (value * value - memory[square])
            spread = math.sqrt(max(0.0, memory[square] - memory[level] * memory[level]))
            value = memory[level] + _DEVIATIONS[series - 1] * spread
        ring = _RINGS + series * _PAST
        memory[ring + seen.step % _PAST] = value
        back = 0
        for window in range(len(_HELD_S) if series else len(_HIGHEST_S)):
            held_s = _HELD_S[window] if series else _HIGHEST_S[window]
            until = min(seen.step, _PAST - 1, int(held_s / seen.step_s))
            while back < until:
                back += 1
                value = max(value, memory[ring + (seen.step - back) % _PAST])
            memory[at] = value
            at += 1
    keep_highest(seen.demand, seen, memory, _BY_DAY, _DAYS)
    memory[at] = _learned(seen, memory)


def _learned(seen: Seen, memory: Numbers) -> float:
    """Learn from what came, and return the quantile of what is to come."""
    ahead = _start_up(seen) + math.ceil(seen.lag_s / seen.step_s)
    scale = max(memory[_LEVEL + _SMOOTHED - 1], 0.1)
    lately = memory[_VALUE + 2]
    row = _LEARNED + FEATURES * (1 + seen.step % PLACES)
    memory[row] = scale
    memory[row + 1] = seen.demand
    memory[row + 2] = memory[_LEVEL + 1]
    memory[row + 3] = lately
    memory[row + 4] = memory[_VALUE + 5]
    memory[row + 5], memory[row + 6] = lately, lately
    for at, back in ((5, 1), (6, 7)):
        if seen.step * seen.step_s >= back * 86_400:
            memory[row + at] = highest_days_ago(back, seen, memory, _BY_DAY, _DAYS)
    if seen.step == 0:
        memory[_LEARNED + 3] = 1.0  # begins as the highest of the last ten minutes
    elif seen.step >= ahead and ahead < min(PLACES, _PAST):
        outcome = 0.0
        for back in range(ahead):
            outcome = max(outcome, memory[_RINGS + (seen.step - back) % _PAST])
        learn(memory, _LEARNED, seen.step - ahead, outcome, scale)
    return max(seen.demand, predicted(memory, _LEARNED, seen.step))


def _forget(seen: Seen, memory: Numbers, settings: Numbers) -> None:
    """Reduce the weight of all counts."""
    keep = 0.5 ** (_EVERY * seen.step_s / settings[1])
    memory[_STEPS] *= keep
    memory[_WORK] *= keep
    for rule in range(_RULES):
        memory[_TOTAL + rule] *= keep
        memory[_CHANGES + rule] *= keep
        forget_shortfalls(memory, _SHORTFALLS + rule * BINS, keep)
    keep = 0.5 ** (_EVERY * seen.step_s / settings[4])
    memory[_OWN_SHORT] *= keep
    memory[_OWN_STEPS] *= keep
    memory[_OWN_WORK] *= keep


def _calibrate(seen: Seen, memory: Numbers, settings: Numbers) -> None:
    """Set each rule's margin, and choose the rule to follow."""
    promise, change_cost_s, feedback = settings[0], settings[2], settings[3]
    # The number of remembered steps; while memory fills up, missing ones count as short as the
    # promise allows.
    full = settings[4] / seen.step_s / math.log(2.0)
    missing = max(0.0, 1.0 - memory[_OWN_STEPS] / full)
    own_share = promise * missing
    if memory[_OWN_WORK] > 0:
        own_share += memory[_OWN_SHORT] / memory[_OWN_WORK] * memory[_OWN_STEPS] / full
    factor = 1.0 + feedback * (1.0 - own_share / promise)
    promise = promise * min(max(factor, _LEAST_FACTOR), _MOST_FACTOR)
    steps = max(memory[_STEPS], 1.0)
    set_aside = _SET_ASIDE * max(0.0, _start_up(seen) - settings[5] / seen.step_s)
    allowed = max(promise - set_aside / steps, 0.001 / steps) * memory[_WORK]
    best, best_cost, current_cost = 0, math.inf, math.inf
    for rule in range(_RULES):
        margin = least_margin(memory, _SHORTFALLS + rule * BINS, allowed)
        if seen.step < _BEGINNING:
            margin = max(margin, 0.5 * memory[_VALUE + len(_HIGHEST_S) - 1] + 1.0)
        memory[_MARGIN + rule] = margin
        changes = memory[_CHANGES + rule] * change_cost_s / seen.step_s
        cost = (memory[_TOTAL + rule] + changes) / steps + margin
        if cost < best_cost:
            best, best_cost = rule, cost
        if rule == int(memory[_CURRENT]):
            current_cost = cost
    if best_cost < current_cost * _BETTER:
        memory[_CURRENT] = best


CALIBRATED = Policy(
    "calibrated",
    "the cheapest of many rules, each with the margin that keeps the promise",
    _desired,
    (
        Parameter("promise", 0.0035, 0.0001, 0.2, is_log=True),
        Parameter("memory_s", 1_814_400, 86_400, 7_257_600, is_log=True),
        Parameter("change_cost_s", 1800, 0, 86_400),
        Parameter("feedback", 1.5, 0, 4),
        Parameter("own_memory_s", 172_800, 3600, 1_209_600, is_log=True),
        Parameter("wait_s", 0, 0, 600),
        Parameter("service_s", 1, 0.001, 3600, is_log=True),
    ),
    _SIZE,
    learns=True,
    shown=(("rule", _CURRENT), ("short steps of late", _OWN_SHORT)),
)
