"""The series worth keeping: those whose names somebody may query.

An agent offers many more series than rules ask for, and each one that is kept costs memory and time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuscale.base.regex import compile_re2
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import MatchOp
from gpuscale.series.promql import tree
from gpuscale.series.promql.parse import Query, selectors

_MAX_KNOWN = 100_000


@dataclass(frozen=True, slots=True)
class WantedNames:
    """A set of series names: single names, patterns, or all."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    """RE2 expressions that a whole name has to match."""
    is_everything: bool = False

    @staticmethod
    def joined(parts: Iterable["WantedNames"]) -> "WantedNames":
        found = list(parts)
        if any(part.is_everything for part in found):
            return EVERYTHING
        return WantedNames(
            frozenset().union(*(part.names for part in found)),
            frozenset().union(*(part.patterns for part in found)),
        )


EVERYTHING = WantedNames(is_everything=True)


def wanted_by(query: Query) -> WantedNames:
    """Return the series names that a query reads."""
    return WantedNames.joined(_wanted_by(selector) for selector in selectors(query.root))


def _wanted_by(selector: tree.Select) -> WantedNames:
    matchers = [each for each in selector.matchers if each.name == METRIC_NAME]
    for matcher in matchers:
        if matcher.op is MatchOp.EQUAL and matcher.value:
            return WantedNames(names=frozenset({matcher.value}))
    for matcher in matchers:
        if matcher.op is MatchOp.REGEX:
            return WantedNames(patterns=frozenset({matcher.value}))
    return EVERYTHING


class WantedSeries:
    """Decides by name whether to keep a series; the wanted names may change at run time.

    Args:
        wanted: to begin with.
    """

    def __init__(self, wanted: WantedNames = EVERYTHING) -> None:
        self.version = 0
        """Changes with what is wanted."""
        self._set(wanted)

    def change(self, wanted: WantedNames) -> None:
        if wanted != self._wanted:
            self.version += 1
            self._set(wanted)

    def _set(self, wanted: WantedNames) -> None:
        self._wanted = wanted
        self._patterns = [compile_re2(pattern) for pattern in sorted(wanted.patterns)]
        self._known: dict[str, bool] = {}

    def keeps(self, name: str) -> bool:
        """Return whether series of this name are kept."""
        if self._wanted.is_everything:
            return True
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[name] = name in self._wanted.names or any(
                pattern.fullmatch(name) is not None for pattern in self._patterns
            )
        return found


KEEP_ALL = WantedSeries()
