"""Values changed in YAML texts: comments, order and quotation marks stay, and nothing else changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.documents.documents import Path, dump_documents, load_documents
from gpuscale.base.documents.edited import Value, with_values
from gpuscale.base.errors import ConfigError

TEXT = """# Ours.
kind: A
---
kind: B
spec:
  most: 10 # of all
  items:
  - target: {type: AverageValue, averageValue: "60"}  # as measured
  - 'x'
  rules:
    down:
      # Slowly.
      window: 300
"""


def test_a_value_is_put_in_place_of_another():
    changes: dict[Path, Value] = {
        ("spec", "items", 0, "target", "averageValue"): "75",
        ("spec", "most"): 12,
    }
    expected = TEXT.replace('"60"', '"75"').replace("most: 10", "most: 12")
    assert with_values(TEXT, "f", 1, changes) == expected


def test_what_was_not_there_is_added_with_its_parents():
    added = with_values(TEXT, "f", 1, {("spec", "rules", "up", "window"): 0})
    assert added == TEXT.replace(
        "  rules:\n    down:", "  rules:\n    up:\n      window: 0\n    down:"
    )
    beside = with_values(TEXT, "f", 1, {("spec", "least"): 2})
    assert beside == TEXT.replace("# of all\n", "# of all\n  least: 2\n")


def test_a_mapping_in_braces_takes_a_new_key():
    text = "spec: {most: 10}\n"
    assert with_values(text, "f", 0, {("spec", "a", "b"): 1}) == "spec: {a: {b: 1}, most: 10}\n"


def test_json_and_lines_of_windows_stay_what_they_are():
    assert with_values('{"a": {"b": 1}}', "f", 0, {("a", "b"): 2}) == '{"a": {"b": 2}}'
    assert with_values("a:\r\n  b: 1\r\n", "f", 0, {("a", "c"): 2}) == "a:\r\n  b: 1\r\n  c: 2\r\n"


def test_a_file_without_a_last_line_end_gets_one():
    assert with_values("a:\n  b: 1", "f", 0, {("a", "c"): 2}) == "a:\n  b: 1\n  c: 2\n"


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a: &x {b: 1}\nc: *x\n", ("c", "b"), 1),
        ("a:\n  b:\n    1\n", ("a", "b"), 2),
        ("a: 5\n", ("a", "b"), 1),
    ],
)
def test_what_stands_otherwise_is_refused_with_its_line(text, path, line):
    with pytest.raises(ConfigError, match="by hand") as error:
        with_values(text, "f", 0, {path: 7})
    assert error.value.problems[0].line == line


KEYS = st.sampled_from(["a", "b", "ab", "a-b", "b.a", "x"])
VALUES = st.recursive(
    st.integers(-5, 99) | st.sampled_from(["60", "a: b", "#", "it's"]),
    lambda inner: (
        st.dictionaries(KEYS, inner, min_size=1, max_size=3) | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), st.data())
def test_only_what_is_asked_for_changes(data, drawn):
    text = dump_documents([data])
    lines = load_documents(text, "f")[0].lines
    path = drawn.draw(st.sampled_from(sorted((each for each in lines if each), key=str)))
    try:
        edited = with_values(text, "f", 0, {path: 7})
    except ConfigError as error:
        assert "by hand" in str(error)  # noqa: PT017 - refusing is allowed, another change is not
        return
    expected = load_documents(text, "f")[0].data
    here = expected
    for part in path[:-1]:
        here = here[part]
    assert str(load_at(edited, path)) == "7"
    here[path[-1]] = load_at(edited, path)
    assert load_documents(edited, "f")[0].data == expected


def load_at(text, path):
    """Return a value of a text."""
    data = load_documents(text, "f")[0].data
    for part in path:
        data = data[part]
    return data
