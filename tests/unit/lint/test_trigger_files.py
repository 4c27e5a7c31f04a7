"""Trigger files beside HPAs: read whole, and what they serve is served."""

from gpuscale.ops.lint.linting import lint

TRIGGERS = """
triggers:
- {namespace: team-a, metricName: vllm-load, workload: deployment/vllm, metric: q, target: 5}
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vllm, namespace: team-a}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vllm}
  maxReplicas: 4
  metrics:
  - type: External
    external:
      metric: {name: vllm-load}
      target: {type: AverageValue, averageValue: "5"}
"""


def test_what_a_trigger_file_serves_is_served():
    report = lint([("triggers.yaml", TRIGGERS), ("hpa.yaml", HPA)])
    assert (report.triggers, report.fails()) == (1, False)


def test_what_it_does_not_serve_is_not():
    other = TRIGGERS.replace("vllm-load", "other")
    report = lint([("triggers.yaml", other), ("rules.yaml", "rules: []"), ("hpa.yaml", HPA)])
    assert report.fails()


def test_faults_are_all_reported_with_their_lines():
    text = TRIGGERS.replace("target: 5", "targt: 5, hold: soon")
    found = lint([("triggers.yaml", text)]).findings
    assert {(each.check.id, each.where.line) for each in found} == {("broken-file", 3)}
    assert any("write target" in each.what + each.fix.say.lower() for each in found)
