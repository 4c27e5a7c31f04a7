"""Binary operators: arithmetic, comparison, set operators, vector matching.

Source: prometheus promql/engine.go (VectorBinop, VectorscalarBinop, VectorAnd, VectorOr, VectorUnless);
the error texts are Prometheus'.
"""

from collections.abc import Callable

from gpuscale.base.errors import QueryError
from gpuscale.series.labels import LabelKey, LabelSet
from gpuscale.series.promql.elementwise import ARITHMETIC, COMPARISONS
from gpuscale.series.promql.functions.aggregate import grouping
from gpuscale.series.promql.rows import Evaluator, Reading, Row, Rows, unique
from gpuscale.series.promql.tree import Binary, Cardinality, Matching, ValueType, value_type


def scalar_binary(evaluator: Evaluator, node: Binary) -> Reading:
    """Return the result of an operator on two scalars."""
    left, right = evaluator.number(node.left), evaluator.number(node.right)
    times = [each.measured_ms for each in (left, right) if each.measured_ms is not None]
    operate = ARITHMETIC.get(node.operator)
    value = (
        operate(left.value, right.value)
        if operate
        else float(COMPARISONS[node.operator](left.value, right.value))
    )
    return Reading(value, min(times, default=None))


def vector_binary(evaluator: Evaluator, node: Binary) -> Rows:
    """Return the result of an operator with at least one vector.

    Raises:
        QueryError: the match is ambiguous.
    """
    if node.operator in _SET_OPERATORS:
        left, right = evaluator.rows(node.left), evaluator.rows(node.right)
        return _SET_OPERATORS[node.operator](left, right, _signature(node.matching))
    if value_type(node.right) is ValueType.SCALAR:
        rows, number = evaluator.rows(node.left), evaluator.number(node.right)
        return _with_scalar(node, rows, number, swapped=False)
    if value_type(node.left) is ValueType.SCALAR:
        rows, number = evaluator.rows(node.right), evaluator.number(node.left)
        return _with_scalar(node, rows, number, swapped=True)
    left, right = evaluator.rows(node.left), evaluator.rows(node.right)
    return _Match(node, _signature(node.matching)).rows(left, right)


def _with_scalar(node: Binary, rows: Rows, number: Reading, *, swapped: bool) -> Rows:
    operate = _operation(node)
    scalar = number.value
    drops_name = node.operator in ARITHMETIC or node.return_bool
    result: Rows = []
    for labels, value, measured_ms in rows:
        answer = operate(scalar, value) if swapped else operate(value, scalar)
        if answer is None:
            continue
        if not drops_name:
            # A filter keeps the vector's value, on either side.
            answer = value
        oldest_ms = (
            measured_ms if number.measured_ms is None else min(measured_ms, number.measured_ms)
        )
        result.append((labels.without_name() if drops_name else labels, answer, oldest_ms))
    return unique(result) if drops_name else result


def _operation(node: Binary) -> Callable[[float, float], float | None]:
    """Return an operator's result for two numbers; None if a filter drops the sample."""
    if node.operator in ARITHMETIC:
        return ARITHMETIC[node.operator]
    compare = COMPARISONS[node.operator]
    if node.return_bool:
        return lambda left, right: 1.0 if compare(left, right) else 0.0
    return lambda left, right: left if compare(left, right) else None


def _signature(matching: Matching) -> Callable[[LabelSet], LabelSet]:
    return grouping(matching.labels, by=matching.on).of


