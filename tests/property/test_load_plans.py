"""Plans of other tools end as a plan or as an error of ours, whatever a file holds, and soon."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.load.plans.literals import MAX_VALUES, LiteralError, read_literal
from gpuscale.load.plans.reading import read_plan

ENDINGS = ["a.js", "a.json", "a.jmx", "a.py", "a.conf", "a.toml", "a.yml"]
PIECES = [
    "export const options = ", "{", "}", "[", "]", "(", ")", ",", ":", ";", "'", '"', "`", "${", "\\", "/*",
    "*/", "//", "\n", " ", "...", "a", "1", "-", ".5", "true", "scenarios", "stages", "executor", "execution",
    "throughput", "users", "duration", "= ", "<jmeterTestPlan>", "</jmeterTestPlan>", "<hashTree>",
    "</hashTree>", "<ThreadGroup/>", "<!DOCTYPE", "&amp;",
    "class A(LoadTestShape):\n  stages = ", "\x00", "é",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join)


def gone(name):
    raise ConfigError


@given(TEXTS, st.sampled_from(ENDINGS))
@example("export const options = {]", "a.js")
@example("export const options = {a", "a.js")
def test_any_text_is_a_plan_or_is_refused(text, name) -> None:
    try:
        plan = read_plan(text, name, gone)
    except ConfigError:
        return
    assert (plan.load is None) == (plan.users > 0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**6) | st.text("ab'\"\\\n{}[],:/`$", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def written(value):
    """Return a value as JavaScript that people write: single quotes, comments, commas at the end."""
    match value:
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        case list():
            return "[" + "".join(f"{written(each)}, // one\n" for each in value) + "]"
        case dict():
            rows = (f"{written(key)}: {written(each)} /* {{ */," for key, each in value.items())
            return "{" + "".join(rows) + "}"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def plain(value):
    match value:
        case list():
            return [plain(each.value) for each in value]
        case dict():
            return {key: plain(each.value) for key, each in value.items()}
    return value


@given(VALUES)
def test_a_plain_value_is_read_as_it_is_written(value) -> None:
    text = written(value)
    found, end = read_literal(f"{text};", 0)
    if not isinstance(value, dict) or not any("\\" in key or "'" in key for key in value):
        assert end == len(text)
    has_escaped_key = "\\" in text
    if not has_escaped_key:
        assert plain(found) == value


def test_values_at_the_bound_are_read_and_beyond_it_refused() -> None:
    inside = "[" + "1," * (MAX_VALUES - 2) + "]"
    found, _ = read_literal(inside, 0)
    assert isinstance(found, list)
    assert len(found) == MAX_VALUES - 2
    with pytest.raises(LiteralError, match="too many"):
        read_literal("[" + "1," * (MAX_VALUES + 1) + "]", 0)
