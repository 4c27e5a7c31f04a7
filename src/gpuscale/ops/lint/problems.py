"""Parse errors as findings, and findings as errors."""

from collections.abc import Iterable, Iterator, Sequence

from gpuscale.base.documents.documents import Document, dotted
from gpuscale.base.errors import Problem
from gpuscale.base.findings import Check, Checks, Severity
from gpuscale.base.objects.fields import shown
from gpuscale.ops.lint.findings import LintFinding, LintReport, Place
from gpuscale.ops.lint.operators.refusals import Ignored, Refusal

FILE_CHECKS = Checks()
BROKEN_FILE = FILE_CHECKS.add(
    "broken-file",
    Severity.ERROR,
    "A file that can't be read, as it is no YAML or its triggers are wrong; the others are read.",
    "Correct it; what is in it was not held against the other files.",
)
REFUSED_RULES = FILE_CHECKS.add(
    "refused-rules",
    Severity.ERROR,
    "A rule file, of which no rule would be served.",
    "Correct it; prometheus-adapter and gpuscale refuse the file.",
)
REFUSED_MANIFEST = FILE_CHECKS.add(
    "refused-manifest",
    Severity.ERROR,
    "A manifest that the API server would refuse.",
    "Correct it; the API server refuses it.",
)
NOT_WHOLE = FILE_CHECKS.add(
    "not-whole",
    Severity.NOTE,
    "An object with placeholders such as `${NAME}`, or a patch: what is applied is made of it.",
    "Lint what is made of it, such as `kustomize build | gpuscale lint -`.",
)
UNKNOWN_FIELD = FILE_CHECKS.add(
    "unknown-field",
    Severity.ERROR,
    "A field of an HPA or NodePool that its API version does not have.",
    "Leave it out, or correct its name.",
)
IGNORED_FIELD = FILE_CHECKS.add(
    "ignored-field",
    Severity.WARNING,
    "A field of a custom resource that its operator does not read, beside what else is written.",
    "Leave it out, or write what the operator reads.",
)
REFUSED_VALUES = FILE_CHECKS.add(
    "refused-values",
    Severity.ERROR,
    "A values file that `gpuscale render` would refuse.",
    "Correct it; render refuses it.",
)
REFUSED_SCENARIO = FILE_CHECKS.add(
    "refused-scenario",
    Severity.ERROR,
    "A scenario that `gpuscale simulate` would refuse.",
    "Correct it; simulate refuses it.",
)
NOT_READ = FILE_CHECKS.add(
    "not-read",
    Severity.NOTE,
    "A part of a rule file that is passed over.",
    "Leave it out, if nothing else reads the file.",
)
CUSTOM_RESOURCE = FILE_CHECKS.add(
    "custom-resource",
    Severity.NOTE,
    "A resource that only a CustomResourceDefinition can give.",
    "See that its CustomResourceDefinition is installed first.",
)
EMPTY_GROUP = FILE_CHECKS.add(
    "empty-group",
    Severity.WARNING,
    "`as` names a group that `matches` has not, as in `$1_rate`.",
    "Put the number of the group into braces.",
)
NO_QUERY = FILE_CHECKS.add(
    "no-query",
    Severity.ERROR,
    "A rule without `metricsQuery`: listed, and never answered.",
    "Write one, such as avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>).",
)
QUERY_NOT_PROMQL = FILE_CHECKS.add(
    "query-not-promql",
    Severity.WARNING,
    "A query that does not look like PromQL once it is filled in.",
    "Correct the query, or the template around it.",
)
SECOND_LABEL = FILE_CHECKS.add(
    "second-label",
    Severity.WARNING,
    "Two labels for one resource; queries ask for the first.",
    "Leave one of the labels out, or write a rule for each.",
)
IGNORE_WITHOUT_REASON = FILE_CHECKS.add(
    "ignore-without-reason",
    Severity.WARNING,
    "A comment `gpuscale: ignore` without an id or a reason, which ignores nothing.",
    "Write # gpuscale: ignore ID reason.",
)
UNUSED_IGNORE = FILE_CHECKS.add(
    "unused-ignore",
    Severity.NOTE,
    "A comment `gpuscale: ignore` where there is no such finding.",
    "Take it out, or put it on the line of the finding, above that line, or above the document.",
)


def refused(check: Check, problem: Problem, who: str) -> LintFinding:
    """Return the finding about a file or object that can't be parsed."""
    found = f"found {problem.found}, expected {problem.expected}"
    what = sentence(found if problem.found else problem.expected)
    fix = sentence(problem.fix) if problem.fix else f"Correct it; {who}."
    return check.found(place_of(problem), what, "", fix)


def refused_object(document: Document, problems: Sequence[Problem]) -> Iterator[LintFinding]:
    """Yield the findings about an object that can't be parsed as it stands in its file."""
    given = {dotted(path) for path in document.lines}
    missing = [each.field for each in problems if each.field not in given]
    is_patch = bool(missing) and _is_patch(document)
    if is_patch:
        yield NOT_WHOLE.found(
            Place(document.source, document.line(), None),
            f"A patch: it has no {missing[0]}, which the object that it is for may have.",
        )
    for each in problems:
        if not is_patch or each.field in given:
            yield refused(REFUSED_MANIFEST, each, "the API server would refuse the object")


def _is_patch(document: Document) -> bool:
    """Return whether the name of the file, which alone can tell, calls it a patch."""
    return "patch" in document.source.rpartition("/")[2].lower()


def refused_by(who: str, refusals: Iterable[Refusal]) -> Iterator[LintFinding]:
    """Yield the findings about values of a custom resource that are refused."""
    for each in refusals:
        part = each.part
        found = "nothing" if part.data is None else shown(part.data)
        is_of_patch = part.data is None and _is_patch(part.document)
        if "${" not in found and not is_of_patch:
            yield REFUSED_MANIFEST.found(
                part.place(),
                f"Found {found}, expected {each.expected}.",
                "",
                f"Correct it; {who} refuses it.",
            )


def ignored_by(ignored: Iterable[Ignored]) -> Iterator[LintFinding]:
    """Yield the findings about values of a custom resource that nothing reads."""
    yield from (IGNORED_FIELD.found(each.part.place(), each.what, "", each.fix) for each in ignored)


def without_placeholders(finding: LintFinding) -> LintFinding:
    """Return a finding, or where it is an error about a placeholder a note instead."""
    if finding.check.severity is not Severity.ERROR or "${" not in finding.what:
        return finding
    what = "A placeholder, which something fills in before this is applied."
    return NOT_WHOLE.found(finding.where, what)


def place_of(problem: Problem) -> Place:
    """Return the place of a fault."""
    return Place(problem.source, problem.line, problem.field)


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter and a full stop."""
    end = "" if text.endswith((".", "?")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


_NEVER_MEANT = frozenset({"wrong-unit", "unreachable-target", "policy-target"})
"""Targets that Kubernetes takes, and that a command which writes the objects itself does not write."""


def problems_of_errors(report: LintReport) -> tuple[Problem, ...]:
    """Return errors and targets that nobody means, for a command that refuses its input for them."""
    return tuple(
        Problem(
            each.where.file,
            each.where.line,
            each.where.field,
            None,
            each.what.rstrip("."),
            each.fix.say,
        )
        for each in report.findings
        if each.check.severity is Severity.ERROR or each.check.id in _NEVER_MEANT
    )
