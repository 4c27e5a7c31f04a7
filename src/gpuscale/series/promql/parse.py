"""PromQL text to an expression tree.

The only module that imports promql_parser; its tree becomes ours here, and what is not supported is named
here, before anything is evaluated. The parser recurses in native code, so the text is bounded in length and
in what can nest before it gets there.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import promql_parser as native

from gpuscale.base.byte_cache import remembered
from gpuscale.base.errors import QueryError
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql import tree
from gpuscale.series.promql.diagnosis.fault import first_fault
from gpuscale.series.promql.functions.aggregate import AGGREGATORS
from gpuscale.series.promql.functions.functions import FUNCTIONS, OF_NATIVE_HISTOGRAMS

MAX_QUERY_CHARS = 64 * 1024
MAX_OPERATIONS = 200
"""Operators and parentheses of one query; each may be a level of nesting."""
_MAX_SHIFT = timedelta(days=365 * 200)

_SCALAR_LIMITERS = frozenset({"limitk", "limit_ratio"})

_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]*\}")
_COMMENT = re.compile(r"#[^\n]*")
_OPERATION = re.compile(r"[(\[{+\-*/%^<>]|[=!]=|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_BEFORE_EPOCH = re.compile(r"@[\s+]*-")
_WILD_DURATION = re.compile(
    r"(?:\[|\[[^\]]*:|\boffset\b)[\s+-]*(?:inf\b|nan\b|0x|[\d.][\d._]*e|[\d._]{13})", re.IGNORECASE
)
"""Numbers in place of durations that make the native parser panic."""
_EXTENDED_RANGE = re.compile(r"(?<=[\]}\w])\s+(?:anchored|smoothed)\b", re.IGNORECASE)
_DURATION_ARITHMETIC = re.compile(
    r"\[[^\]]*(?:[\w)]\s*[-+*/%^]|\()[^\]]*\]|\boffset\s*[-+]?\s*(?:\(|\w+\()", re.IGNORECASE
)
_TYPE_WORD = re.compile(r"(?<=\btype )\w+|(?<=\bgot )\w+|(?<=\bgot: )\w+")
_TYPES = {"vector": "instant vector", "matrix": "range vector"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# Prometheus 2 calls it so; Prometheus 3 renamed it to double_exponential_smoothing.
native.register_extra_functions(
    [
        native.Function(
            "holt_winters",
            [native.ValueType.Matrix, native.ValueType.Scalar, native.ValueType.Scalar],
            native.ValueType.Vector,
        )
    ]
)


class BadQueryError(QueryError):
    """What was asked is wrong in itself, whatever the data; the HTTP API answers 400 rather than 422.

    Args:
        reason: what is wrong.
        place: where, as `line:column`; None where that is not known.
    """

    def __init__(self, reason: str, place: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason if place is None else f"{place}: {reason}")


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL text that was understood."""

    text: str
    root: tree.Node


def parse_once(text: str) -> Query:
    """Return the query of a text that is not read again, so nothing is kept for it; see `parse_query`."""
    _check_bounds(text)
    try:
        return Query(text, _node(native.parse(text)))
    except BadQueryError as error:
        raise _placed(text, error.reason) from None
    except (ValueError, OverflowError) as error:
        raise _refusal(text, str(error)) from None
    except BaseException as error:
        # A panic of the native parser is no Exception, and its type can't be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise BadQueryError(f"parse error: {error}") from None


