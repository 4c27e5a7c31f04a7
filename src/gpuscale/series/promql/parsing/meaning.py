"""The semantics of PromQL's parts: each becomes a checked tree node.

Prometheus looks at types once a text has no other fault, from the inside out. So a part that is made here
keeps the first fault within it, and nothing is raised.

Source: prometheus promql/parser (parse.go, checkAST; functions.go), release 3.16.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.golang.durations import go_quote
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql import tree
from gpuscale.series.promql.parsing.tokens import FaultError, Token
from gpuscale.series.promql.tree import ValueType

_SIGNATURES = {
    "": "end pi range start step time",
    "m": "absent_over_time avg_over_time changes count_over_time delta deriv first_over_time idelta increase "
    "irate last_over_time mad_over_time max_over_time min_over_time present_over_time rate resets "
    "stddev_over_time stdvar_over_time sum_over_time ts_of_first_over_time ts_of_last_over_time "
    "ts_of_max_over_time ts_of_min_over_time",
    "ms": "predict_linear",
    "ms+1": "integral",
    # Prometheus 2 calls it holt_winters.
    "mss": "double_exponential_smoothing holt_winters",
    "s": "vector",
    "sm": "quantile_over_time",
    "ss": "max_of min_of",
    "ssv": "histogram_fraction",
    "sv": "histogram_quantile",
    "v": "abs absent acos acosh asin asinh atan atanh ceil cos cosh deg exp floor histogram_avg "
    "histogram_count histogram_stddev histogram_stdvar histogram_sum ln log10 log2 rad scalar sgn sin sinh "
    "sort sort_desc sqrt start_timestamp tan tanh timestamp",
    "v+1": "day_of_month day_of_week day_of_year days_in_month hour minute month year",
    "vs": "clamp_max clamp_min",
    "vs+1": "round",
    "vss": "clamp",
    "vt-1": "sort_by_label sort_by_label_desc",
    "vtss+9": "histogram_quantiles",
    "vttt-1": "label_join",
    "vtttt": "label_replace",
    "vv+1": "info",
}
"""The types of the arguments, and how many more than all but the last may come; -1 is any number."""
_TYPES = {
    "s": ValueType.SCALAR,
    "v": ValueType.VECTOR,
    "m": ValueType.MATRIX,
    "t": ValueType.STRING,
}
SIGNATURES = {
    name: (
        [_TYPES[each] for each in signature if each in _TYPES],
        int(signature[-2:]) if signature[-2:-1] in ("+", "-") else 0,
    )
    for signature, names in _SIGNATURES.items()
    for name in names.split()
}
_RAW_TYPES = {ValueType.VECTOR: "vector", ValueType.MATRIX: "matrix"}
_COMPARISONS = frozenset(["==", "!=", "<", "<=", ">", ">="])
_SCALAR_PARAMETER = frozenset(["topk", "bottomk", "quantile", "limitk", "limit_ratio"])
_VALUES = frozenset([ValueType.SCALAR, ValueType.VECTOR])


@dataclass(frozen=True, slots=True)
class Written:
    """A tree node with its source text and its first error."""

    node: tree.Node
    start: int
    end: int
    """In characters."""
    type: ValueType
    fault: FaultError | None = None
    """The first fault of types within."""
    parts: tuple["Written", ...] = ()
    """The operands or arguments in the order in which they are written, the one in parentheses, or the one
    behind a sign."""
    form: str = ""
    """What the node doesn't show: `(` of parentheses, `+` or `-` of a sign, `duration` of a number, `name` of
    a selector with a name before its braces."""


def selector(name: Token | None, matchers: list[Matcher], start: int, end: int) -> Written:
    """Return an instant vector selector."""
    fault = None
    if name is not None:
        for matcher in matchers:
            if matcher.name == METRIC_NAME:
                names = f"{go_quote(name.text)} or {go_quote(matcher.value)}"
                fault = FaultError(start, f"metric name must not be set twice: {names}")
                break
        matchers = [*matchers, Matcher(METRIC_NAME, MatchOp.EQUAL, name.text)]
    elif all(each.predicate()("") for each in matchers):
        fault = FaultError(start, "vector selector must contain at least one non-empty matcher")
    node = tree.Select(tuple(matchers), tree.Moment())
    return Written(
        node, start, end, ValueType.VECTOR, fault, form="name" if name is not None else ""
    )


def subquery(inner: Written, range_ms: int, step_ms: int | None, end: int) -> Written:
    """Return a subquery."""
    fault = inner.fault
    if inner.type is not ValueType.VECTOR:
        found = _RAW_TYPES.get(inner.type, inner.type.value)
        text = f"subquery is only allowed on instant vector, got {found} instead"
        fault = fault or FaultError(inner.start, text)
    node = tree.Subquery(inner.node, range_ms, step_ms, tree.Moment())
    return Written(node, inner.start, end, ValueType.MATRIX, fault, (inner,))


def in_parentheses(inner: Written, start: int, end: int) -> Written:
    """Return an expression in parentheses, which leave no node in the tree."""
    return Written(inner.node, start, end, inner.type, inner.fault, (inner,), "(")


def signed(sign: Token, inner: Written) -> Written:
    """Return an expression with a sign."""
    node, fault = inner.node, inner.fault
    is_negative = sign.kind == "-"
    if isinstance(node, tree.Number) and inner.form in ("", "duration"):
        node = tree.Number(-node.value) if is_negative else node
        return Written(node, sign.start, inner.end, inner.type, form=inner.form)
    if inner.type not in _VALUES:
        text = "unary expression only allowed on expressions of type scalar or instant vector"
        fault = fault or FaultError(sign.start, f'{text}, got "{inner.type.value}"')
    node = tree.Negate(node) if is_negative else node
    return Written(node, sign.start, inner.end, inner.type, fault, (inner,), sign.kind)


def aggregate(
    operator: Token, arguments: Sequence[Written], labels: tuple[str, ...], end: int, *, by: bool
) -> Written:
    """Return an aggregation with the right number of arguments."""
    name = operator.kind
    inner = arguments[-1]
    fault = inner.fault or _unless(inner, ValueType.VECTOR, "aggregation expression")
    parameter = None
    if len(arguments) > 1:
        parameter = arguments[0].node
        wanted = ValueType.SCALAR if name in _SCALAR_PARAMETER else ValueType.STRING
        fault = fault or arguments[0].fault
        fault = fault or _unless(arguments[0], wanted, "aggregation parameter")
    node = tree.Aggregate(name, inner.node, parameter, by, labels)
    return Written(node, operator.start, end, ValueType.VECTOR, fault, tuple(arguments))


def call(name: Token, arguments: Sequence[Written], end: int) -> Written:
    """Return a call of a known function."""
    node = tree.Call(name.text, tuple(each.node for each in arguments))
    is_scalar = name.text in tree.SCALAR_FUNCTIONS
    found = ValueType.SCALAR if is_scalar else ValueType.VECTOR
    fault = _fault_of_call(name, arguments)
    return Written(node, name.start, end, found, fault, tuple(arguments))


def _fault_of_call(name: Token, arguments: Sequence[Written]) -> FaultError | None:
    types, more = SIGNATURES[name.text]
    count, given = len(types), len(arguments)
    least = count - 1 if more else count
    called = f"in call to {go_quote(name.text)}, got {given}"
    if not more and count != given:
        return FaultError(name.start, f"expected {count} argument(s) {called}")
    if given < least:
        return FaultError(name.start, f"expected at least {least} argument(s) {called}")
    if 0 < more < given - least:
        return FaultError(name.start, f"expected at most {least + more} argument(s) {called}")
    context = f"call to function {go_quote(name.text)}"
    if name.text == "info" and given > 1:
        second = arguments[1]
        if second.type is not ValueType.VECTOR:
            text = f"expected type instant vector in {context}, got {second.type.value}"
            return FaultError(name.start, text)
        if not isinstance(second.node, tree.Select) or second.form not in ("", "name"):
            return FaultError(second.start, "expected label selectors only")
        if second.form == "name":
            return FaultError(
                second.start, "expected label selectors only, got vector selector instead"
            )
        # These operators may match the empty text.
        arguments = arguments[:1]
    for position, argument in enumerate(arguments):
        wanted = types[min(position, count - 1)]
        fault = argument.fault or _unless(argument, wanted, context)
        if fault is not None:
            return fault
    return None


def _unless(part: Written, wanted: ValueType, context: str) -> FaultError | None:
    if part.type is wanted:
        return None
    text = f"expected type {wanted.value} in {context}, got {part.type.value}"
    return FaultError(part.start, text)


def binary(
    left: Written,
    operator: Token,
    right: Written,
    matching: tree.Matching,
    *,
    return_bool: bool,
    operator_start: int,
) -> Written:
    """Return a binary operation.

    Args:
        left: the first of them.
        operator: the sign or word between them.
        right: the second of them.
        matching: which of their samples belong together.
        return_bool: whether `bool` is written.
        operator_start: where Prometheus sees the operator: at what follows the left side and white space.
    """
    name = operator.kind
    is_scalar = left.type is right.type is ValueType.SCALAR
    fault = left.fault or right.fault
    if fault is None:
        fault = _fault_of_binary(
            left, name, right, matching, operator_start, return_bool=return_bool
        )
    if name in tree.SET_OPERATORS:
        many = tree.Cardinality.MANY_TO_MANY
        matching = tree.Matching(
            many,
            matching.on,
            matching.labels,
            matching.include,
            matching.fill_left,
            matching.fill_right,
        )
    node = tree.Binary(name, left.node, right.node, matching, return_bool)
    found = ValueType.SCALAR if is_scalar else ValueType.VECTOR
    return Written(node, left.start, right.end, found, fault, (left, right))


def _fault_of_binary(
    left: Written,
    name: str,
    right: Written,
    matching: tree.Matching,
    operator_start: int,
    *,
    return_bool: bool,
) -> FaultError | None:
    types = left.type, right.type
    is_set = name in tree.SET_OPERATORS
    is_filled = matching.fill_left is not None or matching.fill_right is not None
    if return_bool and name not in _COMPARISONS:
        return FaultError(operator_start, "bool modifier can only be used on comparison operators")
    if name in _COMPARISONS and not return_bool and types == (ValueType.SCALAR, ValueType.SCALAR):
        return FaultError(operator_start, "comparisons between scalars must use BOOL modifier")
    if matching.on:
        included = set(matching.include)
        for label in matching.labels:
            if label in included:
                text = f"label {go_quote(label)} must not occur in ON and GROUP clause at once"
                return FaultError(operator_start, text)
    for side in (left, right):
        if side.type not in _VALUES:
            text = "binary expression must contain only scalar and instant vector types"
            return FaultError(side.start, text)
    if types != (ValueType.VECTOR, ValueType.VECTOR):
        if matching.labels:
            return FaultError(left.start, "vector matching only allowed between instant vectors")
        if is_filled:
            text = "filling in missing series only allowed between instant vectors"
            return FaultError(left.start, text)
        if is_set:
            text = f"set operator {go_quote(name)} not allowed in binary scalar expression"
            return FaultError(left.start, text)
    elif is_set:
        if matching.cardinality is not tree.Cardinality.ONE_TO_ONE:
            return FaultError(left.start, f"no grouping allowed for {go_quote(name)} operation")
        if is_filled:
            return FaultError(left.start, "filling in missing series not allowed for set operators")
    return None
