"""Limits on the queries of one namespace's rules, so that no team burdens the others."""

from dataclasses import dataclass

from gpuscale.base.errors import QueryError
from gpuscale.base.golang.durations import format_duration
from gpuscale.series.promql import Node, tree

_MAX_STEPS = 1_000
"""Of subqueries, those inside of each other multiplied: each is an evaluation of what is in it."""
_STEP_MS = 60_000
"""Of a subquery that names none; Prometheus' default."""


@dataclass(frozen=True, slots=True)
class RuleBudget:
    """Limits for the rules of one namespace, summed over its ConfigMaps."""

    rules: int = 200
    """Each may be a query per discovery."""
    config_maps: int = 10
    text_bytes: int = 256 * 1024
    series: int = 20_000
    """That its series queries find."""
    longest_range_ms: int = 3_600_000
    """How far back a query may look: ranges, subqueries around them and offsets, added up."""


DEFAULT_BUDGET = RuleBudget()


def check_range(node: Node, longest_ms: int) -> None:
    """Raise QueryError for a query that reads far into the past.

    Raises:
        QueryError: it looks further back than allowed, at a fixed time, or evaluates too often.
    """
    reach_ms = _reach_ms(node)
    if reach_ms is None:
        raise QueryError("found @ with a time, expected none in the rules of a team")
    if reach_ms > longest_ms:
        found, most = format_duration(reach_ms), format_duration(longest_ms)
        raise QueryError(
            f"it looks {found} back, expected at most {most} in the rules of a team; record what "
            "takes longer in Prometheus"
        )
    steps = _steps(node)
    if steps > _MAX_STEPS:
        raise QueryError(
            f"its subqueries have {steps} steps, expected at most {_MAX_STEPS} in the rules of a team"
        )


def _reach_ms(node: Node) -> int | None:
    """Return how far back an expression reads, in milliseconds; None if it can't be told."""
    own = 0
    if isinstance(node, tree.Select | tree.Subquery):
        if isinstance(node.moment.at, int):
            return None
        own = abs(node.moment.offset_ms)
    if isinstance(node, tree.SelectRange | tree.Subquery):
        own += node.range_ms
    inside = [_reach_ms(child) for child in tree.children(node)]
    known = [each for each in inside if each is not None]
    return None if len(known) < len(inside) else own + max(known, default=0)


def _steps(node: Node) -> int:
    inside = max(map(_steps, tree.children(node)), default=1)
    if isinstance(node, tree.Subquery):
        return inside * max(1, node.range_ms // max(1, node.step_ms or _STEP_MS))
    return inside
