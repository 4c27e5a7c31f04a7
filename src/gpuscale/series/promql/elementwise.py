"""Arithmetic on single numbers with Go's results in the edge cases.

Where Python raises, IEEE 754 and Go's math package answer NaN or an infinity, and so do these.
"""

import math
from collections.abc import Callable

NAN = math.nan


def _quietly(function: Callable[[float], float]) -> Callable[[float], float]:
    def answer(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return NAN
        except OverflowError:
            return math.copysign(math.inf, value)

    return answer


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    def answer(value: float) -> float:
        if value > 0:
            return function(value)
        return -math.inf if value == 0 else NAN

    return answer


def ceil(value: float) -> float:
    """Return the smallest integer that is not less."""
    return float(math.ceil(value)) if math.isfinite(value) else value


def floor(value: float) -> float:
    """Return the largest integer that is not greater."""
    return float(math.floor(value)) if math.isfinite(value) else value


def sign(value: float) -> float:
    """Return -1, 0 or 1; NaN stays NaN."""
    if value > 0:
        return 1.0
    return -1.0 if value < 0 else value


def round_to(value: float, nearest: float) -> float:
    """Return the closest multiple of `nearest`; ties go up."""
    inverse = divide(1.0, nearest)
    return divide(floor(value * inverse + 0.5), inverse)


def clamp(value: float, low: float, high: float) -> float:
    """Return the value kept between two bounds."""
    return greater(low, lesser(high, value))


def greater(left: float, right: float) -> float:
    """Return the larger number; plus infinity beats NaN, and NaN all others."""
    if math.inf in {left, right}:
        return math.inf
    return NAN if math.isnan(left) or math.isnan(right) else max(left, right)


def lesser(left: float, right: float) -> float:
    """Return the smaller number; minus infinity beats NaN, and NaN all others."""
    return -greater(-left, -right)


def _atanh(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == 1 else math.atanh(value)


_positive_cosh = _quietly(math.cosh)

ELEMENTWISE: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "ceil": ceil,
    "floor": floor,
    "exp": _quietly(math.exp),
    "ln": _logarithm(math.log),
    "log2": _logarithm(math.log2),
    "log10": _logarithm(math.log10),
    "sqrt": _quietly(math.sqrt),
    "sgn": sign,
    "sin": _quietly(math.sin),
    "cos": _quietly(math.cos),
    "tan": _quietly(math.tan),
    "asin": _quietly(math.asin),
    "acos": _quietly(math.acos),
    "atan": math.atan,
    "sinh": _quietly(math.sinh),
    "cosh": lambda value: _positive_cosh(abs(value)),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _quietly(math.acosh),
    "atanh": _quietly(_atanh),
    "deg": lambda value: value * 180 / math.pi,
    "rad": lambda value: value * math.pi / 180,
}


def divide(left: float, right: float) -> float:
    """Return the quotient; a division by zero gives an infinity or NaN."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return NAN
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: float, right: float) -> float:
    """Return the remainder with the sign of `left`."""
    try:
        return math.fmod(left, right)
    except ValueError:
        return NAN


def power(left: float, right: float) -> float:
    """Return `left` to the power of `right`."""
    odd = math.isfinite(right) and abs(math.fmod(right, 2)) == 1
    negative = odd and math.copysign(1.0, left) < 0
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if negative else math.inf
    except ValueError:
        if left == 0:
            return -math.inf if negative else math.inf
        return NAN


ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": divide,
    "%": modulo,
    "^": power,
    "atan2": math.atan2,
}

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
}
