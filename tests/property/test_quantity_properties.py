"""Quantities: round trips, and no text that crashes the parser."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.quantity import Format, Quantity, milli_text, parse_quantity

quantities = st.builds(Quantity, st.integers(-(10**30), 10**30), st.sampled_from(Format))
LIKELY = "0123456789.+-eEinumkKMGTP "


@given(quantities)
def test_printed_text_reads_back_to_the_same_amount(quantity) -> None:
    text = str(quantity)
    # a binary suffix is capped when read, so that only amounts within int64 come back
    if quantity.format is not Format.BINARY_SI or abs(quantity.nano) < 2**63 * 10**9:
        assert parse_quantity(text).nano == quantity.nano


@given(st.integers(-(2**63), 2**63) | st.integers(-(10**7), 10**7).map(lambda each: each * 1000))
def test_thousandths_have_one_text(milli) -> None:
    assert milli_text(milli) == str(Quantity.from_milli(milli))


@given(quantities)
def test_printing_is_stable(quantity) -> None:
    text = str(parse_quantity(str(quantity)))
    assert str(parse_quantity(text)) == text


@given(st.text(max_size=300) | st.text(alphabet=LIKELY, max_size=200) | st.floats() | st.integers())
def test_any_text_is_read_or_refused_with_a_value_error(value) -> None:
    try:
        quantity = parse_quantity(value)
    except ValueError:
        return
    assert str(quantity)
    assert quantity.approximate_float64() == quantity.approximate_float64()


@given(quantities)
def test_values_never_lose_magnitude(quantity) -> None:
    exact = Fraction(quantity.nano, 10**9)
    assert abs(quantity.milli_value()) >= abs(exact * 1000)
    assert abs(quantity.milli_value()) < abs(exact * 1000) + 1
    assert abs(quantity.value()) >= abs(exact)
    assert abs(quantity.value()) < abs(exact) + 1


@given(quantities, quantities)
def test_order_of_floats_follows_the_amounts(one, other) -> None:
    if one.nano <= other.nano:
        assert float(one) <= float(other)
