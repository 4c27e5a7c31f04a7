import pytest

from gpuscale.base.regex import compile_re2, escape


@pytest.mark.parametrize("expression", ["(?=a)", r"(a)\1", "(", "a**"])
def test_what_re2_lacks_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression of RE2"):
        compile_re2(expression)


def test_dollar_matches_only_at_the_very_end() -> None:
    assert compile_re2("a$").search("a\n") is None


def test_escaped_text_matches_only_itself() -> None:
    assert compile_re2(escape("a.b|c")).fullmatch("a.b|c")
    assert not compile_re2(escape("a.b")).fullmatch("axb")