@remembered("parsed queries", 8 * 1024 * 1024)
def parse_query(text: str) -> Query:
    """Return the query of a text.

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
    """Return the names of the metrics a query reads; None where a selector leaves the name open."""
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


def _refusal(text: str, reason: str) -> BadQueryError:
    """Return the error of a text that the native parser refuses, with the place where it is known."""
    # The native parser has shorter words for the types.
    words = _TYPE_WORD.sub(lambda match: _TYPES.get(match[0], match[0]), reason)
    found = first_fault(text)
    if found is None:
        return BadQueryError(f"parse error: {_newer_syntax(text) or words}")
    return BadQueryError(f"parse error: {found[1] or words}", found[0])


def _placed(text: str, reason: str) -> BadQueryError:
    """Return the error of a fault that the native parser passes over, with the place where it is known."""
    found = first_fault(text)
    # A fault of which only the place is known is in a regular expression here.
    if found is None or reason != f"parse error: {found[1] or reason[13:]}":
        return BadQueryError(reason)
    return BadQueryError(reason, found[0])


def _newer_syntax(text: str) -> str | None:
    """Return the name of experimental syntax that the parser does not know, if a refused text has some."""
    bare = _bare(text)
    if (word := _EXTENDED_RANGE.search(bare)) is not None:
        return f"the modifier {word[0].strip()} is not supported"
    if _DURATION_ARITHMETIC.search(bare):
        return "arithmetic on durations is not supported"
    return None


def _bare(text: str) -> str:
    """Return a query less what is quoted, what is between braces, and comments."""
    return _COMMENT.sub("", _BRACES.sub("", _STRING.sub("", text)))


def _check_bounds(text: str) -> None:
    if len(text) > MAX_QUERY_CHARS:
        raise BadQueryError(
            f"parse error: found {len(text)} characters, expected at most {MAX_QUERY_CHARS}"
        )
    bare = _bare(text)
    if _BEFORE_EPOCH.search(bare):
        raise BadQueryError("a time before 1970 after @ is not supported")
    if _WILD_DURATION.search(bare):
        raise BadQueryError("parse error: duration out of range, expected one such as 5m or 300")
    count = sum(1 for _ in _OPERATION.finditer(bare))
    if count > MAX_OPERATIONS:
        raise BadQueryError(
            f"parse error: found {count} operators and parentheses, "
            f"expected at most {MAX_OPERATIONS}; split the query with recording rules"
        )


def _node(expression: Any) -> tree.Node:  # noqa: ANN401 - the parser's own types share no useful base
    convert = _CONVERTERS.get(type(expression))
    if convert is None:
        raise BadQueryError(f"{type(expression).__name__} is not supported")
    return convert(expression)


def _selector(expression: Any) -> tree.Select:  # noqa: ANN401
    if expression.matchers.or_matchers:
        raise BadQueryError("`or` between the matchers of a selector is not supported")
    matchers = [_matcher(each) for each in expression.matchers.matchers]
    if expression.name is not None:
        matchers.append(Matcher(METRIC_NAME, MatchOp.EQUAL, expression.name))
    return tree.Select(tuple(matchers), _moment(expression))


def _matcher(expression: native.Matcher) -> Matcher:
    matcher = Matcher(expression.name, _MATCH_OPS[str(expression.op)], expression.value)
    try:
        matcher.predicate()
    except ValueError as error:
        raise BadQueryError(f"parse error: {error}") from None
    return matcher


def _moment(expression: Any) -> tree.Moment:  # noqa: ANN401
    return tree.Moment(_milliseconds(expression.offset), _at(expression.at))


def _at(modifier: native.AtModifier | None) -> int | tree.Anchor | None:
    if modifier is None:
        return None
    if modifier.at is not None:
        return round((modifier.at - _EPOCH) / _MILLISECOND)
    is_start = str(modifier.type) == str(native.AtModifierType.Start)
    return tree.Anchor.START if is_start else tree.Anchor.END


def _milliseconds(length: timedelta | None) -> int:
    if length is None:
        return 0
    if abs(length) > _MAX_SHIFT:
        raise BadQueryError("parse error: duration out of range")
    return length // _MILLISECOND


def _range_ms(length: timedelta | None) -> int:
    range_ms = _milliseconds(length)
    if range_ms <= 0:
        raise BadQueryError("parse error: a range or step is shorter than a millisecond")
    return range_ms


def _range(expression: native.MatrixSelector) -> tree.SelectRange:
    return tree.SelectRange(_selector(expression.vector_selector), _range_ms(expression.range))


def _subquery(expression: native.SubqueryExpr) -> tree.Subquery:
    step_ms = None if expression.step is None else _range_ms(expression.step)
    return tree.Subquery(
        _node(expression.expr), _range_ms(expression.range), step_ms, _moment(expression)
    )


def _call(expression: native.Call) -> tree.Call:
    name = expression.func.name
    if name in OF_NATIVE_HISTOGRAMS:
        raise BadQueryError(f"function {name}() is of native histograms, which are not supported")
    if name not in FUNCTIONS:
        raise BadQueryError(f"function {name}() is not supported")
    return tree.Call(name, tuple(_node(each) for each in expression.args))


def _aggregate(expression: native.AggregateExpr) -> tree.Aggregate:
    operator = str(expression.op)
    if operator not in AGGREGATORS:
        raise BadQueryError(f"aggregation {operator} is not supported")
    modifier = expression.modifier
    by = modifier is None or str(modifier.type) == str(native.AggModifierType.By)
    labels = () if modifier is None else tuple(modifier.labels)
    parameter = None if expression.param is None else _node(expression.param)
    if operator in _SCALAR_LIMITERS and parameter is not None:
        # The native parser checks the parameters of all other aggregations.
        found = tree.value_type(parameter)
        if found is not tree.ValueType.SCALAR:
            raise BadQueryError(
                f"parse error: expected type scalar in aggregation parameter, got {found.value}"
            )
    return tree.Aggregate(operator, _node(expression.expr), parameter, by, labels)


def _binary(expression: native.BinaryExpr) -> tree.Binary:
    modifier, operator = expression.modifier, str(expression.op)
    return_bool = modifier is not None and modifier.return_bool
    left, right = _node(expression.lhs), _node(expression.rhs)
    matching = _matching(operator, modifier)
    if matching.fill_left is not None or matching.fill_right is not None:
        _check_fill(operator, left, right)
    return tree.Binary(operator, left, right, matching, return_bool)


def _check_fill(operator: str, left: tree.Node, right: tree.Node) -> None:
    if operator in tree.SET_OPERATORS:
        raise BadQueryError("parse error: filling in missing series not allowed for set operators")
    if {tree.value_type(left), tree.value_type(right)} != {tree.ValueType.VECTOR}:
        raise BadQueryError(
            "parse error: filling in missing series only allowed between instant vectors"
        )


def _matching(operator: str, modifier: native.BinModifier | None) -> tree.Matching:
    cardinality = tree.Cardinality.ONE_TO_ONE
    if modifier is not None:
        cardinality = _CARDINALITIES[str(modifier.card)]
    if operator in tree.SET_OPERATORS:
        cardinality = tree.Cardinality.MANY_TO_MANY
    if modifier is None or modifier.matching is None:
        on, labels = False, tuple[str, ...]()
    else:
        on = str(modifier.matching.type) == str(native.LabelModifierType.Include)
        labels = tuple(modifier.matching.labels)
    include = () if modifier is None else tuple(modifier.group_labels or ())
    if modifier is None:
        return tree.Matching(cardinality, on, labels, include)
    fill = modifier.fill_values
    return tree.Matching(cardinality, on, labels, include, fill.lhs, fill.rhs)


_CONVERTERS: dict[type, Callable[[Any], tree.Node]] = {
    native.NumberLiteral: lambda expression: tree.Number(expression.val),
    native.StringLiteral: lambda expression: tree.Text(expression.val),
    native.ParenExpr: lambda expression: _node(expression.expr),
    native.UnaryExpr: lambda expression: tree.Negate(_node(expression.expr)),
    native.VectorSelector: _selector,
    native.MatrixSelector: _range,
    native.SubqueryExpr: _subquery,
    native.Call: _call,
    native.AggregateExpr: _aggregate,
    native.BinaryExpr: _binary,
}


def _by_text(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    # The parser's enumerations have no hash; their texts do.
    return {str(key): value for key, value in pairs}


_MATCH_OPS = _by_text(
    [
        (native.MatchOp.Equal, MatchOp.EQUAL),
        (native.MatchOp.NotEqual, MatchOp.NOT_EQUAL),
        (native.MatchOp.Re, MatchOp.REGEX),
        (native.MatchOp.NotRe, MatchOp.NOT_REGEX),
    ]
)
_CARDINALITIES = _by_text(
    [
        (native.VectorMatchCardinality.OneToOne, tree.Cardinality.ONE_TO_ONE),
        (native.VectorMatchCardinality.ManyToOne, tree.Cardinality.MANY_TO_ONE),
        (native.VectorMatchCardinality.OneToMany, tree.Cardinality.ONE_TO_MANY),
        (native.VectorMatchCardinality.ManyToMany, tree.Cardinality.MANY_TO_MANY),
    ]
)


def prettified(query: Query) -> str:
    """Return the query in Prometheus' style, a long one over several lines."""
    text = str(native.parse(query.text).prettify())
    return text if _is_same(text, query) else query.text


def one_line(query: Query) -> str:
    """Return the query in Prometheus' style, on one line."""
    text = prettified(query)
    for pattern, joint in ((r"\(\s*\n\s*", "("), (r"\s*\n\s*\)", ")"), (r"\s*\n\s*", " ")):
        text = re.sub(pattern, joint, text)
    return text if _is_same(text, query) else query.text


def _is_same(text: str, query: Query) -> bool:
    try:
        return parse_query(text).root == query.root
    except QueryError:
        return False
