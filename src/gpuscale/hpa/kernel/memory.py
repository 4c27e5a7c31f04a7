"""What the controller remembers of one HPA, and how far that lets its count move.

A memory is one column of cells, so that a simulator may keep those of all services as the rows of one
array. The first three cells count the places in use: of recommendations, of changes up, and of changes
down. Eight parts of as many places each follow. A new record takes the last place that is too old, or the
next free one; where there is none, that of the oldest. A window of W seconds and a sync each P seconds
take W / P + 2 places, and so does the longest period of a policy.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendation,
    stabilizeRecommendationWithBehaviors, storeScaleEvent, markScaleEventsOutdated,
    calculateScaleUpLimitWithScalingRules, calculateScaleDownLimitWithBehaviors).
"""

from collections.abc import MutableSequence
from typing import NamedTuple

from gpuscale.hpa.kernel.numbers import MAX_INT32, MIN_INT32, ceil_int32, int32_of, wrapped32
from gpuscale.hpa.kernel.pods import Column

Cells = MutableSequence[int]
"""A list, or a numpy array of int64, that is written to."""

RECOMMENDATIONS, UPS, DOWNS = range(3)
"""Kinds of records: what the metrics asked for, before any limit; changes that were written, without their
sign."""
COUNTS, PARTS = 3, 8
VALUES = (0, 2, 5)
"""Part of a kind's values; their times, in milliseconds, are in the next."""
OUTDATED = (0, 4, 7)
"""Part of a kind's marks: 1 where a change is older than every policy's period, so that its place may be
reused. Recommendations have none."""

PODS, PERCENT = range(2)
"""What a policy's value counts."""
MAX, MIN, DISABLED = range(3)
"""Which of several policies holds."""


class Rules(NamedTuple):
    """How fast the count may move in one direction."""

    window_ms: int
    """Of stabilization."""
    select: int
    """MAX, MIN or DISABLED."""
    first: int
    """The direction's first policy in `Limits.policies`."""
    after: int
    """The one after its last."""


class Limits(NamedTuple):
    """What bounds the count of one HPA."""

    least: int
    most: int
    has_behavior: int
    """0 for the controller's older path: no memory of changes, and at most a doubling a step."""
    window_ms: int
    """Of scale-down, on the older path."""
    up: Rules
    down: Rules
    policies: Column
    """Kind, value and period in milliseconds of each, one after the other."""


class Stabilized(NamedTuple):
    """A count after stabilization, and the place of the new recommendation."""

    replicas: int
    place: int


def cells_of(places: int) -> int:
    """Return how many cells a memory with so many places of each kind has."""
    return COUNTS + PARTS * places


