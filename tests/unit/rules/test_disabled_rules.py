"""Rules that can give nothing, beside one that does: what a server makes of the file, and what upstream does.

Source of what prometheus-adapter v0.12.0 does at its start: pkg/config (loader.go) and pkg/naming
(metric_namer.go, resource_converter.go, metrics_query.go), run on each file below. A file that it starts with
starts here; what it refuses for one rule costs that rule alone here.
"""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.server.rules.config import load_rules

GOOD = "- {seriesQuery: good, metricsQuery: good}"
STARTS = {
    "a field that templates don't have": (
        "{seriesQuery: a, metricsQuery: 'sum(<<.Serie>>)'}",
        "metricsQuery",
    ),
    "a template that fails on any request": (
        "{seriesQuery: a, metricsQuery: '<<index .GroupBySlice 7>>'}",
        "metricsQuery",
    ),
    "no series query": ("{metricsQuery: a}", "seriesQuery"),
    "an empty series query": ("{seriesQuery: '', metricsQuery: a}", "seriesQuery"),
    "a series query that is no PromQL": ("{seriesQuery: '{a=', metricsQuery: a}", "seriesQuery"),
    "a series query that is no selector": ("{seriesQuery: sum(a), metricsQuery: a}", "seriesQuery"),
    "what templates here don't have": (
        "{seriesQuery: a, metricsQuery: '<<html .Series>>'}",
        "metricsQuery",
    ),
}
REFUSES = {
    "a template that is none": ("{seriesQuery: a, metricsQuery: '<<.Series'}", "metricsQuery"),
    "an unknown function": ("{seriesQuery: a, metricsQuery: '<<foo .Series>>'}", "metricsQuery"),
    "a filter that is no expression": (
        "{seriesQuery: a, seriesFilters: [{is: (}], metricsQuery: a}",
        "seriesFilters[0].is",
    ),
    "two groups without as": (
        "{seriesQuery: a, name: {matches: (a)(b)}, metricsQuery: a}",
        "name.matches",
    ),
    "a resource that the cluster lacks": (
        "{seriesQuery: a, resources: {overrides: {x: {resource: fleet}}}, metricsQuery: a}",
        "resources.overrides.x.resource",
    ),
    "a label template without the resource": (
        "{seriesQuery: a, resources: {template: kube}, metricsQuery: a}",
        "resources.template",
    ),
}
KIN = {**STARTS, **REFUSES}


@pytest.mark.parametrize("external", [False, True], ids=["custom", "external"])
@pytest.mark.parametrize(("rule", "field"), KIN.values(), ids=KIN)
def test_one_rule_disables_itself_and_no_other(rule: str, field: str, external: bool) -> None:
    section = "externalRules" if external else "rules"
    text = f"{section}:\n{GOOD}\n- {rule}\n"
    config = load_rules(text, "rules.yaml", disables=True)
    assert config.series_queries() == ("good",)
    (disabled,) = config.disabled
    assert str(disabled).startswith(f"rules.yaml:3: {section}[1].{field}: found ")
    assert disabled.external is external
    with pytest.raises(ConfigError) as caught:  # of commands, such as lint
        load_rules(text, "rules.yaml")
    assert caught.value.problems == disabled.problems


def test_resource_rules_disable_themselves_together() -> None:
    text = f"rules:\n{GOOD}\nresourceRules:\n  cpu: {{containerQuery: a<<.Foo>>, nodeQuery: a}}\n"
    config = load_rules(text, "rules.yaml", disables=True)
    assert (config.series_queries(), config.resource_rules) == (("good",), None)
    assert "resourceRules.cpu.containerQuery" in str(config.disabled[0])


@pytest.mark.parametrize(
    ("text", "queries", "warned"),
    [
        ("", (), "found an empty file"),
        (f"rules:\n{GOOD}\n---\nrules:\n- {{seriesQuery: b}}\n", ("good",), "found 2 documents"),
        ("rules:\n", (), ""),
    ],
    ids=["empty", "two documents", "no rules"],
)
def test_of_a_file_its_first_document_counts(text: str, queries: tuple[str], warned: str) -> None:
    config = load_rules(text, "rules.yaml", disables=True)
    assert config.series_queries() == queries
    assert warned in "".join(map(str, config.warnings))


@pytest.mark.parametrize(
    ("rule", "metric", "expected"),
    [
        ("{seriesQuery: a_total, name: {as: a}, metricsQuery: <<.Foo>>}", "a", True),
        ("{seriesQuery: a_total, name: {as: a}, metricsQuery: <<.Foo>>}", "b", False),
        ("{seriesQuery: '{pod!=\"\"}', metricsQuery: <<.Foo>>}", "a", None),
        ("{seriesQuery: a, name: {matches: (}, metricsQuery: a}", "a", None),
        ("{seriesQuery: 1 2, metricsQuery: a}", "a", None),
    ],
)
def test_what_a_disabled_rule_would_have_given(
    rule: str, metric: str, expected: bool | None
) -> None:
    (disabled,) = load_rules(f"rules:\n- {rule}\n", "rules.yaml", disables=True).disabled
    assert disabled.would_give(metric) is expected
