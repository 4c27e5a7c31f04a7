"""Rule files: what is read, and what is said of files that can't be."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.server.rules.catalogue import needed_metric_names
from gpuscale.server.rules.config import default_config, load_rules

RULE = "{seriesQuery: m, metricsQuery: 'm{<<.LabelMatchers>>}'}"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_rules(text, "rules.yaml")
    return str(caught.value).split("\n")


def warnings(text: str) -> list[str]:
    return [str(warning) for warning in load_rules(text, "rules.yaml").warnings]


def test_every_fault_of_a_file_is_told_at_once() -> None:
    text = """
rules:
- seriesQuery: 'm{'
  seriesFilters: [{is: '(?=x)'}, {is: a, isNot: b}, {}]
  resources:
    overrides: {pod: {resource: pood}}
    template: kube_x
  name: {matches: '(a', as: b}
  metricsQuery: <<.Serie>>
"""
    # The shape is checked before the content, so that content is only looked at where it is complete.
    assert problems(text) == [
        "rules.yaml:4: rules[0].seriesFilters[1]: "
        "found both `is` and `isNot`, expected exactly one of them in a filter",
        "rules.yaml:4: rules[0].seriesFilters[2]: "
        "found neither `is` nor `isNot`, expected exactly one of them in a filter",
    ]
    content = problems(text.replace(", {is: a, isNot: b}, {}", ""))
    assert [line.split(":")[1] for line in content] == ["3", "4", "6", "7", "8", "9"]
    assert content[0].startswith(
        "rules.yaml:3: rules[0].seriesQuery: found 'm{', expected a series selector in PromQL: "
    )
    assert content[1].startswith(
        "rules.yaml:4: rules[0].seriesFilters[0].is: found '(?=x)', "
        "expected a regular expression of RE2: "
    )
    assert content[2] == (
        "rules.yaml:6: rules[0].resources.overrides.pod.resource: found unknown resource 'pood', "
        "expected a resource of the cluster"
    )
    assert content[3] == (
        "rules.yaml:7: rules[0].resources.template: found 'kube_x', expected a label template such as "
        "<<.Resource>>: must include at least <<.Resource>> in the label template"
    )
    assert content[4].startswith("rules.yaml:8: rules[0].name.matches: found '(a', expected")
    assert content[5] == (
        "rules.yaml:9: rules[0].metricsQuery: found '<<.Serie>>', expected a query template: unknown "
        "field .Serie; the fields are .GroupBy, .GroupBySlice, .LabelMatchers, .LabelValuesByName, "
        ".Series"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "", ["rules.yaml: found an empty file, expected one YAML document with rules"]
        ),
        pytest.param(
            "rules: []\n---\nrules: []\n",
            ["rules.yaml: found 2 documents, expected one YAML document with rules"],
        ),
        pytest.param(
            f"rule: [{RULE}]",
            ["rules.yaml:1: rule: no such field here; did you mean rules?"],
        ),
        pytest.param(
            "rules:\n- {seriesQuery: m, metricQuery: m}",
            ["rules.yaml:2: rules[0].metricQuery: no such field here; did you mean metricsQuery?"],
        ),
        pytest.param(
            "rules:\n- seriesQuery: m\n  metricsQuery: m\n  seriesQuery: n\n",
            ["rules.yaml:4: rules[0].seriesQuery: each key once; it stands on line 2 already"],
        ),
        pytest.param(
            "- metricsQuery: m\n",
            [
                "rules.yaml:1: [0].seriesQuery: found '', "
                "expected a series selector such as DCGM_FI_DEV_GPU_UTIL{}"
            ],
        ),
        pytest.param(
            "- {seriesQuery: [m]}\n",
            ["rules.yaml:1: [0].seriesQuery: found a list, expected text"],
        ),
        pytest.param(
            "- {seriesQuery: '', metricsQuery: m}\n",
            [
                "rules.yaml:1: [0].seriesQuery: found '', "
                "expected a series selector such as DCGM_FI_DEV_GPU_UTIL{}"
            ],
        ),
        pytest.param(
            "- {seriesQuery: m, metricsQuery: m, resources: {namespaced: 'no'}}\n",
            ["rules.yaml:1: [0].resources.namespaced: found 'no', expected true or false"],
        ),
        pytest.param(
            "rules:\n  custom:\n  - {seriesQuery: m, metricsQuery: <<len>>}\n",
            [
                "rules.yaml:3: rules.custom[0].metricsQuery: found '<<len>>', expected a query "
                "template: wrong number of args for len: want 1 got 0"
            ],
        ),
        pytest.param(
            "externalRules:\n- {seriesQuery: m, metricsQuery: '<<index .GroupBySlice 0>>'}\n",
            [
                "rules.yaml:2: externalRules[0].metricsQuery: found '<<index .GroupBySlice 0>>', "
                "expected a query template that a request can fill: index: index out of range: 0"
            ],
        ),
    ],
)
def test_faults_name_their_place(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_keys_without_a_value_count_as_absent() -> None:
    config = load_rules(
        "rules:\n- {seriesQuery: m, seriesFilters: , resources: , name: , metricsQuery: m}\n"
        "externalRules:\nresourceRules:\n",
        "rules.yaml",
    )
    assert len(config.rules) == 1
    assert config.external_rules == ()
    assert config.warnings == ()


def test_rules_keep_the_order_of_the_file_and_share_series_queries() -> None:
    config = load_rules(
        f"rules: [{RULE}, {RULE.replace('m,', 'n,')}, {RULE}]\nexternalRules: [{RULE}]", "r.yaml"
    )
    assert [rule.series_query for rule in config.rules] == ["m", "n", "m"]
    assert config.series_queries() == ("m", "n")
    assert [rule.origin for rule in config.external_rules] == ["r.yaml:2"]


def test_resource_rules_that_can_not_answer_are_reported() -> None:
    text = """
