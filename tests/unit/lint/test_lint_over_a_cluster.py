"""Live objects under files: what counts, what is said of whom, and what was not looked at."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from custom_resource_cases import ISVC
from scaled_cases import files, hpa, scaled, workload

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.findings import Severity
from gpuscale.ops.findings_text import lint_lines
from gpuscale.ops.lint.cluster import AbsentTarget, Cluster
from gpuscale.ops.lint.linting import lint

LISTED = frozenset({"Deployment", "StatefulSet"})


def live(*texts, **more):
    documents = (each for text in texts for each in load_documents(text, "live"))
    return Cluster([dict(each.data) for each in documents], **more)  # type: ignore[call-overload]


def found(given, cluster):
    report = lint(list(given.items()), cluster=cluster)
    return {each.check.id: each for each in report.findings if each.check.id != "no-rules"}


def test_a_live_object_is_named_and_has_a_command() -> None:
    (only,) = found({}, live(hpa(least=8), workload())).values()
    assert (only.check.id, str(only.where)) == ("min-is-max", "HorizontalPodAutoscaler web")
    patch = 'kubectl patch hpa -n default web --type=merge -p \'{"spec": {"maxReplicas": 9}}\''
    assert only.fix.command == patch


def test_a_file_is_edited_and_has_no_command() -> None:
    only = found(files(hpa(least=8)), None)["min-is-max"]
    assert (only.where.file, only.where.line, only.fix.command) == ("web.yaml", 7, "")


@pytest.mark.parametrize(("least", "ids"), [(8, ["min-is-max"]), (1, [])])
def test_a_file_stands_in_place_of_the_live_object_of_its_name(least, ids) -> None:
    cluster = live(hpa(least=9 - least), workload())
    there = found(files(hpa(least=least, most=8)), cluster)
    assert list(there) == ids
    assert all(each.where.file == "web.yaml" for each in there.values())


def test_replicas_of_a_live_workload_are_the_autoscalers_own() -> None:
    assert found({}, live(hpa(least=4), workload("replicas: 2"))) == {}
    assert "replicas-owned" in found(files(hpa(least=4), workload("replicas: 2")), None)


def test_a_file_and_the_live_object_that_it_needs() -> None:
    autoscaler = files(hpa(target="apps/v1 Deployment web"))
    there = found(autoscaler, live(workload(resources="ports: []")))
    assert there["no-gpu-request"].where.file == "web.yaml"
    # A metric with values is tied to GPUs, by whatever scheme.
    measured = frozenset({("default/web", "DCGM_FI_DEV_GPU_UTIL")})
    assert found(autoscaler, live(workload(resources="ports: []"), measured=measured)) == {}


def test_a_target_that_neither_has() -> None:
    elsewhere = workload().replace("{name: web}", "{name: web, namespace: prod}", 1)
    only = found(files(hpa()), live(elsewhere, complete=LISTED))["no-scale-target"]
    assert only.check.severity is Severity.ERROR
    assert only.what.endswith("There is one in namespace prod.")
    assert only.fix.say.startswith("Make the HPA in namespace prod")
    # A kind that was not listed may be there all the same.
    assert found(files(hpa()), live(elsewhere)) == {}


def test_what_the_api_server_says_of_a_target_is_the_evidence() -> None:
    absent = {"HPA default/web": AbsentTarget('deployments.apps "web" not found')}
    assert found({}, live(hpa(), absent=absent))["no-scale-target"].evidence == (
        'deployments.apps "web" not found'
    )


def test_kedas_pair_is_one_autoscaler_and_a_second_one_is_one_too_many() -> None:
    owner = ", ownerReferences: [{kind: ScaledObject, name: web, controller: true}]"
    own = hpa(name="keda-hpa-web").replace("keda-hpa-web}", f"keda-hpa-web{owner}}}")
    pair = (scaled(limits="minReplicaCount: 1"), workload())
    assert found({}, live(own, *pair)) == {}
    only = found({}, live(own, hpa(), *pair))["two-hpas"]
    # KEDA makes its own HPA again.
    assert only.fix.command == "kubectl delete hpa -n default web"


@pytest.mark.parametrize(
    ("given", "cluster", "names"),
    [
        (
            files(hpa()),
            None,
            ["HPA default/web: Deployment web, with its replicas, requests and labels"],
        ),
        (files(hpa(), workload()), None, []),
        (files(hpa()), live(workload()), []),
        # It can't be there: that is said of it.
        (files(hpa(target="apps/v1 CronJob web")), None, []),
    ],
)
def test_what_was_not_looked_at_says_what_would_show_it(given, cluster, names) -> None:
    report = lint(list(given.items()), cluster=cluster)
    assert [each.about for each in report.unseen] == names
    lines = [*lint_lines(report, lists_unseen=True)]
    assert [each for each in lines if each.startswith("not looked at")] == [
        f"not looked at: {each}" for each in names
    ]
    assert all("--live" in each.fix.say for each in report.unseen)


def test_what_an_operator_made_is_read_once() -> None:
    """The live HPA of a custom resource counts; a file of the resource stands in place of both."""
    hpa = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: phi-predictor}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: phi-predictor}
  minReplicas: 3
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}
"""
    objects = live(hpa, ISVC)
    alone = lint([], cluster=objects)
    assert [each.check.id for each in alone.findings] == ["min-is-max"]
    assert alone.autoscalers == 1
    laid = lint([("isvc.yaml", ISVC)], cluster=objects)
    assert (laid.findings, laid.autoscalers) == ((), 1)
