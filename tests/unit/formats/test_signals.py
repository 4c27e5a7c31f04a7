"""The catalogue of signals: names, units, and PromQL that is PromQL."""

import re

import pytest

from gpuscale.series.promql.parse import metric_names, parse_query
from gpuscale.signals import SIGNALS, by_family, filled_in, value_by

FROM_PODS = {name: each for name, each in SIGNALS.items() if each.kind == "pods"}
OTHERS = {name: each for name, each in SIGNALS.items() if each.kind != "pods"}


def test_each_signal_is_named_after_its_family() -> None:
    for family, signals in by_family():
        if family.name != "gpu":
            assert all(name.startswith(f"{family.name}-") for name in signals)


def test_each_metric_is_that_of_one_signal() -> None:
    metrics = [each.metric for each in SIGNALS.values()]
    assert len(set(metrics)) == len(metrics)
    # As the metrics API takes them.
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", metric) for metric in metrics)


@pytest.mark.parametrize("name", SIGNALS)
def test_each_signal_says_what_it_is_and_why_its_target_is_sensible(name: str) -> None:
    signal = SIGNALS[name]
    assert signal.what
    assert signal.why
    assert signal.target > 0


@pytest.mark.parametrize("name", FROM_PODS)
def test_the_value_of_a_pod_is_promql(name: str) -> None:
    series = metric_names(parse_query(value_by(SIGNALS[name], 'pod="a"', "pod")))
    assert series is not None
    assert {SIGNALS[name].series} & {re.sub("_bucket$", "", each) for each in series}


@pytest.mark.parametrize("name", OTHERS)
def test_the_query_of_one_object_is_promql_whatever_its_name(name: str) -> None:
    signal = SIGNALS[name]
    assert "$name" in signal.query
    assert signal.family.names
    text = filled_in(signal.query, 'a"b\\c', "ml")
    assert metric_names(parse_query(text))
    assert "$name" not in text


def test_an_object_s_signal_has_its_object_and_the_label_with_its_name() -> None:
    for signal in SIGNALS.values():
        assert (signal.kind == "object") == (signal.described is not None) == bool(signal.label)


def test_of_two_spellings_the_current_one_counts_first() -> None:
    # vLLM before 0.10 has the older name, from 0.9 to 0.10 both.
    assert value_by(SIGNALS["vllm-kv-cache"], 'namespace="ml"', "pod") == (
        'avg(vllm:kv_cache_usage_perc{namespace="ml"}) by (pod)'
        ' or avg(vllm:gpu_cache_usage_perc{namespace="ml"}) by (pod)'
    )
