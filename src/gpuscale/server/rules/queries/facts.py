"""What a PromQL expression can return, judged by its text: range of values, labels, series."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from gpuscale.series import Matcher, MatchOp
from gpuscale.series.promql import Node, Query, metric_names, tree
from gpuscale.signals import facts_of, is_of_pods

_KEEPS_RANGE = frozenset({"avg", "min", "max", "quantile", "topk", "bottomk", "limitk"})
_WHOLE_ROWS = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_OVER_TIME = frozenset(
    {"avg_over_time", "min_over_time", "max_over_time", "last_over_time", "quantile_over_time"}
)
_AS_THEY_ARE = frozenset(
    {"abs", "ceil", "floor", "round", "sort", "sort_desc", "label_replace", "label_join"}
)
_SET_OPERATORS = frozenset({"and", "or", "unless"})
_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})


@dataclass(frozen=True, slots=True)
class Interval:
    """Lowest and highest value, both included."""

    low: float
    high: float

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.high)


@dataclass(frozen=True, slots=True)
class Read:
    """A selector, with the function around its range."""

    series: str | None
    """None where the selector leaves the name open."""
    function: str | None
    """None for an instant selector that no range function reads."""
    range_ms: int | None


def values_of(node: Node) -> Interval | None:
    """Return the range of an expression's values; None if unknown."""
    match node:
        case tree.Number():
            return Interval(node.value, node.value)
        case tree.Select():
            return _values_of_series(node)
        case tree.SelectRange():
            return _values_of_series(node.selector)
        case tree.Subquery():
            return values_of(node.expression)
        case tree.Aggregate():
            return _values_of_aggregate(node)
        case tree.Call():
            return _values_of_call(node)
        case tree.Binary():
            return _values_of_binary(node)
        case tree.Negate():
            inside = values_of(node.expression)
            return None if inside is None else Interval(-inside.high, -inside.low)
        case _:
            return None


def _values_of_series(node: tree.Select) -> Interval | None:
    name = _fixed_name(node)
    known = facts_of(name) if name else None
    highest = known.highest if known is not None else None
    return None if highest is None else Interval(0.0, highest)


def _values_of_aggregate(node: tree.Aggregate) -> Interval | None:
    inside = values_of(node.expression)
    if node.operator in _KEEPS_RANGE:
        return inside
    if node.operator == "group":
        return Interval(1.0, 1.0)
    if node.operator == "sum" and inside is not None and inside.low >= 0:
        return Interval(inside.low, math.inf)
    return None


def _values_of_call(node: tree.Call) -> Interval | None:
    if node.function in _OVER_TIME:
        return values_of(node.arguments[-1])
    if node.function in _AS_THEY_ARE | {"vector", "scalar"}:
        return values_of(node.arguments[0])
    if node.function in {"clamp_max", "clamp_min"}:
        return _clamped(node)
    return None


def _clamped(node: tree.Call) -> Interval | None:
    bound = values_of(node.arguments[1])
    if bound is None:
        return None
    inside = values_of(node.arguments[0]) or Interval(-math.inf, math.inf)
    choose: Callable[[float, float], float] = min if node.function == "clamp_max" else max
    return Interval(choose(inside.low, bound.low), choose(inside.high, bound.high))


def _values_of_binary(node: tree.Binary) -> Interval | None:
    left, right = values_of(node.left), values_of(node.right)
    if node.operator in _COMPARISONS:
        return Interval(0.0, 1.0) if node.return_bool else left
    if node.operator in {"and", "unless"}:
        return left
    if left is None or right is None:
        return None
    if node.operator == "or":
        return Interval(min(left.low, right.low), max(left.high, right.high))
    return _arithmetic(node.operator, left, right)


def _arithmetic(operator: str, left: Interval, right: Interval) -> Interval | None:
    if operator == "+":
        return Interval(left.low + right.low, left.high + right.high)
    if operator == "-":
        return Interval(left.low - right.high, left.high - right.low)
    is_constant = right.low == right.high and 0 < right.high < math.inf
    if operator == "*" and (is_constant or (0 < left.low == left.high < math.inf)):
        factor, values = (right.low, left) if is_constant else (left.low, right)
        return Interval(values.low * factor, values.high * factor)
    if operator == "/" and is_constant:
        return Interval(left.low / right.low, left.high / right.low)
    return None


