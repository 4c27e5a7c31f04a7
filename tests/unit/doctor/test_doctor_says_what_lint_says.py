"""Faults that manifests show: lint on the files, lint over a cluster of these and the doctor say the same."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lint"))
from test_lint_checks import CASES

from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Severity
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.manifests import read_manifest
from gpuscale.ops.doctor.checks.as_written import written_findings
from gpuscale.ops.doctor.live_objects import READ, live_cluster
from gpuscale.ops.doctor.snapshot import HpaLook, Look, Snapshot
from gpuscale.ops.lint import lint
from gpuscale.ops.lint.checks import CHECKS

PLURALS = {
    kind: plural for plural, (_, kind) in READ.items() if plural not in ("nodes", "nodepools")
}
OTHERWISE = {
    *("no-scale-target", "no-rules"),  # the API server says whether a target is there
    *(
        "replicas-owned",
        "larger-than-any-node",
    ),  # by who owns a live field, and by the nodes there are
    *("removed-api-version", "refused-manifest", "unknown-field"),  # not in any cluster
    *("not-whole", "misspelled-metric"),
}


def bodies(files):
    documents = []
    for name, text in files.items():
        try:
            documents += [each.data for each in load_documents(text, name)]
        except ConfigError:
            return None
    return documents if all(isinstance(each, dict) for each in documents) else None


def ids(findings):
    found = {
        each.check.id
        for each in findings
        if each.check.hop or each.check.severity is not Severity.NOTE
    }
    return (found & CHECKS.keys()) - OTHERWISE


def is_of_objects(case):
    found = bodies(CASES[case][0])
    kinds = {str(each.get("kind")) for each in found or ()}
    files = lint(list(CASES[case][0].items())).findings
    return bool(kinds) and kinds <= PLURALS.keys() and case.partition("/")[0] in ids(files)


OF_OBJECTS = [case for case in CASES if is_of_objects(case)]


def snapshot(found):
    looks: dict[str, list[dict[str, Any]]] = {plural: [] for plural in READ}
    hpas = []
    for each in found:
        body = {**each, "metadata": {**each["metadata"], "namespace": "default"}}
        looks[PLURALS[body["kind"]]].append(body)
        if body["kind"] == "HorizontalPodAutoscaler":
            hpa = read_manifest(Document("live", 0, body, {}))
            assert isinstance(hpa, HorizontalPodAutoscaler)
            hpas.append(HpaLook(hpa, body))
    return Snapshot(1, (), {plural: Look(items) for plural, items in looks.items()}, hpas=hpas)


def test_there_are_faults_enough() -> None:
    assert len(OF_OBJECTS) >= 50


@pytest.mark.parametrize("case", OF_OBJECTS)
def test_all_three_say_the_same(case) -> None:
    files = CASES[case][0]
    seen = snapshot(bodies(files))
    expected = ids(lint(list(files.items())).findings)
    assert ids(lint((), cluster=live_cluster(seen)).findings) == expected
    assert ids(written_findings(seen)) == expected
