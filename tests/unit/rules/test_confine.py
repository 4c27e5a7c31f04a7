"""Rules of a team: what they may ask for, and whom they serve."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.golang.template.render import Data
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.rules.confine import confined_config
from gpuscale.server.rules.queries.plan import MetricNotFoundError, plan_custom, plan_external
from gpuscale.server.rules.resources import KUBERNETES

LABELS = ("namespace", "exported_namespace")
TEAM = """
rules:
- seriesQuery: gpu_util{pod!=""}
  resources: {template: <<.Resource>>}
  metricsQuery: 100 * max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / scalar(sum(secret))
externalRules:
- seriesQuery: queue
  resources: {template: <<.Resource>>, namespaced: false}
  metricsQuery: sum(queue{<<.LabelMatchers>>})
"""
CLUSTER = """
rules:
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: avg(gpu_util{<<.LabelMatchers>>})
externalRules:
- seriesQuery: queue
  resources: {template: <<.Resource>>}
  metricsQuery: max(queue{<<.LabelMatchers>>})
"""
SERIES = {"__name__": "gpu_util", "namespace": "x", "pod": "x", "node": "x"}
QUEUE = {"__name__": "queue", "namespace": "x"}


def team(text=TEAM, namespace="team-a"):
    return confined_config(load_rules(text, "cm"), namespace, LABELS, "cm")


def catalogue(*configs):
    joined = AdapterConfig.joined(*configs)
    answers = {query: [QUEUE if "queue" in query else SERIES] for query in joined.series_queries()}
    return Catalogue.build(joined, answers)


def asked(found, resource, namespace, names, metric="gpu_util", selector=""):
    selector = parse_selector(selector)
    return plan_custom(found, KUBERNETES, resource, namespace, names, metric, selector).promql


def test_every_selector_is_bound_to_the_namespace_whatever_the_template_says() -> None:
    config = team()
    assert config.series_queries() == (
        '{pod!="",__name__="gpu_util",namespace="team-a"}',
        '{__name__="queue",namespace="team-a"}',
    )
    assert asked(catalogue(config), "pods", "team-a", ("p",)) == (
        '((100.0) * (max by (pod) ({namespace="team-a",pod="p",__name__="gpu_util",'
        'namespace="team-a"}))) / (scalar(sum({__name__="secret",namespace="team-a"})))'
    )


def test_a_rule_without_namespaces_and_a_selector_of_another_one_stay_inside() -> None:
    plan = plan_external(catalogue(team()), "team-a", "queue", parse_selector("namespace=team-b"))
    assert plan.promql == 'sum({namespace="team-b",__name__="queue",namespace="team-a"})'


def test_a_team_serves_its_own_objects_only() -> None:
    found = catalogue(team())
    for resource, namespace, names in (
        ("pods", "team-b", ("p",)),
        ("nodes", None, ("n",)),
        ("namespaces", None, ("team-b",)),
        ("namespaces", None, ("team-a", "team-b")),
    ):
        with pytest.raises(MetricNotFoundError):
            asked(found, resource, namespace, names)
    with pytest.raises(MetricNotFoundError):
        plan_external(found, "team-b", "queue", parse_selector(""))
    assert 'namespace="team-a"' in asked(found, "namespaces", None, ("team-a",))
    assert [metric.name for metric in found.custom_resources()] == [
        "namespaces/gpu_util",
        "pods/gpu_util",
    ]
    assert found.external_metrics() == ("queue",)


@pytest.mark.parametrize("order", [1, -1])
def test_in_its_namespace_a_teams_rule_comes_before_the_clusters(order: int) -> None:
    configs = (team(), team(TEAM.replace("max", "min"), "team-b"), load_rules(CLUSTER, "c"))
    found = catalogue(*configs[::order])
    assert "max by" in asked(found, "pods", "team-a", ("p",))
    assert "min by" in asked(found, "pods", "team-b", ("p",))
    assert asked(found, "pods", "other", ("p",)).startswith("avg(gpu_util{")
    assert asked(found, "nodes", None, ("n",)) == 'avg(gpu_util{node="n"})'
    everywhere = plan_external(found, "other", "queue", parse_selector("")).promql
    assert everywhere == 'max(queue{namespace="other"})'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "resourceRules: {}",
            "cm: resourceRules: found resourceRules, expected rules and externalRules only: "
            "metrics.k8s.io is one for the whole cluster",
        ),
        (
            "- {seriesQuery: m, metricsQuery: m, resources: {overrides: {mine: {resource: namespace}}}}",
            "cm:1: resources: found the label 'mine' for namespaces, expected the label namespace "
            "or exported_namespace",
        ),
        (
            "- {seriesQuery: m, metricsQuery: m}",
            "cm:1: resources: found no label for namespaces, expected the label namespace "
            "or exported_namespace",
        ),
        (
            "- {seriesQuery: m, metricsQuery: 'info(m)', resources: {template: <<.Resource>>}}",
            "cm:1: metricsQuery: a query that can be confined to the namespace team-a: "
            "function info() is not supported",
        ),
    ],
)
def test_what_can_not_be_confined_is_refused_whole(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        team(text)
    assert str(caught.value).startswith(expected)


def test_a_query_that_only_a_request_makes_unreadable_is_not_sent() -> None:
    text = """
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: '<<if eq .LabelValuesByName.pod "bad">>sum(<<else>>sum(gpu_util)<<end>>'
"""
    found = catalogue(team(text))
    assert asked(found, "pods", "team-a", ("good",)) == (
        'sum({__name__="gpu_util",namespace="team-a"})'
    )
    with pytest.raises(MetricNotFoundError):
        asked(found, "pods", "team-a", ("bad",))


RANGED = """
rules:
- seriesQuery: gpu_util{pod!=""}
  resources: {template: <<.Resource>>}
  metricsQuery: 'max by (<<.GroupBy>>) (QUERY)'
