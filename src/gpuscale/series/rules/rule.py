"""What recording and alerting rules share, and recording rules.

Source: prometheus rules/recording.go (v3.0.0).
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuscale.base.errors import GpuscaleError, QueryError
from gpuscale.series.labels import EMPTY, METRIC_NAME, LabelKey, LabelSet, label_set
from gpuscale.series.promql.parse import Query
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.samples import Series
from gpuscale.series.values import Scalar, Value, Vector

Health = Literal["unknown", "ok", "err"]

Results = Mapping[LabelKey, tuple[LabelSet, float]]
"""The samples of one evaluation by the key of their labels."""


@dataclass(slots=True)
class RuleStatus:
    """The result of a rule's latest evaluation."""

    health: Health = "unknown"
    last_error: str = ""
    """Why it failed; empty where it did not."""
    evaluated_ms: int | None = None
    """When it was; None before the first."""
    evaluation_s: float = 0.0
    """How long it took; set by the evaluator."""
    evaluations: int = 0
    """So far."""
    failures: int = 0
    """Those of them that failed."""
    latest_failure: str = ""
    """Why the latest of these failed."""


@dataclass(slots=True, kw_only=True)
class Rule:
    """A rule with its latest status."""

    name: str
    """Of the series that it records, or of the alert."""
    query: Query
    shown_query: str
    """The query as Prometheus prints it."""
    labels: Mapping[str, str]
    """As written, those of the group included."""
    status: RuleStatus = field(default_factory=RuleStatus)
    written: dict[LabelKey, Series] = field(default_factory=dict)
    """The series that have a sample of the previous evaluation."""
    group: SeriesGroup | None = None
    """Of all series that the rule writes."""


@dataclass(frozen=True, slots=True)
class RuleQuestion:
    """A rule's query with its evaluation time in milliseconds since the epoch."""

    query: Query
    at_ms: int
    status: RuleStatus
    """Of the rule that asks."""


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """A rule whose evaluation failed."""

    group: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of evaluating groups once."""

    samples: int
    """Samples that the store took."""
    failures: tuple[RuleFailure, ...]


RuleRun = Generator[RuleQuestion, Value | GpuscaleError, RuleResult]
"""Asks one question after the other, and is sent each one's value, or the error it ended with."""


def samples_of(value: Value | GpuscaleError) -> list[tuple[LabelSet, float]]:
    """Return the samples in the result of a rule's query.

    Raises:
        GpuscaleError: the query failed, or gave neither a vector nor a scalar.
    """
    if isinstance(value, GpuscaleError):
        raise value
    if isinstance(value, Scalar):
        return [(EMPTY, value.value)]
    if isinstance(value, Vector):
        return [(label_set(sample.labels), sample.value) for sample in value.samples]
    raise QueryError("rule result is not a vector or scalar")


@dataclass(slots=True, kw_only=True)
class RecordingRule(Rule):
    """A rule that stores its query's result under its own name."""

    def results(self, value: Value | GpuscaleError, limit: int) -> Results:
        """Return the samples to store.

        Args:
            value: what the query gave, or the error it ended with.
            limit: how many series there may be; 0 for any number.

        Raises:
            GpuscaleError: the query failed, two series are the same, or there are too many.
        """
        over = {**self.labels, METRIC_NAME: self.name}
        named = [(labels.override(over), number) for labels, number in samples_of(value)]
        results = {labels.key: (labels, number) for labels, number in named}
        if len(results) != len(named):
            raise QueryError(
                "vector contains metrics with the same labelset after applying rule labels"
            )
        if limit and len(results) > limit:
            raise QueryError(f"exceeded limit of {limit} with {len(results)} series")
        return results