def summed_share(node: Node) -> float | None:
    """Return the highest value of one row inside a sum of percentages or ratios; None for other queries.

    A sum that is divided by another vector, such as a count, is no such sum.
    """
    match node:
        case tree.Aggregate(operator="sum"):
            inside = values_of(node.expression)
            return inside.high if inside is not None and inside.is_bounded else None
        case tree.Aggregate() if node.operator in _KEEPS_RANGE:
            return summed_share(node.expression)
        case tree.Call() if node.function in _AS_THEY_ARE:
            return summed_share(node.arguments[0])
        case tree.Binary(operator="*" | "/", right=tree.Number(value=factor)) if factor > 0:
            share = summed_share(node.left)
            times = factor if node.operator == "*" else 1 / factor
            return None if share is None else share * times
        case tree.Binary(operator="*", left=tree.Number(value=factor)) if factor > 0:
            share = summed_share(node.right)
            return None if share is None else share * factor
        case _:
            return None


_TIMES = ("_seconds", "_milliseconds", "_microseconds", "_nanoseconds", "_ms", "_us")


def does_not_grow(node: Node) -> str | None:
    """Return what of an expression stays the same however many pods share the load; None where it may grow.

    The highest or lowest of several may be one queue that several exporters show: only those of times count.
    """
    match node:
        case tree.Aggregate(operator="avg" | "quantile"):
            return f"{node.operator}()"
        case tree.Aggregate(operator="max" | "min"):
            times = [each for each in reads(node) if (each.series or "").endswith(_TIMES)]
            return f"{node.operator}() of {times[0].series}" if times else None
        case tree.Call(function="histogram_quantile"):
            return "histogram_quantile()"
        case tree.Call() if node.function in _AS_THEY_ARE | {"clamp_max", "clamp_min"}:
            return does_not_grow(node.arguments[0])
        case tree.Binary(operator="*" | "/", right=tree.Number()):
            return does_not_grow(node.left)
        case tree.Binary(operator="*", left=tree.Number()):
            return does_not_grow(node.right)
        case tree.Binary(
            operator="/", left=tree.Aggregate() as total, right=tree.Aggregate() as count
        ):
            is_mean = total.operator == "sum" and _counts(count, total)
            return f"sum() / {count.operator}()" if is_mean else None
        case _:
            return None


_PODS = re.compile(
    r"up|kube_pod_\w+|kube_(deployment|statefulset|replicaset|horizontalpodautoscaler)_\w*replicas\w*"
)
"""Series of kube-state-metrics and Prometheus of which there is one for each pod, or that count pods."""


def _counts(count: tree.Aggregate, total: tree.Aggregate) -> bool:
    """Return whether an aggregation counts the pods or events of which another is the total."""
    totals = {each.series for each in reads(total)}
    for each in (each.series or "" for each in reads(count)):
        if count.operator == "count" and (
            each in totals or _PODS.fullmatch(each) or is_of_pods(each)
        ):
            return True
        if count.operator in {"sum", "max"} and "_replicas" in each and _PODS.fullmatch(each):
            return True
        if count.operator == "sum" and f"{each.removesuffix('_count')}_sum" in totals:
            return True
    return False


def is_same_for_all(node: Node) -> bool:
    """Return whether all rows of an expression have one value, such as a number of the whole."""
    match node:
        case tree.Aggregate() if not is_one_row(node):
            if node.operator == "group":
                return True
            return node.operator in _KEEPS_RANGE and is_same_for_all(node.expression)
        case tree.Call() if node.function in _AS_THEY_ARE | {"clamp_max", "clamp_min"}:
            return is_same_for_all(node.arguments[0])
        case tree.Call(function="vector" | "scalar" | "time"):
            return True
        case tree.Negate():
            return is_same_for_all(node.expression)
        case tree.Binary(operator="and" | "unless"):
            return is_same_for_all(node.left)
        case tree.Binary(operator="or"):
            return False
        case tree.Binary():
            both = is_same_for_all(node.left) and is_same_for_all(node.right)
            filters = node.operator in _COMPARISONS and not node.return_bool
            zero = tree.Number(0.0)
            is_zero = node.operator == "*" and zero in (node.left, node.right)
            cancels = node.operator in {"-", "/"} and node.left == node.right
            return is_same_for_all(node.left) if filters else both or is_zero or cancels
        case _:
            return is_one_row(node)


