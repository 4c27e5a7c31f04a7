"""Lint's and doctor's findings, as text and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuscale.base.findings import ChainReport, Finding, Severity, Unseen, Where
from gpuscale.base.words import counted
from gpuscale.ops.lint.findings import LintFinding, LintReport, Place

_MOST_NAMED = 5


def _lines(finding: Finding[Where], head: str, evidence: Sequence[str]) -> Iterator[str]:
    yield f"{head} and {len(finding.same)} more" if finding.same else head
    yield f"  {finding.what}"
    yield from (f"  | {line}" for line in evidence)
    yield f"  -> {finding.fix.say}"
    if finding.fix.command:
        yield f"     {finding.fix.command}"
    if finding.same:
        named = ", ".join(str(each.where) for each in finding.same[:_MOST_NAMED])
        yield f"  the same: {named}{' ...' if len(finding.same) > _MOST_NAMED else ''}"


def _name(finding: Finding[Where]) -> str:
    return f"{finding.check.severity.value} [{finding.check.id}]"


def _by_severity(findings: Sequence[Finding[Where]]) -> dict[Severity, int]:
    counts = Counter(finding.check.severity for finding in findings)
    return {severity: counts[severity] for severity in Severity}


def _document(
    finding: Finding[Where], where: Mapping[str, object], fix: Mapping[str, object]
) -> dict[str, object]:
    check = finding.check
    return {
        "id": check.id,
        **({"hop": check.hop} if check.hop else {}),
        "severity": check.severity.value,
        **where,
        "what": finding.what,
        "evidence": finding.evidence,
        "fix": finding.fix.say,
        **fix,
    }


# Files


def lint_lines(
    report: LintReport, *, lists_all: bool = False, lists_unseen: bool = False
) -> Iterator[str]:
    """Return lint's report as lines of text.

    Args:
        report: what was found.
        lists_all: whether each note stands by itself, and each object is named that there is nothing to
            check in.
        lists_unseen: whether it is said what was not looked at for want of an object.
    """
    for finding in report.findings if lists_all else _folded_notes(report.findings):
        head = f"{finding.where}: {_name(finding)} {finding.where.field or ''}".rstrip()
        yield from _lines(finding, head, finding.evidence.splitlines())
    if report.findings:
        yield ""
    if lists_all:
        yield from (f"{each.place}: nothing to check: {each.kind}" for each in report.passed_over)
    if lists_unseen:
        yield from _unseen_lines(report.unseen)
    if report.passed_over:
        yield _passed_over(report)
    if not report.has_checked:
        yield "Nothing to check: no rules, autoscalers, pods with GPUs or pools of nodes."
    yield _lint_summary(report)


def _folded_notes(findings: Sequence[LintFinding]) -> Iterator[LintFinding]:
    """Yield findings, with the notes of each check under the first of them."""
    notes: dict[str, list[LintFinding]] = {}
    for each in findings:
        if each.check.severity is Severity.NOTE:
            notes.setdefault(each.check.id, []).append(each)
    for each in findings:
        first, *same = notes.get(each.check.id, (each,))
        if each.check.severity is not Severity.NOTE:
            yield each
        elif each is first:
            yield replace(each, same=tuple(same))


def _passed_over(report: LintReport) -> str:
    """Return the number of objects that no check applies to, by kind, most first."""
    kinds = Counter(each.kind.rpartition(" ")[2] for each in report.passed_over)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    has = "has" if len(report.passed_over) == 1 else "have"
    return f"{counted(len(report.passed_over), 'object')} {has} nothing to check: {listed}"


def _lint_summary(report: LintReport) -> str:
    counts = [counted(n, severity.value) for severity, n in _by_severity(report.findings).items()]
    others = (
        (report.scaled_objects, "ScaledObject"),
        (report.triggers, "trigger"),
        (report.values, "values file"),
        (report.scenarios, "scenario"),
        (report.node_objects, "node object"),
    )
    checked = [
        counted(report.rules, "rule"),
        counted(report.autoscalers, "HPA"),
        *(counted(count, noun) for count, noun in others if count),
    ]
    read = f"{', '.join(checked[:-1])} and {checked[-1]} in {counted(report.files, 'file')}"
    left_out = ((report.ignored, "ignored"), (report.in_baseline, "in the baseline"))
    out = "".join(f"; {count} {how}" for count, how in left_out if count)
    return f"{', '.join(counts)}; {read}{out}"


def lint_document(report: LintReport) -> dict[str, object]:
    """Return lint's report as JSON-shaped data."""
    return {
        "findings": [_document(each, _place(each.where), {}) for each in report.findings],
        "notLookedAt": [_unseen_document(each) for each in report.unseen],
        "passedOver": [{**_place(each.place), "kind": each.kind} for each in report.passed_over],
        "files": report.files,
        "rules": report.rules,
        "autoscalers": report.autoscalers,
        "scaledObjects": report.scaled_objects,
        "triggers": report.triggers,
        "values": report.values,
        "scenarios": report.scenarios,
        "nodeObjects": report.node_objects,
        "ignored": report.ignored,
        "inBaseline": report.in_baseline,
    }


