"""What lint says of a values file's own rendering, at the line of the values file."""

from itertools import product

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.linted import lint_rendered
from gpuscale.ops.install.rendering import render
from gpuscale.ops.install.values import parse_values
from gpuscale.ops.lint.problems import problems_of_errors
from gpuscale.signals import GPU_SIGNALS

VALUES = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  metricsApi: {certificates: cert-manager}
  scale:
  - workload: {name: other, namespace: prod}
    target: 60
    maxReplicas: 4
  - workload: {name: bert, namespace: prod}
    signal: gpu-utilization
    target: 600
    maxReplicas: 4
"""
RULES = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  metricsApi:
    certificates: cert-manager
    rules: |
      rules:
      - seriesQuery: my_queue{namespace!="",pod!=""}
        resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
        metricsQuery: rate(<<.Series>>{<<.LabelMatchers>>}[5s])
  scale:
  - {workload: {name: bert}, target: 60, maxReplicas: 4}
"""


def report_of(text):
    return lint_rendered(render(parse_values(text, "v.yaml")), text, "v.yaml")


def places(report):
    return [(f.check.id, f.where.file, f.where.line, f.where.field) for f in report.findings]


@pytest.mark.parametrize(
    "version", ["autoscaling/v2", "autoscaling/v2beta2", "autoscaling/v2beta1"]
)
def test_a_target_out_of_reach_stands_at_its_line_of_the_values(version: str) -> None:
    text = VALUES.replace("maxReplicas: 4\n  -", f"maxReplicas: 4\n    hpaVersion: {version}\n  -")
    text = text[: text.rindex("maxReplicas")] + f"maxReplicas: 4\n    hpaVersion: {version}\n"
    found = [each for each in places(report_of(text)) if each[0] == "unreachable-target"]
    line = text.splitlines().index("    target: 600") + 1
    assert found == [("unreachable-target", "v.yaml", line, "spec.scale[1].target")]


def test_a_threshold_of_keda_out_of_reach_stands_at_its_line_too() -> None:
    text = VALUES.replace("signal: gpu-utilization", "autoscaler: keda")
    found = [each for each in places(report_of(text)) if each[0] == "unreachable-target"]
    assert found == [("unreachable-target", "v.yaml", 11, "spec.scale[1].target")]


def test_errors_are_problems_for_a_command_that_refuses() -> None:
    (problem,) = problems_of_errors(report_of(VALUES))
    # 100 / 1.1, the controller's tolerance of 10 %, is 90.909...
    assert str(ConfigError(problem)) == (
        "v.yaml:11: spec.scale[1].target: The metric never gets to the target of 600: "
        "it is at most 100; Choose a target below 90.9."
    )


def test_rules_of_the_values_are_told_at_their_own_line() -> None:
    found = places(report_of(RULES))
    at_query = ("v.yaml", 10, "spec.metricsApi.rules")
    assert [each[1:] for each in found if each[0] == "short-rate-window"] == [at_query]
    assert ("unknown-metric", "v.yaml", 12, "spec.scale[0].signal") in found


@pytest.mark.parametrize(
    ("signal", "kind", "honor", "autoscaler"),
    list(product(GPU_SIGNALS, ("own", "operator", "plain"), ("true", "false"), ("hpa", "keda"))),
)
def test_what_is_proposed_by_default_is_clean(signal, kind, honor, autoscaler) -> None:
    known = GPU_SIGNALS[signal]
    style = "both" if known.is_alibabas else "dcgm"
    prometheus = f"{{kind: {kind}, honorLabels: {honor}" + (
        "}" if kind == "own" else ", url: 'http://prometheus:9090'}"
    )
    text = f"""\
spec:
  agent: {{style: {style}, attribution: processes}}
  prometheus: {prometheus}
  metricsApi: {{certificates: cert-manager}}
  scale:
  - workload: {{name: bert}}
    signal: {signal}
    target: {known.target:g}
    maxReplicas: 4
    autoscaler: {autoscaler}
"""
    assert places(report_of(text)) == []


@pytest.mark.parametrize("source", ["prometheus", "streams"])
def test_an_object_metric_or_streams_are_clean_too(source: str) -> None:
    metric = "object" if source == "prometheus" else "pods"
    text = f"""\
spec:
  metricsApi: {{certificates: cert-manager, source: {source}}}
  scale:
  - {{workload: {{name: bert}}, metric: {metric}, target: 60, maxReplicas: 4}}
"""
    assert places(report_of(text)) == []
