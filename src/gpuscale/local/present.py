"""The world as of now: the event engine driven by a clock instead of running ahead."""

from gpuscale.core.clock import Clock
from gpuscale.sim.site import Site


class Present:
    """A world that is brought up to the clock's time before anyone looks at it."""

    def __init__(self, world: Site, clock: Clock) -> None:
        self.world = world
        self._clock = clock

    def catch_up(self) -> int:
        """Let everything happen that is due, and return the time, milliseconds."""
        now_ms = self._clock.now_ms()
        self.world.engine.run_until(now_ms)
        return now_ms
