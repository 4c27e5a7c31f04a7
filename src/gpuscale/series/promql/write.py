"""Writes a syntax tree as PromQL: every operand in parentheses, times in full."""

import math
import re
from collections.abc import Iterable

from gpuscale.base.errors import QueryError
from gpuscale.series.matchers import Matcher
from gpuscale.series.promql.tree import (
    SET_OPERATORS,
    Aggregate,
    Anchor,
    Binary,
    Call,
    Cardinality,
    Matching,
    Moment,
    Negate,
    Node,
    Number,
    Select,
    SelectRange,
    Subquery,
    Text,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def promql_text(node: Node) -> str:
    """Return a text that `parse_query` parses into this tree.

    Raises:
        QueryError: a label's name that older servers can't read.
    """
    match node:
        case Number(value):
            return _number(value)
        case Text(value):
            return _quoted(value)
        case Select():
            return _selector(node) + _moment(node.moment)
        case SelectRange(selector, range_ms):
            return f"{_selector(selector)}[{range_ms}ms]{_moment(selector.moment)}"
        case Subquery(expression, range_ms, step_ms, moment):
            step = "" if step_ms is None else f"{step_ms}ms"
            return f"({promql_text(expression)})[{range_ms}ms:{step}]{_moment(moment)}"
        case Call(function, arguments):
            return f"{function}({', '.join(map(promql_text, arguments))})"
        case Aggregate():
            return _aggregate(node)
        case Binary():
            return _binary(node)
        case Negate(expression):
            return f"-({promql_text(expression)})"


def _aggregate(node: Aggregate) -> str:
    inside = [each for each in (node.parameter, node.expression) if each is not None]
    grouping = f" {'by' if node.by else 'without'} ({_names(node.labels)}) "
    if node.by and not node.labels:
        grouping = ""
    return f"{node.operator}{grouping}({', '.join(map(promql_text, inside))})"


def _binary(node: Binary) -> str:
    returns_bool = " bool" if node.return_bool else ""
    matching = _matching(node.matching, is_set=node.operator in SET_OPERATORS)
    left, right = promql_text(node.left), promql_text(node.right)
    return f"({left}) {node.operator}{returns_bool}{matching} ({right})"


def _matching(matching: Matching, *, is_set: bool) -> str:
    text = ""
    if matching.on or matching.labels:
        text += f" {'on' if matching.on else 'ignoring'} ({_names(matching.labels)})"
    if not is_set and matching.cardinality is not Cardinality.ONE_TO_ONE:
        text += f" {matching.cardinality.value} ({_names(matching.include)})"
    for side, value in (("left", matching.fill_left), ("right", matching.fill_right)):
        if value is not None:
            text += f" fill_{side} ({_number(value)})"
    return text


def _selector(node: Select) -> str:
    return f"{{{','.join(map(_matcher, node.matchers))}}}"


def _matcher(matcher: Matcher) -> str:
    _check(matcher.name)
    return str(matcher)


def _moment(moment: Moment) -> str:
    text = f" offset {moment.offset_ms}ms" if moment.offset_ms else ""
    if isinstance(moment.at, Anchor):
        return f"{text} @ {moment.at.value}"
    return text if moment.at is None else f"{text} @ {moment.at / 1000:.3f}"


def _names(labels: Iterable[str]) -> str:
    names = tuple(labels)
    for name in names:
        _check(name)
    return ", ".join(names)


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise QueryError(f"found the label name {name!r}, expected letters, digits and underscores")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return repr(value)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
