"""Lint's findings as SARIF 2.1.0, which code hosts show beside the lines of a change.

Source: OASIS SARIF 2.1.0, and what code scanning on GitHub reads of it. Braces in messages stay as they are:
    the standard wants them doubled, for arguments that we don't use, and code hosts would show them so.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gpuscale import __version__
from gpuscale.base.findings import Check
from gpuscale.ops.lint.findings import LintFinding, LintReport

_HOME = "https://github.com/gpuscale/gpuscale"
_DOCS = f"{_HOME}/blob/main/docs/lint.md#checks"
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
    order = {id_: index for index, id_ in enumerate(checks)}
    driver = {
        "name": "gpuscale",
        "version": __version__,
        "informationUri": _HOME,
        "rules": [_rule(each) for each in checks.values()],
    }
    results = [_result(each, order[each.check.id], names) for each in report.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(check: Check) -> dict[str, object]:
    return {
        "id": check.id,
        "shortDescription": {"text": check.explanation},
        "fullDescription": {"text": check.explanation},
        "help": {"text": check.fix},
        "helpUri": _DOCS,
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
