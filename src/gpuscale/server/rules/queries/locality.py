"""Whether a query's result for one object depends on that object's series only.

Where it does, one query for all objects answers for each of them, and the objects of a long list may be
asked for in parts. A query is looked at beside its widened form, node by node: what differs may only be the
matchers that choose the objects, and the namespace's label among the labels that are grouped or matched by.

What is not known to be safe is not safe. The argument for each case:

- A selector with the objects' matchers gives, for one object, that object's series only; the widened one
  gives the same and those of others.
- A function of one series at a time keeps that. So does one that groups, if the objects' labels are among
  the labels it groups by: no group then holds two objects.
- Two such sides may be matched with each other if the objects' labels take part in the match, and with a
  side that has nothing to do with the request if each of their rows is matched on its own.
- `absent`, `scalar`, a `sum` over everything, `topk` without `by` look at all rows at once: not safe.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuscale.series import Matcher
from gpuscale.series.promql import (
    SET_OPERATORS,
    Aggregate,
    Binary,
    Call,
    Cardinality,
    Matching,
    Negate,
    Node,
    Select,
    SelectRange,
    Subquery,
    Text,
    ValueType,
    value_type,
)

_RANGE_FUNCTIONS = frozenset(
    {
        *("rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes"),
        *("resets", "holt_winters", "double_exponential_smoothing", "quantile_over_time"),
        *(
            f"{name}_over_time"
            for name in ("avg", "min", "max", "sum", "count", "stddev", "stdvar", "last", "present")
        ),
    }
)
_SAMPLE_FUNCTIONS = frozenset(
    {
        *("abs", "ceil", "floor", "round", "exp", "ln", "log2", "log10", "sqrt", "sgn"),
        *("clamp", "clamp_min", "clamp_max", "timestamp", "deg", "rad"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh"),
        *("minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month"),
        *("month", "year"),
    }
)
_PER_SERIES = _RANGE_FUNCTIONS | _SAMPLE_FUNCTIONS
_LABEL_FUNCTIONS = frozenset({"label_replace", "label_join"})
_RANKING = frozenset({"topk", "bottomk"})
_REDUCING = frozenset(
    {"sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile", "count_values"}
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The labels that identify objects, and the matchers on them in the exact query."""

    label: str
    """Of the resource; every row of both forms has it."""
    namespace_label: str | None
    """None where objects have no namespace."""
    exact: tuple[Matcher, ...]
    """The matchers of the exact query that choose the objects."""
    wide: tuple[Matcher, ...]
    """Those that stand in their place in the widened one."""

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(name for name in (self.label, self.namespace_label) if name is not None)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A subexpression that does not depend on the requested objects."""


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A subexpression whose rows each belong to one object."""

    namespaced: bool
    """Whether the rows of the exact form still have the namespace's label; those of the wide one do."""


_Kind = _Fixed | _Keyed
_FIXED = _Fixed()


class _Unsafe(Exception):
    """A subexpression that is not known to be local."""


def is_local(exact: Node, wide: Node, keys: Keys) -> bool:
    """Return whether the rows of `wide` for some objects equal the rows of `exact` for them.

    Args:
        exact: the query for some objects.
        wide: the same for the objects of all namespaces.
        keys: the labels that identify objects.
    """
    try:
        return isinstance(_Look(keys).kind(exact, wide), _Keyed)
    except _Unsafe:
        return False


