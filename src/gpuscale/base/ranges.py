"""The range of a series' possible values."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a series can have, both ends included."""

    lowest: float
    highest: float = math.inf

    def has(self, value: float) -> bool:
        """Return whether a value is possible; NaN is, as it says itself that it is no number."""
        return self.lowest <= value <= self.highest or value != value

    def __str__(self) -> str:
        if math.isinf(self.highest):
            return f"{self.lowest:.12g} or more"
        return f"{self.lowest:.12g} to {self.highest:.12g}"


RangeOf = Callable[[str], Range | None]
"""Returns the range of a series by its name; None where any value is possible, or nothing is known."""


def any_value(_: str) -> None:
    """Return that any value is possible."""
