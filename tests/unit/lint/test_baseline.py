"""A baseline knows findings wherever their lines went, and no others."""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.ops.lint.baseline import baseline_text, without_known
from gpuscale.ops.lint.linting import lint

UNKNOWN = "  - {type: Pods, pods: {metric: {name: NAME}, target: {type: AverageValue, averageValue: 7}}}\n"
HPA = f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  maxReplicas: 10
  metrics:
{UNKNOWN.replace("NAME", "first")}"""
OTHER = HPA.replace("name: web", "name: other")
RULES = """\
- seriesQuery: gpu_util{}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{}
  resources: {template: <<.Resource>>}
  metricsQuery: rate(<<.Series>>{<<.LabelMatchers>>}[5m])
"""
NAMES = {"hpa.yaml": "deploy/hpa.yaml"}


def linted(texts):
    return lint(list(texts.items()))


def left(before, after):
    """Return the ids that a baseline of some files leaves of others."""
    text = baseline_text(linted(before), before, NAMES)
    report = without_known(linted(after), after, NAMES, text, "b.yaml")
    assert report.in_baseline == len(linted(after).findings) - len(report.findings)
    return [each.check.id for each in report.findings]


FILES = {"hpa.yaml": HPA, "rules.yaml": RULES}


def test_what_it_lists() -> None:
    (document,) = load_documents(baseline_text(linted(FILES), FILES, NAMES), "b.yaml")
    assert document.data["kind"] == "LintBaseline"
    found = {each.pop("id"): each for each in document.data["findings"]}
    assert found["unknown-metric"] == {
        "file": "deploy/hpa.yaml",
        "object": "HorizontalPodAutoscaler web",
        "path": "spec.metrics[].pods.metric.name",
    }
    assert found["rate-of-gauge"] == {
        "file": "rules.yaml",
        "path": "[DCGM_FI_DEV_GPU_UTIL{}].metricsQuery",
    }


def test_nothing_is_left_of_what_it_was_made_of() -> None:
    assert linted(FILES).findings
    assert left(FILES, FILES) == []


@pytest.mark.parametrize(
    "after",
    [
        {**FILES, "hpa.yaml": f"# more\n\n{HPA}"},
        {**FILES, "hpa.yaml": HPA.replace("maxReplicas: 10", "maxReplicas: 20\n  minReplicas: 2")},
        {**FILES, "rules.yaml": RULES[RULES.index("- seriesQuery: DCGM") :]},
        {**FILES, "rules.yaml": f"{RULES.replace('gpu_util', 'other')}"},
    ],
    ids=["lines above", "other fields", "a rule less", "another rule"],
)
def test_edits_elsewhere_leave_them_known(after) -> None:
    assert left(FILES, after) == []


def test_what_is_new_is_left() -> None:
    more = HPA + UNKNOWN.replace("NAME", "second")
    assert left(FILES, {**FILES, "hpa.yaml": more}) == ["unknown-metric"]
    beside = OTHER.replace("other", "o", 1).replace("name: other", "name: another")
    assert left(FILES, {**FILES, "hpa.yaml": f"{HPA}---\n{beside}"}) == ["unknown-metric"]
    assert left(FILES, {**FILES, "more.yaml": beside}) == ["unknown-metric"]


def test_so_many_are_known_and_no_more() -> None:
    two = {**FILES, "hpa.yaml": HPA + UNKNOWN.replace("NAME", "second")}
    three = {**FILES, "hpa.yaml": two["hpa.yaml"] + UNKNOWN.replace("NAME", "third")}
    assert "count: 2" in baseline_text(linted(two), two, NAMES)
    assert left(two, three) == ["unknown-metric"]
    assert left(three, two) == []


def test_a_file_that_is_no_baseline() -> None:
    with pytest.raises(ConfigError) as caught:
        without_known(linted(FILES), FILES, NAMES, "kind: Other\nfindings: 1\n", "b.yaml")
    assert {each.source for each in caught.value.problems} == {"b.yaml"}
