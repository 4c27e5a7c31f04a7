"""SARIF and JUnit XML: the shapes that their schemas ask for, and what is in them.

Source: OASIS sarif-schema-2.1.0.json (properties, types); windyroad/JUnit-Schema JUnit.xsd.
"""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from gpuscale.base.findings import ChainReport, Fix, Severity, Unseen
from gpuscale.ops.findings_junit import chain_junit_text, junit_text
from gpuscale.ops.findings_sarif import chain_sarif_document, sarif_document
from gpuscale.ops.lint.checks import CHECKS
from gpuscale.ops.lint.linting import lint

HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 0
  maxReplicas: 10
  metrics:
  - type: Pods
    pods: {metric: {name: gpu_use}, target: {type: Utilization, averageValue: 70}}
  - type: External
    external: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
"""
RULES = """\
- seriesQuery: gpu_util{}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
NAME = "web & co/hpa ×.yaml"
REPORT = lint([(NAME, HPA), ("rules.yaml", RULES)])
BY_SEVERITY = {each: REPORT.count(each) for each in Severity}
AT_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
MESSAGE = {"text": str}
"""Of SARIF's types, the properties that we write; `text` is required of a message."""
LOCATION = {
    "physicalLocation": {
        "artifactLocation": {"uri": str, "uriBaseId": str},
        "region": {"startLine": int},
    },
    "logicalLocations": [{"fullyQualifiedName": str}],
}
RULE = {
    "id": str,
    "shortDescription": MESSAGE,
    "fullDescription": MESSAGE,
    "help": MESSAGE,
    "helpUri": str,
    "defaultConfiguration": {"level": str},
}
LOG = {
    "$schema": str,
    "version": str,
    "runs": [
        {
            "tool": {
                "driver": {"name": str, "version": str, "informationUri": str, "rules": [RULE]}
            },
            "columnKind": str,
            "results": [
                {
                    "ruleId": str,
                    "ruleIndex": int,
                    "level": str,
                    "message": MESSAGE,
                    "locations": [LOCATION],
                }
            ],
        }
    ],
}


def check_shape(found, wanted, optional=frozenset({"physicalLocation", "logicalLocations"})):
    if isinstance(wanted, type):
        assert type(found) is wanted, found
    elif isinstance(wanted, list):
        assert isinstance(found, list)
        for each in found:
            check_shape(each, wanted[0])
    else:
        assert wanted.keys() - optional <= found.keys() <= wanted.keys()
        for key, value in found.items():
            check_shape(value, wanted[key])


@pytest.fixture
def run():
    document = sarif_document(REPORT, CHECKS, {NAME: "deploy/" + NAME})
    check_shape(document, LOG)
    assert document["version"] == "2.1.0"
    (found,) = document["runs"]
    return found


def test_all_severities_are_in_these_files() -> None:
    assert all(BY_SEVERITY.values())


