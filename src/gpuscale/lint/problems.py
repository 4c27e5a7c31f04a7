"""Faults that reading told of as findings, and errors that are found as faults."""

from gpuscale.core.errors import Problem
from gpuscale.lint.findings import CHECKS, Finding, Place, Report, Severity


def refused(check: str, problem: Problem, who: str) -> Finding:
    """Return the finding about a file or object that is refused as a whole."""
    found = f"found {problem.found}, expected {problem.expected}"
    what = sentence(found if problem.found else problem.expected)
    fix = sentence(problem.fix) if problem.fix else f"Correct it; {who}."
    return Finding(CHECKS[check], place_of(problem), what, "", fix)


def place_of(problem: Problem) -> Place:
    """Return where a fault is."""
    return Place(problem.source, problem.line, problem.field)


def sentence(text: str) -> str:
    """Return a text with a capital at its begin and a stop at its end."""
    end = "" if text.endswith((".", "?")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def problems_of_errors(report: Report) -> tuple[Problem, ...]:
    """Return the errors of a report, for a command that refuses its input for them."""
    return tuple(
        Problem(
            each.place.file,
            each.place.line,
            each.place.field,
            None,
            each.what.rstrip("."),
            each.fix,
        )
        for each in report.findings
        if each.check.severity is Severity.ERROR
    )
