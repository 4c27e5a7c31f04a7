"""Rule files and templates: what is read ends with rules or a ConfigError, what is filled in, with text."""

from contextlib import suppress

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.base.golang.template import TemplateError
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.rules.templates import FUNCTIONS, AlertTemplate

FIELDS = "groups name rules record alert expr labels annotations for keep_firing_for interval limit"
WORDS = st.sampled_from([*FIELDS.split(), "up", "5m", "1", "-1", "x("])
DATA = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)
SYMBOLS = """{{ }} {{- -}} $labels $value .Labels .Value . | ( ) "a" `b` 1 -2.5 1e9 $x := = , "%5.2f" "%d"
"""
NAMES = """if range with else end printf humanize humanizeDuration humanizeTimestamp title match reReplaceAll
stripPort stripDomain parseDuration index len eq lt and or not nil true query
"""
PIECES = st.sampled_from([*SYMBOLS.split(), *NAMES.split(), '"(a*)*b"', '"["'])
LABELS = st.dictionaries(st.sampled_from(["a", "b", "instance"]), st.text(max_size=8), max_size=3)


def read(text) -> None:
    with suppress(ConfigError):
        load_rule_groups(text, "rules.yaml")


@given(st.text())
def test_any_text_is_read_or_refused(text) -> None:
    read(text)


@given(st.fixed_dictionaries({"groups": DATA}) | DATA)
def test_any_yaml_is_read_or_refused(data) -> None:
    read(yaml.safe_dump(data))


ARGUMENTS = st.sampled_from(
    [
        "$value",
        "$labels",
        "$labels.a",
        "$labels.none",
        "nil",
        "true",
        "1",
        "-2.5",
        '"x:1"',
        '"(b)"',
        '"%8.3e"',
    ]
)
CALLS = st.builds(
    lambda name, arguments: " ".join((name, *arguments)),
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(ARGUMENTS, max_size=3),
)


@given(CALLS, CALLS, LABELS, st.floats() | st.sampled_from([1e308, -1e-320, 9.3e9, 1e19]))
def test_any_call_is_refused_or_gives_a_text(first, second, labels, value) -> None:
    with suppress(TemplateError):
        template = AlertTemplate(
            f"{{{{ {first} | {second.partition(' ')[0]} }}}}{{{{ {second} }}}}"
        )
        assert isinstance(template.expand(labels, value, ""), str)


@given(
    st.lists(PIECES | st.text(max_size=3), max_size=12).map(" ".join),
    LABELS,
    st.floats(),
)
def test_any_template_is_refused_or_gives_a_text(text, labels, value) -> None:
    with suppress(TemplateError):
        for each in (text, f"{{{{ {text} }}}}"):
            with suppress(TemplateError):
                assert isinstance(AlertTemplate(each).expand(labels, value, ""), str)
