"""Whatever a rule file holds, loading it ends in rules or in a ConfigError."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError, NotFoundError, QueryError
from gpuscale.base.objects.selectors import Selector
from gpuscale.server.rules.catalogue import Catalogue, needed_metric_names
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.rules.query import custom_query
from gpuscale.server.rules.resources import KUBERNETES

WORDS = st.sampled_from(
    [
        "",
        "m",
        "m{}",
        '{__name__=~"^a.*"}',
        "^(.*)_total$",
        "(a)(b)",
        "(?=a)",
        "${1}_x",
        "$1_x",
        "<<.Resource>>",
        "kube_<<.Group>>_<<.Resource>>",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "<<index .GroupBySlice 0>>",
        "<<.",
        "pod",
        "pods",
        "jobs",
        "batch",
        "[",
        "((",
    ]
)
LEAVES = WORDS | st.text(max_size=8) | st.none() | st.booleans() | st.integers()
KEYS = st.sampled_from(
    [
        "rules",
        "externalRules",
        "resourceRules",
        "custom",
        "external",
        "default",
        "seriesQuery",
        "seriesFilters",
        "is",
        "isNot",
        "resources",
        "overrides",
        "template",
        "namespaced",
        "group",
        "resource",
        "name",
        "matches",
        "as",
        "metricsQuery",
        "cpu",
        "memory",
        "containerQuery",
        "nodeQuery",
        "containerLabel",
        "window",
        "other",
    ]
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
FILTER = st.fixed_dictionaries({}, optional={"is": WORDS, "isNot": WORDS})
GROUP_RESOURCE = st.fixed_dictionaries({"resource": WORDS}, optional={"group": WORDS})
RULE = st.fixed_dictionaries(
    {"seriesQuery": WORDS},
    optional={
        "seriesFilters": st.lists(FILTER, max_size=2),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "overrides": st.dictionaries(st.text(max_size=3), GROUP_RESOURCE, max_size=3),
                "template": WORDS,
                "namespaced": st.booleans(),
            },
        ),
        "name": st.fixed_dictionaries({}, optional={"matches": WORDS, "as": WORDS}),
        "metricsQuery": WORDS | st.text(max_size=12),
    },
)
FILES = st.fixed_dictionaries(
    {}, optional={"rules": st.lists(RULE, max_size=3), "externalRules": st.lists(RULE, max_size=2)}
)
SERIES = [
    {"__name__": "m_total", "pod": "p", "namespace": "n", "job": "j"},
    {"__name__": "ab", "kube_apps_deployment": "d", "node": ""},
]


def check(config: AdapterConfig) -> None:
    needed_metric_names(config)
    catalogue = Catalogue.build(config, dict.fromkeys(config.series_queries(), SERIES))
    assert all(metric.name for metric in catalogue.custom_resources())
    assert all(catalogue.external_metrics())


def outcome(text: str) -> AdapterConfig | ConfigError:
    try:
        return load_rules(text, "rules.yaml")
    except ConfigError as error:
        return error


def load(text: str) -> None:
    loaded = outcome(text)
    if isinstance(loaded, ConfigError):
        assert loaded.problems
        assert all(str(problem).startswith("rules.yaml") for problem in loaded.problems)
    else:
        check(loaded)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_text(text) -> None:
    load(text)


@given(ANYTHING)
def test_any_structure(data) -> None:
    load(json.dumps(data))


@given(FILES)
def test_any_values_in_the_right_structure(data) -> None:
    load(json.dumps(data))


@given(RULE, st.lists(st.text(max_size=6), min_size=1, max_size=3))
def test_a_loaded_rule_gives_a_query_or_says_why_not(rule, names) -> None:
    config = outcome(json.dumps([rule]))
    if isinstance(config, ConfigError):
        return
    (loaded,) = config.rules
    pods = KUBERNETES.find("pods")
    try:
        text = custom_query(loaded.metrics_query, "m", loaded.labels, pods, "n", names, Selector())
    except (NotFoundError, QueryError):
        return
    assert text
