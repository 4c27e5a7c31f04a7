"""Limits on what a target may bring, so that none takes the store from the others.

Source: prometheus scrape/scrape.go (verifyLabelLimits) and the fields `*_limit` of scrape_config.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuscale.base.errors import Problem
from gpuscale.base.exposition.reading.entries import ExpositionError


@dataclass(frozen=True, slots=True)
class ScrapeLimits:
    """Limits of one scrape or stream; 0 means none. A scrape beyond a limit fails as a whole."""

    samples: int = 100_000
    series: int = 0
    """Series of the target that the store holds, those that ended included; its share of the store
    bounds them in any case."""
    labels: int = 128
    """Of one series, its name and the target's own labels included."""
    label_name_chars: int = 512
    label_value_chars: int = 4096
    body_bytes: int = 32 * 1024 * 1024

    def shortest_chars(self) -> int:
        """Return the line length below which no name or value can be too long."""
        return min(
            self.label_name_chars or self.body_bytes, self.label_value_chars or self.body_bytes
        )


DEFAULT_LIMITS = ScrapeLimits()
RESOLUTION_MS = 1_000
"""The step of time of which the newest sample of a stream is kept, unless a setting says otherwise."""


class ScrapeLimitError(ExpositionError):
    """A scrape exceeded a limit.

    Args:
        limit: which one, in words fit for a label.
        problem: where, how much, and what may be.
    """

    def __init__(self, limit: str, problem: Problem) -> None:
        super().__init__(problem)
        self.limit = limit


def check_labels(
    labels: Mapping[str, str], limits: ScrapeLimits, source: str, line: int | None = None
) -> None:
    """Raise if a series' labels exceed the limits.

    Raises:
        ScrapeLimitError: they are not.
    """
    name, value = _longest(labels), _longest(labels.values())
    for limit, unit, found, allowed in (
        ("labels", "labels", len(labels), limits.labels),
        ("label_name_length", "characters of a label's name", name, limits.label_name_chars),
        ("label_value_length", "characters of a label's value", value, limits.label_value_chars),
    ):
        check_limit(limit, found, allowed, unit, source, line)


def check_limit(
    limit: str, found: int, allowed: int, unit: str, source: str, line: int | None = None
) -> None:
    """Raise if a number exceeds a limit; 0 means none.

    Raises:
        ScrapeLimitError: it is not.
    """
    if 0 < allowed < found:
        expected = f"at most {allowed} {unit}"
        raise ScrapeLimitError(limit, Problem(source, line, None, str(found), expected))


def too_many_series(
    room: int, share: "TargetShare", source: str, line: int | None = None
) -> ScrapeLimitError:
    """Return the error for a target with more new series than it has room for."""
    expected = f"at most that beside the {share.series} that the store keeps of this target"
    problem = Problem(source, line, None, f"over {room} new series", expected)
    return ScrapeLimitError("series", problem)


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


class TargetShare:
    """A target's series in a store.

    A target may have as many series as are still free, or an equal part of the store if that is more. So one
    alone fills half of it, two fill a third each, and however many want all of it, the next one finds room.
    """

    __slots__ = ("series",)

    def __init__(self) -> None:
        self.series = 0
        """That are listed, whether they go on or have ended."""

    def room(self, free: int, equal: int) -> int:
        """Return how many more series the target may have.

        Args:
            free: series that the store has room for.
            equal: what each target would have if all had the same, and one more came.
        """
        return max(0, (free - self.series) // 2, min(free, equal - self.series))
