"""Time as everything in gpuscale sees it: whole milliseconds since the Unix epoch.

Pure packages take `now_ms` as an argument. Servers and the live loop take a `Clock`, so that a run
can be sped up, and tests can move time by hand. This is the only module that reads the machine's clock.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where the current time comes from, and how to wait for a later one."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of this clock's time have passed."""
        ...


class WallClock:
    """The machine's time, or a faster one that starts from it.

    Args:
        speed: seconds of this clock per second of the machine; above zero.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._start_ms = time.time_ns() // 1_000_000
        self._origin = time.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch; it never goes backwards."""
        elapsed = (time.monotonic() - self._origin) * self.speed
        return self._start_ms + int(elapsed * 1000)

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of this clock's time have passed."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)


class ManualClock:
    """Time that moves only when told to; for tests and for virtual time."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time that was last set."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        self._now_ms += round(seconds * 1000)

    async def sleep(self, seconds: float) -> None:
        """Move forward by `seconds` and let other tasks run once."""
        self.advance(seconds)
        await asyncio.sleep(0)
