# mypy: disable-error-code="comparison-overlap"
import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.rules.rule import RuleFailure
from gpuscale.series.storage.store import SeriesStore

RULES = """\
groups:
- name: gpu
  interval: 30s
  rules:
  - record: pod:gpu_util:avg
    expr: avg by (pod) (DCGM_FI_DEV_GPU_UTIL)
    labels: {team: ml}
  - alert: Hot
    expr: max(DCGM_FI_DEV_GPU_TEMP) > 90
    for: 5m
    annotations: {summary: hot}
- name: second
  rules:
  - record: cluster:gpu_util:max
    expr: max(pod:gpu_util:avg)
"""


def store_with(**utils):
    store = SeriesStore()
    for pod, value in utils.items():
        store.append({"__name__": "DCGM_FI_DEV_GPU_UTIL", "pod": pod, "gpu": "0"}, 0, value)
    return store


def values(store, query, at_ms):
    return {str(each.labels): each.value for each in instant(store, query, at_ms).samples}


def test_results_become_series_in_the_order_of_the_groups() -> None:
    store = store_with(a=40, b=60)
    result = load_rule_groups(RULES, "rules.yaml").evaluate(store, 1000)
    assert (result.samples, result.failures) == (3, ())
    assert values(store, '{__name__=~".+:.+"}', 1000) == {
        'pod:gpu_util:avg{pod="a", team="ml"}': 40,
        'pod:gpu_util:avg{pod="b", team="ml"}': 60,
        "cluster:gpu_util:max": 60,
    }


def test_a_group_waits_for_its_interval() -> None:
    store = store_with(a=40)
    rules = load_rule_groups(RULES, "rules.yaml")
    # The second group has no interval and runs at every call.
    taken = [rules.evaluate(store, t_ms).samples for t_ms in (0, 15_000, 30_000)]
    assert taken == [2, 1, 2]


def test_a_result_that_vanishes_is_marked_stale() -> None:
    store = store_with(a=40, b=60)
    rules = load_rule_groups(RULES, "rules.yaml")
    rules.evaluate(store, 0)
    store.mark_stale(store.ref({"__name__": "DCGM_FI_DEV_GPU_UTIL", "pod": "b", "gpu": "0"}), 1)
    rules.evaluate(store, 30_000)
    assert list(values(store, "pod:gpu_util:avg", 30_000)) == [
        'pod:gpu_util:avg{pod="a", team="ml"}'
    ]


def test_a_rule_that_fails_leaves_the_others_alone() -> None:
    text = """\
groups:
- name: g
  rules:
  - {record: bad, expr: 'DCGM_FI_DEV_GPU_UTIL * on() DCGM_FI_DEV_GPU_UTIL'}
  - {record: same, expr: DCGM_FI_DEV_GPU_UTIL, labels: {pod: x}}
  - {record: fine, expr: '1 + 1'}
"""
    result = load_rule_groups(text, "r").evaluate(store_with(a=1, b=2), 0)
    assert result.samples == 1
    assert result.failures[1] == RuleFailure(
        "g", "same", "vector contains metrics with the same labelset after applying rule labels"
    )
    assert result.failures[0].reason.startswith("found duplicate series for the match group {}")


def test_names_that_are_read_are_known() -> None:
    rules = load_rule_groups(RULES, "rules.yaml")
    assert rules.needed_metric_names() == {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_GPU_TEMP",
        "pod:gpu_util:avg",
    }
    open_rule = "groups: [{name: g, rules: [{record: a, expr: 'sum({pod=\"x\"})'}]}]"
    assert load_rule_groups(open_rule, "r").needed_metric_names() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "groups:\n- name: g\n  rules:\n  - record: a\n    exprs: b\n",
            "r.yaml:4: groups[0].rules[0].expr: this field is required\n"
            "r.yaml:5: groups[0].rules[0].exprs: no such field here; did you mean expr?",
        ),
        (
            "groups:\n- name: g\n  rules:\n  - record: a\n    expr: sum(\n",
            "r.yaml:5: groups[0].rules[0].expr: found 'sum(': 1:5: parse error: unclosed left parenthesis, "
            "expected PromQL",
        ),
        (
            "groups:\n- name: g\n  rules:\n  - record: a-b\n    expr: c\n",
            "r.yaml:4: groups[0].rules[0].record: found 'a-b', expected a metric name, such as "
            "job:gpu_utilization:avg",
        ),
        (
            "groups:\n- name: g\n  rules:\n  - expr: c\n",
            "r.yaml:4: groups[0].rules[0]: exactly one of record and alert",
        ),
        (
            "groups:\n- name: g\n  rules:\n  - record: a\n    expr: c\n    labels: {__name__: x}\n",
            "r.yaml:6: groups[0].rules[0].labels.__name__: a label name",
        ),
        (
            "groups:\n- name: g\n- name: g\n",
            "r.yaml:3: groups[1].name: found 'g', expected each group name once",
        ),
        (
            "groups:\n- name: g\n  interval: soon\n",
            "r.yaml:3: groups[0].interval: found 'soon', expected a duration such as 15s, 5m or 1h30m",
        ),
    ],
)
def test_faults_are_named_with_line_and_field(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_rule_groups(text, "r.yaml")
    assert str(caught.value) == message
