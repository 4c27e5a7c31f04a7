"""Loads and promises in the words of the command line."""

from pathlib import Path

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.loads.shaped import shaped_load
from gpuscale.cli.options.requests import request_of, slo_of
from gpuscale.load import shapes
from gpuscale.load.http.target import resolve


def test_shapes_have_the_rates_they_say() -> None:
    load, duration_s = shapes.steps("10@30s,50@1m")
    assert duration_s == 90
    assert load.requests_until(90) == 10 * 30 + 50 * 60
    assert shapes.ramp("0..10", 10).requests_until(10) == 50
    # 4 s at 5 a second, then 1 s at 50
    assert shapes.spikes("5,50,5s,1s").requests_until(5) == 4 * 5 + 50


@pytest.mark.parametrize(
    ("make", "text", "said"),
    [
        (shapes.steps, "10", "found '10', expected RATE@DURATION"),
        (shapes.steps, "x@1s", "found 'x' in 'x@1s', expected requests per second"),
        (shapes.steps, "1@soon", "expected a duration"),
        (shapes.steps, "nan@1s", "expected requests per second"),
        (shapes.spikes, "1,2,3", "expected BASE,PEAK,EVERY,LENGTH"),
        (shapes.spikes, "1,2,5s,5s", "shorter than the time between"),
    ],
)
def test_other_words_are_refused_with_what_is_expected(make, text, said) -> None:
    with pytest.raises(ValueError, match="found") as caught:
        make(text)
    assert said in str(caught.value)


def test_steps_of_gpu_use_are_asked_for_in_percent() -> None:
    with pytest.raises(
        ValueError, match=r"found '30', expected PERCENT@DURATION steps such as 30@1m"
    ):
        shapes.steps("30", shapes.PERCENT)


def test_promises_are_held_against_what_was_measured() -> None:
    slo = slo_of(["p99=500ms", "latency=0.1s:50%", "errors=1%"])
    assert [*slo.faults({99.0: 499.0, 50.0: 100.0}, 1.0)] == []
    assert [*slo.faults({99.0: 500.5, 50.0: None}, 1.5)] == [
        "p99: found 500.5 ms, expected at most 500 ms",
        "p50: no answer came, expected at most 100 ms",
        "errors: found 1.5 %, expected at most 1 %",
    ]


@pytest.mark.parametrize(
    "text", ["p99", "p99=fast", "errors=1", "p100=1s", "wait=1s:99%", "short=1%"]
)
def test_other_promises_are_refused(text) -> None:
    with pytest.raises(UsageError, match="expected"):
        slo_of([text])


@pytest.mark.parametrize(
    ("name", "header", "row", "requests"),
    [
        # Rows of 100 kB: more than the 8 MiB of a document, and none of them is cut off.
        ("trace.csv", "time,note", "{},{}", 90),
        ("trace.jsonl", None, '{{"timestamp": {}, "input_length": 1, "text_input": "{}"}}', 90),
    ],
)
def test_a_long_trace_is_read_whole(
    tmp_path: Path, name: str, header: str | None, row: str, requests: int
) -> None:
    rows = [row.format(number, "x" * 100_000) for number in range(requests)]
    (tmp_path / name).write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    columns = ("time", None, 1.0)
    shapes_: dict[str, object] = {"--trace": tmp_path / name}
    load, _, _ = shaped_load(shapes_, 1.0, columns, None, None, is_closed=False)
    assert load is not None
    assert load.requests_until(1e9) == requests


def requested(url: str, *headers: str) -> tuple[str, list[str]]:
    """Return the URL that is shown, and the lines that are sent."""
    request = request_of(url, "GET", list(headers), None, "1s", None, is_insecure=False)
    return request.url, resolve(request).head.decode().split("\r\n")


def test_a_password_in_the_url_is_sent_as_a_header_and_not_shown() -> None:
    # RFC 7617, 2: the example of Aladdin, whose password is "open sesame".
    url, lines = requested("http://Aladdin:open%20sesame@127.0.0.1:80/a")
    assert url == "http://127.0.0.1:80/a"
    assert "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==" in lines
    assert "Host: 127.0.0.1:80" in lines
    _, lines = requested("http://a:b@127.0.0.1/", "authorization: Bearer x")
    assert [line for line in lines if "uthorization" in line] == ["authorization: Bearer x"]


def test_blanks_and_letters_beyond_ascii_are_percent_encoded() -> None:
    _, lines = requested("http://127.0.0.1/suche?q=Häuser am See&p=%20")
    # RFC 3986, 2.5: U+00E4 is C3 A4 in UTF-8. What is encoded already stays as it is.
    assert lines[0] == "GET /suche?q=H%C3%A4user%20am%20See&p=%20 HTTP/1.1"
