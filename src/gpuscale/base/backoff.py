"""Waits between tries: each is twice the one before, up to a longest."""

import random


class Backoff:
    """Waits that double, in the unit of the bounds.

    Args:
        first: the wait after the first failure.
        longest: no wait is longer.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self.wait = first
        """What the next wait is."""

    def advance(self) -> float:
        """Return the next wait; the one after it is twice as long."""
        wait = self.wait
        self.wait = min(2 * wait, self._longest)
        return wait

    def jittered(self) -> float:
        """Return at least half of the next wait, by chance: what ended one connection has often ended all."""
        return self.advance() * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        """Begin again with the first wait."""
        self.wait = self._first
