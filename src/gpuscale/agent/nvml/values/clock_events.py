"""How often clocks were throttled, by cause: over a window of readings, and since the start.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/collector/clock_events.go (names and bits).
"""

from collections import deque

from gpuscale.agent.gpu.readings import EventCount

COUNT_FIELD = "DCGM_EXP_CLOCK_EVENTS_COUNT"
TOTAL_FIELD = "DCGM_EXP_CLOCK_EVENTS_TOTAL"
MASK_FIELD = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
CLOCK_EVENTS = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
_MOST_KEPT = 10_000
"""Readings that a window can hold; at four a second the default window has 1 200."""


class ClockEventCounts:
    """Counts readings by the causes of throttling in them.

    Args:
        window_ms: what the windowed count looks back over.
        fields: which of the two families to give.
    """

    def __init__(self, window_ms: int, fields: frozenset[str]) -> None:
        self._window_ms = window_ms
        self._fields = fields
        self._kept: deque[tuple[int, int]] = deque()
        self._counts = dict.fromkeys(CLOCK_EVENTS, 0)
        self._totals = dict.fromkeys(CLOCK_EVENTS, 0)

    def add(self, now_ms: int, mask: int) -> None:
        self._kept.append((now_ms, mask))
        _count(self._counts, mask, 1)
        _count(self._totals, mask, 1)
        begin_ms = now_ms - self._window_ms
        # Times in the future are from before the clock was set back.
        while not begin_ms < self._kept[0][0] <= now_ms or len(self._kept) > _MOST_KEPT:
            _, old = self._kept.popleft()
            _count(self._counts, old, -1)

    def events(self) -> tuple[EventCount, ...]:
        """Return the counts of observed causes; a single zero without cause if there are none."""
        found: list[EventCount] = []
        window = ("window_size_in_ms", str(self._window_ms))
        if COUNT_FIELD in self._fields:
            seen = [
                EventCount(COUNT_FIELD, (window, ("clock_event", CLOCK_EVENTS[bit])), count)
                for bit, count in self._counts.items()
                if count
            ]
            found += seen or [EventCount(COUNT_FIELD, (window,), 0)]
        if TOTAL_FIELD in self._fields:
            found += [
                EventCount(TOTAL_FIELD, (("clock_event", CLOCK_EVENTS[bit]),), count)
                for bit, count in self._totals.items()
                if count
            ]
        return tuple(found)


def _count(counts: dict[int, int], mask: int, step: int) -> None:
    for bit in counts:
        if mask & bit:
            counts[bit] += step
