"""What happened on a cluster in a range of time: from what a Prometheus recorded."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.past.incidents import Past, past_of, queries
    from gpuscale.ops.past.kinds import makers_query
    from gpuscale.ops.past.telling import past_document, past_lines, past_markdown
else:
    __getattr__ = door(__name__)

__all__ = [
    "Past",
    "makers_query",
    "past_document",
    "past_lines",
    "past_markdown",
    "past_of",
    "queries",
]
