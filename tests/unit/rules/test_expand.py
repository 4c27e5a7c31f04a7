"""`name.as` as Go's Regexp.Expand reads it (regexp.go, release 1.22)."""

import pytest

from gpuscale.base.regex import compile_re2
from gpuscale.server.rules.expand import compile_expansion


def expand(pattern: str, text: str, on: str) -> str:
    compiled = compile_re2(pattern)
    match = compiled.search(on)
    assert match is not None
    return compile_expansion(text, compiled).apply(match)


@pytest.mark.parametrize(
    ("pattern", "text", "on", "expected"),
    [
        pytest.param("^(.*)_total$", "$1", "http_requests_total", "http_requests", id="group"),
        pytest.param("^(.*)_total$", "${1}_per_second", "a_total", "a_per_second", id="braces"),
        pytest.param("^(.*)_total$", "$1_per_second", "a_total", "", id="longest run"),
        pytest.param("^(?P<n>.*)_total$", "$n-x", "a_total", "a-x", id="name"),
        pytest.param("^(?P<n>.*)_total$", "${n}x", "a_total", "ax", id="name in braces"),
        pytest.param(".*", "$0", "abc", "abc", id="whole match"),
        pytest.param("(b)|(c)", "[$1$2]", "abc", "[b]", id="group that took no part"),
        pytest.param(".*", "$9", "abc", "", id="no such group"),
        pytest.param("(a)", "$01", "a", "", id="leading zero is a name"),
        pytest.param(".*", "$$1", "abc", "$1", id="dollar"),
        pytest.param(".*", "a$", "abc", "a$", id="dollar at the end"),
        pytest.param("(a)", "$-${1", "a", "$-${1", id="illegible"),
        pytest.param("(a)", "${}", "a", "${}", id="empty braces"),
        pytest.param("^(.*)_total", "${1}_x", "a_total_b", "a_x", id="text outside is dropped"),
    ],
)
def test_expansion(pattern: str, text: str, on: str, expected: str) -> None:
    assert expand(pattern, text, on) == expected


def test_references_to_no_group_are_reported() -> None:
    expansion = compile_expansion("$1_rate$$${2}$1", compile_re2("(a)"))
    assert expansion.unknown == ("1_rate", "2")
