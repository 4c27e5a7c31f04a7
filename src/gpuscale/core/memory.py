"""Memory that is free, given back to the system."""

import ctypes
from collections.abc import Callable
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
    """Have threads that begin from now on take memory from one place, where the C library is glibc.

    It keeps what each thread frees for that thread otherwise, so that some of it is never used again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Give the system what was freed, where the C library keeps it; takes some milliseconds."""
    if (trim := _trim()) is not None:
        trim(0)
