"""How long a source has been silent."""

from gpuscale.core.clock import Clock


class Silence:
    """A time without news.

    Args:
        clock: measures how long it lasts.
        since_ms: when it began; now when None.
    """

    def __init__(self, clock: Clock, since_ms: int | None = None) -> None:
        self._clock = clock
        self._since_ms = clock.now_ms() if since_ms is None else since_ms

    def is_over(self, limit_s: float) -> bool:
        """Return whether it has lasted longer than a limit."""
        return self._lasted_s() > limit_s

    def __str__(self) -> str:
        return f" (for {self._lasted_s():.0f} s)"

    def _lasted_s(self) -> float:
        return (self._clock.now_ms() - self._since_ms) / 1000
