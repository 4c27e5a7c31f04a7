"""What rules can ask for, by their text alone; and a filter that goes by it."""

import pytest

from gpuscale.series.wanted import EVERYTHING, WantedNames, WantedSeries
from gpuscale.server.rules.config import load_rules, preset_text
from gpuscale.server.sources.feeds.needs import wanted_by_rules

RULE = """
rules:
- seriesQuery: {series}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: {query}
"""
PLAIN = "'avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'"


def keeps(series, query=PLAIN):
    text = RULE.format(series=series, query=query)
    return WantedSeries(wanted_by_rules(load_rules(text, "rules.yaml"))).keeps


def test_a_series_that_is_named() -> None:
    kept = keeps('util{pod!=""}')
    assert [name for name in ("util", "util_total", "temp") if kept(name)] == ["util"]


def test_series_by_a_pattern_and_what_a_query_names_besides() -> None:
    query = "'<<.Series>>{<<.LabelMatchers>>} / on (pod) limit_of_gpu'"
    kept = keeps("'{__name__=~\"DCGM_FI_DEV_.*_UTIL\"}'", query)
    assert kept("DCGM_FI_DEV_GPU_UTIL")
    assert kept("limit_of_gpu")
    assert not kept("DCGM_FI_DEV_GPU_TEMP")
    assert not kept("a_DCGM_FI_DEV_GPU_UTIL")  # as Prometheus, a pattern is for the whole name


def test_both_sides_of_a_branch_count() -> None:
    query = "'<<if eq .GroupBy \"pod\">>sum(util)<<else>>sum(temp)<<end>>'"
    kept = keeps("util", query)
    assert kept("util")
    assert kept("temp")


@pytest.mark.parametrize(
    ("series", "query"),
    [
        ("'{pod!=\"\"}'", PLAIN),
        ("'{__name__=~\"a.*\"}'", "'rate(<<.Series>>_total{<<.LabelMatchers>>}[5m])'"),
        ("'{__name__=~\"a.*\"}'", "'{__name__=~\"<<.Series>>_(sum|count)\"}'"),
        ("a", '\'<<if eq .GroupBy "pod">>a<<else>>{__name__=~"b.*"}<<end>>\''),
        ("a", "'<<range .GroupBySlice>>by_<<.>>{}<<end>>a'"),
        ("a", "'<<if .GroupBy>><<index .LabelValuesByName \"pod\">>{}<<end>>'"),
        ("a", "'<<printf \"%s_total\" .Series>>{<<.LabelMatchers>>}'"),
    ],
)
def test_where_names_may_come_about_in_another_way_everything_is_kept(series: str, query) -> None:
    assert keeps(series, query)("whatever")


def test_the_preset_does_without_the_fields_that_it_never_asks_for() -> None:
    wanted = wanted_by_rules(load_rules(preset_text(), "preset"))
    kept = WantedSeries(wanted).keeps
    assert kept("DCGM_FI_DEV_GPU_UTIL")
    assert kept("vllm:num_requests_waiting")
    assert not kept("DCGM_FI_DEV_XID_ERRORS")
    assert not kept("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")


def test_a_filter_changes_its_version_with_what_is_wanted() -> None:
    found = WantedSeries(WantedNames(frozenset({"a"})))
    assert (found.keeps("a"), found.keeps("b"), found.version) == (True, False, 0)
    found.change(WantedNames(frozenset({"a"})))
    assert found.version == 0
    found.change(WantedNames(frozenset({"b"})))
    assert (found.keeps("a"), found.keeps("b"), found.version) == (False, True, 1)


def test_everything_joined_with_anything_is_everything() -> None:
    some = WantedNames(frozenset({"a"}), frozenset({"b.*"}))
    assert WantedNames.joined([some, EVERYTHING]) == EVERYTHING
    assert WantedNames.joined([some, WantedNames(frozenset({"c"}))]) == WantedNames(
        frozenset({"a", "c"}), frozenset({"b.*"})
    )
    assert not WantedSeries(WantedNames.joined([])).keeps("a")