def as_measured(node: Node) -> tuple[str, str] | None:
    """Return series and aggregation of a value that is one of its series', or the sum or mean of several.

    The aggregation is empty where there is none. None for a value that is computed.
    """
    match node:
        case tree.Select():
            name = _fixed_name(node)
            return None if name is None else (name, "")
        case tree.SelectRange():
            return as_measured(node.selector)
        case tree.Call() if node.function in _OVER_TIME:
            return as_measured(node.arguments[-1])
        case tree.Call() if node.function in _AS_THEY_ARE:
            return as_measured(node.arguments[0])
        case tree.Aggregate() if node.operator in {*_KEEPS_RANGE, "sum"}:
            inside = as_measured(node.expression)
            return None if inside is None else (inside[0], node.operator)
        case tree.Binary(operator="or"):
            return as_measured(node.left) or as_measured(node.right)
        case _:
            return None


def may_be_empty(node: Node) -> bool:
    """Return whether an expression may answer nothing, as it does where its series are not there."""
    match node:
        case tree.Number() | tree.Call(function="vector" | "time" | "scalar"):
            return False
        case tree.Binary(operator="or"):
            return may_be_empty(node.left) and may_be_empty(node.right)
        case tree.Binary() if (
            node.operator not in _COMPARISONS | _SET_OPERATORS or node.return_bool
        ):
            return may_be_empty(node.left) or may_be_empty(node.right)
        case tree.Aggregate() | tree.Negate():
            return may_be_empty(node.expression)
        case tree.Call() if node.function in _AS_THEY_ARE | {"clamp_max", "clamp_min"}:
            return may_be_empty(node.arguments[0])
        case _:
            return True


def is_one_row(node: Node) -> bool:
    """Return whether the expression returns at most one row, whatever the data."""
    match node:
        case tree.Number():
            return True
        case tree.Aggregate():
            grouped = node.operator not in {*_WHOLE_ROWS, "count_values"}
            return grouped and node.by and not node.labels
        case tree.Call():
            if node.function in {"vector", "scalar", "time", "absent", "absent_over_time"}:
                return True
            if node.function == "histogram_quantile":
                buckets = node.arguments[1]
                if not isinstance(buckets, tree.Aggregate) or buckets.operator in _WHOLE_ROWS:
                    return False
                return buckets.by and set(buckets.labels) <= {"le"}
            return node.function in _AS_THEY_ARE and is_one_row(node.arguments[0])
        case tree.Binary():
            both = is_one_row(node.left) and is_one_row(node.right)
            return both and node.operator != "or"
        case tree.Negate():
            return is_one_row(node.expression)
        case _:
            return False


def carries(node: Node, label: str) -> bool:
    """Return whether an expression's rows can have a label."""
    match node:
        case tree.Select():
            return not _is_kept_out(node.matchers, label)
        case tree.SelectRange():
            return carries(node.selector, label)
        case tree.Subquery() | tree.Negate():
            return carries(node.expression, label)
        case tree.Aggregate():
            return _aggregate_carries(node, label)
        case tree.Call():
            return _call_carries(node, label)
        case tree.Binary():
            return _binary_carries(node, label)
        case _:
            return False


def _is_kept_out(matchers: Iterable[Matcher], label: str) -> bool:
    return any(
        matcher.name == label and matcher.op is MatchOp.EQUAL and not matcher.value
        for matcher in matchers
    )


def _aggregate_carries(node: tree.Aggregate, label: str) -> bool:
    if node.operator == "count_values" and node.parameter == tree.Text(label):
        return True
    inside = carries(node.expression, label)
    if node.operator in _WHOLE_ROWS:
        return inside
    return inside and (label in node.labels) == node.by


