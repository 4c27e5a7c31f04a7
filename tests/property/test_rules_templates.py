# mypy: disable-error-code="arg-type"
"""Templates, expansions and quoting of any text."""

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.base.golang.durations import go_quote
from gpuscale.base.golang.template import TemplateError, parse_template
from gpuscale.base.regex import compile_re2
from gpuscale.server.rules.expand import compile_expansion
from gpuscale.server.rules.query import escape_name

FIELDS = frozenset({"Series", "Values", "Slice"})
DATA = {"Series": "s", "Values": {"a": "b"}, "Slice": ("x", "y")}
PARTS = st.sampled_from(
    [
        "<<",
        ">>",
        "<<- ",
        " ->>",
        ".Series",
        ".Values",
        ".Slice",
        ".",
        "$",
        "$x",
        ":=",
        "=",
        "|",
        "(",
        ")",
        ",",
        " ",
        "if",
        "else",
        "end",
        "range",
        "with",
        "index",
        "eq",
        "not",
        "and",
        "len",
        "print",
        "printf",
        '"%s"',
        "`a`",
        "1",
        "-2.5",
        "true",
        "nil",
        "/*",
        "*/",
        "define",
        "text",
        "é",
        "\n",
    ]
)
ACTIONS = st.sampled_from(
    [
        "<<.Series>>",
        "<<if .Slice>>",
        "<<else>>",
        "<<else if .Series>>",
        "<<end>>",
        "<<range $i, $e := .Slice>>",
        "<<range .Values>>",
        "<<with .Values>>",
        "<<$x := .Slice>>",
        "<<len .Slice>>",
        "<<index .Values `a`>>",
        "<<.>>",
        "text",
    ]
)


def outcome(text: str) -> str | TemplateError:
    try:
        return parse_template(text, FIELDS).render(DATA)
    except TemplateError as error:
        return error


def render(text: str) -> None:
    result = outcome(text)
    assert isinstance(result, str) or str(result)


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_is_a_template_or_a_template_error(text) -> None:
    render(text)


@given(st.lists(PARTS, max_size=14).map("".join))
def test_any_words_are_a_template_or_a_template_error(text) -> None:
    render(text)


@given(st.lists(ACTIONS, max_size=12).map("".join))
def test_any_actions_are_a_template_or_a_template_error(text) -> None:
    render(text)


@given(st.text(max_size=60).filter(lambda text: "<<" not in text))
@settings(deadline=None)
def test_text_without_actions_is_printed_as_it_is(text) -> None:
    assert parse_template(text, FIELDS).render(DATA) == text


@given(st.text(max_size=30))
@settings(deadline=None)
def test_any_text_expands(text) -> None:
    pattern = compile_re2("(?P<n>a)(b)?")
    match = pattern.search("a")
    assert match is not None
    assert isinstance(compile_expansion(text, pattern).apply(match), str)


@given(st.text(max_size=30).filter(lambda text: "$" not in text))
@settings(deadline=None)
def test_text_without_references_expands_to_itself(text) -> None:
    pattern = compile_re2("a")
    match = pattern.search("a")
    assert match is not None
    assert compile_expansion(text, pattern).apply(match) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None)
def test_quoted_text_reads_back(text) -> None:
    # Go's escapes are a subset of Python's.
    quoted = go_quote(text)
    assert ast.literal_eval(quoted) == text
    assert quoted.isprintable()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
@settings(deadline=None)
def test_an_escaped_name_matches_itself(name) -> None:
    assert compile_re2(f"(?s)^(?:{escape_name(name)})$").search(name) is not None
