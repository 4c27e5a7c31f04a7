"""What pydantic finds wrong, in our words: every kind of error that our models can have."""

import re
from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter, model_validator

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.documents.models import Milliseconds, Model, PositiveDuration, parse_file
from gpuscale.base.documents.validation import PATTERNS
from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.scenario.model import Scenario
from gpuscale.ops.install.values import Values
from gpuscale.series.rules.load import RuleFileSpec
from gpuscale.server.rules.models import AdapterFileModel, HelmValuesModel, RuleModel

OURS = (Values, Scenario, RuleFileSpec, AdapterFileModel, HelmValuesModel, list[RuleModel])
PYDANTIC = re.compile(
    r"[Ii]nput|\bshould\b|valid (string|integer|number|boolean|list|dict|tuple)|pattern|"
    r"instance of|permitted|\bExtra\b"
)


class Inner(Model):
    first_name: str = "x"
    other: int = 1


class Round(Model):
    shape: Literal["round"]
    radius: float = 1.0


class Square(Model):
    shape: Literal["square"]
    side: float = 1.0


class Whole(Model):
    text: str = ""
    whole: int = 0
    number: float = 0.0
    yes_or_no: bool = False
    word: Literal["one", "two", "three"] = "one"
    only: Literal["this"] = "this"
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = Field(default=(), min_length=0, max_length=2)
    some: tuple[str, ...] = Field(default=("x",), min_length=1)
    labels: dict[str, str] = {}
    listed: list[str] = []
    name: str = Field(default="x", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=5)
    filled: str = Field(default="x", min_length=1)
    above: float = Field(default=1.0, gt=0)
    below: float = Field(default=1.0, lt=2)
    ranged: int = Field(default=3, ge=1, le=10)
    finite: float = Field(default=1.0, allow_inf_nan=False)
    exact: float = Field(default=1.0, multiple_of=0.001)
    even: int = Field(default=2, multiple_of=2)
    wait: PositiveDuration = 1000
    delay: Milliseconds = 0
    form: Annotated[Round | Square, Field(discriminator="shape")] = Round(shape="round")

    @model_validator(mode="after")
    def _not_both(self) -> "Whole":
        if self.text == "both":
            raise ValueError("found both, expected one")
        return self


def told(line):
    with pytest.raises(ConfigError) as caught:
        parse_file(Whole, f"{line}\n", "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("text: 5", "text: found 5, expected text; put it into quotes"),
        ("text: true", "text: found true, expected text; put it into quotes"),
        ("text: null", "text: found nothing, expected text"),
        ("text: [x]", "text: found a list, expected text"),
        ("whole: x", "whole: found 'x', expected a whole number"),
        ("whole: 1.5", "whole: found 1.5, expected a whole number"),
        ("whole: [1]", "whole: found a list, expected a whole number"),
        ("number: x", "number: found 'x', expected a number"),
        ("number: {}", "number: found a mapping, expected a number"),
        ("finite: .nan", "finite: found nan, expected a finite number"),
        ("yesOrNo: maybe", "yesOrNo: found 'maybe', expected true or false"),
        ("yesOrNo: [x]", "yesOrNo: found a list, expected true or false"),
        ("word: thre", "word: found 'thre', expected one of one, two, three; did you mean three?"),
        ("word: 7", "word: found 7, expected one of one, two, three"),
        ("only: that", "only: found 'that', expected this"),
        ("inner: x", "inner: found 'x', expected a mapping"),
        ("inners: {}", "inners: found a mapping, expected a list"),
        ("inners: [{}, {}, {}]", "inners: found a list, expected at most 2 items"),
        ("some: []", "some: found a list, expected at least 1 item"),
        ("labels: x", "labels: found 'x', expected a mapping"),
        ("labels: {a: 1}", "labels.a: found 1, expected text; put it into quotes"),
        ("listed: x", "listed: found 'x', expected a list"),
        (
            "name: A_b",
            "name: found 'A_b', expected a name of lower-case letters, digits and '-', such as "
            "vision-api",
        ),
        ("name: abcdef", "name: found 'abcdef', expected at most 5 characters"),
        (f"name: {'a' * 99}", f"name: found '{'a' * 59}..., expected at most 5 characters"),
        ("filled: ''", "filled: found '', expected text that is not empty"),
        ("above: 0", "above: found 0, expected more than 0"),
        ("below: 2.5", "below: found 2.5, expected less than 2"),
        ("ranged: 0", "ranged: found 0, expected at least 1"),
        ("ranged: 11", "ranged: found 11, expected at most 10"),
        ("exact: 0.1234", "exact: found 0.1234, expected a number with at most 3 decimals"),
        ("even: 3", "even: found 3, expected a multiple of 2"),
        ("wait: 5 m", "wait: found '5 m', expected a duration such as 15s, 5m or 1h30m"),
        ("wait: true", "wait: found True, expected a duration such as 15s, 5m or 1h30m"),
        ("wait: 0s", "wait: found '0s', expected more than 0"),
        ("wait: 367d", "wait: found '367d', expected at most 366d"),
        ("delay: -5", "delay: found -5, expected a duration of zero or more seconds"),
        ("form: {radius: 1}", "form.shape: this field is required"),
        (
            "form: {shape: rund}",
            "form.shape: found 'rund', expected one of round, square; did you mean round?",
        ),
        ("form: {shape: round, radus: 1}", "form.radus: no such field here; did you mean radius?"),
        (
            "form: {shape: round, x: 1}",
            "form.x: no such field here; the fields here are radius, shape",
        ),
        (
            "inner: {firstname: x}",
            "inner.firstname: no such field here; did you mean firstName?",
        ),
        (
            "inners: [{}, {zzz: x}]",
            "inners[1].zzz: no such field here; the fields here are firstName, other",
        ),
        ("yesorno: true", "yesorno: no such field here; did you mean yesOrNo?"),
        ("zzz: x", "zzz: no such field here"),
        ("text: both", "found both, expected one"),
    ],
)
def test_found_and_expected_in_plain_words(line: str, message: str) -> None:
    assert told(line) == f"f.yaml:1: {message}"


