"""In-flight credit in a values file: the triggers that have it, and what is refused at its line."""

from typing import Any

import pytest
from install_values import one, rendered, values

from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.values import Values, parse_values
from gpuscale.triggers.metadata import read_metadata, read_triggers
from gpuscale.triggers.trigger import Credit

LOAD, WAITING, DONE = "sum(running) + sum(waiting)", "sum(waiting)", "sum(rate(done[1m]))"
TEXT = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  metricsApi: {{external: true}}
  scale:
  - workload: {{name: llm}}
    maxReplicas: 40
    metrics:
    - query: {LOAD}
      target: 24
      credit:
        waiting: {WAITING}
        throughput: {DONE}
        startTime: 3m
        drain: 90s
"""


def with_credit(autoscaler: str = "hpa", **credit: Any) -> Values:
    given = {"waiting": WAITING, "throughput": DONE, **credit}
    metric = {"query": LOAD, "target": 24, "credit": given}
    scale = {
        "workload": {"name": "llm"},
        "maxReplicas": 40,
        "autoscaler": autoscaler,
        "metrics": [metric],
    }
    return values(metricsApi={"external": autoscaler == "hpa"}, scale=[scale])


def served(found: Values) -> Credit | None:
    text = one(rendered(found), "ConfigMap", "metrics-api")["data"]["triggers.yaml"]
    (trigger,) = read_triggers(text, "triggers.yaml")
    return trigger.credit


def test_the_metrics_api_counts_what_starts() -> None:
    assert served(parse_values(TEXT, "v")) == Credit(WAITING, DONE, 180.0, 90.0)


def test_the_start_is_learned_unless_it_is_given() -> None:
    assert served(with_credit()) == Credit(WAITING, DONE, None, 120.0)


def test_the_hpa_is_a_plain_one_on_the_served_load() -> None:
    (metric,) = one(rendered(with_credit()), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["external"]["metric"] == {"name": "llm-load"}
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "24"}


def test_keda_asks_the_scaler_for_it() -> None:
    spec = one(rendered(with_credit("keda", drain="30s")), "ScaledObject")["spec"]
    (trigger,) = spec["triggers"]
    own = {k: v for k, v in trigger["metadata"].items() if k != "scalerAddress"}
    assert read_metadata(own, "default").credit == Credit(WAITING, DONE, None, 30.0)


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        ((f"        throughput: {DONE}\n", ""), 11, "required"),
        ((DONE, "rate("), 13, "no PromQL"),
        (("3m", "500ms"), 14, "a duration of at least 1s"),
        (("target: 24", "target: 24\n      targetType: Value"), 9, "expected AverageValue"),
        (
            ("target: 24", "target: 24\n      policy: {name: trend, startTime: 3m}"),
            9,
            "one of them",
        ),
    ],
)
def test_what_can_not_work_is_refused_at_its_line(change, line: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        parse_values(TEXT.replace(*change), "v")
    assert caught.value.problems[0].line == line


def test_keda_can_not_ask_a_prometheus_for_it() -> None:
    text = TEXT.replace("external: true", "external: false").replace(
        "  scale:\n", "  keda: {trigger: prometheus}\n  scale:\n"
    )
    text = text.replace("    metrics:\n", "    autoscaler: keda\n    metrics:\n")
    with pytest.raises(ConfigError, match=r"credit with keda.trigger prometheus"):
        parse_values(text, "v")
