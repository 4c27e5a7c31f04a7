"""Recording rules: queries whose results become series of their own.

Source: prometheus rules (group.go, recording.go), model/rulefmt. Alerting rules in the same file are checked
for form and otherwise left alone.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpuscale.core.documents import Document, load_documents
from gpuscale.core.durations import parse_duration_ms
from gpuscale.core.errors import ConfigError, GpuscaleError, Problem, QueryError
from gpuscale.core.validation import validation_problems
from gpuscale.series.evaluate import instant
from gpuscale.series.labels import EMPTY, METRIC_NAME, LabelSet, label_set
from gpuscale.series.parse import Query, metric_names, parse_query
from gpuscale.series.samples import Series
from gpuscale.series.store import SeriesStore
from gpuscale.series.values import Scalar, Value, Vector

DEFAULT_INTERVAL_MS = 0
"""A group without an interval is due at every call: whoever calls keeps the global interval."""

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Duration = Annotated[int, BeforeValidator(parse_duration_ms)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RuleSpec(_Model):
    """One rule as written; exactly one of `record` and `alert` is set."""

    record: str | None = None
    alert: str | None = None
    expr: Annotated[str, BeforeValidator(str)]
    labels: dict[str, str] = Field(default_factory=dict)
    for_: Duration | None = Field(default=None, alias="for")
    keep_firing_for: Duration | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class GroupSpec(_Model):
    """Rules that are evaluated together, in their order."""

    name: str
    interval: Duration | None = None
    query_offset: Duration | None = None
    limit: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    rules: list[RuleSpec] = Field(default_factory=list)


class RuleFileSpec(_Model):
    """A Prometheus rule file."""

    groups: list[GroupSpec] = Field(default_factory=list)


@dataclass(slots=True)
class _Rule:
    record: str
    query: Query
    labels: Mapping[str, str]
    last: dict[str, Series] = field(default_factory=dict)
    """What the previous evaluation wrote."""


@dataclass(slots=True)
class _Group:
    name: str
    interval_ms: int
    offset_ms: int
    rules: tuple[_Rule, ...]
    last_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """A rule that could not be evaluated this time."""

    group: str
    record: str
    reason: str


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one evaluation of the due groups did."""

    samples: int
    """Samples that the store took."""
    failures: tuple[RuleFailure, ...]


@dataclass(frozen=True, slots=True)
class RuleQuestion:
    """A rule's query, and when it is to be evaluated in milliseconds since the epoch."""

    query: Query
    at_ms: int


RuleRun = Generator[RuleQuestion, Value | GpuscaleError, RuleResult]
"""Asks one question after the other, and is sent each one's value, or the error it ended with."""


class RecordingRules:
    """The recording rules of one file, and when each group ran last."""

    def __init__(self, groups: tuple[_Group, ...]) -> None:
        self._groups = groups

    def evaluate(self, store: SeriesStore, now_ms: int) -> RuleResult:
        """Run the groups whose interval has passed and append their results at `now_ms`.

        A series that a rule gave last time and does not give now is marked stale. A rule that fails leaves
        the others alone.
        """
        run = self.run(store, now_ms)
        try:
            question = next(run)
            while True:
                question = run.send(_answer(store, question))
        except StopIteration as ended:
            result: RuleResult = ended.value
            return result

    def run(self, store: SeriesStore, now_ms: int) -> RuleRun:
        """Do what `evaluate` does, with the queries left to the caller."""
        samples = 0
        failures: list[RuleFailure] = []
        for group in self._groups:
            if group.last_ms is None or now_ms - group.last_ms >= group.interval_ms:
                group.last_ms = now_ms
                samples += yield from _run(group, store, now_ms, failures)
        return RuleResult(samples, tuple(failures))

    def needed_metric_names(self) -> frozenset[str] | None:
        """Return the names of the metrics that the rules read; None where a rule leaves them open."""
        names: set[str] = set()
        for rule in self._rules():
            read = metric_names(rule.query)
            if read is None:
                return None
            names |= read
        return frozenset(names)

    def recorded_names(self) -> frozenset[str]:
        """Return the names of the metrics that the rules write."""
        return frozenset(rule.record for rule in self._rules())

    def _rules(self) -> tuple[_Rule, ...]:
        return tuple(rule for group in self._groups for rule in group.rules)


