"""Answers as JSON, and as JSON-shaped data."""

import json

import pytest

from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.server.metricsapi.wire.bodies import (
    custom_list,
    external_list,
    selector_body,
    timestamp,
)
from gpuscale.server.metricsapi.wire.paths import CustomTarget
from gpuscale.server.rules.resources import KUBERNETES

# 2026-01-02T03:04:05Z is 20455 days and 11045 seconds after the epoch.
TIME_MS = (20_455 * 86_400 + 11_045) * 1000
TARGET = CustomTarget("pods", "prod", "*", "http_requests")
PODS = KUBERNETES.find("pods")
VALUE = MetricValue("web-0", 23_500, TIME_MS + 999)


def test_times_are_whole_seconds() -> None:
    assert timestamp(TIME_MS + 999) == "2026-01-02T03:04:05Z"


def test_custom_v1beta1_is_upstreams_text() -> None:
    body = custom_list("custom.metrics.k8s.io/v1beta1", TARGET, PODS, [VALUE], Selector())
    assert body == (
        '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta1","metadata":{},'
        '"items":[{"describedObject":{"kind":"Pod","namespace":"prod","name":"web-0",'
        '"apiVersion":"/v1"},"metricName":"http_requests","timestamp":"2026-01-02T03:04:05Z",'
        '"value":"23500m","selector":null}]}'
    )


def test_custom_v1beta2_is_upstreams_text() -> None:
    body = custom_list(
        "custom.metrics.k8s.io/v1beta2", TARGET, PODS, [VALUE], parse_selector("a=b")
    )
    assert body == (
        '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta2","metadata":{},'
        '"items":[{"describedObject":{"kind":"Pod","namespace":"prod","name":"web-0",'
        '"apiVersion":"/v1"},"metric":{"name":"http_requests","selector":{"matchLabels":{"a":"b"}}},'
        '"timestamp":"2026-01-02T03:04:05Z","value":"23500m"}]}'
    )


def test_a_root_scoped_object_has_no_namespace() -> None:
    target = CustomTarget("nodes", None, "n1", "m")
    body = custom_list(
        "custom.metrics.k8s.io/v1beta1",
        target,
        KUBERNETES.find("nodes"),
        [MetricValue("n1", 1000, 0)],
        Selector(),
    )
    assert json.loads(body)["items"] == [
        {
            "describedObject": {"kind": "Node", "name": "n1", "apiVersion": "/v1"},
            "metricName": "m",
            "timestamp": "1970-01-01T00:00:00Z",
            "value": "1",
            "selector": None,
        }
    ]


def test_external_v1beta1_is_upstreams_text() -> None:
    values = [ExternalValue({"queue": "a"}, 42_000, TIME_MS), ExternalValue(None, -500, TIME_MS)]
    assert external_list("external.metrics.k8s.io/v1beta1", "queue_depth", values) == (
        '{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1",'
        '"metadata":{},"items":[{"metricName":"queue_depth","metricLabels":{"queue":"a"},'
        '"timestamp":"2026-01-02T03:04:05Z","value":"42"},{"metricName":"queue_depth",'
        '"metricLabels":null,"timestamp":"2026-01-02T03:04:05Z","value":"-500m"}]}'
    )


def test_names_that_need_it_are_escaped() -> None:
    odd = 'a"\\\n\u00e9\ud800'
    target = CustomTarget("pods", odd, "*", odd)
    (item,) = json.loads(
        custom_list(
            "custom.metrics.k8s.io/v1beta1", target, PODS, [MetricValue(odd, 0, 0)], Selector()
        )
    )["items"]
    assert (item["describedObject"]["name"], item["describedObject"]["namespace"]) == (odd, odd)
    assert (item["metricName"], item["value"]) == (odd, "0")
    (item,) = json.loads(
        external_list("external.metrics.k8s.io/v1beta1", odd, [ExternalValue({odd: odd}, 0, 0)])
    )["items"]
    assert (item["metricName"], item["metricLabels"]) == (odd, {odd: odd})


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("", None),
        ("a=b", {"matchLabels": {"a": "b"}}),
        (
            "a in (x,y)",
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]},
        ),
        ("a!=b", {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}),
        (
            "a=b,!c,d",
            {
                "matchLabels": {"a": "b"},
                "matchExpressions": [
                    {"key": "c", "operator": "DoesNotExist"},
                    {"key": "d", "operator": "Exists"},
                ],
            },
        ),
    ],
)
def test_selectors_are_shown_as_label_selectors(text: str, body) -> None:
    assert selector_body(parse_selector(text)) == body
