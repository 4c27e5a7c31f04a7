"""Comments that leave findings out: which lines they are about, and what is wrong with some."""

import pytest

from gpuscale.ops.lint.checks import CHECKS
from gpuscale.ops.lint.ignores import without_ignored
from gpuscale.ops.lint.linting import lint

HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
  metrics:
  - type: Pods
    pods: {metric: {name: gpu_use}, target: {type: Utilization, averageValue: 70}}
"""
RULES = """\
- seriesQuery: gpu_util{}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
FAULTS = ["ignored-target-type", "unknown-metric"]
WHY = "# gpuscale: ignore unknown-metric a sidecar serves it"
METRIC = "    pods: {metric: {name: gpu_use}"


def linted(text):
    texts = {"hpa.yaml": text, "rules.yaml": RULES}
    return without_ignored(lint(list(texts.items())), texts, CHECKS)


def ids(text):
    return sorted(each.check.id for each in linted(text).findings)


def test_without_a_comment_there_are_two_findings_on_a_line() -> None:
    assert ids(HPA) == FAULTS
    assert linted(HPA).ignored == 0


@pytest.mark.parametrize(
    "text",
    [
        HPA.replace("averageValue: 70}}", f"averageValue: 70}}}} {WHY}"),
        HPA.replace(METRIC, f"{WHY}\n{METRIC}"),
        HPA.replace(METRIC, f"    {WHY}\n    # another comment\n\n{METRIC}"),
        f"{WHY}\n{HPA}",
        f"# The web service.\n{WHY}\n---\n{HPA}",
        f"---\n{WHY}\n{HPA}",
        f"{HPA.replace('gpu_use', 'gpu_util').replace('name: web}', 'name: w}', 1)}{WHY}\n---\n{HPA}",
    ],
    ids=[
        *("on the line", "above it", "above it and more", "above the document"),
        *("above its start", "below its start", "above the start of a second one"),
    ],
)
def test_where_a_comment_may_stand(text) -> None:
    found = [each for each in ids(text) if each != "two-hpas"]
    assert "unknown-metric" not in found
    assert "unused-ignore" not in found
    assert set(found) == {"ignored-target-type"}
    assert linted(text).ignored == 1


def test_a_comment_above_a_document_is_about_that_one_alone() -> None:
    second = HPA.replace("name: web}", "name: other}")
    assert ids(f"{WHY}\n{HPA}---\n{second}").count("unknown-metric") == 1
    assert ids(f"{HPA}---\n{WHY}\n{second}").count("unknown-metric") == 1


def test_a_comment_of_another_line_or_check_leaves_all_and_is_noted() -> None:
    report = linted(HPA.replace("  maxReplicas", f"  {WHY}\n  maxReplicas"))
    assert [each.check.id for each in report.findings if each.check.id not in FAULTS] == [
        "unused-ignore"
    ]
    (note,) = [each for each in report.findings if each.check.id == "unused-ignore"]
    assert str(note.where) == "hpa.yaml:6"
    assert note.what == "With these files there is no finding unknown-metric on line 7."
    assert report.ignored == 0


def test_an_id_that_is_none() -> None:
    text = HPA.replace(METRIC, f"# gpuscale: ignore unknown-metrics a sidecar serves it\n{METRIC}")
    (note,) = [each for each in linted(text).findings if each.check.id == "unused-ignore"]
    assert note.what == "There is no check unknown-metrics."
    assert note.fix.say == "Did you mean unknown-metric?"
    assert ids(text) == [*FAULTS, "unused-ignore"]


@pytest.mark.parametrize(
    ("comment", "what"),
    [
        ("# gpuscale: ignore unknown-metric", "The comment gives no reason."),
        ("# gpuscale: ignore", "The comment gives no id and reason."),
    ],
)
def test_a_comment_without_a_reason_ignores_nothing(comment, what) -> None:
    text = HPA.replace(METRIC, f"{comment}\n{METRIC}")
    assert ids(text) == sorted([*FAULTS, "ignore-without-reason"])
    (warning,) = [each for each in linted(text).findings if each.check.id not in FAULTS]
    assert (warning.what, warning.where.line) == (what, 9)


def test_two_findings_of_a_line_take_two_comments() -> None:
    both = f"{WHY}\n# gpuscale: ignore ignored-target-type our template writes it\n{METRIC}"
    report = linted(HPA.replace(METRIC, both))
    assert (report.findings, report.ignored) == ((), 2)


def test_what_only_looks_like_a_comment_ignores_nothing() -> None:
    text = HPA.replace("metadata: {name: web}", "metadata: {name: 'web#gpuscale: ignore a b'}")
    assert "unused-ignore" not in ids(text)