resourceRules:
  cpu:
    containerQuery: sum(c{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    containerLabel: container
    resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  memory:
    nodeQuery: m{<<.LabelMatchers>>}
    containerQuery: m{<<.LabelMatchers>>}
    resources: {template: <<.Resource>>}
  window: 1h30m
"""
    assert warnings(text) == [
        "rules.yaml:3: resourceRules.cpu.nodeQuery: no query: nothing can be answered with it",
        "rules.yaml:6: resourceRules.cpu.resources: no label names nodes: their usage can't "
        "be asked for",
        "rules.yaml:7: resourceRules.memory.containerLabel: not given: the containers of a pod "
        "count as one without a name",
    ]
    assert load_rules(text, "rules.yaml").resource_rules.window_ms == 5_400_000


def test_faults_of_resource_rules_name_their_place() -> None:
    text = """
resourceRules:
  cpu: {containerQuery: <<.Serie>>, resources: {overrides: {p: {resource: pid}}}}
  memory: {nodeQuery: '<<', resources: {template: x}}
  window: soon
"""
    places = [problem.partition(": found")[0] for problem in problems(text)]
    assert places == [
        "rules.yaml:3: resourceRules.cpu.resources.overrides.p.resource",
        "rules.yaml:3: resourceRules.cpu.containerQuery",
        "rules.yaml:4: resourceRules.memory.resources.template",
        "rules.yaml:4: resourceRules.memory.nodeQuery",
        "rules.yaml:5: resourceRules.window",
    ]


def test_the_empty_resource_rules_of_the_charts_values_serve_nothing() -> None:
    text = "rules: {default: false, resource: {}, custom: [{seriesQuery: m, metricsQuery: m}]}"
    assert load_rules(text, "values.yaml").resource_rules is None


def test_chart_values_bring_the_charts_rules_before_their_own() -> None:
    text = f"replicas: 2\nrules:\n  custom: [{RULE}]\n  external: [{RULE}]\n  resource: {{}}\n"
    config = load_rules(text, "values.yaml")
    assert [rule.series_query for rule in config.rules][-2:] == [
        '{namespace!="",__name__!~"^container_.*"}',
        "m",
    ]
    assert len(config.rules) == 7
    assert len(config.external_rules) == 1
    assert [str(warning) for warning in config.warnings] == [
        "values.yaml:1: replicas: not read: of the chart's values only `rules` is",
    ]


def test_chart_values_can_leave_the_charts_rules_out() -> None:
    config = load_rules(f"rules: {{default: false, custom: [{RULE}]}}", "values.yaml")
    assert [rule.series_query for rule in config.rules] == ["m"]


def test_the_charts_rules_have_no_warnings() -> None:
    assert len(default_config().rules) == 6
    assert default_config().warnings == ()


@pytest.mark.parametrize(
    ("rule", "warning"),
    [
        (
            "{seriesQuery: m, name: {matches: '^(.*)_total$', as: '$1_rate'}, metricsQuery: m}",
            "rules.yaml:1: [0].name.as: '1_rate' is no group of `matches` and means nothing; "
            "a number that is followed by letters needs braces, as in ${1}_rate",
        ),
        (
            "{seriesQuery: m}",
            "rules.yaml:1: [0].metricsQuery: "
            "no query: the metrics of this rule are listed, but can't be asked for",
        ),
        (
            "{seriesQuery: m, metricsQuery: m, resources: {overrides: "
            "{namespace: {resource: namespace}, ns: {resource: namespace}}}}",
            "rules.yaml:1: [0].resources.overrides.ns: "
            "queries ask for the label 'namespace', the first for namespaces",
        ),
    ],
)
def test_what_may_surprise_is_warned_of(rule: str, warning: str) -> None:
    assert warnings(f"[{rule}]") == [warning]


def test_a_query_that_is_no_promql_is_warned_of_and_kept() -> None:
    (warning,) = warnings("[{seriesQuery: m, metricsQuery: 'sum(<<.Series>>'}]")
    assert warning.startswith(
        "rules.yaml:1: [0].metricsQuery: does not look like PromQL once it is filled in: parse error"
    )


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        ("{seriesQuery: m, metricsQuery: 'sum(<<.Series>>) / sum(n)'}", {"m", "n"}),
        ("{seriesQuery: '{__name__=\"m\"}', metricsQuery: <<.Series>>}", {"m"}),
        ("{seriesQuery: m, metricsQuery: sum(n)}", {"m", "n"}),
        ("{seriesQuery: '{__name__=~\"m.*\"}', metricsQuery: sum(n)}", None),
        ("{seriesQuery: m, metricsQuery: '{job=\"x\"}'}", None),
        ("{seriesQuery: m, metricsQuery: ''}", None),
    ],
)
def test_needed_series_are_known_where_all_queries_name_them(rule: str, needed) -> None:
    assert needed_metric_names(load_rules(f"[{rule}]", "r.yaml")) == needed


def test_every_fault_of_parts_is_told_at_once() -> None:
    text = """
- seriesQuery: m
  parts:
  - {name: a, query: 'm{<<.LabelMatchers>>}', threshold: 0}
  - {name: a, query: '', threshold: 5}
  - {query: <<.Serie>>, threshold: much}
"""
    found = problems(text)
    number = "expected a number above 0, such as 5, 0.8 or 800m"
    own = "found 'a', expected a name of its own for each part"
    assert found[0] == f"rules.yaml:4: [0].parts[0].name: {own}"
    assert found[1] == f"rules.yaml:4: [0].parts[0].threshold: found 0, {number}"
    assert found[2] == f"rules.yaml:5: [0].parts[1].name: {own}"
    assert found[3].startswith("rules.yaml:5: [0].parts[1].query: found none, expected a query")
    assert found[4].startswith("rules.yaml:6: [0].parts[2].query: found '<<.Serie>>', expected")
    assert found[5] == f"rules.yaml:6: [0].parts[2].threshold: found 'much', {number}"
    assert len(found) == 6


def test_parts_stand_in_place_of_a_query_and_have_no_zero_for_nan() -> None:
    parts = "parts: [{query: m, threshold: 1}]"
    (both,) = problems(f"[{{seriesQuery: m, metricsQuery: m, {parts}}}]")
    assert "found both `metricsQuery` and `parts`" in both
    (zero,) = problems(f"[{{seriesQuery: m, nan: zero, {parts}}}]")
    assert "found `nan: zero` beside `parts`" in zero
    many = ", ".join(f"{{query: m, threshold: 1, name: p{i}}}" for i in range(9))
    assert problems(f"[{{seriesQuery: m, parts: [{many}]}}]") == [
        "rules.yaml:1: [0].parts: found 9 parts, expected at most 8 parts"
    ]


def test_series_of_all_parts_are_kept_by_a_collector() -> None:
    config = load_rules(
        "[{seriesQuery: a, parts: [{query: 'a{<<.LabelMatchers>>}', threshold: 1},"
        " {query: 'sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)', threshold: 2}]}]",
        "rules.yaml",
    )
    assert needed_metric_names(config) == frozenset({"a", "b"})
