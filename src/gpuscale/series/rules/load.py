"""Loads Prometheus rule files, and reports all faults.

Source: prometheus model/rulefmt (rulefmt.go, v3.0.0).
"""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.documents.validation import validation_problems
from gpuscale.base.errors import ConfigError, Problem, QueryError
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.golang.template import TemplateError
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.promql.parse import Query, one_line, parse_query
from gpuscale.series.rules.alerting import AlertingRule
from gpuscale.series.rules.groups import AnyRule, RuleGroup, RuleGroups
from gpuscale.series.rules.rule import RecordingRule
from gpuscale.series.rules.templates import AlertTemplate

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Duration = Annotated[int, BeforeValidator(parse_duration_ms)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if _is_plain(value) else value)]
"""YAML's numbers and truth values are texts here, as in Go."""


def _is_plain(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RuleSpec(_Model):
    """A rule as written, with either `record` or `alert`."""

    record: str | None = None
    alert: str | None = None
    expr: Annotated[str, BeforeValidator(str)]
    labels: dict[str, Text] = Field(default_factory=dict)
    for_: Duration | None = Field(default=None, alias="for")
    keep_firing_for: Duration | None = None
    annotations: dict[str, Text] = Field(default_factory=dict)


class GroupSpec(_Model):
    """A group as written: rules evaluated in order."""

    name: str = Field(min_length=1)
    interval: Duration | None = None
    query_offset: Duration | None = None
    limit: int = Field(default=0, ge=0)
    labels: dict[str, Text] = Field(default_factory=dict)
    rules: list[RuleSpec] = Field(default_factory=list)


class RuleFileSpec(_Model):
    """A Prometheus rule file."""

    groups: list[GroupSpec] = Field(default_factory=list)


def load_rule_groups(text: str, source: str) -> RuleGroups:
    """Load a Prometheus rule file.

    Raises:
        ConfigError: not a rule file; names every fault with its line.
    """
    groups: list[RuleGroup] = []
    problems: list[Problem] = []
    for document in load_documents(text, source):
        try:
            spec = RuleFileSpec.model_validate(document.data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            schema = RuleFileSpec.model_json_schema
            problems.extend(validation_problems(document, errors, schema))
            continue
        reader = _Reader(document, problems)
        groups += (reader.group(index, each) for index, each in enumerate(spec.groups))
    names: set[str] = set()
    for group in groups:
        if group.name in names and not problems:
            expected = f"each group name once, found {group.name!r} in two documents"
            problems.append(Problem(source, None, None, None, expected))
        names.add(group.name)
    if problems:
        raise ConfigError(*problems)
    return RuleGroups(tuple(groups))


class _Reader:
    """Builds the rules of a document, and collects faults."""

    def __init__(self, document: Document, problems: list[Problem]) -> None:
        self._document = document
        self._problems = problems
        self._names: set[str] = set()

    def group(self, index: int, spec: GroupSpec) -> RuleGroup:
        path: Path = ("groups", index)
        if spec.name in self._names:
            self._fault((*path, "name"), "each group name once", repr(spec.name))
        self._names.add(spec.name)
        self._check_labels((*path, "labels"), spec.labels)
        if spec.interval == 0:
            self._fault((*path, "interval"), "more than zero", "0s")
        rules = [
            self._rule((*path, "rules", position), rule, spec.labels)
            for position, rule in enumerate(spec.rules)
        ]
        return RuleGroup(
            name=spec.name,
            file=self._document.source,
            interval_ms=spec.interval,
            offset_ms=spec.query_offset or 0,
            limit=spec.limit,
            rules=tuple(rule for rule in rules if rule is not None),
        )

    def _rule(self, path: Path, spec: RuleSpec, group_labels: Mapping[str, str]) -> AnyRule | None:
        """Return a rule; None after recording a fault."""
        if (spec.record is None) == (spec.alert is None):
            self._fault(path, "exactly one of record and alert")
            return None
        query = self._query(path, spec.expr)
        self._check_labels((*path, "labels"), spec.labels)
        if spec.record is not None:
            return self._recording(path, spec, spec.record, {**group_labels, **spec.labels}, query)
        return self._alerting(path, spec, spec.alert or "", {**group_labels, **spec.labels}, query)

    def _recording(
        self, path: Path, spec: RuleSpec, name: str, labels: Mapping[str, str], query: Query | None
    ) -> RecordingRule | None:
        for field, is_given in (
            ("for", spec.for_ is not None),
            ("keep_firing_for", spec.keep_firing_for is not None),
            ("annotations", bool(spec.annotations)),
        ):
            if is_given:
                self._fault((*path, field), "only of alerting rules")
        if not _METRIC_NAME.fullmatch(name):
            expected = "a metric name, such as job:gpu_utilization:avg"
            self._fault((*path, "record"), expected, repr(name))
        if query is None:
            return None
        return RecordingRule(name=name, query=query, shown_query=one_line(query), labels=labels)

    def _alerting(
        self, path: Path, spec: RuleSpec, name: str, labels: Mapping[str, str], query: Query | None
    ) -> AlertingRule | None:
        if not name:
            self._fault((*path, "alert"), "the alert's name")
        for each in spec.annotations:
            if not _LABEL_NAME.fullmatch(each):
                self._fault((*path, "annotations", each), "a name like that of a label")
        label_templates = self._templates((*path, "labels"), labels)
        annotation_templates = self._templates((*path, "annotations"), spec.annotations)
        if query is None:
            return None
        return AlertingRule(
            name=name,
            query=query,
            shown_query=one_line(query),
            labels=labels,
            hold_ms=spec.for_ or 0,
            keep_firing_ms=spec.keep_firing_for or 0,
            annotations=spec.annotations,
            label_templates=label_templates,
            annotation_templates=annotation_templates,
        )

    def _query(self, path: Path, text: str) -> Query | None:
        try:
            return parse_query(text)
        except QueryError as error:
            self._fault((*path, "expr"), "PromQL", f"{text!r}: {error}")
            return None

    def _templates(self, path: Path, texts: Mapping[str, str]) -> dict[str, AlertTemplate]:
        made: dict[str, AlertTemplate] = {}
        for name, text in texts.items():
            try:
                made[name] = AlertTemplate(text)
            except TemplateError as error:
                self._fault((*path, name), "a template", f"{text!r}: {error}")
        return made

    def _check_labels(self, path: Path, labels: Mapping[str, str]) -> None:
        for name in labels:
            if not _LABEL_NAME.fullmatch(name) or name == METRIC_NAME:
                self._fault((*path, name), "a label name")

    def _fault(self, path: Path, expected: str, found: str | None = None) -> None:
        self._problems.append(self._document.problem(path, expected, found=found))
