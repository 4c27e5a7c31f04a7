"""A report as text and as JSON."""

from collections.abc import Iterator

from gpuscale.doctor.findings import HOPS, Finding, Report
from gpuscale.lint.findings import Severity


def text_lines(report: Report) -> Iterator[str]:
    """Return the report for people: the chain, and what is wrong at each part of it."""
    for hop in HOPS:
        findings = [each for each in report.findings if each.check.hop == hop]
        yield f"{hop}: {_summary(findings)}"
        for finding in findings:
            yield from _finding_lines(finding)
    yield ""
    seen = ", ".join(f"{what} {count}" for what, count in report.seen.items())
    yield f"{_summary(report.findings)}; looked at {seen}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {finding.check.severity.value} [{finding.check.id}] {finding.about}"
    yield f"    {finding.what}"
    if finding.evidence:
        yield f"    | {finding.evidence}"
    yield f"    -> {finding.fix.say}"
    if finding.fix.command:
        yield f"       {finding.fix.command}"


def _summary(findings: tuple[Finding, ...] | list[Finding]) -> str:
    counts = {
        severity: sum(each.check.severity is severity for each in findings) for severity in Severity
    }
    told = [
        f"{count} {severity.value}{'' if count == 1 else 's'}"
        for severity, count in counts.items()
        if count
    ]
    return ", ".join(told) or "nothing wrong"


def document(report: Report) -> dict[str, object]:
    """Return the report for programs."""
    return {
        "healthy": report.is_healthy,
        "findings": [_finding(each) for each in report.findings],
        "seen": dict(report.seen),
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.check.id,
        "hop": finding.check.hop,
        "severity": finding.check.severity.value,
        "about": finding.about,
        "what": finding.what,
        "evidence": finding.evidence,
        "fix": finding.fix.say,
        "command": finding.fix.command,
        "safe": bool(finding.fix.changes),
    }
