"""Values files as commands read them: with the Jobs that they name, and judged."""

from pathlib import Path

from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Severity
from gpuscale.base.text_files import read_text
from gpuscale.hpa.terms import KubernetesVersion
from gpuscale.ops.install import Values, lint_values, notes, parse_values
from gpuscale.ops.install.scale import read_job
from gpuscale.ops.lint import problems_of_errors, without_ignored
from gpuscale.ops.lint.checks import CHECKS


def with_job_files(values: Values, source: str) -> Values:
    """Return values with the Jobs that they name files of.

    Args:
        values: as they were read.
        source: the values file, beside which the others are; standard input has them in the current folder.

    Raises:
        ConfigError: a file can't be read, or has no Job.
    """
    if not any(each.job_file for each in values.spec.jobs):
        return values
    jobs = []
    for each in values.spec.jobs:
        if each.job_file is not None:
            path = str(Path(source).parent / each.job_file)
            change = {"job": read_job(read_text(path), path), "job_file": None}
            each = each.model_copy(update=change)
        jobs.append(each)
    spec = values.spec.model_copy(update={"jobs": tuple(jobs)})
    return values.model_copy(update={"spec": spec})


def checked_values(
    text: str, source: str, kubernetes: KubernetesVersion | None = None
) -> tuple[Values, list[str]]:
    """Return the values of a file's text, and what is worth knowing about them.

    Args:
        text: of the file.
        source: its name, for messages.
        kubernetes: release of the cluster that they are for; None where it is not known.

    Raises:
        ConfigError: it is wrong, or asks for what lint says can't work.
    """
    values = with_job_files(parse_values(text, source), source)
    report = lint_values(values, text, source, kubernetes=kubernetes)
    report = without_ignored(report, {source: text}, CHECKS)
    if errors := problems_of_errors(report):
        raise ConfigError(*errors)
    warnings = [
        f"{each.where}: warning: {each.what} {each.fix.say}"
        for each in report.findings
        if each.check.severity is Severity.WARNING
    ]
    return values, [*warnings, *notes(values, kubernetes)]