class _Look:
    """A comparison of both queries, walking down their trees together."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._labels = keys.labels
        self._widened = dict(zip(keys.exact, keys.wide, strict=True))

    def kind(self, exact: Node, wide: Node) -> _Kind:
        """Return whether an expression is fixed, keyed by object, or unsafe."""
        if type(exact) is not type(wide):
            raise _Unsafe
        look = _LOOKS.get(type(exact))
        if look is not None:
            found = look(self, exact, wide)
            if found is not None:
                return found
        # Equal expressions without a matcher of the request give equal rows in both queries.
        if exact == wide:
            return _FIXED
        raise _Unsafe

    def select(self, exact: Select, wide: Select) -> _Kind | None:
        chosen = {matcher for matcher in exact.matchers if matcher in self._widened}
        if not chosen:
            return None
        widened = tuple(self._widened.get(each, each) for each in exact.matchers)
        if chosen != set(self._widened) or replace(exact, matchers=widened) != wide:
            raise _Unsafe
        return _Keyed(namespaced=True)

    def select_range(self, exact: SelectRange, wide: SelectRange) -> _Kind | None:
        found = self.kind(exact.selector, wide.selector)
        return found if exact.range_ms == wide.range_ms else None

    def subquery(self, exact: Subquery, wide: Subquery) -> _Kind | None:
        found = self.kind(exact.expression, wide.expression)
        return found if replace(exact, expression=wide.expression) == wide else None

    def negate(self, exact: Negate, wide: Negate) -> _Kind:
        return self.kind(exact.expression, wide.expression)

    def call(self, exact: Call, wide: Call) -> _Kind | None:
        if exact.function != wide.function or len(exact.arguments) != len(wide.arguments):
            raise _Unsafe
        kinds = [self.kind(*pair) for pair in zip(exact.arguments, wide.arguments, strict=True)]
        keyed = [kind for kind in kinds if isinstance(kind, _Keyed)]
        if not keyed:
            return None
        if len(keyed) > 1 or not self._keeps_objects_apart(exact):
            raise _Unsafe
        return keyed[0]

    def _keeps_objects_apart(self, call: Call) -> bool:
        if call.function == "histogram_quantile":
            return "le" not in self._labels
        if call.function in _LABEL_FUNCTIONS:
            texts = [each.value for each in call.arguments if isinstance(each, Text)]
            # Labels that are read or written must not be those that identify objects.
            return self._labels.isdisjoint(texts)
        return call.function in _PER_SERIES

    def aggregate(self, exact: Aggregate, wide: Aggregate) -> _Kind | None:
        inner = self.kind(exact.expression, wide.expression)
        if (exact.operator, exact.by, exact.parameter) != (wide.operator, wide.by, wide.parameter):
            raise _Unsafe
        if isinstance(inner, _Fixed):
            return None
        if exact.operator not in _REDUCING | _RANKING:
            raise _Unsafe
        self._check_parameter(exact.parameter)
        if not exact.by:
            if exact.labels != wide.labels or not self._labels.isdisjoint(exact.labels):
                raise _Unsafe
            return inner
        self._check_grouping(exact.labels, wide.labels)
        if exact.operator in _RANKING:
            return inner
        return _Keyed(namespaced=inner.namespaced and self._names_namespace(exact.labels))

    def _check_parameter(self, parameter: Node | None) -> None:
        is_object = isinstance(parameter, Text) and parameter.value in self._labels
        if is_object or (parameter is not None and self._reads_request(parameter)):
            raise _Unsafe

    def _reads_request(self, node: Node) -> bool:
        return isinstance(self.kind(node, node), _Keyed)

    def _check_grouping(self, exact: Sequence[str], wide: Sequence[str]) -> None:
        """Check that a grouping keeps objects apart, and differs by the namespace label only."""
        added = set(wide) - set(exact)
        if not self._labels <= set(wide) or not added <= {self._keys.namespace_label}:
            raise _Unsafe
        if not set(exact) <= set(wide):
            raise _Unsafe

    def _names_namespace(self, labels: Sequence[str]) -> bool:
        return self._keys.namespace_label in labels

    def binary(self, exact: Binary, wide: Binary) -> _Kind | None:
        if (exact.operator, exact.return_bool) != (wide.operator, wide.return_bool):
            raise _Unsafe
        left = self.kind(exact.left, wide.left)
        right = self.kind(exact.right, wide.right)
        if isinstance(left, _Keyed) and isinstance(right, _Keyed):
            return self._both(exact, wide, left, right)
        if isinstance(left, _Keyed):
            return self._one(exact, wide, left, exact.right, Cardinality.MANY_TO_ONE)
        if isinstance(right, _Keyed):
            return self._one(exact, wide, right, exact.left, Cardinality.ONE_TO_MANY)
        return None

    def _both(self, exact: Binary, wide: Binary, left: _Keyed, right: _Keyed) -> _Kind:
        one, other = exact.matching, wide.matching
        self._check_same_shape(one, other)
        if one.on:
            self._check_grouping(one.labels, other.labels)
        elif one.labels != other.labels or not self._labels.isdisjoint(one.labels):
            raise _Unsafe
        compares_namespace = self._names_namespace(one.labels) if one.on else True
        is_alike = left.namespaced == right.namespaced
        if not is_alike and (compares_namespace or exact.operator == "or"):
            raise _Unsafe
        if one.cardinality is Cardinality.ONE_TO_MANY:
            return right
        if one.cardinality is Cardinality.ONE_TO_ONE and one.on:
            return _Keyed(namespaced=left.namespaced and compares_namespace)
        return left

    def _one(
        self, exact: Binary, wide: Binary, keyed: _Keyed, fixed: Node, many: Cardinality
    ) -> _Kind:
        """Check an operation of which only one operand depends on the request."""
        if value_type(fixed) is ValueType.SCALAR:
            if exact.matching != wide.matching:
                raise _Unsafe
            return keyed
        self._check_same_shape(exact.matching, wide.matching)
        if not self._is_row_by_row(exact, many) or exact.matching.labels != wide.matching.labels:
            raise _Unsafe
        names = self._names_namespace(exact.matching.labels)
        if (names or not exact.matching.on) and not keyed.namespaced:
            raise _Unsafe
        return keyed

    @staticmethod
    def _is_row_by_row(node: Binary, many: Cardinality) -> bool:
        if node.operator in SET_OPERATORS:
            return many is Cardinality.MANY_TO_ONE and node.operator != "or"
        return node.matching.cardinality is many

    def _check_same_shape(self, exact: Matching, wide: Matching) -> None:
        """Check that vector matchings differ in labels only, and overwrite no object label."""
        if replace(exact, labels=wide.labels) != wide:
            raise _Unsafe
        if exact.fill_left is not None or exact.fill_right is not None:
            raise _Unsafe
        if not self._labels.isdisjoint(exact.include):
            raise _Unsafe


_LOOKS: dict[type, Callable[..., "_Kind | None"]] = {
    Select: _Look.select,
    SelectRange: _Look.select_range,
    Subquery: _Look.subquery,
    Negate: _Look.negate,
    Call: _Look.call,
    Aggregate: _Look.aggregate,
    Binary: _Look.binary,
}
