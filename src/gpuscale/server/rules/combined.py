"""Several limits as one metric: how full the fullest of them is, where 1 is full.

A rule with `parts` in place of `metricsQuery` has a query and a threshold for each limit. The value of an
object is the largest of its parts, each divided by its threshold. An object without one of the parts, or with
one that is NaN, has no value: the others would answer for a limit that nothing is known of, and a KV cache
that is not seen must not look as empty as the queue.

The parts become one PromQL query, so that everything downstream (plans, widened queries, confined rules, the
names that a collector keeps) treats the rule as any other, and all parts are read at one moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.golang.template import Template
from gpuscale.base.quantity import parse_quantity

MAX_PARTS = 8
_PART = "gpuscale_part"
"""Label that keeps the parts apart inside of the query."""


@dataclass(frozen=True, slots=True)
class Part:
    """One limit of a combined metric, such as KV cache or queue length."""

    name: str
    query: Template
    threshold: float
    """Of one object: the value at which it is full."""


def read_threshold(value: object) -> float:
    """Return a threshold as a file has it: a number, or a quantity such as 800m.

    Raises:
        ValueError: it is neither, or not above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("found no number")
    number = float(parse_quantity(value)) if isinstance(value, str) else float(value)
    if not 0 < number < float("inf"):
        raise ValueError("found no number above 0")
    return number


def combined_query(parts: Sequence[tuple[str, float]]) -> str:
    """Return a query template for the largest part, for objects that have all parts.

    Args:
        parts: the template text and the threshold of each.
    """
    group = "by (<<.GroupBy>>)"
    # A comparison drops NaN, which an aggregation would skip in favour of another part.
    shares = [
        f'label_replace(max {group} (\n{text}\n) / {threshold!r} > -Inf, "{_PART}", "{i}", "", "")'
        for i, (text, threshold) in enumerate(parts, start=1)
    ]
    together = " or ".join(shares)
    if len(parts) == 1:
        return f"max {group} ({together})"
    complete = f"count {group} ({together}) == {len(parts)}"
    return f"max {group} ({together}) and on (<<.GroupBy>>) ({complete})"
