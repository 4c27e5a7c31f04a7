"""Query templates against the text they become, as in upstream's metrics_query_test.go, v0.12.0.

The label of every resource is its own name here, as in upstream's test.
"""

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.base.golang.template import parse_template
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.server.rules.query import FIELDS, custom_query, external_query
from gpuscale.server.rules.resources import ResourceType

RESOURCE = ResourceType("resource", "resource", "Resource", "group")
BY_NAMESPACE = '<<index .LabelValuesByName "namespaces">>'


class OwnNames:
    def label_for(self, resource: ResourceType) -> str:
        return resource.plural


def custom(template, *, names=(), namespace=None, selector="", group_by=(), series=""):
    return custom_query(
        parse_template(template, FIELDS),
        series,
        OwnNames(),
        RESOURCE,
        namespace,
        names,
        parse_selector(selector),
        group_by,
    )


def external(template, *, namespace=None, selector="", group_by=(), series=""):
    return external_query(
        parse_template(template, FIELDS),
        series,
        OwnNames(),
        namespace,
        parse_selector(selector),
        group_by,
    )


@pytest.mark.parametrize(
    ("template", "request_", "expected"),
    [
        pytest.param("series <<.Series>>", {"series": "foo"}, "series foo", id="B1"),
        pytest.param(
            "<<.LabelMatchers>>", {"names": ("bar", "baz")}, 'resource=~"bar|baz"', id="B2"
        ),
        pytest.param("<<.LabelMatchers>>", {"names": ("bar",)}, 'resource="bar"', id="B3"),
        pytest.param(
            "<<.LabelMatchers>>",
            {"names": ("bar",), "selector": "metric1=value1"},
            'metric1="value1",resource="bar"',
            id="B4",
        ),
        pytest.param(
            '<<index .LabelValuesByName "resource">>', {"names": ("bar",)}, "bar", id="B5-one"
        ),
        pytest.param(
            '<<index .LabelValuesByName "resource">>',
            {"names": ("bar", "baz")},
            "bar|baz",
            id="B5-two",
        ),
        pytest.param(
            BY_NAMESPACE + ' <<index .LabelValuesByName "resource">>',
            {"names": ("bar", "baz"), "namespace": "default"},
            "default bar|baz",
            id="B6",
        ),
        pytest.param("<<.GroupBy>>", {}, "resource", id="B7-none"),
        pytest.param(
            "<<.GroupBy>>", {"group_by": ("extra", "groups")}, "resource,extra,groups", id="B7"
        ),
        pytest.param("<<.GroupBySlice>>", {}, "[resource]", id="B8-none"),
        pytest.param(
            "<<.GroupBySlice>>",
            {"group_by": ("extra", "groups")},
            "[resource extra groups]",
            id="B8",
        ),
    ],
)
def test_custom_templates(template, request_, expected: str) -> None:
    assert custom(template, **request_) == expected


@pytest.mark.parametrize(
    ("template", "request_", "expected"),
    [
        pytest.param("series <<.Series>>", {"series": "foo"}, "series foo", id="B1"),
        pytest.param("<<.GroupBy>>", {"group_by": ("foo",)}, "foo", id="B9"),
        pytest.param("<<.GroupBySlice>>", {"group_by": ("foo", "bar")}, "[foo bar]", id="B8"),
        pytest.param(
            BY_NAMESPACE + " <<.GroupBySlice>>",
            {"namespace": "default", "group_by": ("foo", "bar")},
            "default [foo bar]",
            id="B10",
        ),
        pytest.param(
            BY_NAMESPACE + " <<.GroupBySlice>>",
            {"group_by": ("foo", "bar")},
            " [foo bar]",
            id="B10-not-namespaced",
        ),
        pytest.param("<<.LabelMatchers>>", {"selector": "foo=bar"}, 'foo="bar"', id="B11"),
        pytest.param(
            "<<.LabelMatchers>>",
            {"selector": "foo=bar", "namespace": "default"},
            'foo="bar",namespaces="default"',
            id="B11-namespaced",
        ),
        pytest.param(
            "<<.LabelMatchers>>",
            {"selector": "foo=bar,qux in (bar,baz)"},
            'foo="bar",qux=~"bar|baz"',
            id="B12",
        ),
        pytest.param("<<.LabelValuesByName>>", {"selector": "foo=bar"}, "map[foo:bar]", id="B13"),
        pytest.param(
            "<<.LabelValuesByName>>",
            {"selector": "foo in (bar,baz)"},
            "map[foo:bar|baz]",
            id="B13-two",
        ),
        pytest.param("<<.LabelMatchers>>", {"selector": "a"}, 'a!=""', id="B14-exists"),
        pytest.param("<<.LabelMatchers>>", {"selector": "!a"}, 'a=""', id="B14-absent"),
        pytest.param("<<.LabelMatchers>>", {"selector": "a notin (x)"}, 'a!~"x"', id="B14-notin"),
        pytest.param("<<.LabelMatchers>>", {"selector": "a!=x"}, 'a!="x"', id="B14-not"),
        pytest.param("<<.LabelMatchers>>", {"selector": "a in (x)"}, 'a=~"x"', id="B14-in"),
    ],
)
def test_external_templates(template, request_, expected: str) -> None:
    assert external(template, **request_) == expected


@pytest.mark.parametrize("selector", ["a>1", "a<1"])
def test_b14_comparisons_are_not_supported(selector: str) -> None:
    with pytest.raises(QueryError, match=f"^operator not supported by query builder: {selector}$"):
        external("<<.LabelMatchers>>", selector=selector)


@pytest.mark.parametrize("template", ["", '<<index .LabelValuesByName "none">>'])
def test_b15_an_empty_query_is_an_error(template: str) -> None:
    with pytest.raises(QueryError) as caught:
        custom(template, names=("a",))
    assert str(caught.value) == "empty query produced by metrics query template"
