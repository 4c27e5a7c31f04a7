"""A baseline: findings of a day that don't count, so that new ones do.

A finding is known by its check, its file, its object and its path, in which items of lists have their name
in place of their number. So edits elsewhere leave it known. Several that can't be told apart are counted.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from gpuscale.base.documents.documents import (
    Document,
    dump_documents,
    load_documents,
    parts_of,
)
from gpuscale.base.documents.models import API_VERSION, Model, parse_file
from gpuscale.base.errors import ConfigError
from gpuscale.ops.lint.findings import LintFinding, LintReport
from gpuscale.ops.lint.inputs import object_name


class KnownFinding(Model):
    """What a finding is known by, and how many there are of it."""

    id: str
    file: str
    """As seen from the folder of the baseline."""
    object: str = ""
    path: str = ""
    count: int = Field(default=1, ge=1)


class LintBaseline(Model):
    """The file of `gpuscale lint --baseline`."""

    api_version: Literal["gpuscale.dev/v1alpha1"]
    kind: Literal["LintBaseline"]
    findings: tuple[KnownFinding, ...]


def baseline_text(report: LintReport, texts: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Return the baseline file with all findings of a report.

    Args:
        report: what was found.
        texts: of the files, by name.
        names: of the files in the baseline; one that is not there keeps its own.
    """
    counts = Counter(_known(report.findings, texts, names))
    listed = [
        {
            **each.model_dump(exclude={"count"}, exclude_defaults=True),
            **({"count": count} if count > 1 else {}),
        }
        for each, count in counts.items()
    ]
    return dump_documents([{"apiVersion": API_VERSION, "kind": "LintBaseline", "findings": listed}])


def without_known(
    report: LintReport,
    texts: Mapping[str, str],
    names: Mapping[str, str],
    baseline: str,
    source: str,
) -> LintReport:
    """Return a report without the findings of a baseline file.

    Args:
        report: what was found.
        texts: of the files, by name.
        names: of the files in the baseline; one that is not there keeps its own.
        baseline: the text of the baseline file.
        source: its name.

    Raises:
        ConfigError: it is no baseline.
    """
    listed = parse_file(LintBaseline, baseline, source)[0].findings
    left: Counter[KnownFinding] = Counter()
    for each in listed:
        left[each.model_copy(update={"count": 1})] += each.count
    kept = []
    for finding, known in zip(report.findings, _known(report.findings, texts, names), strict=True):
        if left[known] > 0:
            left[known] -= 1
        else:
            kept.append(finding)
    return replace(report, findings=tuple(kept), in_baseline=len(report.findings) - len(kept))


def _known(
    findings: Sequence[LintFinding], texts: Mapping[str, str], names: Mapping[str, str]
) -> list[KnownFinding]:
    """Return what each finding is known by."""
    of_file: dict[str, tuple[list[int], list[Document]]] = {}
    found = []
    for finding in findings:
        where = finding.where
        if where.file not in of_file:
            documents = _documents(texts.get(where.file, ""), where.file)
            of_file[where.file] = [each.line() or 0 for each in documents], documents
        starts, documents = of_file[where.file]
        at = bisect(starts, where.line or 0) - 1
        data = documents[max(at, 0)].data if documents else None
        found.append(
            KnownFinding(
                id=finding.check.id,
                file=names.get(where.file, where.file),
                object=object_name(data) if isinstance(data, dict) and "kind" in data else "",
                path=_stable(where.field or "", data),
            )
        )
    return found


def _documents(text: str, source: str) -> list[Document]:
    try:
        return list(load_documents(text, source))
    except ConfigError:  # a scenario's own part of a file may be no document by itself
        return []


def _stable(field: str, data: object) -> str:
    """Return a path with the names of items: `spec.containers[main].image`."""
    text = ""
    for part in parts_of(field):
        if isinstance(part, int):
            data = data[part] if isinstance(data, list) and part < len(data) else None
            text += f"[{_name(data)}]"
        else:
            data = data.get(part) if isinstance(data, dict) else None
            text += f".{part}" if text else part
    return text


def _name(item: object) -> str:
    match item:
        case {"name": str(name)} | {"name": {"as": str(name)}} | {"metadata": {"name": str(name)}}:
            return name
        case {"seriesQuery": str(name)} | {"key": str(name)}:
            return name
        case _:
            return ""
