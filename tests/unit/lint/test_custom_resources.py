"""Custom resources: what is made of them is judged as others are, at its own place in the file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from custom_resource_cases import (
    CASES,
    FORMULAS,
    MODIFIERS,
    POD_AUTOSCALER,
    POOL,
    SCALE_CASES,
    with_formula,
)

from gpuscale.ops.lint.linting import lint

RULES = """\
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{}
  resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
NIM = """\
apiVersion: apps.nvidia.com/v1alpha1
kind: NIMService
metadata: {name: llama, namespace: nim}
spec:
  image: {repository: nvcr.io/nim/meta/llama, tag: 1.0.0}
  resources: {limits: {nvidia.com/gpu: 1}}
  scale:
    enabled: true
    hpa:
      minReplicas: 1
      maxReplicas: 4
      metrics:
      - type: Pods
        pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
"""
CLIQUE = """\
apiVersion: grove.io/v1alpha1
kind: PodClique
metadata: {name: decode}
spec:
  roleName: decode
  replicas: 1
  podSpec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
  autoScalingConfig:
    maxReplicas: 4
    metrics:
    - type: Pods
      pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
"""
SET = """\
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: llama}
spec:
  replicas: 1
  template:
    cliques:
    - name: router
      spec: {roleName: router, replicas: 1, podSpec: {containers: [{name: c, image: i}]}}
    - name: decode
      spec:
        roleName: decode
        replicas: 1
        podSpec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
        autoScalingConfig:
          maxReplicas: 4
          metrics:
          - type: Pods
            pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
    podCliqueScalingGroups:
    - name: workers
      cliqueNames: [router]
      scaleConfig:
        maxReplicas: 3
        metrics:
        - type: Pods
          pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
"""
UNKNOWN = ("gpu_util}", "gpu_utli}")
TOO_HIGH = ("averageValue: 70", "averageValue: 700")
IGNORED = ("type: AverageValue", "type: Utilization")
REFUSED = ("refused-manifest",)
NIM_METRIC = "spec.scale.hpa.metrics[0].pods"
CLIQUE_METRIC = "spec.autoScalingConfig.metrics[0].pods"
CLIQUE_OF_SET = "spec.template.cliques[1].spec.autoScalingConfig"
GROUP_OF_SET = "spec.template.podCliqueScalingGroups[0].scaleConfig"


def found(text):
    report = lint([("rules.yaml", RULES), ("object.yaml", text)])
    return report.autoscalers, {
        (each.check.id, each.where.line, each.where.field) for each in report.findings
    }


@pytest.mark.parametrize(("text", "count"), [(NIM, 1), (CLIQUE, 1), (SET, 2)])
def test_those_that_work_are_counted_and_give_nothing(text, count) -> None:
    assert found(text) == (count, set())


@pytest.mark.parametrize(
    ("text", "change", "expected"),
    [
        (NIM, UNKNOWN, ("unknown-metric", 14, f"{NIM_METRIC}.metric.name")),
        (NIM, TOO_HIGH, ("unreachable-target", 14, f"{NIM_METRIC}.target.averageValue")),
        (NIM, IGNORED, ("ignored-target-type", 14, f"{NIM_METRIC}.target.type")),
        (CLIQUE, UNKNOWN, ("unknown-metric", 12, f"{CLIQUE_METRIC}.metric.name")),
        (CLIQUE, TOO_HIGH, ("unreachable-target", 12, f"{CLIQUE_METRIC}.target.averageValue")),
        (CLIQUE, IGNORED, ("ignored-target-type", 12, f"{CLIQUE_METRIC}.target.type")),
        (NIM, ("maxReplicas: 4", "maxReplicas: 0"), (*REFUSED, 11, "spec.scale.hpa.maxReplicas")),
        (CLIQUE, ("s: 4", "s: 0"), (*REFUSED, 9, "spec.autoScalingConfig.maxReplicas")),
        (SET, UNKNOWN, ("unknown-metric", 19, f"{CLIQUE_OF_SET}.metrics[0].pods.metric.name")),
        (SET, UNKNOWN, ("unknown-metric", 27, f"{GROUP_OF_SET}.metrics[0].pods.metric.name")),
        (SET, ("s: 3", "s: 0"), (*REFUSED, 24, f"{GROUP_OF_SET}.maxReplicas")),
    ],
)
def test_a_fault_has_its_place_in_the_custom_resource(text, change, expected) -> None:
    _, findings = found(text.replace(*change))
    assert expected in findings


@pytest.mark.parametrize(
    "text",
    [
        NIM.replace("enabled: true", "enabled: false"),
        NIM.replace("    enabled: true\n", ""),
        NIM.replace("apps.nvidia.com", "apps.example.com"),
        CLIQUE.replace("grove.io", "other.io"),
    ],
    ids=["switched off", "without its switch", "of another group", "another PodClique"],
)
def test_without_an_hpa_nothing_is_said_of_one(text) -> None:
    assert found(text.replace(*UNKNOWN))[0] == 0


def test_the_hpa_that_the_operator_made_is_no_second_one() -> None:
    made = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llama, namespace: nim}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llama}
  maxReplicas: 4
  metrics:
  - type: Pods
    pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
"""
    assert found(f"{made}---\n{NIM}") == (1, set())


@pytest.mark.parametrize("text", [*dict.fromkeys(text for text, *_ in CASES)])
def test_a_custom_resource_that_works_gives_nothing(text) -> None:
    assert not judged(text)


@pytest.mark.parametrize(("text", "change", "finding", "field"), CASES)
def test_a_fault_in_a_custom_resource(text, change, finding, field) -> None:
    assert change[0] in text
    assert judged(text.replace(*change, 1)) == ({(finding, field)} if finding else set())


def judged(text):
    report = lint([("object.yaml", text), ("pool.yaml", POOL)])
    return {
        (f"{each.check.severity.value} {each.check.id}", each.where.field)
        for each in report.findings
        if each.check.id != "no-rules"
    }


@pytest.mark.parametrize(("text", "finding", "field"), SCALE_CASES)
def test_what_can_be_scaled(text, finding, field) -> None:
    assert judged(text) == ({(finding, field)} if finding else set())


@pytest.mark.parametrize(("formula", "unknown"), FORMULAS)
def test_a_formula_knows_the_names_of_triggers_alone(formula, unknown) -> None:
    text = with_formula(f'formula: "{formula}", target: "2"')
    found = [each.what for each in lint([("a.yaml", text)]).findings]
    assert [f"and {unknown} is none" in each for each in found] == ([True] if unknown else [])


@pytest.mark.parametrize(("modifiers", "key"), MODIFIERS)
def test_settings_of_a_formula(modifiers, key) -> None:
    place = f"spec.advanced.scalingModifiers.{key}"
    assert judged(with_formula(modifiers)) == (
        {("error refused-manifest", place)} if key else set()
    )


def test_a_patch_may_lack_what_the_object_has() -> None:
    text = POD_AUTOSCALER.replace("  scalingStrategy: APA\n", "")
    named = {
        name: [each.check.id for each in lint([(name, text)]).findings]
        for name in ("scaler.yaml", "deploy/patch_scaler.yaml")
    }
    assert named == {"scaler.yaml": ["refused-manifest"], "deploy/patch_scaler.yaml": []}
