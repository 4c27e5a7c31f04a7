"""The time that clients speak, where the store's runs faster.

A run at ten times real time has series whose clock gets ahead of the machine's. Clients such as Grafana and
promtool ask by the machine's time, so the API answers by it: a second of the caller is `speed` seconds of the
store. Durations inside a query, such as `[5m]`, stay the store's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """How the caller's time maps to the store's; the default is that they are the same."""

    origin_ms: int = 0
    """The moment at which both show the same."""
    speed: float = 1.0
    """Seconds of the store per second of the caller."""

    def to_store_ms(self, caller_ms: int) -> int:
        """Return the store's time at a moment of the caller's."""
        return self.origin_ms + round((caller_ms - self.origin_ms) * self.speed)

    def to_caller_ms(self, store_ms: int) -> int:
        """Return the caller's time at a moment of the store's."""
        return self.origin_ms + round((store_ms - self.origin_ms) / self.speed)

    def step_to_store_ms(self, step_ms: int) -> int:
        """Return how far the store's time moves in one of the caller's steps."""
        return round(step_ms * self.speed)


SAME_TIME = TimeAxis()
