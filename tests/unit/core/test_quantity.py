"""Quantities against k8s.io/apimachinery/pkg/api/resource."""

import pytest

from gpuscale.base.quantity import MAX_TEXT, Format, Quantity, parse_quantity

REGEX = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
NUMERIC = "unable to parse numeric part of quantity"
SUFFIX = "unable to parse quantity's suffix"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("0.25", "250m"),
        ("3000", "3k"),
        ("3500", "3500"),
        ("1500000", "1500k"),
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("512Ki", "512Ki"),
        ("0.5Mi", "512Ki"),
        ("12e6", "12e6"),
        # forms of numbers
        ("5", "5"),
        ("5.", "5"),
        (".5", "500m"),
        ("+5", "5"),
        ("-5", "-5"),
        ("-1500m", "-1500m"),
        ("007", "7"),
        # suffixes
        ("5n", "5n"),
        ("5u", "5u"),
        ("1000u", "1m"),
        ("5M", "5M"),
        ("5G", "5G"),
        ("5T", "5T"),
        ("5P", "5P"),
        ("5E", "5E"),
        ("1000P", "1E"),
        ("1000E", "1000E"),
        ("1Ki", "1Ki"),
        ("1Ei", "1Ei"),
        # exponents print as multiples of three, without end
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e2", "100"),
        ("15e2", "1500"),
        ("1e4", "10e3"),
        ("1e-3", "1e-3"),
        ("1e21", "1e21"),
        # the binary family falls back to decimal below 1024 and for fractions
        ("0.5Ki", "512"),
        ("1.0001Ki", "1024102400u"),
        ("1536", "1536"),
        # zero has no suffix
        ("0", "0"),
        ("0Gi", "0"),
        ("0m", "0"),
        ("-0", "0"),
        # finer than nano rounds up in magnitude
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1e-12", "1e-9"),
        # only binary suffixes are capped, at 2^63 - 1
        ("8Ei", "9223372036854775807"),
        ("100Ei", "9223372036854775807"),
        ("100E", "100E"),
    ],
)
def test_canonical_print(text: str, printed: str) -> None:
    assert str(parse_quantity(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", REGEX),
        (" 5", REGEX),
        ("5 ", REGEX),
        ("5 Gi", REGEX),
        ("abc", REGEX),
        ("--5", REGEX),
        ("1.2.3", REGEX),
        ("5\n", REGEX),
        ("five", REGEX),
        ("\u0665", REGEX),
        (".", NUMERIC),
        ("5K", SUFFIX),
        ("5ki", SUFFIX),
        ("5KI", REGEX),
        ("5mm", SUFFIX),
        ("5i", SUFFIX),
        ("5e", SUFFIX),
        ("5m3", SUFFIX),
        ("1e101", SUFFIX),
    ],
)
def test_errors(text: str, message) -> None:
    with pytest.raises(ValueError, match="quantit") as caught:
        parse_quantity(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [True, False])
def test_booleans_are_no_quantities(value: bool) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse_quantity(value)


@pytest.mark.parametrize(
    ("value", "printed"),
    [(None, "0"), (20, "20"), (0.5, "500m"), (1e21, "1e21"), (1e-7, "100e-9"), (-3, "-3")],
)
def test_json_numbers_and_null(value, printed: str) -> None:
    assert str(parse_quantity(value)) == printed


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none(value) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse_quantity(value)


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("1", 1000, 1),
        ("1.5", 1500, 2),
        ("0.0001", 1, 1),
        ("-0.0001", -1, -1),
        ("1.0001", 1001, 2),
        ("-1.0001", -1001, -2),
        ("1Ki", 1_024_000, 1024),
        ("1n", 1, 1),
        ("0", 0, 0),
    ],
)
def test_values_round_away_from_zero(text: str, milli: int, whole: int) -> None:
    quantity = parse_quantity(text)
    assert quantity.milli_value() == milli
    assert quantity.value() == whole


@pytest.mark.parametrize(
    ("milli", "printed"), [(31400, "31400m"), (31000, "31"), (2_000_000, "2k"), (0, "0"), (1, "1m")]
)
def test_status_values_are_milli_in_the_decimal_family(milli: int, printed: str) -> None:
    quantity = Quantity.from_milli(milli)
    assert str(quantity) == printed
    assert quantity.format is Format.DECIMAL_SI


@pytest.mark.parametrize(
    ("text", "family"),
    [("1k", Format.DECIMAL_SI), ("1Ki", Format.BINARY_SI), ("1e3", Format.DECIMAL_EXPONENT)],
)
def test_family_is_that_of_the_suffix(text: str, family) -> None:
    assert parse_quantity(text).format is family


def test_float_is_the_nearest_one() -> None:
    assert float(parse_quantity("0.57")) == 0.57
    assert float(parse_quantity("1Gi")) == 1073741824.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # 100 * 0.001 and 50 * 0.001 are exact to the last bit
        ("0.1", 0.1),
        ("0.05", 0.05),
        # 570 * 0.001 = 0.5700000000000001
        ("0.57", 0.5700000000000001),
        ("570m", 0.5700000000000001),
        ("2", 2.0),
        ("2k", 2000.0),
        ("0", 0.0),
    ],
)
def test_approximate_float_is_the_mantissa_times_its_power(text: str, value: float) -> None:
    assert parse_quantity(text).approximate_float64() == value


def test_text_has_a_bound() -> None:
    assert str(parse_quantity("0" * (MAX_TEXT - 1) + "5")) == "5"
    with pytest.raises(ValueError, match="unable to parse numeric part of quantity"):
        parse_quantity("5" * (MAX_TEXT + 1))
    with pytest.raises(ValueError, match="unable to parse numeric part of quantity"):
        parse_quantity("5" * 10_000_000)
