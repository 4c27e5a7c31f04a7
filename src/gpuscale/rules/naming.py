"""A rule's `seriesFilters` and `name`: which series it takes, and what the API calls them.

Source: prometheus-adapter v0.12.0 pkg/naming (metric_namer.go).
"""

from dataclasses import dataclass

from gpuscale.core.regex import Pattern
from gpuscale.rules.expand import Expansion


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """A condition on the name of a series; the expression may match anywhere in it."""

    pattern: Pattern
    matches: bool
    """True for `is`, False for `isNot`."""

    def takes(self, name: str) -> bool:
        """Return whether a series of this name passes."""
        return (self.pattern.search(name) is not None) == self.matches


@dataclass(frozen=True, slots=True)
class Naming:
    """How the API name of a metric follows from the name of its series."""

    pattern: Pattern
    expansion: Expansion

    def api_name(self, series: str) -> str | None:
        """Return the API's name for a series, or None where it is not to be served.

        An empty name can't be asked for in a path, so it counts as none.
        """
        match = self.pattern.search(series)
        return (self.expansion.apply(match) or None) if match is not None else None


def default_expansion(pattern: Pattern) -> str | None:
    """Return what an empty `name.as` means, or None where the pattern leaves it open."""
    return {0: "$0", 1: "$1"}.get(pattern.groups)
