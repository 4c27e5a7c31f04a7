"""Lint's findings as JUnit XML, which CI servers show as failed tests.

Source: the XML schema of Ant's JUnit task (windyroad/JUnit-Schema), the strictest of those in use.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from gpuscale.base.findings import Severity
from gpuscale.base.words import printable
from gpuscale.ops.lint.findings import LintFinding, LintReport


def junit_text(report: LintReport, files: Sequence[str], least: Severity, now_ms: int) -> str:
    """Return lint's report as JUnit XML: a suite for each file, with a failed test for each finding.

    What is not as bad as `least` is output of its suite.

    Args:
        report: what was found.
        files: names of those that were looked at.
        least: what fails.
        now_ms: the time of the run.
    """
    of_file: dict[str, list[LintFinding]] = {each: [] for each in files}
    for finding in report.findings:
        of_file.setdefault(finding.where.file, []).append(finding)
    started = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    root = ET.Element("testsuites")
    for file, findings in of_file.items():
        failed = [each for each in findings if each.check.severity.is_at_least(least)]
        suite = ET.SubElement(
            root,
            "testsuite",
            id=str(len(root)),
            name=printable(file),
            package="gpuscale.lint",
            timestamp=started,
            hostname="localhost",
            tests=str(len(failed) or 1),
            failures=str(len(failed)),
            errors="0",
            time="0",
        )
        ET.SubElement(suite, "properties")
        if not failed:
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
        others = [_text(each) for each in findings if each not in failed]
        ET.SubElement(suite, "system-out").text = "\n".join(others)
        ET.SubElement(suite, "system-err")
    ET.indent(root)
    # In ASCII, so that it is the same whatever the locale of who prints it.
    text: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return text.decode()


def _text(finding: LintFinding) -> str:
    name = f"{finding.check.severity.value} [{finding.check.id}]"
    said = (
        f"{finding.where}: {name}",
        finding.what,
        *finding.evidence.splitlines(),
        finding.fix.say,
    )
    return "\n".join(printable(each) for each in said if each)