class _Match:
    """The evaluation of an operator between two vectors."""

    def __init__(self, node: Binary, signature: Callable[[LabelSet], LabelSet]) -> None:
        self._matching = node.matching
        self._operate = _operation(node)
        self._drops_name = node.operator in ARITHMETIC or node.return_bool
        self._signature = signature
        self._swapped = node.matching.cardinality is Cardinality.ONE_TO_MANY
        self._one_to_one = node.matching.cardinality is Cardinality.ONE_TO_ONE
        fills = node.matching.fill_left, node.matching.fill_right
        self._fill_many, self._fill_one = reversed(fills) if self._swapped else fills

    def rows(self, left: Rows, right: Rows) -> Rows:
        """Return the joined rows; during the join, "left" is the side that may have several rows."""
        if not (left or right) or not (self._fills() or (left and right)):
            return []
        if self._swapped:
            left, right = right, left
        ones = self._ones(right)
        taken: dict[LabelKey, set[LabelKey]] = {}
        result: Rows = []
        for row in left:
            signature = self._signature(row[0])
            one = ones.get(signature.key) or _filled(signature, self._fill_one, row)
            if one is not None:
                labels = self._labels(row[0], one[0])
                self._take(taken.setdefault(signature.key, set()), labels)
                self._join(result, labels, row, one)
        for key, one in ones.items():
            many = None if key in taken else _filled(self._signature(one[0]), self._fill_many, one)
            if many is not None:
                self._join(result, self._labels(many[0], one[0]), many, one)
        return unique(result)

    def _fills(self) -> bool:
        return self._fill_many is not None or self._fill_one is not None

    def _ones(self, rows: Rows) -> dict[LabelKey, Row]:
        ones: dict[LabelKey, Row] = {}
        for row in rows:
            signature = self._signature(row[0])
            if signature.key in ones:
                raise QueryError(self._duplicate_text(signature, ones[signature.key], row))
            ones[signature.key] = row
        return ones

    def _duplicate_text(self, signature: LabelSet, first: Row, second: Row) -> str:
        side = "left" if self._swapped else "right"
        pair = ", ".join(sorted((str(first[0]), str(second[0]))))
        return (
            f"found duplicate series for the match group {signature} on the {side} hand-side of the "
            f"operation: [{pair}];many-to-many matching not allowed: "
            "matching labels must be unique on one side"
        )

    def _take(self, taken: set[LabelKey], labels: LabelSet) -> None:
        if self._one_to_one and taken:
            raise QueryError(
                "multiple matches for labels: many-to-one matching must be explicit "
                "(group_left/group_right)"
            )
        if labels.key in taken:
            raise QueryError(
                "multiple matches for labels: grouping labels must ensure unique matches"
            )
        taken.add(labels.key)

    def _join(self, result: Rows, labels: LabelSet, many: Row, one: Row) -> None:
        left, right = (one[1], many[1]) if self._swapped else (many[1], one[1])
        answer = self._operate(left, right)
        if answer is not None:
            result.append((labels, answer, min(many[2], one[2])))

    def _labels(self, many: LabelSet, one: LabelSet) -> LabelSet:
        labels = many.without_name() if self._drops_name else many
        if self._one_to_one:
            names = self._matching.labels
            labels = labels.keep(names) if self._matching.on else labels.drop(names)
        if self._matching.include:
            labels = labels.override({name: one.value(name) for name in self._matching.include})
        return labels


def _filled(signature: LabelSet, fill: float | None, match: Row) -> Row | None:
    """Return the fill value for a missing side of a match, with the match's time."""
    return None if fill is None else (signature, fill, match[2])


def _and(left: Rows, right: Rows, signature: Callable[[LabelSet], LabelSet]) -> Rows:
    there = _oldest_by_signature(right, signature)
    joined = ((row, there.get(signature(row[0]).key)) for row in left)
    return [(row[0], row[1], min(row[2], time)) for row, time in joined if time is not None]


def _unless(left: Rows, right: Rows, signature: Callable[[LabelSet], LabelSet]) -> Rows:
    there = _oldest_by_signature(right, signature)
    return [row for row in left if signature(row[0]).key not in there]


def _or(left: Rows, right: Rows, signature: Callable[[LabelSet], LabelSet]) -> Rows:
    there = _oldest_by_signature(left, signature)
    return left + [row for row in right if signature(row[0]).key not in there]


def _oldest_by_signature(
    rows: Rows, signature: Callable[[LabelSet], LabelSet]
) -> dict[LabelKey, int]:
    oldest: dict[LabelKey, int] = {}
    for labels, _, measured_ms in rows:
        key = signature(labels).key
        oldest[key] = min(measured_ms, oldest.get(key, measured_ms))
    return oldest


_SET_OPERATORS = {"and": _and, "unless": _unless, "or": _or}
