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


def give_memory_back() -> None:
    """Give the system what was freed, where the C library keeps it; takes some milliseconds."""
    if (trim := _trim()) is not None:
        trim(0)
