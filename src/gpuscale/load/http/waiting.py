"""Waiting for a moment in an event loop, to a fraction of a millisecond and without holding the processor.

Event loops wait in whole milliseconds. Looking at the clock for the rest of them takes a whole core, and on a
machine without a free one the scheduler takes the core away from the program that used most of it: for some
milliseconds, at moments that no one chooses. A process that sleeps has the processor when its moment comes.
"""

import asyncio
import ctypes
import os
import struct
import sys
from typing import Self

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_NS = 1_000_000_000
_SETTING = struct.Struct("@4l")
"""Linux' `struct itimerspec`: the interval, then the first expiry, each in seconds and nanoseconds."""
_LEAST_S = 0.00003
"""What arming a timer and being woken takes; shorter waits are a turn of the event loop."""
_LOOP_S = 0.0015
"""Where there is no timer of the kernel, this end of a wait is spent looking at the clock."""


class Alarm:
    """One timer of the kernel (timerfd) in the running event loop; one task at a time waits for it.

    Python has timerfd from 3.13 on, so it is called in the C library. Where the system has none, or no
    room for another open file, the event loop's own timers have to do.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._fd = -1
        self._woken: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        if self._libc is not None:
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    async def wait(self, seconds: float) -> None:
        """Wait this long, or less: the caller checks the clock and waits again."""
        if self._libc is None or self._fd < 0:
            await asyncio.sleep(max(0.0, seconds - _LOOP_S))
        elif seconds < _LEAST_S:
            await asyncio.sleep(0)
        else:
            setting = _SETTING.pack(0, 0, *divmod(int(seconds * _NS), _NS))
            self._libc.timerfd_settime(self._fd, 0, setting, None)
            self._woken = self._loop.create_future()
            await self._woken

    def _ring(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # the timer was set again meanwhile
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
