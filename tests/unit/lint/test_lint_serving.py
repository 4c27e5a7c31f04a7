"""Which rule answers for a metric, and of which series."""

import pytest

from gpuscale.ops.lint.rule_inputs import PlacedRule
from gpuscale.ops.lint.serving import RuleIndex, has_namespaces
from gpuscale.server.rules.config import default_config, load_rules
from gpuscale.server.rules.queries.backwards import maps
from gpuscale.server.rules.resources import KUBERNETES, PODS

CHART = [PlacedRule(rule, None) for rule in default_config().rules]


def servings(rules, metric):
    return RuleIndex(rules).servings(metric)


def rules(text):
    return [PlacedRule(rule, None) for rule in load_rules(text, "r.yaml").rules]


@pytest.mark.parametrize(
    ("metric", "series"),
    [
        # Backwards through the six rules of the chart: what each would call it, the last rule first.
        ("requests", {"requests_seconds_total", "requests_total", "requests"}
         | {"container_requests", "container_requests_total", "container_requests_seconds_total"}),
        ("up", {"up_seconds_total", "up_total", "up"}
         | {"container_up", "container_up_total", "container_up_seconds_total"}),
    ],
)  # fmt: skip
def test_the_charts_rules_are_read_backwards(metric: str, series) -> None:
    assert {each.series for each in servings(CHART, metric)} == series
    assert not any(each.certain for each in servings(CHART, metric))


def test_a_name_that_a_filter_keeps_out_is_not_served_as_it_is() -> None:
    assert "a_total" not in {each.series for each in servings(CHART, "a_total")}


def test_a_rule_that_names_its_series_is_certain() -> None:
    (found,) = servings(rules("[{seriesQuery: 'a_total{}', name: {matches: ^(.*)_total$}}]"), "a")
    assert (found.series, found.certain) == ("a_total", True)
    assert servings(rules("[{seriesQuery: 'a_total{}'}]"), "a") == ()


def test_a_rule_that_cant_be_read_backwards_may_serve_what_fits_its_plain_text() -> None:
    text = "[{seriesQuery: '{x=\"y\"}', name: {matches: '^(a|b)(c+)', as: 'q_${1}_${2}'}}]"
    (found,) = servings(rules(text), "q_a_cc")
    assert (found.series, found.certain) == (None, False)
    assert servings(rules(text), "r_a_cc") == ()


def test_a_name_that_matches_literally_tells_the_series() -> None:
    text = "[{seriesQuery: '{x=\"y\"}', name: {matches: '^vllm:queue$', as: vllm_queue}}]"
    (found,) = servings(rules(text), "vllm_queue")
    assert (found.series, found.certain) == ("vllm:queue", True)


@pytest.mark.parametrize(
    ("query", "name", "series"),
    [
        # What is known of the series: all of it, by the expression for its name, or nothing.
        ('{__name__=~"^vllm:queue$"}', "{as: waiting}", "vllm:queue"),
        ('{__name__=~"vllm:queue"}', '{matches: "", as: waiting}', "vllm:queue"),
        ('{__name__=~"^vllm:.*"}', "{as: waiting}", None),
        ('{__name__=~"a|b"}', '{matches: "^(.*)$", as: waiting}', None),
        ('{job="vllm"}', "{as: waiting}", None),
    ],
)
def test_a_fixed_name_is_certain_whatever_the_series_is_called(query, name, series) -> None:
    """As pkg/naming/metric_namer.go of prometheus-adapter v0.12 has it: `as` names every match."""
    text = f"[{{seriesQuery: '{query}', name: {name}}}]"
    (found,) = servings(rules(text), "waiting")
    assert (found.series, found.certain) == (series, True)
    assert servings(rules(text), "vllm_queue") == ()


def test_a_fixed_name_for_a_series_that_the_query_leaves_out_is_nothing() -> None:
    text = "[{seriesQuery: '{__name__=~\"a.*\"}', name: {matches: '^b$', as: waiting}}]"
    assert servings(rules(text), "waiting") == ()


def test_a_series_has_to_fit_the_name_of_the_series_query() -> None:
    text = (
        "[{seriesQuery: '{__name__=~\"vllm:.*\"}', name: {matches: '^vllm:(.*)$', as: 'vllm_$1'}}]"
    )
    (found,) = servings(rules(text), "vllm_queue")
    assert found.series == "vllm:queue"
    assert servings(rules(text), "queue") == ()


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{template: <<.Resource>>}", True),
        ("{overrides: {x: {resource: pod}}}", True),
        ("{overrides: {x: {resource: node}}}", False),
        ("{template: 'kube_<<.Group>>_<<.Resource>>'}", False),
    ],
)
def test_which_resources_a_rule_can_find(resources: str, expected: bool) -> None:
    (placed,) = rules(f"[{{seriesQuery: a, resources: {resources}}}]")
    assert maps(placed.rule, PODS) is expected


def test_a_template_with_a_group_finds_what_has_one() -> None:
    (placed,) = rules("[{seriesQuery: a, resources: {template: 'kube_<<.Group>>_<<.Resource>>'}}]")
    assert maps(placed.rule, KUBERNETES.find("deployments"))


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{template: <<.Resource>>}", True),
        ("{template: 'kube_<<.Group>>_<<.Resource>>'}", True),
        ("{overrides: {ns: {resource: namespace}}}", True),
        ("{overrides: {pod: {resource: pod}}}", False),
        ("{}", False),
    ],
)
def test_whether_requests_can_ask_for_a_namespace(resources: str, expected: bool) -> None:
    (placed,) = rules(f"[{{seriesQuery: a, resources: {resources}}}]")
    assert has_namespaces(placed.rule) is expected
