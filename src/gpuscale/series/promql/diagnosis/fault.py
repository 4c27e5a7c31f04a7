"""The first fault of a PromQL text, with its place: line and column, in bytes, as Prometheus counts.

Source: prometheus promql/parser/parse.go (checkAST, ParseErr), functions.go, release 3.16.
"""

from gpuscale.base.regex import compile_re2
from gpuscale.series.promql.diagnosis.syntax import Parser, SyntaxNode
from gpuscale.series.promql.diagnosis.tokens import FaultError, UndecidedError, quoted

_SCALAR, _VECTOR, _MATRIX, _STRING = "scalar", "instant vector", "range vector", "string"
_TYPES = {"s": _SCALAR, "v": _VECTOR, "m": _MATRIX, "t": _STRING}
_RAW_TYPES = {_SCALAR: "scalar", _VECTOR: "vector", _MATRIX: "matrix", _STRING: "string"}

_SIGNATURES = {
    "": "end pi range start step time",
    "m": "absent_over_time avg_over_time changes count_over_time delta deriv first_over_time idelta increase "
    "irate last_over_time mad_over_time max_over_time min_over_time present_over_time rate resets "
    "stddev_over_time stdvar_over_time sum_over_time ts_of_first_over_time ts_of_last_over_time "
    "ts_of_max_over_time ts_of_min_over_time",
    "ms": "predict_linear",
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
_FUNCTIONS = {
    name: (
        [_TYPES[each] for each in signature[:-2] if signature[-2:-1] in ("+", "-")]
        or [_TYPES[each] for each in signature],
        int(signature[-2:]) if signature[-2:-1] in ("+", "-") else 0,
    )
    for signature, names in _SIGNATURES.items()
    for name in names.split()
}
_SCALAR_FUNCTIONS = frozenset(
    ["end", "pi", "range", "start", "step", "time", "max_of", "min_of", "scalar"]
)
_COMPARISONS = frozenset(["==", "!=", "<", "<=", ">", ">="])
_SETS = frozenset(["and", "or", "unless"])
_SCALAR_PARAMETER = frozenset(["topk", "bottomk", "quantile", "limitk", "limit_ratio"])


def first_fault(text: str) -> tuple[str, str | None] | None:
    """Return the place of the first fault, and what it is, where that is known.

    Args:
        text: a query that the parser refuses.

    Returns:
        `line:column`, and Prometheus' words for the fault, or None for the latter where only the place is
        known; None where nothing is known.
    """
    parser = Parser(text, _FUNCTIONS)
    try:
        try:
            tree = parser.parse()
        except FaultError as last:
            faults = [*parser.faults, last]
        else:
            faults = parser.faults or _Checker().faults_of(tree)
    except (UndecidedError, RecursionError):
        return None
    if not faults or not text:
        return None
    fault = faults[0]
    before = text[: fault.position]
    column = len(before[before.rfind("\n") + 1 :].encode(errors="replace")) + 1
    return f"{before.count(chr(10)) + 1}:{column}", fault.text


class _Checker:
    """Checks types, in the order in which Prometheus does."""

    def __init__(self) -> None:
        self._faults: list[FaultError] = []

    def faults_of(self, node: SyntaxNode) -> list[FaultError]:
        self._type(node)
        return self._faults

    def _note(self, position: int, text: str | None) -> None:
        self._faults.append(FaultError(position, text))

    def _expect(self, node: SyntaxNode, wanted: str, context: str) -> None:
        found = self._type(node)
        if found != wanted:
            self._note(node.start, f"expected type {wanted} in {context}, got {found}")

    def _type(self, node: SyntaxNode) -> str:
        match node.kind:
            case "number":
                return _SCALAR
            case "string":
                return _STRING
            case "vector":
                self._selector(node)
                return _VECTOR
            case "matrix":
                self._type(node.children[0])
                return _MATRIX
            case "subquery":
                found = self._type(node.children[0])
                if found != _VECTOR:
                    raw = _RAW_TYPES[found]
                    text = f"subquery is only allowed on instant vector, got {raw} instead"
                    self._note(node.start, text)
                return _MATRIX
            case "paren":
                return self._type(node.children[0])
            case "unary":
                return self._unary(node)
            case "aggregate":
                return self._aggregate(node)
            case "call":
                return self._call(node)
            case _:
                return self._binary(node)

    def _unary(self, node: SyntaxNode) -> str:
        found = self._type(node.children[0])
        if found not in (_SCALAR, _VECTOR):
            text = "unary expression only allowed on expressions of type scalar or instant vector"
            self._note(node.start, f'{text}, got "{found}"')
        return found

    def _aggregate(self, node: SyntaxNode) -> str:
        *parameter, inner = node.children
        self._expect(inner, _VECTOR, "aggregation expression")
        if node.name in _SCALAR_PARAMETER:
            self._expect(parameter[0], _SCALAR, "aggregation parameter")
        elif node.name == "count_values":
            self._expect(parameter[0], _STRING, "aggregation parameter")
        return _VECTOR

    def _call(self, node: SyntaxNode) -> str:
        types, variadic = _FUNCTIONS[node.name]
        count, given = len(types), len(node.children)
        call = f"in call to {quoted(node.name)}, got {given}"
        least = count if not variadic else count - 1
        if not variadic and count != given:
            self._note(node.start, f"expected {count} argument(s) {call}")
        elif least > given:
            self._note(node.start, f"expected at least {least} argument(s) {call}")
        elif variadic > 0 and least + variadic < given:
            self._note(node.start, f"expected at most {least + variadic} argument(s) {call}")
        if node.name == "info" and given > 1:
            raise UndecidedError
        for position, argument in enumerate(node.children):
            if position >= count and not variadic:
                break
            wanted = types[min(position, count - 1)]
            self._expect(argument, wanted, f"call to function {quoted(node.name)}")
        return _SCALAR if node.name in _SCALAR_FUNCTIONS else _VECTOR

    def _binary(self, node: SyntaxNode) -> str:
        left, right = node.children
        types = self._type(left), self._type(right)
        operator, start = node.name, node.operator_start
        if node.has_bool and operator not in _COMPARISONS:
            self._note(start, "bool modifier can only be used on comparison operators")
        if operator in _COMPARISONS and not node.has_bool and types == (_SCALAR, _SCALAR):
            self._note(start, "comparisons between scalars must use BOOL modifier")
        included = set(node.include)
        for label in node.labels:
            if node.on and label in included:
                text = f"label {quoted(label)} must not occur in ON and GROUP clause at once"
                self._note(start, text)
        for side, found in zip(node.children, types, strict=True):
            if found not in (_SCALAR, _VECTOR):
                text = "binary expression must contain only scalar and instant vector types"
                self._note(side.start, text)
        if types != (_VECTOR, _VECTOR):
            if node.labels:
                self._note(node.start, "vector matching only allowed between instant vectors")
        elif operator in _SETS and node.grouping:
            self._note(node.start, f"no grouping allowed for {quoted(operator)} operation")
        if _SCALAR in types and operator in _SETS:
            text = f"set operator {quoted(operator)} not allowed in binary scalar expression"
            self._note(node.start, text)
        return _SCALAR if types == (_SCALAR, _SCALAR) else _VECTOR

    def _selector(self, node: SyntaxNode) -> None:
        for name, _, value in node.matchers:
            if name == "__name__" and node.name:
                text = f"metric name must not be set twice: {quoted(node.name)} or {_value(value)}"
                self._note(node.start, text)
        if not node.name and all(_takes_nothing(*each[1:]) for each in node.matchers):
            text = "vector selector must contain at least one non-empty matcher"
            self._note(node.start, text)


def _value(written: str) -> str:
    if "\\" in written:
        raise UndecidedError
    return quoted(written[1:-1])


def _takes_nothing(operator: str, written: str) -> bool:
    """Return whether a matcher takes a label that is not there."""
    if "\\" in written and written[0] != "`":
        raise UndecidedError
    value = written[1:-1]
    if operator in ("=", "!="):
        return (value == "") == (operator == "=")
    try:
        matches = compile_re2(value).fullmatch("") is not None
    except ValueError:
        raise UndecidedError from None
    return matches == (operator == "=~")
