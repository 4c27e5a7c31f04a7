"""What sets apart the templates of one kind of file: delimiters and functions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpuscale.core.golang.template.functions import FUNCTIONS, NOT_SERVED, Function


@dataclass(frozen=True)
class Dialect:
    """Delimiters and functions; the default is that of prometheus-adapter's rule files."""

    left: str = "<<"
    right: str = ">>"
    functions: Mapping[str, Function] = field(default_factory=lambda: FUNCTIONS)
    not_served: frozenset[str] = NOT_SERVED
    """Functions that are refused by name; others are unknown."""

    @cached_property
    def comment_end(self) -> re.Pattern[str]:
        """Return what has to follow a comment."""
        return re.compile(rf"(?:(?P<trim>[ \t\r\n]+-))?{re.escape(self.right)}")


ADAPTER = Dialect()