def _call_carries(node: tree.Call, label: str) -> bool:
    if node.function in {"label_replace", "label_join"} and node.arguments[1] == tree.Text(label):
        return True
    if node.function in {"vector", "scalar", "time", "pi"}:
        return False
    if node.function == "histogram_quantile" and label == "le":
        return False
    vectors = [each for each in node.arguments if not isinstance(each, tree.Number | tree.Text)]
    return not vectors or any(carries(each, label) for each in vectors)


def _binary_carries(node: tree.Binary, label: str) -> bool:
    scalar = tree.ValueType.SCALAR
    if tree.value_type(node.left) is scalar:
        return carries(node.right, label)
    if tree.value_type(node.right) is scalar or node.operator in {"and", "unless"}:
        return carries(node.left, label)
    if node.operator == "or":
        return carries(node.left, label) or carries(node.right, label)
    matching = node.matching
    if matching.cardinality is not tree.Cardinality.ONE_TO_ONE:
        grouped = matching.cardinality is tree.Cardinality.MANY_TO_ONE
        return label in matching.include or carries(node.left if grouped else node.right, label)
    return carries(node.left, label) and (label in matching.labels) == matching.on


def reads(node: Node, function: str | None = None) -> Iterator[Read]:
    """Return all selectors of an expression with the range function around each, from left to right."""
    if isinstance(node, tree.Select):
        yield Read(_fixed_name(node), function, None)
    elif isinstance(node, tree.SelectRange):
        yield Read(_fixed_name(node.selector), function, node.range_ms)
    else:
        inner = node.function if isinstance(node, tree.Call) else None
        for child in _children(node):
            takes = isinstance(child, tree.SelectRange | tree.Subquery)
            yield from reads(child, inner if takes else function)


def labels_read(node: Node) -> Iterator[tuple[str, str, Matcher | None]]:
    """Yield the labels that series of known names are chosen or grouped by.

    Each comes with the name of the series, and with the matcher that chooses by it.
    """
    if isinstance(node, tree.Select):
        name = _fixed_name(node)
        yield from ((name, each.name, each) for each in node.matchers if name is not None)
    if isinstance(node, tree.Aggregate) and node.by:
        names = [each.series for each in reads(node.expression) if each.series is not None]
        yield from ((name, label, None) for name in names for label in node.labels)
    for child in _children(node):
        yield from labels_read(child)


def comparisons(node: Node) -> Iterator[tree.Binary]:
    """Yield all comparisons of an expression."""
    if isinstance(node, tree.Binary) and node.operator in _COMPARISONS:
        yield node
    for child in _children(node):
        yield from comparisons(child)


def divides_vectors(node: Node) -> bool:
    """Return whether the expression divides a vector by a vector, as a ratio of counters does."""
    if isinstance(node, tree.Binary) and node.operator == "/":
        vector = tree.ValueType.VECTOR
        if tree.value_type(node.left) is vector and tree.value_type(node.right) is vector:
            return True
    return any(divides_vectors(child) for child in _children(node))


def calls(node: Node, function: str) -> bool:
    """Return whether the expression calls a function."""
    if isinstance(node, tree.Call) and node.function == function:
        return True
    return any(calls(child, function) for child in _children(node))


def _children(node: Node) -> Iterator[Node]:
    for field in fields(node):
        value = getattr(node, field.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, tree.Node):
                yield child


def _fixed_name(node: tree.Select) -> str | None:
    return next(iter(metric_names(Query("", node)) or ()), None)


def contradiction(matchers: Sequence[Matcher]) -> tuple[Matcher, Matcher] | None:
    """Return two matchers that no label value satisfies together; None if there are none."""
    for index, fixed in enumerate(matchers):
        if fixed.op is not MatchOp.EQUAL:
            continue
        for position, other in enumerate(matchers):
            is_other = position != index and other.name == fixed.name
            if is_other and not other.predicate()(fixed.value):
                return (fixed, other) if index < position else (other, fixed)
    return None
