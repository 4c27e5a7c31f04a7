"""The values of templates, and how Go compares and prints them."""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpuscale.base.errors import QueryError


class TemplateError(QueryError):
    """A template is invalid, uses an unsupported feature, or fails on its data."""


_EXPONENT_FROM = 6
"""Of ten, in a number's shortest text."""
NO_VALUE = None
"""Go's invalid value: the field of a map that has no such key."""
Value = str | int | float | bool | Sequence[Any] | Mapping[str, Any] | None
"""A string, number, boolean, list or map of values, or no value."""


def kind(value: Value) -> str:
    """Return Go's name for a value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    if value is None:
        return "nil"
    return "map[string]string" if isinstance(value, Mapping) else "[]string"


def is_true(value: Value) -> bool:
    """Return whether Go considers a value true: not zero, empty or missing."""
    return bool(value)


def printed(value: Value) -> str:
    """Return the text that an action prints for a value."""
    return "<no value>" if value is None else plain(value)


def plain(value: Value) -> str:
    """Return Go's `%v` of a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{plain(value[key])}' for key in sorted(value))}]"
    if isinstance(value, Sequence):
        return f"[{' '.join(plain(each) for each in value)}]"
    return str(value)


def _float(value: float) -> str:
    """Go's %v: the shortest text that reads back, with an exponent below 1e-4 and from 1e6."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    if -4 <= int(exponent) < _EXPONENT_FROM:
        return f"{Decimal(repr(value)).normalize():f}"
    return f"{digits}e{exponent[0]}{exponent[1:]:0>2}"


def field(value: Value, name: str, *, root: bool = False) -> Value:
    """Return `.name` of a value.

    Raises:
        TemplateError: the value has no fields.
    """
    if isinstance(value, Mapping):
        if root and name not in value:
            raise TemplateError(f"can't evaluate field {name}")
        found: Value = value.get(name)
        return found
    raise TemplateError(f"can't evaluate field {name} in type {kind(value)}")


def element(value: Value, key: Value) -> Value:
    """Return the result of Go's `index`: "" for a missing key in a map of strings.

    Raises:
        TemplateError: the value can't be indexed so.
    """
    if isinstance(value, Mapping):
        if not isinstance(key, str):
            raise TemplateError(f"index: value has type {kind(key)}; should be string")
        found: Value = value.get(key, "")
        return found
    if isinstance(value, str):
        return _byte(value, _position(key, len(value.encode())))
    if isinstance(value, Sequence):
        item: Value = value[_position(key, len(value))]
        return item
    raise TemplateError(f"index: can't index item of type {kind(value)}")


def _byte(text: str, position: int) -> int:
    return text.encode()[position]


def _position(key: Value, length: int) -> int:
    if isinstance(key, bool) or not isinstance(key, int):
        raise TemplateError(f"index: cannot index slice/array with type {kind(key)}")
    if not 0 <= key < length:
        raise TemplateError(f"index: index out of range: {key}")
    return key


def equal(left: Value, right: Value) -> bool:
    """Return whether two values are the same.

    Raises:
        TemplateError: their types can't be compared.
    """
    for value in (left, right):
        if not isinstance(value, (str, int, float)) and value is not None:
            raise TemplateError(f"eq: non-comparable type {kind(value)}")
    if left is None or right is None:
        return left is right
    if kind(left) != kind(right):
        raise TemplateError("eq: incompatible types for comparison")
    return left == right


def less(left: Value, right: Value) -> bool:
    """Return whether the first of two values is the smaller.

    Raises:
        TemplateError: their types have no order, or differ.
    """
    if kind(left) != kind(right):
        raise TemplateError("lt: incompatible types for comparison")
    if isinstance(left, bool) or not isinstance(left, (str, int, float)):
        raise TemplateError("lt: invalid type for comparison")
    return left < right  # type: ignore[operator]