def test_every_result_names_its_rule_and_its_place(run) -> None:
    rules = run["tool"]["driver"]["rules"]
    assert [each["id"] for each in rules] == list(CHECKS)
    assert len(run["results"]) == len(REPORT.findings)
    for result, finding in zip(run["results"], REPORT.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.check.id
        assert result["level"] in {"error", "warning", "note"}
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        # RFC 3986: a path of a relative reference has no blank and no letter beyond ASCII.
        assert physical["artifactLocation"] == {
            "uri": "deploy/web%20%26%20co/hpa%20%C3%97.yaml",
            "uriBaseId": "%SRCROOT%",
        }
        assert physical["region"] == {"startLine": finding.where.line}
        (logical,) = location["logicalLocations"]
        assert logical["fullyQualifiedName"] == finding.where.field


def test_every_rule_says_what_to_do_and_where_to_read_on(run) -> None:
    for rule, check in zip(run["tool"]["driver"]["rules"], CHECKS.values(), strict=True):
        assert (rule["shortDescription"]["text"], rule["help"]["text"]) == (
            check.explanation,
            check.fix,
        )
        assert rule["helpUri"].endswith("/docs/lint.md#checks")
        assert rule["defaultConfiguration"]["level"] == check.severity.value


def test_what_is_no_file_has_no_physical_location() -> None:
    document = sarif_document(REPORT, CHECKS, {})
    check_shape(document, LOG)
    first, *_ = document["runs"][0]["results"]
    (location,) = first["locations"]
    assert location.keys() == {"logicalLocations"}
    assert location["logicalLocations"][0]["fullyQualifiedName"].startswith(f"{NAME} spec")


# JUnit

SUITE = {"id", "name", "package", "timestamp", "hostname", "tests", "failures", "errors", "time"}
"""All that the schema requires of a suite in `testsuites`; it allows `skipped` beside them."""


def suites(least, report=REPORT, files=(NAME, "rules.yaml")):
    text = junit_text(report, files, least, AT_MS)
    assert text.isascii()
    root = ET.fromstring(text)
    assert (root.tag, root.attrib) == ("testsuites", {})
    for index, suite in enumerate(root):
        assert (suite.tag, set(suite.attrib)) == ("testsuite", SUITE)
        assert suite.get("id") == str(index)
        assert suite.get("timestamp") == "2026-01-01T00:00:00"
        first, *cases, out, err = suite
        assert [first.tag, out.tag, err.tag] == ["properties", "system-out", "system-err"]
        assert {each.tag for each in cases} == {"testcase"}
        failed = [each for each in cases if len(each)]
        assert (suite.get("tests"), suite.get("failures")) == (str(len(cases)), str(len(failed)))
        for case in cases:
            assert set(case.attrib) == {"name", "classname", "time"}
        for case in failed:
            (failure,) = case
            assert (failure.tag, set(failure.attrib)) == ("failure", {"type", "message"})
    return list(root)


@pytest.mark.parametrize("least", Severity)
def test_what_fails_is_a_failed_test_and_the_rest_is_output(least) -> None:
    of_hpa, of_rules = suites(least)
    expected = sum(count for each, count in BY_SEVERITY.items() if each.is_at_least(least))
    assert (of_hpa.get("name"), of_hpa.get("failures")) == (NAME, str(expected))
    assert (of_rules.get("name"), of_rules.get("failures")) == ("rules.yaml", "0")
    quiet = re.findall(r"^.+: \w+ \[", of_hpa.findtext("system-out") or "", re.MULTILINE)
    assert len(quiet) == len(REPORT.findings) - expected


def test_a_failed_test_says_all() -> None:
    of_hpa, _ = suites(Severity.ERROR)
    case = next(each for each in of_hpa.iter("testcase") if "unknown-metric" in each.get("name"))
    assert case.get("name") == "unknown-metric spec.metrics[0].pods.metric.name"
    (failure,) = case
    assert failure.get("type") == "error"
    assert failure.text.splitlines() == [
        f"{NAME}:10: error [unknown-metric] spec.metrics[0].pods.metric.name",
        "No rule gives a custom metric 'gpu_use'.",
        "The rules name gpu_util (rules.yaml:1).",
        "Ask for gpu_util.",
    ]


def test_signs_that_xml_can_not_carry_are_written_out() -> None:
    file = "a\x1b.yaml"  # no version of XML 1.0 has this sign, not even as a reference
    (suite,) = suites(Severity.NOTE, lint([(file, HPA)]), (file,))
    assert suite.get("name") == "a\\x1b.yaml"


# A cluster

LIMIT, OWNED = CHECKS["min-is-max"], CHECKS["replicas-owned"]
CHAIN = ChainReport(
    (
        replace(
            LIMIT.found("hpa/a/web", "Nothing scales."),
            same=(LIMIT.found("hpa/b/web", "Nothing scales here."),),
            consequences=(OWNED.found("deployment/a/web", "Set back."),),
        ),
    ),
    hops=("access", "autoscaler", "capacity"),
    seen={"HPAs": 2},
    unseen=(Unseen("capacity", "nodes", "forbidden", Fix("Give the right.")),),
)


def test_findings_of_a_cluster_are_results_about_its_objects() -> None:
    (run,) = chain_sarif_document(CHAIN, CHECKS)["runs"]
    named = [
        (each["ruleId"], each["locations"][0]["logicalLocations"][0]["fullyQualifiedName"])
        for each in run["results"]
    ]
    assert named == [
        ("min-is-max", "hpa/a/web"),
        ("min-is-max", "hpa/b/web"),
        ("replicas-owned", "deployment/a/web"),
    ]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    (note,) = invocation["toolExecutionNotifications"]
    assert note["message"]["text"] == "not looked at: nodes: forbidden"


def test_each_hop_is_a_suite_and_what_was_not_seen_is_no_success() -> None:
    root = ET.fromstring(chain_junit_text(CHAIN, Severity.WARNING, AT_MS))
    access, autoscaler, capacity = root
    assert [each.get("name") for each in root] == ["access", "autoscaler", "capacity"]
    assert [each.get("name") for each in access.iter("testcase")] == ["nothing to do"]
    assert [each.get("name") for each in autoscaler.iter("testcase")] == [
        "min-is-max hpa/a/web",
        "min-is-max hpa/b/web",
        "replicas-owned deployment/a/web",
    ]
    assert (autoscaler.get("tests"), autoscaler.get("failures")) == ("3", "3")
    (case,) = capacity.iter("testcase")
    assert (case.get("name"), case[0].tag, case[0].text) == (
        "nodes",
        "skipped",
        "forbidden\nGive the right.",
    )
