"""The HPA on demand between bounds that change with the hour of the day, as earlier days had it.

Of each hour it keeps how often each demand was seen. The least replicas serve the share `least_share` of an
hour's steps, the most serve `most_share` of them; a start-up ahead of an hour its bounds hold already. Bounds
are those of whole earlier days, so on the first day there are none.
"""

import math

from gpuscale.triggers.policies.hpa import MEMORY, MOST, ON_TOTAL, on_total
from gpuscale.triggers.policies.ours.shortfalls import BINS, count_shortfall, least_margin
from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_HOURS = 24
_ENTERED = MEMORY
"""The hour, since the beginning, whose bounds were reckoned last, plus 1."""
_LEAST = _ENTERED + 1
_MOST = _LEAST + _HOURS
"""Bounds of each hour of the day."""
_COUNTS = _MOST + _HOURS
"""Steps of each hour of the day, then a histogram of their demand for each."""
_SEEN = _COUNTS + _HOURS


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    now_s = seen.step * seen.step_s
    # A signal belongs to the hour in which it was measured.
    taken = int(max(0.0, now_s - seen.lag_s) // 3600) % _HOURS
    soon = int((now_s + seen.start_up_s + seen.lag_s) // 3600)
    if memory[_ENTERED] != soon + 1:
        memory[_ENTERED] = soon + 1
        _bound(memory, soon % _HOURS, settings[3], settings[4])
    count_shortfall(memory, _SEEN + taken * BINS, seen.demand, 1.0)
    memory[_COUNTS + taken] += 1
    hour, later = int(now_s // 3600) % _HOURS, soon % _HOURS
    least = max(memory[_LEAST + hour], memory[_LEAST + later], 1.0)
    most = max(memory[_MOST + hour], memory[_MOST + later], least)
    if min(memory[_MOST + hour], memory[_MOST + later]) == 0:
        most = MOST
    return on_total(seen, seen.demand, memory, settings[:3], int(least), int(most))


def _bound(memory: Numbers, hour: int, least_share: float, most_share: float) -> None:
    """Compute an hour's bounds; they stay 0 if no earlier day had the hour."""
    steps = memory[_COUNTS + hour]
    if steps > 0:
        first = _SEEN + hour * BINS
        memory[_LEAST + hour] = math.ceil(least_margin(memory, first, (1 - least_share) * steps))
        memory[_MOST + hour] = math.ceil(least_margin(memory, first, (1 - most_share) * steps))


SCHEDULED = Policy(
    "scheduled",
    "the HPA on demand, within bounds by the hour of the day",
    _desired,
    (
        *ON_TOTAL,
        Parameter("least_share", 0.5, 0, 1),
        Parameter("most_share", 1, 0.9, 1),
    ),
    _SEEN + _HOURS * BINS,
)
