"""A report as text and as JSON."""

from collections import Counter
from collections.abc import Iterator

from gpuscale.lint.findings import Finding, Place, Report, Severity


def text_lines(report: Report, *, lists_all: bool = False) -> Iterator[str]:
    """Return the report for people, line by line.

    Args:
        report: what was found.
        lists_all: whether each object is named that there is nothing to check in.
    """
    for finding in report.findings:
        yield from _finding_lines(finding)
    if report.findings:
        yield ""
    if lists_all:
        yield from (f"{each.place}: nothing to check: {each.kind}" for each in report.passed_over)
    if report.passed_over:
        yield _passed_over(report)
    yield _summary(report)


def _passed_over(report: Report) -> str:
    """Return how many objects of which kinds have nothing to check, most first."""
    kinds = Counter(each.kind.rpartition(" ")[2] for each in report.passed_over)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    has = "has" if len(report.passed_over) == 1 else "have"
    return f"{_counted(len(report.passed_over), 'object')} {has} nothing to check: {listed}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    check = finding.check
    yield f"{finding.place}: {check.severity.value} [{check.id}] {finding.place.field or ''}".rstrip()
    yield f"  {finding.what}"
    if finding.evidence:
        yield from (f"  | {line}" for line in finding.evidence.splitlines())
    yield f"  -> {finding.fix}"


def _summary(report: Report) -> str:
    counts = [_counted(report.count(severity), severity.value) for severity in Severity]
    others = (
        (report.scaled_objects, "ScaledObject", "ScaledObjects"),
        (report.values, "values file", "values files"),
        (report.scenarios, "scenario", "scenarios"),
    )
    checked = [
        _counted(report.rules, "rule"),
        _counted(report.autoscalers, "HPA"),
        *(f"{count} {one if count == 1 else many}" for count, one, many in others if count),
    ]
    read = f"{', '.join(checked[:-1])} and {checked[-1]} in {_counted(report.files, 'file')}"
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
        "scaledObjects": report.scaled_objects,
        "values": report.values,
        "scenarios": report.scenarios,
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
