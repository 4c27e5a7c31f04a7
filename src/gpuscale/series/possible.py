"""The possible values of series. A value outside is no reading: it is left out, counted and named.

Drivers and exporters now and then answer with a number that no GPU has: a counter that was read half, or the
code by which DCGM says that it has none. One of them among millions of readings is enough to double a fleet.
`signals.series_facts` knows which series have a range, and hands that to the store.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Protocol

from gpuscale.base.ranges import Range

IMPOSSIBLE_SERIES = "gpuscale_impossible_value"
"""The name under which a store keeps such a value, with the labels of the series that can't have it."""
OF_SERIES = "series"
"""The label there that has the name of the series."""
MAX_AHEAD_MS = 10_000
"""How far the time of a sample may lie ahead of the server's clock.

Prometheus takes ten minutes. In a store such a sample has no value until its time comes, and clocks of one
cluster differ by much less.
"""


class Ranged(Protocol):
    """A series handle with a range."""

    @property
    def range(self) -> Range | None:
        """The range of possible values; None if any value is possible."""
        ...


class RangeCheck:
    """Finds impossible values in rows of many series that recur.

    Args:
        refs: the series, in the order of their values.
    """

    def __init__(self, refs: Sequence[Ranged] = ()) -> None:
        self.refs = refs
        positions: dict[Range, list[int]] = {}
        for position, ref in enumerate(refs):
            if ref.range is not None:
                positions.setdefault(ref.range, []).append(position)
        # The position is given twice, as `itemgetter` returns a tuple only for two or more.
        self._parts = [
            (limits, found, itemgetter(*found, found[0])) for limits, found in positions.items()
        ]

    def outside(self, values: Sequence[float]) -> list[int]:
        """Return the indexes of impossible values, in no particular order."""
        found: list[int] = []
        for limits, positions, pick in self._parts:
            picked = pick(values)
            # A NaN first in the list spoils `min` and `max`, and fails the comparison.
            if not (limits.lowest <= min(picked) and max(picked) <= limits.highest):
                found += [each for each in positions if not limits.has(values[each])]
        return found
