"""Kinds and versions that are no longer served, objects without a version, and numbers.

What is removed, and since when, is in the migration guides that `ops.lint.removed` names.
"""

import pytest

from gpuscale.ops.lint import lint

PROVISIONER = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: gpu}
spec: {providerRef: {name: gpu}, limits: {resources: {cpu: 64}}}
"""
NODE_TEMPLATE = """\
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: gpu}
spec: {amiFamily: AL2}
"""
OLD_KEDA = """\
apiVersion: keda.k8s.io/v1alpha1
kind: ScaledObject
metadata: {name: w}
spec:
  scaleTargetRef: {deploymentName: w}
  triggers: [{type: prometheus, metadata: {query: up, threshold: "1"}}]
"""
BUDGET = """\
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata: {name: b}
spec: {minAvailable: 1, selector: {matchLabels: {app: b}}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  parallelism: 2.0
  template:
    spec:
      containers:
      - {name: c, image: i, resources: {requests: {cpu: 16, memory: 1e9}, limits: {nvidia.com/gpu: 1.0}}}
"""


@pytest.mark.parametrize(
    ("text", "since", "instead"),
    [
        (PROVISIONER, "Karpenter 0.33 ", "a NodePool of karpenter.sh/v1"),
        (NODE_TEMPLATE, "Karpenter 0.33 ", "an EC2NodeClass of karpenter.k8s.aws/v1"),
        (OLD_KEDA, "KEDA 2.0 ", "keda.sh/v1alpha1"),
        (BUDGET, "Kubernetes 1.25 ", "policy/v1"),
    ],
)
def test_what_is_no_longer_served_is_one_error(text: str, since: str, instead: str) -> None:
    report = lint([("a.yaml", text)])
    (found,) = report.findings
    assert (found.check.id, str(found.where)) == ("removed-api-version", "a.yaml:1")
    assert found.what.startswith(since)
    assert found.fix.say.startswith(f"Write {instead}: ")
    assert report.passed_over == () or text == BUDGET


def test_an_object_without_a_version_is_refused() -> None:
    text = OLD_KEDA.replace("apiVersion: keda.k8s.io/v1alpha1\n", "piVersion: keda.sh/v1alpha1\n")
    (found,) = lint([("a.yaml", text)]).findings
    assert (found.check.id, found.where.line) == ("refused-manifest", 1)
    assert found.fix.say == "Write apiVersion in place of piVersion."
    (found,) = lint([("a.yaml", text.partition("\n")[2])]).findings
    assert (found.check.id, found.where.field) == ("refused-manifest", "kind")


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ("cpu: 16", False),
        ("cpu: 0.5", False),
        ("memory: 1e9", False),
        ("memory: 8GiB", True),
        ("cpu: 16 cores", True),
        ("cpu: true", True),
        ('cpu: "${CPUS}"', False),
    ],
)
def test_numbers_are_taken_as_kubernetes_takes_them(given: str, is_refused: bool) -> None:
    found = lint([("job.yaml", JOB.replace("cpu: 16, memory: 1e9", given))]).findings
    assert [each.check.id for each in found] == ["refused-manifest"] * is_refused


def test_whole_numbers_may_be_written_with_a_point() -> None:
    pool = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  limits: {nvidia.com/gpu: 8.0, cpu: 1e3}
  weight: 10.0
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements: []
"""
    assert all(each.check.severity.value == "note" for each in lint([("p.yaml", pool)]).findings)
