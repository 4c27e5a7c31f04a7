"""Promises in words: each is read as it is written, and what is none is refused."""

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.base.promises import promise_terms


@pytest.mark.parametrize(
    ("text", "measure", "allowed", "limit_s"),
    [
        ("wait=5s:99.5%", "wait", 0.005, 5.0),
        ("wait=250ms:90%", "wait", 0.1, 0.25),
        ("latency=2s:95%", "latency", 0.05, 2.0),
        ("p99.9=1s", "latency", 0.001, 1.0),
        ("errors=0.1%", "errors", 0.001, 0.0),
        ("errors=0%", "errors", 0.0, 0.0),
        ("short=0.5%", "short", 0.005, 0.0),
    ],
)
def test_a_promise_is_read_and_written(text, measure, allowed, limit_s):
    (found,) = promise_terms("--promise", [text])
    assert (found.measure, found.limit_s) == (measure, limit_s)
    assert found.allowed == pytest.approx(allowed)
    assert str(found) == text.replace("p99.9=1s", "latency=1s:99.9%")


@pytest.mark.parametrize(
    "text",
    [
        *("", "wait", "wait=5s", "wait=99%", "wait=0s:99%", "wait=5s:100%"),
        *("wait=5s:0%", "wait=-5s:99%", "latency=5s:", "errors=1s:1%", "errors=51%", "short=nan%"),
        *("p99", "p100=2s", "throughput=5%", "wait=5s:99.5% short=1%"),
    ],
)
def test_what_is_no_promise_is_refused(text):
    with pytest.raises(UsageError, match=r"^--promise: found .*, expected "):
        promise_terms("--promise", [text])


def test_the_same_thing_is_not_promised_twice():
    with pytest.raises(UsageError, match="beside another of the same"):
        promise_terms("--promise", ["wait=5s:99%", "wait=5s:95%"])
    assert len(promise_terms("--promise", ["wait=5s:99%", "wait=1s:95%", "short=1%"])) == 3
    with pytest.raises(UsageError, match="found nothing"):
        promise_terms("--promise", [])
