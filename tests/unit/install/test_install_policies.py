"""A policy in a values file: what serves it, and the HPA or ScaledObject that goes where it wants."""

from typing import Any

import pytest
from install_values import one, rendered, scale, values

from gpuscale.base.errors import ConfigError
from gpuscale.hpa.terms.versions import parse_version
from gpuscale.ops.install.linted import lint_values
from gpuscale.ops.install.values import Values, parse_values
from gpuscale.triggers.metadata import read_metadata, read_triggers
from gpuscale.triggers.policies.naming import policy_faults
from gpuscale.triggers.trigger import ServedPolicy

POLICY = {"name": "trend", "settings": {"headroom": 1.3}, "startTime": "3m"}
METRIC = {"query": "sum(in_flight)", "target": 24, "policy": POLICY}
USE = ServedPolicy("trend", (("headroom", 1.3),), 24.0, 180.0, 2, 40)
TEXT = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  metricsApi: {external: true}
  scale:
  - workload: {name: vision-api}
    minReplicas: 2
    maxReplicas: 40
    metrics:
    - query: sum(in_flight)
      target: 24
      policy:
        name: trend
        startTime: 3m
        settings: {headroom: 1.3}
"""


def with_policy(**changes: Any) -> Values:
    given = {**scale(minReplicas=2, maxReplicas=40, metrics=[METRIC], **changes)}
    del given["target"]
    is_served = given.get("autoscaler") != "keda"
    return values(metricsApi={"external": is_served}, scale=[given])


def test_the_metrics_api_serves_what_the_policy_wants() -> None:
    text = one(rendered(with_policy()), "ConfigMap", "metrics-api")["data"]["triggers.yaml"]
    (trigger,) = read_triggers(text, "triggers.yaml", policy_faults)
    assert (trigger.name, trigger.policy) == ("vision-api-wanted-replicas", USE)


def test_the_hpa_goes_exactly_there() -> None:
    spec = one(rendered(with_policy()), "HorizontalPodAutoscaler")["spec"]
    metric = {"name": "vision-api-wanted-replicas"}
    target = {"type": "AverageValue", "averageValue": "1"}
    assert spec["metrics"] == [
        {"type": "External", "external": {"metric": metric, "target": target}}
    ]
    assert spec["behavior"] == {
        "scaleUp": {"tolerance": "0"},
        "scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 0},
    }


def test_a_behavior_of_ones_own_stays() -> None:
    behavior = {"scaleUp": {"tolerance": "0.05"}}
    found = with_policy(behavior=behavior, scaleDownStabilizationSeconds=60)
    spec = one(rendered(found), "HorizontalPodAutoscaler")["spec"]
    assert spec["behavior"] == {
        "scaleUp": {"tolerance": "0.05"},
        "scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 60},
    }


def test_keda_asks_the_scaler_for_it() -> None:
    spec = one(rendered(with_policy(autoscaler="keda")), "ScaledObject")["spec"]
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("external", "AverageValue")
    own = {k: v for k, v in trigger["metadata"].items() if k != "scalerAddress"}
    assert read_metadata(own, "default", check=policy_faults).policy == USE


def test_lint_finds_nothing_wrong_with_it() -> None:
    report = lint_values(with_policy(), TEXT, "values.yaml", kubernetes=parse_version("1.36"))
    assert not [each for each in report.findings if each.check.id.startswith("policy-")]


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("trend", "tren"), 13, "found 'tren', expected one of static"),
        (("headroom: 1.3", "headroom: 9"), 15, "found 9, expected 1 to 3"),
        (("headroom: 1.3", "headrom: 1.3"), 15, "write headroom"),
        (("startTime: 3m", "startTime: soon"), 14, "a duration such as 90s"),
        (("minReplicas: 2", "minReplicas: 0"), 7, "found 0 with a policy"),
    ],
)
def test_what_is_wrong_is_named_at_its_line(change: tuple[str, str], line: int, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_values(TEXT.replace(*change), "values.yaml")
    (problem,) = error.value.problems
    assert problem.line == line
    assert said in str(problem)


def test_keda_that_asks_a_prometheus_itself_can_not_have_one_and_no_value_target() -> None:
    text = TEXT.replace("  scale:\n", "  keda: {trigger: prometheus}\n  scale:\n")
    text = text.replace("    minReplicas: 2", "    autoscaler: keda\n    minReplicas: 2")
    text = text.replace("  metricsApi: {external: true}\n", "")
    with pytest.raises(ConfigError, match=r"a policy with keda\.trigger prometheus"):
        parse_values(text, "values.yaml")
    text = text.replace("  keda: {trigger: prometheus}\n", "")
    with pytest.raises(ConfigError, match="found targetType Value with a policy"):
        parse_values(
            text.replace("target: 24", "target: 24\n      targetType: Value"), "values.yaml"
        )