"""
M = "<<.Series>>{<<.LabelMatchers>>}"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"max_over_time({M}[61m])", "it looks 1h1m back, expected at most 1h"),
        (f"avg_over_time({M}[30m] offset 31m)", "it looks 1h1m back"),
        (f"avg_over_time({M}[30m] offset -31m)", "it looks 1h1m back"),
        (f"max_over_time(rate({M}[5m])[56m:1m])", "it looks 1h1m back"),
        (f"max_over_time(max_over_time({M}[20m])[20m:] offset 21m)", "it looks 1h1m back"),
        (f"{M} @ 1000", "found @ with a time"),
        (f"max_over_time({M}[1h:1s])", "its subqueries have 3600 steps, expected at most 1000"),
        (
            f"max_over_time(max_over_time({M}[5m:5s])[5m:10s])",
            "its subqueries have 1800 steps",  # 60 within each of 30
        ),
    ],
)
def test_queries_that_read_much_of_the_past_are_refused(query: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        team(RANGED.replace("QUERY", query))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        f"max_over_time({M}[1h])",
        f"max_over_time(rate({M}[5m])[55m:1m])",
        f"rate({M}[5m]) / rate({M}[5m] offset 55m)",
        f"{M} @ end()",
    ],
)
def test_queries_within_the_budget_are_served(query: str) -> None:
    assert team(RANGED.replace("QUERY", query)).rules


def test_a_range_that_a_request_would_make_longer_is_not_sent() -> None:
    text = RANGED.replace(
        "QUERY",
        f'max_over_time({M}[<<if eq (index .LabelValuesByName "pod") "x">>5m<<else>>1d<<end>>])',
    )
    found = catalogue(team(text))
    assert "[300000ms]" in asked(found, "pods", "team-a", ("x",))
    with pytest.raises(MetricNotFoundError):
        asked(found, "pods", "team-a", ("y",))


def test_a_team_whose_series_are_too_many_serves_none_and_touches_nobody_else() -> None:
    configs = (team(), team(namespace="team-b"), load_rules(CLUSTER, "cluster"))
    joined = AdapterConfig.joined(*configs)
    answers = {query: [SERIES] for query in joined.series_queries()}
    first = team().rules[0].series_query
    answers[first] = [SERIES] * 20_001
    found = Catalogue.build(joined, answers)
    assert "find 20002 series, expected at most 20000" in found.over_budget["team-a"]
    assert list(found.over_budget) == ["team-a"]
    assert "team-a" not in found.custom_in
    assert "team-b" in found.custom_in
    assert found.custom


def test_each_part_of_a_combined_metric_is_confined() -> None:
    text = """
- seriesQuery: waiting
  resources: {template: <<.Resource>>}
  parts:
  - {name: queue, query: sum(waiting) by (<<.GroupBy>>), threshold: 5}
  - {name: kv, query: max(cache) by (<<.GroupBy>>), threshold: 0.8}
"""
    (rule,) = confined_config(load_rules(text, "c"), "team-a", ["namespace"], "c").rules
    assert rule.example("waiting").count('namespace="team-a"') == 4  # each part stands twice
    data: Data = {
        "Series": "waiting",
        "LabelMatchers": "",
        "LabelValuesByName": {},
        "GroupBy": "pod",
        "GroupBySlice": ("pod",),
    }
    assert all('namespace="team-a"' in part.query.render(data) for part in rule.parts)
