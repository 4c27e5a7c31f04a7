import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.load.traces import load_trace


def load(text, rate=None, scale=1.0):
    return load_trace(text, "t.csv", time_column="TIMESTAMP", rate_column=rate, scale=scale)


def problems(text, rate=None):
    with pytest.raises(ConfigError) as caught:
        load(text, rate)
    return str(caught.value).splitlines()


def test_dates_with_seven_digits_count_from_the_first_row() -> None:
    trace = load(
        "TIMESTAMP,Tokens\n2023-11-16 18:15:46.6805900,374\n2023-11-16 18:15:50.9951690,396\n"
    )
    assert trace.requests_until(4.3) == 1.0
    assert trace.requests_until(4.32) == 2.0  # 50.995169 - 46.680590 = 4.314579 s


def test_rates_hold_until_the_next_row() -> None:
    trace = load("TIMESTAMP,qps\n100,2\n110,4\n", rate="qps", scale=0.5)
    assert (trace.rate(0.0), trace.rate(10.0)) == (1.0, 2.0)


def test_a_missing_column_names_those_that_are_there() -> None:
    assert problems("when,qps\n1,2\n") == [
        "t.csv:1: found when, qps, expected a column named 'TIMESTAMP'"
    ]


def test_bad_rows_are_told_with_their_lines_up_to_the_tenth() -> None:
    told = problems("TIMESTAMP,qps\nsoon,1\n2,-1\n3\n" + "x,1\n" * 20, rate="qps")
    assert told[:3] == [
        "t.csv:2: found 'soon', expected seconds or a date and time",
        "t.csv:3: found '-1', expected a rate of zero or more requests per second",
        "t.csv:4: found 1 column, expected as many as the header has",
    ]
    assert len(told) == 10


def test_times_that_fall_back_are_refused_in_a_rate_trace() -> None:
    assert problems("TIMESTAMP,qps\n1,1\n1,2\n", rate="qps") == [
        "t.csv:3: found a time not after the one above, expected times that rise from row to row "
        "in a rate trace"
    ]


def test_lines_are_those_of_the_file_whatever_ends_them() -> None:
    assert problems('TIMESTAMP,qps\r\n\r\n"1",1\r\n1,2\r\n', rate="qps")[0].startswith("t.csv:4: ")
    trace = load("TIMESTAMP,qps\r100,2\r110,4\r", rate="qps")
    assert (trace.rate(0.0), trace.rate(10.0)) == (2.0, 4.0)


def test_a_column_that_is_there_twice_is_refused() -> None:
    assert problems("TIMESTAMP,qps,qps\n1,1,2\n", rate="qps") == [
        "t.csv:1: found 2, expected one column named 'qps'"
    ]


def test_milliseconds_are_recognised() -> None:
    assert problems("TIMESTAMP\n1700000000000\n") == [
        "t.csv:2: found '1700000000000', expected a number of seconds; are these milliseconds?"
    ]


def test_a_header_alone_is_no_trace() -> None:
    assert problems("TIMESTAMP\n") == [
        "t.csv: found no rows, expected at least one row below the header"
    ]
