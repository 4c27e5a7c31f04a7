"""Quoting as Go's strconv.Quote does it (quote.go, release 1.22)."""

import pytest

from gpuscale.base.golang.durations import go_quote


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '""'),
        ("web-0", '"web-0"'),
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ("a\nb\t", r'"a\nb\t"'),
        ("\x00\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("\x07\x08\x0c\r\x0b", r'"\a\b\f\r\v"'),
        ("é世", '"é世"'),
        ("\u00a0\u200b", r'"\u00a0\u200b"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("\ud800", '"\ufffd"'),
    ],
)
def test_go_quote(text: str, expected: str) -> None:
    assert go_quote(text) == expected