def _place(place: Place) -> dict[str, object]:
    return {"file": place.file, "line": place.line, "field": place.field}


# A cluster


def chain_lines(report: ChainReport) -> Iterator[str]:
    """Return doctor's report as lines of text: the chain, with the findings at each hop."""
    for hop in report.hops:
        findings = [each for each in report.findings if each.check.hop == hop]
        unseen = [each for each in report.unseen if each.hop == hop]
        yield f"{hop}: {_hop_summary(findings, unseen)}"
        for finding in findings:
            yield from (f"  {line}" for line in _chain_finding(finding))
        yield from (f"  {line}" for line in _unseen_lines(unseen))
    yield ""
    seen = ", ".join(f"{what} {count}" for what, count in report.seen.items())
    blind = [hop for hop in report.hops if any(each.hop == hop for each in report.unseen)]
    passed = f"; not looked at, or not all of it: {', '.join(blind)}" if blind else ""
    yield f"{_chain_summary(report.findings)}; looked at {seen}{passed}"


def _unseen_lines(unseen: Sequence[Unseen]) -> Iterator[str]:
    for each in unseen[:_MOST_NAMED]:
        yield f"not looked at: {each.about}"
        yield f"  | {each.why}"
        yield f"  -> {each.fix.say}"
        if each.fix.command:
            yield f"     {each.fix.command}"
    if len(unseen) > _MOST_NAMED:
        yield f"not looked at: {len(unseen) - _MOST_NAMED} more"


def _unseen_document(unseen: Unseen) -> dict[str, object]:
    return {
        **({"hop": unseen.hop} if unseen.hop else {}),
        "about": unseen.about,
        "why": unseen.why,
        "fix": unseen.fix.say,
        "command": unseen.fix.command,
    }


def _chain_finding(finding: Finding[str]) -> Iterator[str]:
    evidence = [finding.evidence] if finding.evidence else []
    yield from _lines(finding, f"{_name(finding)} {finding.where}", evidence)
    if finding.consequences:
        count = sum(1 + len(each.same) for each in finding.consequences)
        named = ", ".join(
            f"{each.check.id} {each.where}{f' and {len(each.same)} more' if each.same else ''}"
            for each in finding.consequences[:_MOST_NAMED]
        )
        rest = " ..." if len(finding.consequences) > _MOST_NAMED else ""
        yield f"  also: {counted(count, 'consequence')}: {named}{rest}"


def _hop_summary(findings: Sequence[Finding[str]], unseen: Sequence[Unseen]) -> str:
    if findings or not unseen:
        return _chain_summary(findings)
    return "not looked at, or not all of it"


def _chain_summary(findings: Sequence[Finding[str]]) -> str:
    counts = _by_severity(findings)
    listed = [counted(count, severity.value) for severity, count in counts.items() if count]
    return ", ".join(listed) or "nothing wrong"


def chain_document(report: ChainReport) -> dict[str, object]:
    """Return doctor's report as JSON-shaped data."""
    return {
        "healthy": report.is_healthy,
        "findings": [_chain_finding_document(each) for each in report.findings],
        "notLookedAt": [_unseen_document(each) for each in report.unseen],
        "seen": dict(report.seen),
    }


def _chain_finding_document(finding: Finding[str]) -> dict[str, object]:
    fix = {"command": finding.fix.command, "safe": bool(finding.fix.changes)}
    return {
        **_document(finding, {"about": finding.where}, fix),
        "same": [_chain_finding_document(each) for each in finding.same],
        "consequences": [_chain_finding_document(each) for each in finding.consequences],
    }
