"""Queries to an external Prometheus, changed so that impossible values don't count.

What is computed there is judged by what goes in: each selector of a series with a known range passes only
samples within it, so `avg(X) by (pod)` is asked as `avg(X <= 100 >= 0) by (pod)`. A range such as `X[1m]`
can't be filtered without a subquery, which is dear. There a series has no result while any sample in its
window is impossible: `rate(X[1m]) and max_over_time(X[1m]) <= 100`.

What is left out can be asked for as `IMPOSSIBLE_SERIES`, as in a store of our own.

Only the shape of a query is read: most texts differ in the names of objects alone, and those are long.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from gpuscale.base.ranges import Range
from gpuscale.series import IMPOSSIBLE_SERIES, METRIC_NAME, OF_SERIES, Matcher, MatchOp
from gpuscale.series.promql import parse_query, promql_text, selectors, tree
from gpuscale.signals import known_prefixes, range_of

_LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"' + r"|'[^'\\]*(?:\\.[^'\\]*)*'|`[^`]*`", re.DOTALL)
_LONGEST_NAME = 500
"""Characters of a text that may name series."""
_SEEN_FOR_MS = 300_000
"""How long an impossible value can be asked for, as with what a store looks back on."""
_READ_NO_VALUES = frozenset(
    {"absent", "absent_over_time", "count_over_time", "present_over_time", "timestamp"}
)
"""Functions of a bare selector that only ask whether and when there are samples."""
_ONE_TO_ONE = tree.Matching(tree.Cardinality.ONE_TO_ONE, on=False, labels=(), include=())
_SET = tree.Matching(tree.Cardinality.MANY_TO_MANY, on=False, labels=(), include=())


@dataclass(frozen=True, slots=True)
class Guarded:
    """A query that skips impossible values."""

    promql: str
    series: frozenset[str] = frozenset()
    """The names of the series that are filtered."""
    is_open: bool = False
    """Whether it reads series whose names it leaves open, so that rows have to be looked at."""


def guarded(promql: str) -> Guarded:
    """Return the query with guards; the same text if none of its series has a known range.

    Raises:
        QueryError: it may read such a series, and is not understood here.
    """
    if not _may_matter(promql):
        return Guarded(promql)
    shape, literals = _shape(promql)
    found = _guarded_shape(shape)
    if not found.series:
        return Guarded(promql, is_open=found.is_open)
    return replace(found, promql=_filled(found.promql, literals))


def impossible_query(promql: str) -> str | None:
    """Return a query for the impossible values among a query's series; None if it has none with a range.

    Raises:
        QueryError: the query is not understood here.
    """
    found = dict.fromkeys(
        promql_text(_marker(select, name))
        for select in selectors(parse_query(promql).root)
        for name in _names(select) or ()
        if range_of(name) is not None
    )
    return " or ".join(found) or None


def count_query(name: str, limits: Range, range_ms: int) -> str:
    """Return a query that counts the series of a name with an impossible value within a time."""
    select = tree.Select((_named(name),), tree.Moment())
    return f"count({promql_text(_outside(select, limits, range_ms))})"


@lru_cache(maxsize=1)
def _words() -> tuple[str, ...]:
    return (*known_prefixes(), IMPOSSIBLE_SERIES, METRIC_NAME)


def _may_matter(text: str) -> bool:
    return any(word in text for word in _words())


def _shape(promql: str) -> tuple[str, list[str]]:
    """Return a query with numbers in place of texts that name no series, and those texts."""
    literals: list[str] = []

    def short(match: "re.Match[str]") -> str:
        if len(match[0]) <= _LONGEST_NAME and _may_matter(match[0]):
            return match[0]
        literals.append(match[0])
        return f'"gpuscale{len(literals) - 1}."'

    return _LITERAL.sub(short, promql), literals


def _filled(shape: str, literals: list[str]) -> str:
    return re.sub(r'"gpuscale(\d+)\."', lambda match: literals[int(match[1])], shape)


@lru_cache(maxsize=500)
def _guarded_shape(shape: str) -> Guarded:
    root = parse_query(shape).root
    selects = list(selectors(root))
    names = {name for select in selects for name in _names(select) or ()}
    is_open = any(_names(select) is None for select in selects)
    known = frozenset(name for name in names if range_of(name) is not None)
    if not known and IMPOSSIBLE_SERIES not in names:
        return Guarded(shape, is_open=is_open)
    return Guarded(promql_text(_guard(root)), known or frozenset(names), is_open)


def _guard(node: tree.Node) -> tree.Node:
    if isinstance(node, tree.Select):
        return _filtered(node)
    if isinstance(node, tree.SelectRange):
        return node
    if isinstance(node, tree.Call):
        bare = (tree.Select, tree.SelectRange)
        if node.function in _READ_NO_VALUES and isinstance(node.arguments[0], bare):
            return node
        return _over_ranges(replace(node, arguments=tuple(map(_guard, node.arguments))))
    changed: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tree.Node):
            changed[field.name] = _guard(value)
    return replace(node, **changed)


def _filtered(select: tree.Select) -> tree.Node:
    names = _names(select)
    if names == (IMPOSSIBLE_SERIES,):
        return _in_prometheus(select)
    limits = _limits(select)
    if limits is None:
        return select
    upper = _compared(select, "<=", limits.highest) if limits.highest < math.inf else select
    return _compared(upper, ">=", limits.lowest)


def _over_ranges(call: tree.Call) -> tree.Node:
    """Return a call that gives no result for series with an impossible value in the range."""
    found: tree.Node = call
    for argument in call.arguments:
        limits = _limits(argument.selector) if isinstance(argument, tree.SelectRange) else None
        if limits is None or limits.highest == math.inf:
            continue
        highest = _compared(tree.Call("max_over_time", (argument,)), "<=", limits.highest)
        found = tree.Binary("and", found, highest, _SET, return_bool=False)
        if limits.highest < 2.0**62:  # functions take a counter that falls for a reset
            lowest = _compared(tree.Call("min_over_time", (argument,)), ">=", limits.lowest)
            found = tree.Binary("and", found, lowest, _SET, return_bool=False)
    return found


def _compared(node: tree.Node, operator: str, limit: float) -> tree.Node:
    return tree.Binary(operator, node, tree.Number(limit), _ONE_TO_ONE, return_bool=False)


def _limits(select: tree.Select) -> Range | None:
    """Return the joint range of possible values of a selector's series; None if it is unknown."""
    ranges = [range_of(name) for name in _names(select) or ()]
    known = [limits for limits in ranges if limits is not None]
    if not ranges or len(known) < len(ranges):
        return None
    return Range(min(each.lowest for each in known), max(each.highest for each in known))


