import math

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.exposition.reading.entries import ExpositionError


def test_families_keep_type_help_order_and_labels() -> None:
    text = """\
# HELP gpu_util How busy, in \\\\ and \\n.
# TYPE gpu_util gauge
gpu_util{gpu="0",pod="a\\"b"} 1
gpu_util{ gpu = "1" , pod = "" , } 2.5
# a comment
plain 3
"""
    assert parse_text(text) == (
        Family(
            "gpu_util",
            "gauge",
            "How busy, in \\ and \n.",
            (Sample((("gpu", "0"), ("pod", 'a"b')), 1), Sample((("gpu", "1"), ("pod", "")), 2.5)),
        ),
        Family("plain", "untyped", "", (Sample((), 3),)),
    )


def test_histogram_and_summary_samples_go_to_their_family_with_a_suffix() -> None:
    text = """\
# TYPE h histogram
h_bucket{le="+Inf"} 4
h_sum 2.5
h_count 4
# TYPE s summary
s{quantile="0.5"} 1
s_sum 9
s_bucket 1
"""
    histogram, summary, other = parse_text(text)
    assert [sample.suffix for sample in histogram.samples] == ["_bucket", "_sum", "_count"]
    assert [sample.suffix for sample in summary.samples] == ["", "_sum"]
    assert (other.name, other.type) == ("s_bucket", "untyped")


def test_timestamps_are_accepted_and_left_out() -> None:
    (family,) = parse_text('a 1 1700000000000\na{b="c"}\t2\t5\n')
    assert [sample.value for sample in family.samples] == [1, 2]


def test_whole_numbers_stay_whole_and_special_values_are_read() -> None:
    (family,) = parse_text("a 9007199254740993\na -0\na +Inf\na -inf\na NaN\na 1e3\n")
    values = [sample.value for sample in family.samples]
    assert values[0] == 9007199254740993
    assert math.copysign(1, values[1]) == -1
    assert values[2:4] == [math.inf, -math.inf]
    assert math.isnan(values[4])
    assert isinstance(values[5], float)


def test_a_last_line_without_newline_counts() -> None:
    assert parse_text("a 1")[0].samples == (Sample((), 1),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ok 1\na x\n", "t:2: found 'x', expected a number as the value"),
        ("a 1_0\n", "t:1: found '1_0', expected a number as the value"),
        ("a 1e999\n", "t:1: found '1e999', expected a number as the value"),
        (
            "a\n",
            "t:1: found 'a', expected a metric name, then labels in braces or a space and a value",
        ),
        ("a \n", "t:1: found no value, expected a number after the series"),
        ("a 1 2 3\n", "t:1: found '1 2 3', expected a value and at most a timestamp"),
        ("a 1 2.5\n", "t:1: found '2.5', expected a timestamp in whole milliseconds"),
        ("0a 1\n", "t:1: found '0a 1', expected a metric name, such as gpu_utilization_ratio"),
        ('a{b="c} 1\n', 't:1: found \'b="c} 1\', expected labels such as {gpu="0",pod="a"}'),
        ("a 1 -5\n", "t:1: found '-5', expected a timestamp in whole milliseconds"),
        ('a{b="1",b="2"} 1\n', "t:1: found label 'b' twice, expected each label once"),
        (
            "# TYPE a gauge\n# TYPE a gauge\n",
            "t:2: found a second TYPE line of a, expected one TYPE line per metric",
        ),
        (
            "# HELP a x\n# HELP a x\n",
            "t:2: found a second HELP line of a, expected one HELP line per metric",
        ),
        (
            "# TYPE a info\n",
            "t:1: found type 'info', expected one of gauge, counter, histogram, summary, untyped",
        ),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ExpositionError) as caught:
        parse_text(text, source="t")
    assert str(caught.value) == message
    assert isinstance(caught.value, ConfigError)


def test_a_text_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscale.base.exposition.parse.MAX_TEXT_CHARS", 3)
    with pytest.raises(ExpositionError, match="found 4, expected at most 3 characters"):
        parse_text("a 1\n")
