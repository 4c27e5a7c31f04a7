"""A report as text and as JSON."""

from collections.abc import Iterator

from gpuscale.lint.findings import Finding, Place, Report, Severity


def text_lines(report: Report) -> Iterator[str]:
    """Return the report for people, line by line."""
    for finding in report.findings:
        yield from _finding_lines(finding)
    for passed in report.passed_over:
        yield f"{passed.place}: passed over: {passed.kind}"
    if report.findings or report.passed_over:
        yield ""
    yield _summary(report)


def _finding_lines(finding: Finding) -> Iterator[str]:
    check = finding.check
    yield f"{finding.place}: {check.severity.value} [{check.id}] {finding.place.field or ''}".rstrip()
    yield f"  {finding.what}"
    if finding.evidence:
        yield from (f"  | {line}" for line in finding.evidence.splitlines())
    yield f"  -> {finding.fix}"


def _summary(report: Report) -> str:
    counts = [_counted(report.count(severity), severity.value) for severity in Severity]
    read = (
        f"{_counted(report.rules, 'rule')} and {_counted(report.autoscalers, 'HPA')} in "
        f"{_counted(report.files, 'file')}"
    )
    return f"{', '.join(counts)}; {read}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def document(report: Report) -> dict[str, object]:
    """Return the report for programs."""
    return {
        "findings": [_finding(finding) for finding in report.findings],
        "passedOver": [{**_place(each.place), "kind": each.kind} for each in report.passed_over],
        "files": report.files,
        "rules": report.rules,
        "autoscalers": report.autoscalers,
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.check.id,
        "severity": finding.check.severity.value,
        **_place(finding.place),
        "what": finding.what,
        "evidence": finding.evidence,
        "fix": finding.fix,
    }


def _place(place: Place) -> dict[str, object]:
    return {"file": place.file, "line": place.line, "field": place.field}
