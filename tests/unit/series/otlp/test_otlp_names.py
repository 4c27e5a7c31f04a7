"""Names as Prometheus gives them: the cases of its own translator's tests."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.series.otlp.names import MetricKind, label_name, metric_name

GAUGE, COUNTER, OTHER = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.OTHER


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        # prometheus/otlptranslator, metric_namer_test.go
        ("requests", "", COUNTER, "requests_total"),
        ("cpu_usage", "1", GAUGE, "cpu_usage_ratio"),
        ("items", "1", COUNTER, "items_total"),
        ("response_time", "ms", GAUGE, "response_time_milliseconds"),
        ("memory_usage", "By", GAUGE, "memory_usage_bytes"),
        ("requests", "1/s", GAUGE, "requests_per_second"),
        ("throughput", "By/s", GAUGE, "throughput_bytes_per_second"),
        ("custom_metric", "custom_unit", GAUGE, "custom_metric_custom_unit"),
        ("custom_metric", "{custom}", GAUGE, "custom_metric"),
        ("custom_metric", "By/{custom}", GAUGE, "custom_metric_bytes"),
        ("requests_total", "", COUNTER, "requests_total"),
        ("cpu_usage_ratio", "1", GAUGE, "cpu_usage_ratio"),
        ("response_time_seconds", "s", GAUGE, "response_time_seconds"),
        (
            "metric__with__multiple__underscores",
            "unit__multiple__underscores",
            GAUGE,
            "metric_with_multiple_underscores_unit_multiple_underscores",
        ),
        (
            "custom_metric",
            "unit@with#special/chars",
            GAUGE,
            "custom_metric_unit_with_special_per_chars",
        ),
        ("@#$%", "", GAUGE, ""),
        ("request_duration", "s", OTHER, "request_duration_seconds"),
        ("active_connections", "", OTHER, "active_connections"),
        ("uptime", "d", GAUGE, "uptime_days"),
        # its documentation
        ("http.server.duration", "s", OTHER, "http_server_duration_seconds"),
        ("requests.count", "1", COUNTER, "requests_count_total"),
        ("123metric", "", GAUGE, "_123metric"),
        ("vllm:num_requests_waiting", "", GAUGE, "vllm:num_requests_waiting"),
    ],
)
def test_a_metric_has_the_name_that_prometheus_gives_it(name, unit, kind, expected) -> None:
    assert metric_name(name, unit, kind) == expected


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("http.method", "http_method"),
        ("123invalid", "key_123invalid"),
        ("_x", "key_x"),
        ("__reserved__", "__reserved__"),
        ("k8s.pod.name", "k8s_pod_name"),
        ("...", ""),
        ("", ""),
    ],
)
def test_an_attribute_has_the_label_that_prometheus_gives_it(attribute, expected) -> None:
    assert label_name(attribute) == expected


@given(st.text(max_size=30), st.text(max_size=15), st.sampled_from(MetricKind))
def test_whatever_comes_is_a_name_or_none(name, unit, kind) -> None:
    found = metric_name(name, unit, kind)
    assert not found or re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", found)
    label = label_name(name)
    assert not label or re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label)
