"""Parses PromQL into a syntax tree.

What can't be evaluated is named here, before anything is evaluated. Parsing and evaluation recurse, so the
text is bounded in length and in what can nest before it is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from gpuscale.base.byte_cache import remembered
from gpuscale.base.errors import QueryError
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql import tree
from gpuscale.series.promql.parsing import pretty
from gpuscale.series.promql.parsing.grammar import Parser
from gpuscale.series.promql.parsing.meaning import Written
from gpuscale.series.promql.parsing.tokens import FaultError, Token, tokens_of

MAX_QUERY_CHARS = 64 * 1024
MAX_OPERATIONS = 200
"""Operators and parentheses of one query; each may be a level of nesting."""
_OPERATIONS = frozenset(
    [
        "(",
        "[",
        "+",
        "-",
        "*",
        "/",
        "%",
        "^",
        "<",
        "<=",
        ">",
        ">=",
        "</",
        ">/",
        "==",
        "!=",
        "and",
        "or",
        "unless",
        "atan2",
    ]
)


class BadQueryError(QueryError):
    """The query is wrong in itself, whatever the data; the HTTP API answers 400 rather than 422.

    Args:
        reason: what is wrong.
        place: where, as `line:column`; None where that is not known.
    """

    def __init__(self, reason: str, place: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason if place is None else f"{place}: {reason}")


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed PromQL query."""

    text: str
    root: tree.Node


def parse_once(text: str) -> Query:
    """Parse a query that won't come again, without caching it; see `parse_query`."""
    return Query(text, _written(text).node)


def _written(text: str) -> Written:
    if len(text) > MAX_QUERY_CHARS:
        raise BadQueryError(
            f"parse error: found {len(text)} characters, expected at most {MAX_QUERY_CHARS}"
        )
    tokens = tokens_of(text)
    count = _operations(tokens)
    if count > MAX_OPERATIONS:
        raise BadQueryError(
            f"parse error: found {count} operators and parentheses, "
            f"expected at most {MAX_OPERATIONS}; split the query with recording rules"
        )
    parser = Parser(text, tokens)
    try:
        found = parser.parse()
    except FaultError as fault:
        raise BadQueryError(f"parse error: {fault.text}", _place(text, fault.position)) from None
    if parser.unsupported is not None:
        raise BadQueryError(parser.unsupported)
    return found


def _operations(tokens: list[Token]) -> int:
    count, in_braces = 0, False
    for token in tokens:
        if token.kind in ("{", "}"):
            in_braces = token.kind == "{"
        elif not in_braces:
            count += token.kind in _OPERATIONS
    return count


def _place(text: str, position: int | None) -> str | None:
    """Return a position as Prometheus prints it: line and column, in bytes."""
    if position is None:
        return None
    if not text:
        return "unknown position"
    before = text[:position]
    column = len(before[before.rfind("\n") + 1 :].encode(errors="replace")) + 1
    return f"{before.count(chr(10)) + 1}:{column}"


@remembered("parsed queries", 8 * 1024 * 1024)
def parse_query(text: str) -> Query:
    """Parse a query; recent ones are cached.

    Raises:
        BadQueryError: not PromQL, or a part of the language that is not supported.
    """
    return parse_once(text)


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Return the matchers of a series selector such as `up{job="node"}`.

    Raises:
        BadQueryError: not a selector, or one with an offset or a range.
    """
    root = parse_query(text).root
    if isinstance(root, tree.Select) and root.moment == tree.Moment():
        return root.matchers
    raise BadQueryError(f"parse error: found {text!r}, expected only a series selector")


def metric_names(query: Query) -> frozenset[str] | None:
    """Return the metric names that a query reads; None if a selector does not name its metric."""
    names: set[str] = set()
    for selector in selectors(query.root):
        name = _fixed_name(selector)
        if name is None:
            return None
        names.add(name)
    return frozenset(names)


def selectors(node: tree.Node) -> Iterator[tree.Select]:
    """Return the vector selectors of an expression, from left to right."""
    if isinstance(node, tree.Select):
        yield node
        return
    for field in fields(node):
        value = getattr(node, field.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, tree.Node):
                yield from selectors(child)


def _fixed_name(selector: tree.Select) -> str | None:
    for matcher in selector.matchers:
        if matcher.name == METRIC_NAME and matcher.op is MatchOp.EQUAL and matcher.value:
            return matcher.value
    return None


def prettified(query: Query) -> str:
    """Return the query in Prometheus' style, a long one on several lines."""
    return pretty.prettified(_written(query.text))


def one_line(query: Query) -> str:
    """Return the query in Prometheus' style, on one line."""
    return pretty.on_one_line(_written(query.text))
