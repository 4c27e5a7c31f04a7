"""Lint's and doctor's findings as JUnit XML, which CI servers show as failed tests.

Source: the XML schema of Ant's JUnit task (windyroad/JUnit-Schema), the strictest of those in use.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from gpuscale.base.findings import ChainReport, Severity, Unseen
from gpuscale.base.words import printable
from gpuscale.ops.lint.findings import LintFinding, LintReport, Place


def junit_text(report: LintReport, files: Sequence[str], least: Severity, now_ms: int) -> str:
    """Return lint's report as JUnit XML: a suite for each file, with a failed test for each finding.

    What is not as bad as `least` is output of its suite.

    Args:
        report: what was found.
        files: names of those that were looked at.
        least: what fails.
        now_ms: the time of the run.
    """
    return _suites("gpuscale.lint", report.findings, files, (), least, now_ms)


def chain_junit_text(report: ChainReport, least: Severity, now_ms: int) -> str:
    """Return doctor's report as JUnit XML: a suite for each hop, with what was not looked at as skipped.

    Args:
        report: what was found.
        least: what fails.
        now_ms: the time of the run.
    """
    findings = [
        each.check.found(
            Place(each.check.hop, None, each.where), each.what, each.evidence, each.fix
        )
        for finding in report.findings
        for each in finding.whole()
    ]
    return _suites("gpuscale.doctor", findings, report.hops, report.unseen, least, now_ms)


def _suites(
    package: str,
    findings: Sequence[LintFinding],
    suites: Sequence[str],
    unseen: Sequence[Unseen],
    least: Severity,
    now_ms: int,
) -> str:
    of_file: dict[str, list[LintFinding]] = {each: [] for each in suites}
    for finding in findings:
        of_file.setdefault(finding.where.file, []).append(finding)
    started = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    root = ET.Element("testsuites")
    for file, found in of_file.items():
        failed = [each for each in found if each.check.severity.is_at_least(least)]
        skipped = [each for each in unseen if each.hop == file]
        suite = ET.SubElement(
            root,
            "testsuite",
            id=str(len(root)),
            name=printable(file),
            package=package,
            timestamp=started,
            hostname="localhost",
            tests=str(len(failed) + len(skipped) or 1),
            failures=str(len(failed)),
            errors="0",
            time="0",
        )
        ET.SubElement(suite, "properties")
        if not failed and not skipped:
            ET.SubElement(
                suite, "testcase", name="nothing to do", classname=printable(file), time="0"
            )
        for finding in failed:
            name = f"{finding.check.id} {finding.where.field or ''}".strip()
            case = ET.SubElement(
                suite, "testcase", name=printable(name), classname=printable(file), time="0"
            )
            failure = ET.SubElement(
                case, "failure", type=finding.check.severity.value, message=printable(finding.what)
            )
            failure.text = _text(finding)
        for each in skipped:
            about = printable(each.about)
            case = ET.SubElement(suite, "testcase", name=about, classname=printable(file), time="0")
            ET.SubElement(case, "skipped").text = "\n".join(
                map(printable, (each.why, each.fix.say))
            )
        others = [_text(each) for each in found if each not in failed]
        ET.SubElement(suite, "system-out").text = "\n".join(others)
        ET.SubElement(suite, "system-err")
    ET.indent(root)
    # In ASCII, so that it is the same whatever the locale of who prints it.
    text: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return text.decode()


def _text(finding: LintFinding) -> str:
    name = f"{finding.check.severity.value} [{finding.check.id}]"
    said = (
        f"{finding.where}: {name} {finding.where.field or ''}".rstrip(),
        finding.what,
        *finding.evidence.splitlines(),
        finding.fix.say,
    )
    return "\n".join(printable(each) for each in said if each)
