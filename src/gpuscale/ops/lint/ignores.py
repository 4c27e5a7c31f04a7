"""Comments in files that leave findings out: `# gpuscale: ignore ID reason`.

One at the end of a line is about that line, one on a line of its own about the next line with content, and
one above a document about all of it.
"""

import re
from bisect import bisect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuscale.base.words import closest
from gpuscale.ops.lint.findings import LintFinding, LintReport, Place
from gpuscale.ops.lint.linting import in_order
from gpuscale.ops.lint.problems import IGNORE_WITHOUT_REASON, UNUSED_IGNORE

_WORDS = "gpuscale: ignore"
_COMMENT = re.compile(rf"(?:^|\s)#\s*{_WORDS}(?:\s+(?P<id>\S+))?(?:\s+(?P<reason>\S.*))?\s*$")
_NO_CONTENT = re.compile(r"\s*(#.*)?$|%")
_SEPARATOR = re.compile(r"(---|\.\.\.)(\s|$)")


@dataclass(frozen=True, slots=True)
class _Ignore:
    """A comment, and the lines whose findings it leaves out."""

    place: Place
    check_id: str
    reason: str
    first: int
    last: int

    def takes(self, finding: LintFinding) -> bool:
        return self.first <= (finding.where.line or 1) <= self.last


def without_ignored(
    report: LintReport, texts: Mapping[str, str], known: Collection[str]
) -> LintReport:
    """Return a report without what comments in the files leave out, and with what is wrong with these.

    Args:
        report: what was found in the files.
        texts: of the files, by name, in the order in which findings are wanted.
        known: ids of checks, for comments that misspell one.
    """
    ignores = [each for file, text in texts.items() for each in _ignores_in(file, text)]
    if not ignores:
        return report
    of_place: dict[tuple[str, str], list[_Ignore]] = {}
    for ignore in ignores:
        if ignore.reason:
            of_place.setdefault((ignore.place.file, ignore.check_id), []).append(ignore)
    kept: list[LintFinding] = []
    used: set[_Ignore] = set()
    for finding in report.findings:
        there = of_place.get((finding.where.file, finding.check.id), ())
        takers = [each for each in there if each.takes(finding)]
        used.update(takers)
        if not takers:
            kept.append(finding)
    faults = [_fault(each, known) for each in ignores if each not in used]
    return replace(
        report,
        findings=in_order((*kept, *faults), tuple(texts)),
        ignored=len(report.findings) - len(kept),
    )


def _fault(ignore: _Ignore, known: Collection[str]) -> LintFinding:
    if not ignore.reason:
        missing = "reason" if ignore.check_id else "id and reason"
        return IGNORE_WITHOUT_REASON.found(ignore.place, f"The comment gives no {missing}.")
    if ignore.check_id not in known:
        meant = closest(ignore.check_id, known)
        fix = f"Did you mean {meant}?" if meant else None
        return UNUSED_IGNORE.found(ignore.place, f"There is no check {ignore.check_id}.", "", fix)
    where = f"line {ignore.first}"
    if ignore.last != ignore.first:
        where = f"lines {ignore.first} to {ignore.last}"
    return UNUSED_IGNORE.found(
        ignore.place, f"With these files there is no finding {ignore.check_id} on {where}."
    )


def _ignores_in(file: str, text: str) -> Iterator[_Ignore]:
    if _WORDS not in text:
        return
    lines = text.split("\n")
    starts = [0, *(at + 1 for at, line in enumerate(lines) if _SEPARATOR.match(line))]
    documents = [range(*each) for each in pairwise([*starts, len(lines)])]
    for document, following in zip(documents, [*documents[1:], None], strict=True):
        content = [at for at in document if _has_content(lines[at])]
        for at in document:
            found = _COMMENT.search(lines[at])
            if found is None:
                continue
            if lines[at][: found.start()].strip():
                about = range(at, at + 1)
            elif not content or at > content[-1]:  # above the --- of the next document
                about = following or range(at, at + 1)
            elif at < content[0]:
                about = document
            else:
                line = content[bisect(content, at)]
                about = range(line, line + 1)
            place = Place(file, at + 1, None)
            yield _Ignore(
                place, found["id"] or "", found["reason"] or "", about.start + 1, about.stop
            )


def _has_content(line: str) -> bool:
    return not (_NO_CONTENT.match(line) or _SEPARATOR.match(line))
