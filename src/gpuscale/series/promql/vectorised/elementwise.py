"""Functions and operators of single numbers, applied to whole arrays.

What the processor computes exactly as Python does is left to numpy. The rest, such as logarithms, whose last
digit depends on the library, is called number by number.
"""

import math
from collections.abc import Callable

import numpy as np

from gpuscale.series.promql.elementwise import ARITHMETIC, ELEMENTWISE
from gpuscale.series.promql.functions.functions import MAX_SECONDS, MIN_SECONDS
from gpuscale.series.promql.vectorised.blocks import Flags, Floats
from gpuscale.series.promql.vectorised.windows import Check


def each(function: Callable[..., float], check: Check, *arguments: Floats) -> Floats:
    """Return a function's result for each element of one or two K x C arrays."""
    rows = np.broadcast_arrays(*arguments)
    found = np.empty(rows[0].shape)
    for step in range(len(found)):
        found[step] = list(map(function, *(array[step].tolist() for array in rows)))
        check()
    return found


def function_of(name: str, values: Floats, check: Check) -> Floats:
    """Return a PromQL function of one number, applied to each value."""
    if name in _EXACT:
        return _EXACT[name](values)
    if name not in _DOMAINS:
        return each(ELEMENTWISE[name], check, values)
    # Outside its domain, a Python function raises, which is slow.
    low, high = _DOMAINS[name]
    inside = (values >= low) & (values <= high)
    found = np.full(values.shape, math.nan)
    found[inside] = each(ELEMENTWISE[name], check, values[inside][None, :])[0]
    return found


def arithmetic(operator: str, left: Floats, right: Floats, check: Check) -> Floats:
    """Return an arithmetic operator's result for each pair."""
    if operator in _EXACT_OPERATORS:
        found: Floats = _EXACT_OPERATORS[operator](left, right)
        return found
    return each(ARITHMETIC[operator], check, left, right)


def compared(operator: str, left: Floats, right: Floats) -> Flags:
    """Return where a comparison is true."""
    holds: Flags = _COMPARISONS[operator](left, right)
    return holds


def rounded_to(values: Floats, nearest: Floats) -> Floats:
    """Return the nearest multiples; ties go up."""
    inverse = 1.0 / nearest
    multiple: Floats = _floor(values * inverse + 0.5) / inverse
    return multiple


def date_parts(function: str, seconds: Floats) -> Floats:
    """Return a part of each date; NaN outside the years 1 to 9999."""
    inside = (seconds >= MIN_SECONDS) & (seconds <= MAX_SECONDS)
    whole = np.where(inside, seconds, 0.0).astype(np.int64)
    days = whole // 86_400
    dates = days.astype("datetime64[D]")
    months, years = dates.astype("datetime64[M]"), dates.astype("datetime64[Y]")
    match function:
        case "minute":
            part = whole // 60 % 60
        case "hour":
            part = whole // 3_600 % 24
        case "day_of_week":
            # The first day of 1970 was a Thursday.
            part = (days + 4) % 7
        case "day_of_month":
            part = 1 + (dates - months).astype(np.int64)
        case "day_of_year":
            part = 1 + (dates - years).astype(np.int64)
        case "days_in_month":
            part = ((months + 1).astype("datetime64[D]") - months).astype(np.int64)
        case "month":
            part = 1 + months.astype(np.int64) % 12
        case _:
            part = 1970 + years.astype(np.int64)
    return np.where(inside, part, math.nan)


def clamped(values: Floats, low: Floats, high: Floats) -> Floats:
    """Return the values limited to two bounds."""
    return _greater(low, -_greater(-high, -values))


def _greater(left: Floats, right: Floats) -> Floats:
    """Return the larger numbers; plus infinity beats NaN, and NaN all others."""
    larger = np.where(right > left, right, left)
    larger = np.where(np.isnan(left) | np.isnan(right), math.nan, larger)
    return np.where((left == math.inf) | (right == math.inf), math.inf, larger)


def _sign(values: Floats) -> Floats:
    return np.where(values > 0, 1.0, np.where(values < 0, -1.0, values))


def _ceil(values: Floats) -> Floats:
    # Zero has no sign here, as for Python's integers.
    rounded: Floats = np.ceil(values) + 0.0
    return rounded


def _floor(values: Floats) -> Floats:
    rounded: Floats = np.floor(values) + 0.0
    return rounded


_EXACT: dict[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "ceil": _ceil,
    "floor": _floor,
    "sqrt": np.sqrt,
    "sgn": _sign,
    "deg": lambda values: values * 180 / math.pi,
    "rad": lambda values: values * math.pi / 180,
}
_DOMAINS = {"asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, math.inf)}
_EXACT_OPERATORS: dict[str, np.ufunc] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}
_COMPARISONS: dict[str, np.ufunc] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
