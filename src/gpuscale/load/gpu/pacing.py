"""How busy time is spread within each period, and corrected by the driver's figures.

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
    """A process' part of each period, so that the processes of a GPU take turns."""

    index: int
    of: int

    @property
    def phase_s(self) -> float:
        return PERIOD_S * self.index / self.of

    def burst_ns(self, percent: float) -> int:
        """Return the process' burst in nanoseconds, for a GPU that is busy `percent` of the time."""
        length_ns = round(PERIOD_S * 1e9 * min(max(percent, 0.0), 100.0) / 100 / self.of)
        return length_ns if length_ns >= _LEAST_NS else 0


@dataclass(slots=True)
class Bursts:
    """The launch times of one process, from a start that all processes share.

    A burst that can't begin within its period is skipped, never made up for: two at once would be a share
    larger than the one asked for.
    """

    start_s: float
    turn: Turn
    launched: int = 0
    skipped: int = 0
    _next: int = 0

    def due_s(self) -> float:
        """Return the next burst's time, by the clock of `start_s`."""
        return self.start_s + self.turn.phase_s + self._next * PERIOD_S

    def take(self, now_s: float, unfinished: int, percent: float) -> int:
        """Return the nanoseconds to launch now, at or after `due_s`; 0 for nothing."""
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
    """A controller: how busy to be so that the driver counts the wanted share.

    What the driver counts differs from what is launched by the time around kernels and by other processes.
    Both show as an error that lasts, which the correction takes up.
    """

    def __init__(self) -> None:
        self.correction = 0.0
        """Points, added to what is wanted."""

    def own_percent(self, wanted: float) -> float:
        """Return the share of time to launch for."""
        return 0.0 if wanted <= 0 else min(100.0, max(0.0, wanted + self.correction))

    def look(self, wanted: float, counted: float) -> None:
        """Update the correction from the driver's figure and the share wanted in that time."""
        if wanted <= 0:
            return  # nothing is launched, so that the figure only shows other processes
        # An unreachable share is not remembered, as it would distort the next one.
        least, most = -wanted, min(_MOST_CORRECTION, 100.0 - wanted)
        found = self.correction + _GAIN * (wanted - counted)
        self.correction = min(most, max(least, found))
