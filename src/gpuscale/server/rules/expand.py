"""A rule's `seriesFilters` and `name`: which series it takes, and what the API calls them.

`name.as` is the text that a match of `name.matches` expands to, as Go's Expand does it.

Source: prometheus-adapter v0.12.0 pkg/naming (metric_namer.go);
Go's regexp (regexp.go, expand and extract), release 1.22.
"""

import re
from dataclasses import dataclass

from gpuscale.base.regex import Match, Pattern

_REFERENCE = re.compile(r"\$(?:\$|(?P<bare>\w+)|\{(?P<braced>\w+)\})")


@dataclass(frozen=True, slots=True)
class Expansion:
    """Literal text and group references, in order."""

    parts: tuple[str | int, ...]
    """Text, or the number of a group."""
    unknown: tuple[str, ...] = ()
    """Names that refer to no group; each expands to nothing."""

    def apply(self, match: Match) -> str:
        """Return the expansion for one match; text outside the match is not part of it."""
        return "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in self.parts
        )


def compile_expansion(text: str, pattern: Pattern) -> Expansion:
    """Return the expansion of `text` with the groups of `pattern`.

    A bare `$` takes the longest run of letters, digits and underscores, so `$1_rate` is the group called
    `1_rate`; `${1}_rate` is what such a text means. A `$` that refers to nothing legible stays as it is.
    """
    parts: list[str | int] = []
    unknown: list[str] = []
    position = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[position : match.start()])
        position = match.end()
        name = match["bare"] or match["braced"]
        if name is None:
            parts.append("$")
            continue
        group = _group(name, pattern)
        if group is None:
            unknown.append(name)
        else:
            parts.append(group)
    parts.append(text[position:])
    return Expansion(tuple(part for part in parts if part != ""), tuple(unknown))


def _group(name: str, pattern: Pattern) -> int | None:
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", name):
        return int(name) if int(name) <= pattern.groups else None
    return pattern.groupindex.get(name)


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
