"""Kubernetes quantities: exact numbers with a unit suffix, printed the canonical way.

Source: k8s.io/apimachinery/pkg/api/resource (quantity.go, amount.go, suffix.go).
"""

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

_NANO = 1_000_000_000
_MAX_INT64 = (1 << 63) - 1
MAX_TEXT = 128
"""Longer than any amount that means something; bounds what the exact arithmetic is asked to do."""
_SHAPE = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_EXPONENT = re.compile(r"[eE]([+-]?\d+)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAME = {power: name for name, power in _DECIMAL.items()}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_NAME = {power: name for name, power in _BINARY.items()}


class Format(Enum):
    """The suffix family that a quantity was written in and is printed in."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount in billionths, and the suffix family to print it in."""

    nano: int
    format: Format = Format.DECIMAL_SI

    @staticmethod
    def from_milli(milli: int) -> "Quantity":
        """Return a quantity of `milli` thousandths, as status values are made."""
        return Quantity(milli * 1_000_000)

    def milli_value(self) -> int:
        """Return thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nano, 1_000_000)

    def value(self) -> int:
        """Return whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nano, _NANO)

    def __float__(self) -> float:
        return self.nano / _NANO

    def approximate_float64(self) -> float:
        """Return the float that Kubernetes computes with: the printed mantissa times its power of ten.

        It can lie one step beside the nearest float: 0.57 is printed `570m` and read as
        570 * 0.001 = 0.5700000000000001.

        Source: amount.go (int64Amount.AsApproximateFloat64).
        """
        mantissa, power = _decimal_parts(self.nano, exponent=True)
        return float(mantissa) if power == 0 else float(mantissa) * 10.0**power

    def __str__(self) -> str:
        if self.nano == 0:
            return "0"
        whole, fraction = divmod(abs(self.nano), _NANO)
        if self.format is Format.BINARY_SI and not fraction and whole >= 1024:
            return ("-" if self.nano < 0 else "") + _binary_text(whole)
        return _decimal_text(self.nano, exponent=self.format is Format.DECIMAL_EXPONENT)


def milli_text(milli: int) -> str:
    """Return thousandths as a decimal quantity, in the text of `Quantity.from_milli(milli)`, but quicker."""
    whole, rest = divmod(milli, 1000)
    if rest:
        return f"{milli}m"
    return str(whole) if whole % 1000 else _decimal_text(milli * 1_000_000, exponent=False)


def parse_quantity(text: str | float | None) -> Quantity:
    """Return the quantity of a manifest's text or number; None is zero.

    Raises:
        ValueError: not a quantity; the message is the API server's.
    """
    if text is None:
        return Quantity(0)
    if isinstance(text, bool):
        raise ValueError(_regex_message())
    shape = _SHAPE.fullmatch(str(text)[: MAX_TEXT + 1])
    if shape is None or shape[1].count(".") > 1:
        raise ValueError(_regex_message())
    number, suffix = shape.groups()
    if not _NUMBER.fullmatch(number) or shape.end() > MAX_TEXT:
        raise ValueError("unable to parse numeric part of quantity")
    return _scaled(Fraction(number), suffix)


def _regex_message() -> str:
    return (
        "quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


def _scaled(number: Fraction, suffix: str) -> Quantity:
    if suffix in _BINARY:
        nano = _round_away(number * 1024 ** _BINARY[suffix] * _NANO)
        limit = _MAX_INT64 * _NANO
        return Quantity(max(-limit, min(limit, nano)), Format.BINARY_SI)
    if suffix in _DECIMAL:
        return Quantity(_round_away(number * Fraction(10) ** _DECIMAL[suffix] * _NANO))
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or abs(int(exponent[1])) > 100:
        raise ValueError("unable to parse quantity's suffix")
    nano = _round_away(number * Fraction(10) ** int(exponent[1]) * _NANO)
    return Quantity(nano, Format.DECIMAL_EXPONENT)


def _round_away(value: Fraction) -> int:
    return _divide_away_from_zero(value.numerator, value.denominator)


def _divide_away_from_zero(number: int, divisor: int) -> int:
    size = -(-abs(number) // divisor)
    return size if number >= 0 else -size


def _binary_text(whole: int) -> str:
    power = 0
    while power < 6 and whole % 1024 == 0:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_NAME[power]}" if power else str(whole)


def _decimal_text(nano: int, *, exponent: bool) -> str:
    mantissa, power = _decimal_parts(nano, exponent=exponent)
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAME[power]}"


def _decimal_parts(nano: int, *, exponent: bool) -> tuple[int, int]:
    """Return the mantissa and the power of ten to print; suffixes end at E, exponents do not."""
    mantissa, power = nano, -9
    while mantissa and mantissa % 1000 == 0 and (exponent or power < _DECIMAL["E"]):
        mantissa //= 1000
        power += 3
    return (mantissa, power) if mantissa else (0, 0)