def load_recording_rules(text: str, source: str) -> RecordingRules:
    """Return the recording rules of a Prometheus rule file.

    Raises:
        ConfigError: not a rule file; names every fault with its line.
    """
    groups: list[_Group] = []
    problems: list[Problem] = []
    for document in load_documents(text, source):
        try:
            spec = RuleFileSpec.model_validate(document.data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            schema = RuleFileSpec.model_json_schema
            problems.extend(validation_problems(document, errors, schema))
            continue
        groups.extend(_groups(document, spec, problems))
    if problems:
        raise ConfigError(*problems)
    return RecordingRules(tuple(groups))


def _groups(document: Document, spec: RuleFileSpec, problems: list[Problem]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for index, each in enumerate(spec.groups):
        if each.name in groups:
            path = ("groups", index, "name")
            problems.append(document.problem(path, "each group name once", found=repr(each.name)))
        rules = [
            _rule(document, ("groups", index, "rules", position), rule, each.labels, problems)
            for position, rule in enumerate(each.rules)
        ]
        interval_ms = DEFAULT_INTERVAL_MS if each.interval is None else each.interval
        kept = tuple(rule for rule in rules if rule is not None)
        groups[each.name] = _Group(each.name, interval_ms, each.query_offset or 0, kept)
    return list(groups.values())


def _rule(
    document: Document,
    path: tuple[str | int, ...],
    spec: RuleSpec,
    group_labels: Mapping[str, str],
    problems: list[Problem],
) -> _Rule | None:
    """Return a recording rule; None for an alert, or once a fault is noted."""
    if (spec.record is None) == (spec.alert is None):
        problems.append(document.problem(path, "exactly one of record and alert"))
        return None
    query = _checked_query(document, path, spec.expr, problems)
    if spec.record is None or query is None:
        return None
    if not _METRIC_NAME.fullmatch(spec.record):
        expected = "a metric name, such as job:gpu_utilization:avg"
        problems.append(document.problem((*path, "record"), expected, found=repr(spec.record)))
        return None
    labels = {**group_labels, **spec.labels}
    problems.extend(
        document.problem((*path, "labels", name), "a label name")
        for name in labels
        if not _LABEL_NAME.fullmatch(name) or name == METRIC_NAME
    )
    return _Rule(spec.record, query, labels)


def _checked_query(
    document: Document, path: tuple[str | int, ...], text: str, problems: list[Problem]
) -> Query | None:
    try:
        return parse_query(text)
    except QueryError as error:
        problems.append(document.problem((*path, "expr"), "PromQL", found=f"{text!r}: {error}"))
        return None


def _answer(store: SeriesStore, question: RuleQuestion) -> Value | GpuscaleError:
    try:
        return instant(store, question.query, question.at_ms)
    except GpuscaleError as error:
        return error


def _run(
    group: _Group, store: SeriesStore, now_ms: int, failures: list[RuleFailure]
) -> Generator[RuleQuestion, Value | GpuscaleError, int]:
    samples = 0
    at_ms = now_ms - group.offset_ms
    for rule in group.rules:
        value = yield RuleQuestion(rule.query, at_ms)
        try:
            results = _results(rule, value)
        except GpuscaleError as error:
            failures.append(RuleFailure(group.name, rule.record, str(error)))
            results = {}
        samples += _write(rule, results, store, at_ms)
    return samples


def _results(rule: _Rule, value: Value | GpuscaleError) -> dict[str, tuple[LabelSet, float]]:
    if isinstance(value, GpuscaleError):
        raise value
    if isinstance(value, Scalar):
        pairs = [(EMPTY, value.value)]
    elif isinstance(value, Vector):
        pairs = [(label_set(sample.labels), sample.value) for sample in value.samples]
    else:
        raise QueryError("rule result is not a vector or scalar")
    over = {**rule.labels, METRIC_NAME: rule.record}
    named = [(labels.override(over), number) for labels, number in pairs]
    results = {labels.key: (labels, number) for labels, number in named}
    if len(results) != len(named):
        raise QueryError(
            "vector contains metrics with the same labelset after applying rule labels"
        )
    return results


def _write(
    rule: _Rule, results: Mapping[str, tuple[LabelSet, float]], store: SeriesStore, at_ms: int
) -> int:
    refs = {key: rule.last.get(key) or store.ref(labels) for key, (labels, _) in results.items()}
    for key, series in rule.last.items():
        if key not in refs:
            store.mark_stale(series, at_ms)
    rule.last = refs
    return store.append_many(
        tuple(refs.values()), [number for _, number in results.values()], at_ms
    )
