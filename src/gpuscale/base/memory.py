"""Memory use: freed memory is returned to the system, and garbage is collected less often.

Python looks through all objects again whenever enough new ones have survived. Work that goes over large
tables at every step makes millions of them and next to no cycles, so all objects are looked at in every step,
though references alone free what it makes.
"""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import cast


@cache
def _trim() -> Callable[[int], int] | None:
    """Return glibc's malloc_trim; None with another C library."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return cast("Callable[[int], int] | None", found)


_ARENA_MAX = -8
"""glibc's M_ARENA_MAX; see its malloc.h."""


def share_one_arena() -> None:
    """Let new threads share one malloc arena (glibc), as each arena keeps its free memory.

    It keeps what each thread frees for that thread otherwise, so that some of it is never used again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Return freed memory to the system (glibc); takes some milliseconds."""
    if (trim := _trim()) is not None:
        trim(0)


_FIRST = 2_000_000
"""Objects; about as many hundred bytes."""


class CycleCollector:
    """Runs the garbage collector when the number of objects has doubled."""

    def __init__(self) -> None:
        self._most = _FIRST

    def look(self) -> bool:
        """Collect if there are enough new objects; return whether it did."""
        # While collection is off, the youngest generation counts allocations less deallocations.
        if gc.get_count()[0] < self._most:
            return False
        gc.collect()
        self._most = max(_FIRST, len(gc.get_objects()))
        return True


@contextmanager
def collecting_rarely() -> Iterator[CycleCollector]:
    """Let only `CycleCollector.look` collect garbage inside the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield CycleCollector()
    finally:
        if was_on:
            gc.enable()