def test_problems_come_in_the_order_of_lines() -> None:
    found = told("even: 3\ntext: 5\nabove: 0")
    assert [each.split(":")[1] for each in found.splitlines()] == ["1", "2", "3"]


def parts(node):
    """Return every part of a pydantic schema."""
    if isinstance(node, dict):
        yield node
        for each in node.values():
            yield from parts(each)
    elif isinstance(node, list | tuple):
        for each in node:
            yield from parts(each)


@pytest.mark.parametrize("model", OURS, ids=lambda each: getattr(each, "__name__", "list"))
def test_every_pattern_has_words(model) -> None:
    strings = [each for each in parts(TypeAdapter(model).core_schema) if each.get("type") == "str"]
    assert strings
    assert {each["pattern"] for each in strings if "pattern" in each} <= set(PATTERNS)


def leaves(schema, node, depth=0):
    """Return a document with every field of a schema, each with any value."""
    if "$ref" in node:
        return leaves(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], depth)
    for key in ("anyOf", "oneOf"):
        if key in node:
            return leaves(schema, node[key][0], depth)
    if "properties" in node and depth < 6:
        inside = node["properties"].items()
        return {name: leaves(schema, each, depth + 1) for name, each in inside}
    if node.get("type") == "array" and "items" in node:
        return [leaves(schema, node["items"], depth + 1)]
    return node.get("const", node.get("enum", ["x"])[0])


def paths(data, path=()):
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


def with_value(data, path, value):
    if not path:
        return value
    changed = data.copy()
    changed[path[0]] = with_value(data[path[0]], path[1:], value)
    return changed


WRONG = ("", "no such thing", "A B", 5, 0, -1, 1.5, 10**12, float("nan"), True, None, [], {}, ["x"])


@pytest.mark.parametrize("model", [Values, Scenario])
def test_no_wrong_value_of_any_field_is_told_in_pydantics_words(model) -> None:
    schema = model.model_json_schema()
    whole = leaves(schema, schema)
    texts = [dump_documents([with_value(whole, path, {"no": ["such"]})]) for path in paths(whole)]
    for value in WRONG:
        filled = whole
        for path in paths(whole):
            if not isinstance(_at(whole, path), dict | list):
                filled = with_value(filled, path, value)
        texts.append(dump_documents([filled]))
    for text in texts:
        try:
            parse_file(model, text, "f")
        except ConfigError as error:
            for problem in error.problems:
                words = f"{problem.expected}; {problem.fix}"
                assert not PYDANTIC.search(words), str(problem)


def _at(data, path):
    for key in path:
        data = data[key]
    return data
