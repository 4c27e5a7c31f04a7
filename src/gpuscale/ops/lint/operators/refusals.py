"""What an operator, its webhook or the schema of its kinds refuses, and what an operator ignores."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.ops.lint.parts import Part


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that is refused."""

    part: Part
    expected: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A value that is taken, and that nothing reads."""

    part: Part
    what: str
    fix: str


def bounds(section: Part, least: str, most: str) -> Iterator[Refusal]:
    """Yield the refusal of a lower limit above the upper one, and of negative ones."""
    low, high = section.whole(least), section.whole(most)
    negative = [key for key, count in ((least, low), (most, high)) if (count or 0) < 0]
    yield from (Refusal(section.at(key), "0 or more") for key in negative)
    if low is not None and high is not None and low > high and not negative:
        yield Refusal(section.at(least), f"at most {most}, {high}")
