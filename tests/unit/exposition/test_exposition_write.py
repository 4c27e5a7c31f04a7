import math

import pytest

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.write import (
    CONTENT_TYPE,
    positional,
    render_text,
    shortest,
    six_decimals,
)

GPU = Family(
    "DCGM_FI_DEV_GPU_UTIL",
    "gauge",
    "GPU utilization (in %).",
    (Sample((("gpu", "0"), ("UUID", "GPU-1")), 42), Sample((("gpu", "1"), ("UUID", "GPU-2")), 7.5)),
)


def test_family_renders_help_type_and_samples_in_label_order() -> None:
    assert render_text([GPU]) == (
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 42\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2"} 7.5\n'
    )


def test_ints_stay_plain_whatever_floats_are_printed_with() -> None:
    text = render_text([GPU], float_text=six_decimals)
    assert text.endswith('UUID="GPU-1"} 42\nDCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2"} 7.500000\n')


def test_label_values_and_help_are_escaped() -> None:
    family = Family("a", "untyped", 'b\\c\n"d"', (Sample((("x", 'q"\\\n'),), 1),))
    assert render_text([family]) == (
        '# HELP a b\\\\c\\n"d"\n# TYPE a untyped\na{x="q\\"\\\\\\n"} 1\n'
    )


def test_suffix_follows_the_name_and_no_labels_need_no_braces() -> None:
    family = Family("h", "histogram", "", (Sample((), 3, "_count"), Sample((), 1.5, "_sum")))
    assert render_text([family]) == "# TYPE h histogram\nh_count 3\nh_sum 1.5\n"


# Go's strconv with format 'g' and the fewest digits goes to an exponent from 1e+06 on and below 1e-04.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (123456.5, "123456.5"),
        (1e6, "1e+06"),
        (-1234567.0, "-1.234567e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e21, "1e+21"),
        (5.960464477539063e-08, "5.960464477539063e-08"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_shortest_prints_as_go_does(value, text: str) -> None:
    assert shortest(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1e6, "1000000"),
        (1.5e-7, "0.00000015"),
        (1e21, "1000000000000000000000"),
        (-0.5, "-0.5"),
        (math.inf, "+Inf"),
        (math.nan, "NaN"),
    ],
)
def test_positional_never_has_an_exponent(value, text: str) -> None:
    assert positional(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.500000"), (1 / 3, "0.333333"), (math.nan, "NaN")]
)
def test_six_decimals_prints_as_dcgm_exporter_does(value, text: str) -> None:
    assert six_decimals(value) == text


def test_content_type_names_the_format() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
