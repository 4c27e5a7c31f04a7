"""Values as commands take them: read, and judged by lint."""

from typing import TYPE_CHECKING

from gpuscale.core.errors import ConfigError

if TYPE_CHECKING:
    from gpuscale.install.values import Values


def checked_values(text: str, source: str) -> "tuple[Values, list[str]]":
    """Return the values of a file's text, and what is worth knowing about them.

    Raises:
        ConfigError: it is wrong, or asks for what lint says can't work.
    """
    from gpuscale.core.findings import Severity
    from gpuscale.install.linted import lint_values
    from gpuscale.install.notes import notes
    from gpuscale.install.values import parse_values
    from gpuscale.lint.problems import problems_of_errors

    values = parse_values(text, source)
    report = lint_values(values, text, source)
    if errors := problems_of_errors(report):
        raise ConfigError(*errors)
    warnings = [
        f"{each.where}: warning: {each.what} {each.fix.say}"
        for each in report.findings
        if each.check.severity is Severity.WARNING
    ]
    return values, [*warnings, *notes(values)]
