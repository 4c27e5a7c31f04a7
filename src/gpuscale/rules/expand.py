"""`name.as` of a rule: the text that a match of `name.matches` expands to, as Go's Expand does it.

Source: Go's regexp (regexp.go, expand and extract), release 1.22.
"""

import re
from dataclasses import dataclass

from gpuscale.core.regex import Match, Pattern

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
