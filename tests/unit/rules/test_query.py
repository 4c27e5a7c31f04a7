"""Matchers of many and of unusual objects; the ordinary ones stand in the conformance tables."""

import pytest

from gpuscale.base.golang.template import parse_template
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.regex import compile_re2
from gpuscale.series.promql.parse import parse_matchers
from gpuscale.server.rules.query import FIELDS, custom_query, escape_name
from gpuscale.server.rules.resources import KUBERNETES, ResourceType

TEMPLATE = parse_template("m{<<.LabelMatchers>>}", FIELDS)
BY_VALUE = parse_template('m{pod=~"<<index .LabelValuesByName "pod">>"}', FIELDS)


class Singular:
    def label_for(self, resource: ResourceType) -> str:
        return resource.singular


def query(template, *names: str) -> str:
    return custom_query(template, "m", Singular(), KUBERNETES.find("pods"), "n", names, Selector())


def test_a_dot_in_one_of_several_names_is_no_wildcard() -> None:
    text = query(TEMPLATE, "a.b", "c")
    assert text == 'm{namespace="n",pod=~"a[.]b|c"}'
    (pattern,) = [matcher for matcher in parse_matchers(text) if matcher.name == "pod"]
    test = pattern.predicate()
    assert test("a.b")
    assert not test("axb")


def test_escaped_names_also_serve_inside_a_promql_string() -> None:
    (pattern, _) = parse_matchers(query(BY_VALUE, "a.b", "c"))
    assert pattern.predicate()("a.b")


@pytest.mark.parametrize("quote", ['"', "'"])
@pytest.mark.parametrize("name", ['a"b', "a'b", "a\\", "a`b", "a\nb", 'z"} or y{a="'])
def test_a_value_by_name_cannot_end_the_string_around_it(quote: str, name: str) -> None:
    template = parse_template(f'm{{pod={quote}<<index .LabelValuesByName "pod">>{quote}}}', FIELDS)
    pattern, _ = parse_matchers(query(template, name))
    assert pattern.value == name


def test_a_value_by_name_cannot_end_a_raw_string() -> None:
    template = parse_template('m{pod=`<<index .LabelValuesByName "pod">>`}', FIELDS)
    pattern, _ = parse_matchers(query(template, "z`} or y{a=`"))
    assert pattern.name == "pod"


def test_a_single_name_is_compared_as_it_is() -> None:
    assert query(TEMPLATE, "a.b") == 'm{namespace="n",pod="a.b"}'


@pytest.mark.parametrize("name", ["a.b", "x+y*z?", "(a)|[b]", "{1}$", "a^b\\c", "plain", "a[.]b"])
def test_an_escaped_name_matches_only_itself(name: str) -> None:
    pattern = compile_re2(escape_name(name))
    assert pattern.fullmatch(name) is not None
    assert pattern.fullmatch(name.replace("a", "b", 1) + "x") is None


def test_very_many_objects_are_asked_for_without_naming_them() -> None:
    names = [f"vision-api-6d5f7c9b8d-{number:05}" for number in range(2000)]
    text = query(TEMPLATE, *names)
    assert text == 'm{namespace="n",pod=~".+"}'
    assert len(query(TEMPLATE, *names[:200])) < 8 * 1024
