"""Clocks: whole milliseconds since the Unix epoch.

Pure packages take `now_ms` as an argument. Servers and the live loop take a `Clock`, so that a run
can be sped up, and tests can move time by hand. This is the only module that reads the machine's clock.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

_SMALLEST_STEP_MS = 50
"""A time server that corrects less than so much slows or speeds the clock up, the monotonic one with it."""


SLOWEST, FASTEST = 0.1, 100.0
"""Between which a live run's speed may be set."""


class Clock(Protocol):
    """A source of the current time that can wait for a later one."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of this clock's time have passed."""
        ...


class Origin(NamedTuple):
    """One moment, read from two of the machine's clocks."""

    unix_ms: int
    monotonic_s: float
    """The same for all processes of the machine."""


class WallClock:
    """The machine's time, or a faster one that starts from it.

    Args:
        speed: seconds of this clock per second of the machine; above zero.
        origin: of a clock in another process that this one has to agree with, whatever becomes of the
            machine's time in between; None starts from now.
    """

    def __init__(self, speed: float = 1.0, origin: Origin | None = None) -> None:
        self.speed = speed
        self.origin = origin or Origin(time.time_ns() // 1_000_000, time.monotonic())

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch; it never goes backwards."""
        elapsed = (time.monotonic() - self.origin.monotonic_s) * self.speed
        return self.origin.unix_ms + int(elapsed * 1000)

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of this clock's time have passed."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)


class PacedClock(WallClock):
    """A clock whose speed can be changed while it runs, and that can be stopped; sleepers follow it."""

    def __init__(self, speed: float) -> None:
        super().__init__(speed)
        self.is_paused = False
        self._changed = asyncio.Event()

    def pace(self, speed: float, *, is_paused: bool) -> None:
        """Go on at this speed from now, or stand still."""
        now_s = time.monotonic()
        self.origin = Origin(self._at_ms(now_s), now_s)
        self.speed, self.is_paused = speed, is_paused
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def now_ms(self) -> int:
        return self._at_ms(time.monotonic())

    def _at_ms(self, monotonic_s: float) -> int:
        elapsed_s = 0.0 if self.is_paused else monotonic_s - self.origin.monotonic_s
        return self.origin.unix_ms + int(elapsed_s * self.speed * 1000)

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of this clock's time have passed, at whatever speeds."""
        left_ms = seconds * 1000
        due_ms = self.now_ms() + left_ms
        while left_ms > 0:
            limit_s = None if self.is_paused else left_ms / 1000 / self.speed
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._changed.wait()
            left_ms = due_ms - self.now_ms()
        await asyncio.sleep(0)


class FollowingClock(WallClock):
    """The machine's time, corrected when that is set; for timestamps of long-running programs.

    It moves in `follow` alone: between two calls time passes evenly and never goes backwards. So call that
    where nothing is being timed.

    Args:
        unix_ns: the machine's time, in nanoseconds since the Unix epoch.
    """

    def __init__(self, unix_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__()
        self._unix_ns = unix_ns

    def follow(self) -> float:
        """Correct the clock if the machine's was set; return by how many seconds.

        A difference that reading two clocks one after the other can make is 0.0, and is left.
        """
        before_s = time.monotonic()
        unix_ms = self._unix_ns() // 1_000_000
        now_s = time.monotonic()
        moved_ms = unix_ms - (self.origin.unix_ms + int((now_s - self.origin.monotonic_s) * 1000))
        # A busy machine may suspend the process between the two readings.
        if abs(moved_ms) < _SMALLEST_STEP_MS + (now_s - before_s) * 1000:
            return 0.0
        self.origin = Origin(unix_ms, now_s)
        return moved_ms / 1000


class ManualClock:
    """Time that moves only when advanced; for tests and for virtual time."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Advance by `seconds`."""
        self._now_ms += round(seconds * 1000)

    async def sleep(self, seconds: float) -> None:
        """Advance by `seconds`, and let other tasks run once."""
        self.advance(seconds)
        await asyncio.sleep(0)


class Silence:
    """The time since the last news.

    Args:
        clock: measures how long it lasts.
        since_ms: when it began; now when None.
    """

    def __init__(self, clock: Clock, since_ms: int | None = None) -> None:
        self._clock = clock
        self._since_ms = clock.now_ms() if since_ms is None else since_ms

    def is_over(self, limit_s: float) -> bool:
        """Return whether the silence has lasted longer than a limit."""
        return self._lasted_s() > limit_s

    def __str__(self) -> str:
        return f" (for {self._lasted_s():.0f} s)"

    def _lasted_s(self) -> float:
        return (self._clock.now_ms() - self._since_ms) / 1000
