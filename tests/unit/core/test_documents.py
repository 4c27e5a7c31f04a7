import pytest

from gpuscale.base.documents.documents import Document, dump_documents, load_documents, load_each
from gpuscale.base.errors import ConfigError


def failure(text):
    with pytest.raises(ConfigError) as caught:
        load_documents(text, "f.yaml")
    return str(caught.value)


def test_every_value_knows_its_line() -> None:
    (document,) = load_documents("a:\n  b:\n    - x\n    - y: 1\n", "f.yaml")
    assert document.data == {"a": {"b": ["x", {"y": 1}]}}
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "b", 1, "y")) == 4


def test_a_missing_value_has_the_line_of_its_parent() -> None:
    (document,) = load_documents("a:\n  b: 1\n", "f.yaml")
    assert document.line(("a", "c", "d")) == 1


def test_empty_documents_are_left_out_and_lines_count_through_the_file() -> None:
    first, second = load_documents("---\n---\na: 1\n---\nb: 2\n", "f.yaml")
    assert (first.index, second.index) == (0, 1)
    assert second.line(("b",)) == 5


def test_a_document_that_is_no_yaml_does_not_stop_the_others() -> None:
    text = "a: 1\n---\nb: [x\n--- # c\nc: |\n  d\n  ---\ne: 5\n---\nf: 1\nf: 2\n"
    first, second, third, fourth = load_each(text, "f.yaml")
    assert isinstance(first, Document)
    assert isinstance(third, Document)
    assert first.data == {"a": 1}
    # a block may hold what looks like a border, since it is indented
    assert third.data == {"c": "d\n---\n", "e": 5}
    assert third.line(("e",)) == 8
    assert isinstance(second, ConfigError)
    assert isinstance(fourth, ConfigError)
    assert str(second).startswith("f.yaml:3: not YAML")
    assert str(fourth).startswith("f.yaml:11: f:")


def test_a_text_without_faults_is_read_as_a_whole() -> None:
    text = "a: 1\n---\nb: 2\n"
    assert load_each(text, "f.yaml") == load_documents(text, "f.yaml")
    (fault,) = load_each("a: [", "f.yaml")
    assert isinstance(fault, ConfigError)


def test_a_key_given_twice_names_both_lines() -> None:
    assert failure("a: 1\nb: 2\na: 3\n") == (
        "f.yaml:3: a: each key once; it stands on line 1 already"
    )


def test_aliases_that_blow_up_are_refused() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert "more than 500000 values once aliases are followed" in failure("\n".join(lines))


@pytest.mark.parametrize("text", ["x: 1\na: &a\n- [*a]\n", "a:\n  &a {b: {c: *a}}\n"])
def test_an_alias_inside_what_it_stands_for_is_refused(text: str) -> None:
    assert failure(text) == (
        "f.yaml:2: found an alias inside what it stands for, expected one beside it"
    )


@pytest.mark.parametrize("number", [f"0x{'f' * 5000}", "9" * 5000])
def test_numbers_beyond_all_quantities_are_refused(number: str) -> None:
    assert failure(f"x: 1\na: {number}") == (
        "f.yaml:2: found a whole number of more than 1024 bits, expected a smaller one"
    )


def test_merge_keys_are_followed() -> None:
    (document,) = load_documents("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n", "f.yaml")
    assert document.data["use"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # As kubectl, the API server and Helm read them: go.yaml.in/yaml/v2 resolve.go.
        ("1e3", 1000.0),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("089", 89.0),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", 3),
        ("1_000", 1000),
        ("-3", -3),
        ("0", 0),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1.2.3", "1.2.3"),
        ("0x", "0x"),
        ("e3", "e3"),
        (".", "."),
        ("-", [None]),
        ("+", "+"),
    ],
)
def test_plain_scalars_are_what_they_are_to_kubectl(text: str, value) -> None:
    (document,) = load_documents(f"a: [{text}]" if text != "-" else "a:\n- -", "f.yaml")
    (found,) = document.data["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a:\n\tb: 1", "2: not YAML (column 1)", "a tab or a sign that no value begins with"),
        ("a: b: c", "1: not YAML (column 5)", "a ':' in text without quotes"),
        ("a: 1\n  b: 2", "2: not YAML (column 4)", "or a line that is indented too far"),
        ('a: "x\nb: 1', "1: not YAML (column 4)", "a quotation mark that is not closed"),
        ("a: [1, 2\nb: 3\n", "1: not YAML (column 4)", "or a bracket is not closed"),
        ("a: *x", "1: not YAML (column 4)", "an alias (*name) without its anchor"),
        ("- a\nb: 1", "2: not YAML (column 1)", "a '-' is missing"),
        ("a:\n  b: 1\n c: 2", "3: not YAML (column 2)", "a line is indented otherwise"),
    ],
)
def test_what_is_no_yaml_is_told_in_plain_words(text: str, place: str, words: str) -> None:
    told = failure(text)
    assert told.startswith(f"f.yaml:{place}: ")
    assert words in told


@pytest.mark.parametrize(
    "text", ["08", "1e3", "0x1f", "0o7", "1_000", ".5", "+1", "on", "2026-01-02", "y", "N"]
)
def test_a_text_that_looks_like_something_else_is_read_back_as_a_text(text: str) -> None:
    assert dump_documents([{"a": text}]) == f"a: '{text}'\n"
    (document,) = load_documents(dump_documents([{"a": text}]), "a.yaml")
    assert document.data == {"a": text}


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "[" * 301 + "]" * 301,
        "{a: " * 100_000,
        "- " * 100_000 + "a",
        "? " * 100_000 + "a",
        "".join(f"{' ' * depth}a:\n" for depth in range(2000)),
    ],
    ids=["open", "closed", "mappings", "dashes", "keys", "indented"],
)
def test_what_is_nested_too_deeply_is_refused_and_not_followed(text) -> None:
    assert "expected at most 300 levels of mappings and lists" in failure(text)


@pytest.mark.parametrize(
    "text", ["[" * 300 + "]" * 300, "- " * 300 + "a", f"a: '{'[' * 5000}'", f"{' ' * 5000}a: 1"]
)
def test_what_only_looks_deep_is_read(text: str) -> None:
    assert len(load_documents(text, "f.yaml")) == 1
