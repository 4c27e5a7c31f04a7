"""How busy time is spread, and corrected by what the driver counts.

NVML counts the share of a window in which any kernel ran. The window is 1/6 s to 1 s long, by GPU; on an
H200 it is 200 ms. A period of 1/30 s goes a whole number of times into each of these, so every window sees
the same share wherever it begins.

Source: NVIDIA nvml.h 13.0 (nvmlUtilization_t); the H200's window was measured.
"""

from dataclasses import dataclass

PERIOD_S = 1 / 30
LAG_S = 0.2
"""By how much the driver's figure is behind, about one window."""
_GAIN = 0.25
"""Of the error, taken up at each look: it halves in three looks, and can't swing."""
_MOST_CORRECTION = 20.0
"""Points that are added at most; where more is missing, something else keeps the GPU."""
_LEAST_NS = 20_000
"""A burst shorter than this is more of a launch than of a load."""
_MOST_UNFINISHED = 2
"""Launches in the GPU's queue; more of them would outlast an order to stop."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Which part of each period is one process', so that those of one GPU take turns."""

    index: int
    of: int

    @property
    def phase_s(self) -> float:
        return PERIOD_S * self.index / self.of

    def burst_ns(self, percent: float) -> int:
        """Return how long this process' burst is, for a GPU that is busy for `percent` of the time."""
        length_ns = round(PERIOD_S * 1e9 * min(max(percent, 0.0), 100.0) / 100 / self.of)
        return length_ns if length_ns >= _LEAST_NS else 0


@dataclass(slots=True)
class Bursts:
    """When one process launches, from a start that all processes of a load share.

    A burst that can't begin within its period is skipped, never made up for: two at once would be a share
    larger than the one asked for.
    """

    start_s: float
    turn: Turn
    launched: int = 0
    skipped: int = 0
    _next: int = 0

    def due_s(self) -> float:
        """Return when the next burst is due, by the clock of `start_s`."""
        return self.start_s + self.turn.phase_s + self._next * PERIOD_S

    def take(self, now_s: float, unfinished: int, percent: float) -> int:
        """Return how many nanoseconds to launch now, at or after `due_s`; 0 for nothing."""
        late = max(0, int((now_s - self.due_s()) / PERIOD_S))
        length_ns = self.turn.burst_ns(percent)
        self._next += late + 1
        if not length_ns:
            return 0
        self.skipped += late
        if unfinished >= _MOST_UNFINISHED:
            self.skipped += 1
            return 0
        self.launched += 1
        return length_ns


class Holder:
    """Says how busy to be so that the driver counts what is wanted.

    What the driver counts differs from what is launched by the time around kernels and by other processes.
    Both show as an error that lasts, which the correction takes up.
    """

    def __init__(self) -> None:
        self.correction = 0.0
        """Points, added to what is wanted."""

    def own_percent(self, wanted: float) -> float:
        """Return for how much of the time to launch."""
        return 0.0 if wanted <= 0 else min(100.0, max(0.0, wanted + self.correction))

    def look(self, wanted: float, counted: float) -> None:
        """Learn from what the driver counted, and what was wanted in that time."""
        if wanted <= 0:
            return  # nothing is launched; what others do says nothing about us
        # What can't be launched is not remembered, or it would be there when something else is wanted.
        least, most = -wanted, min(_MOST_CORRECTION, 100.0 - wanted)
        found = self.correction + _GAIN * (wanted - counted)
        self.correction = min(most, max(least, found))
