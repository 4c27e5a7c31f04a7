"""Garbage collection for work that makes millions of objects and next to no cycles.

Python looks through all objects again whenever enough new ones have survived. Work that goes over large
tables at every step makes that many each time, so all objects are looked at in every step, though references
alone free what it makes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_FIRST = 2_000_000
"""Objects; about as many hundred bytes."""


class Collector:
    """Looks for cycles when there are twice as many objects as after it last did."""

    def __init__(self) -> None:
        self._most = _FIRST

    def look(self) -> bool:
        """Collect if there are enough new objects; return whether it did."""
        # While nothing collects, the youngest generation counts objects made less objects freed.
        if gc.get_count()[0] < self._most:
            return False
        gc.collect()
        self._most = max(_FIRST, len(gc.get_objects()))
        return True


@contextmanager
def collecting_rarely() -> Iterator[Collector]:
    """Let nothing but `Collector.look` collect in the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield Collector()
    finally:
        if was_on:
            gc.enable()