def _names(select: tree.Select) -> tuple[str, ...] | None:
    """Return the metric names that a selector allows; None if it allows any."""
    for matcher in select.matchers:
        if matcher.name == METRIC_NAME and matcher.op in {MatchOp.EQUAL, MatchOp.REGEX}:
            values = matcher.values()
            if values is not None:
                return tuple(values)
    return None


def _named(name: str) -> Matcher:
    return Matcher(METRIC_NAME, MatchOp.EQUAL, name)


def _others(select: tree.Select, *left_out: str) -> Iterator[Matcher]:
    return (each for each in select.matchers if each.name not in left_out)


def _marker(select: tree.Select, name: str) -> tree.Select:
    of_series = Matcher(OF_SERIES, MatchOp.EQUAL, name)
    return replace(
        select,
        matchers=(_named(IMPOSSIBLE_SERIES), of_series, *_others(select, METRIC_NAME, OF_SERIES)),
    )


def _in_prometheus(marker: tree.Select) -> tree.Node:
    """Return an expression for a series' impossible values, where Prometheus has no series of them."""
    name = next((each.value for each in marker.matchers if each.name == OF_SERIES), "")
    limits = range_of(name)
    if limits is None:
        return marker
    select = replace(marker, matchers=(_named(name), *_others(marker, METRIC_NAME, OF_SERIES)))
    texts = map(tree.Text, (OF_SERIES, name, "", ""))
    return tree.Call("label_replace", (_outside(select, limits, _SEEN_FOR_MS), *texts))


def _outside(select: tree.Select, limits: Range, range_ms: int) -> tree.Node:
    """Return an expression for the values outside a range."""
    within = tree.SelectRange(select, range_ms)
    found = _compared(tree.Call("min_over_time", (within,)), "<", limits.lowest)
    if limits.highest == math.inf:
        return found
    highest = _compared(tree.Call("max_over_time", (within,)), ">", limits.highest)
    return tree.Binary("or", highest, found, _SET, return_bool=False)
