"""Exponential backoff with a maximum."""

import random


class Backoff:
    """Waiting times that double, in the unit of the bounds.

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
        """Return the next wait, randomly shortened by up to half, as many connections often end together."""
        return self.advance() * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        """Start again with the first wait."""
        self.wait = self._first