def part(cells: Cells, index: int) -> int:
    """Return the first cell of a part."""
    return COUNTS + index * ((len(cells) - COUNTS) // PARTS)


def begin(cells: Cells, current: int, now_ms: int) -> None:
    """Start the history of a first sync with the count that there is."""
    if cells[RECOMMENDATIONS] == 0:
        _put(cells, RECOMMENDATIONS, -1, current, now_ms)


def highest_recent(cells: Cells, asked: int, window_ms: int, now_ms: int) -> Stabilized:
    """Return the highest recommendation of the window, and remember `asked`: for an HPA without `behavior`.

    A record exactly as old as the window still counts here.
    """
    values, times = part(cells, 0), part(cells, 1)
    highest, old = asked, -1
    for place in range(cells[RECOMMENDATIONS]):
        if cells[times + place] < now_ms - window_ms:
            old = place
        else:
            highest = max(highest, cells[values + place])
    return Stabilized(highest, _put(cells, RECOMMENDATIONS, old, asked, now_ms))


def moved_within_windows(
    cells: Cells, current: int, asked: int, up_ms: int, down_ms: int, now_ms: int
) -> Stabilized:
    """Return the current count, moved as far as both windows allow, and remember `asked`.

    A record exactly as old as a window no longer counts here.
    """
    values, times = part(cells, 0), part(cells, 1)
    lowest = highest = asked
    old = -1
    for place in range(cells[RECOMMENDATIONS]):
        replicas, age_ms = cells[values + place], now_ms - cells[times + place]
        if age_ms < up_ms:
            lowest = min(lowest, replicas)
        if age_ms < down_ms:
            highest = max(highest, replicas)
        if age_ms > up_ms and age_ms > down_ms:
            old = place
    held = min(max(current, lowest), highest)
    return Stabilized(held, _put(cells, RECOMMENDATIONS, old, asked, now_ms))


def _put(cells: Cells, kind: int, old: int, value: int, now_ms: int) -> int:
    """Write a record to an old place, the next free one, or that of the oldest; return which."""
    values, times = part(cells, VALUES[kind]), part(cells, VALUES[kind] + 1)
    place, places = old, times - values
    if place < 0 and cells[kind] < places:
        place = cells[kind]
        cells[kind] = place + 1
    if place < 0:
        place = 0
        for each in range(1, places):
            if cells[times + each] < cells[times + place]:
                place = each
    cells[values + place] = value
    cells[times + place] = now_ms
    return place


def record_change(cells: Cells, limits: Limits, before: int, after: int, now_ms: int) -> None:
    """Remember a change that was written; only HPAs with `behavior` do."""
    kind = UPS if after > before else DOWNS
    rules = limits.up if after > before else limits.down
    times, outdated = part(cells, VALUES[kind] + 1), part(cells, OUTDATED[kind])
    longest_ms, old = 0, -1
    for index in range(rules.first, rules.after):
        longest_ms = max(longest_ms, limits.policies[3 * index + 2])
    for place in range(cells[kind]):
        if cells[times + place] < now_ms - longest_ms:
            cells[outdated + place] = 1
        if cells[outdated + place]:
            old = place
    place = _put(cells, kind, old, abs(after - before), now_ms)
    cells[outdated + place] = 0


def period_start(cells: Cells, current: int, period_ms: int, now_ms: int) -> int:
    """Return the count at the start of a period, going by the changes since, strictly younger than it."""
    places = (len(cells) - COUNTS) // PARTS
    total = current
    for kind in (UPS, DOWNS):
        values = COUNTS + VALUES[kind] * places
        for place in range(cells[kind]):
            if now_ms - cells[values + places + place] < period_ms:
                change = cells[values + place]
                total = wrapped32(total - change if kind == UPS else total + change)
    return total


def scale_up_limit(cells: Cells, limits: Limits, current: int, now_ms: int) -> int:
    """Return the highest count that the policies allow; it may lie below the current one."""
    rules, policies = limits.up, limits.policies
    if rules.select == DISABLED:
        return current
    limit = MAX_INT32 if rules.select == MIN else MIN_INT32
    for index in range(rules.first, rules.after):
        start = period_start(cells, current, policies[3 * index + 2], now_ms)
        value = policies[3 * index + 1]
        if policies[3 * index] == PODS:
            allowed = wrapped32(start + value)
        else:
            allowed = ceil_int32(float(start) * (1.0 + float(value) / 100.0))
        limit = min(limit, allowed) if rules.select == MIN else max(limit, allowed)
    return limit


def scale_down_limit(cells: Cells, limits: Limits, current: int, now_ms: int) -> int:
    """Return the lowest count that the policies allow; it may be negative, or above the current."""
    rules, policies = limits.down, limits.policies
    if rules.select == DISABLED:
        return current
    limit = MIN_INT32 if rules.select == MIN else MAX_INT32
    for index in range(rules.first, rules.after):
        start = period_start(cells, current, policies[3 * index + 2], now_ms)
        value = policies[3 * index + 1]
        if policies[3 * index] == PODS:
            allowed = wrapped32(start - value)
        else:
            allowed = int32_of(float(start) * (1.0 - float(value) / 100.0))
        limit = max(limit, allowed) if rules.select == MIN else min(limit, allowed)
    return limit
