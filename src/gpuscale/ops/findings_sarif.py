"""Lint's and doctor's findings as SARIF 2.1.0, which code hosts show beside the lines of a change.

Source: OASIS SARIF 2.1.0, and what code scanning on GitHub reads of it. Braces in messages stay as they are:
    the standard wants them doubled, for arguments that we don't use, and code hosts would show them so.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gpuscale import __version__
from gpuscale.base.findings import ChainReport, Check
from gpuscale.ops.lint.findings import LintFinding, LintReport, Place

_HOME = "https://github.com/gpuscale/gpuscale"
_DOCS = f"{_HOME}/blob/main/docs"
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT = "%SRCROOT%"
"""What code hosts take for the root of the repository."""


def sarif_document(
    report: LintReport, checks: Mapping[str, Check], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return lint's report as a SARIF log.

    Args:
        report: what was found.
        checks: all that looked, by id.
        names: of the files, as seen from the root of their repository. What is no file, such as a rendered
            object, is not among them.
    """
    return _log(report.findings, checks, names, "lint.md#checks")


def chain_sarif_document(report: ChainReport, checks: Mapping[str, Check]) -> dict[str, Any]:
    """Return doctor's report as a SARIF log: an object of the cluster is a logical location.

    Args:
        report: what was found.
        checks: all that looked, by id.
    """
    findings = [
        each.check.found(Place(each.where, None, None), each.what, each.evidence, each.fix)
        for finding in report.findings
        for each in finding.whole()
    ]
    log = _log(findings, checks, {}, "doctor.md#what-it-looks-for")
    notes = [
        {"level": "note", "message": {"text": f"not looked at: {each.about}: {each.why}"}}
        for each in report.unseen
    ]
    log["runs"][0]["invocations"] = [
        {"executionSuccessful": True, "toolExecutionNotifications": notes}
    ]
    return log


def _log(
    findings: Sequence[LintFinding],
    checks: Mapping[str, Check],
    names: Mapping[str, str],
    page: str,
) -> dict[str, Any]:
    order = {id_: index for index, id_ in enumerate(checks)}
    driver = {
        "name": "gpuscale",
        "version": __version__,
        "informationUri": _HOME,
        "rules": [_rule(each, page) for each in checks.values()],
    }
    results = [_result(each, order[each.check.id], names) for each in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(check: Check, page: str) -> dict[str, object]:
    return {
        "id": check.id,
        "shortDescription": {"text": check.explanation},
        "fullDescription": {"text": check.explanation},
        "help": {"text": check.fix},
        "helpUri": f"{_DOCS}/{page}",
        "defaultConfiguration": {"level": check.severity.value},
    }


def _result(finding: LintFinding, index: int, names: Mapping[str, str]) -> dict[str, object]:
    where = finding.where
    said = (finding.what, finding.evidence, finding.fix.say)
    location: dict[str, object] = {}
    if where.file in names:
        artifact = {"uri": quote(names[where.file]), "uriBaseId": _ROOT}
        location["physicalLocation"] = {
            "artifactLocation": artifact,
            "region": {"startLine": where.line or 1},
        }
    named = where.field if where.file in names else f"{where.file} {where.field or ''}".rstrip()
    if named:
        location["logicalLocations"] = [{"fullyQualifiedName": named}]
    return {
        "ruleId": finding.check.id,
        "ruleIndex": index,
        "level": finding.check.severity.value,
        "message": {"text": "\n".join(filter(None, said))},
        "locations": [location],
    }
